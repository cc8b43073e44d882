//! The task that looks for stalled workers, examines those that are silent, and ejects and takes back ranks.
//!
//! **Invariant:** a worker is examined by one task at a time, which ends with the suspicion.
//!
//! An ejected rank gets no client's request to try it. Instead it is asked for one token until it gives it, or its counters or
//! streams go on.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homing_discovery::{
    EjectionRoom, Examination, Generated, Ping, ProgressProbe, StallChange, StallSignal, StallState, State, StepMixing,
};
use homing_domain::{DpRank, Role, WorkerId};
use homing_profile::Time;
use homing_wire::Dialect;

use super::Loss;
use crate::gateway::Gateway;
use crate::worker::Worker;

/// How often ranks are looked at.
const TICK: Duration = Duration::from_millis(25);
/// The pause between two questions to a worker that is examined.
const EXAMINE: Duration = Duration::from_millis(150);
/// How long a health check of a silent worker may take.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(300);
/// How long its metrics page may take.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the request for one token waits. The engine answers as soon as it goes on.
const GENERATE_TIMEOUT: Duration = Duration::from_mins(1);
/// The pause after such a request failed.
const GENERATE_AGAIN: Duration = Duration::from_secs(1);
/// A rank whose worker refuses requests for one token is tried by clients after this.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Looks for stalled workers until it is dropped.
#[derive(Debug)]
pub(crate) struct StallMonitor {
    gateway: Arc<Gateway>,
    probe: ProgressProbe,
    examined: Examined,
}

/// Workers that a task examines.
#[derive(Clone, Debug, Default)]
struct Examined(Arc<Mutex<BTreeSet<WorkerId>>>);

/// Workers that can stand in for each other: those of one router with one role.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    all: usize,
    stalled: usize,
}

impl Examined {
    fn begin(&self, worker: WorkerId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(worker)
    }

    fn end(&self, worker: WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }
}

impl StallMonitor {
    pub(crate) fn new(gateway: Arc<Gateway>, probe: ProgressProbe) -> Self {
        Self {
            gateway,
            probe,
            examined: Examined::default(),
        }
    }

    pub(crate) async fn run(self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.gateway.config.load().health.stall.detection.is_on() {
                self.tick();
            }
        }
    }

    fn tick(&self) {
        let table = self.gateway.table.load_full();
        let threshold = self.gateway.config.load().health.stall.panic_threshold;
        let now = self.gateway.clock.now();
        let mut groups: HashMap<(usize, Role), Group> = HashMap::new();
        for worker in table.workers.values() {
            let group = groups.entry(group_of(worker)).or_default();
            group.all += 1;
            group.stalled += usize::from(looks_stalled(worker));
        }
        let (mut suspected, mut ejected, mut withheld) = (0, 0, 0);
        for worker in table.workers.values() {
            let group = groups.get(&group_of(worker)).copied().unwrap_or_default();
            let room = if group.stalled as f64 > threshold * group.all as f64 {
                EjectionRoom::Panic
            } else {
                EjectionRoom::Free
            };
            let ticked = worker.tick_progress(now, room);
            for (rank, change) in &ticked.changes {
                self.report(worker, *rank, *change);
            }
            if ticked
                .changes
                .iter()
                .any(|(_, change)| !matches!(change, StallChange::Withheld(_)))
            {
                worker.tell_router();
            }
            let is_withheld = |(_, change): &(DpRank, StallChange)| matches!(change, StallChange::Withheld(_));
            withheld += u64::from(ticked.changes.iter().any(is_withheld));
            match worker.progress.worst() {
                StallState::Progressing => {}
                StallState::Suspected { .. } => suspected += 1,
                StallState::Ejected { .. } => ejected += 1,
            }
            if ticked.examination > Examination::None && self.examined.begin(worker.id) {
                tokio::spawn(examine(
                    self.gateway.clone(),
                    self.probe.clone(),
                    worker.clone(),
                    self.examined.clone(),
                ));
            }
        }
        let metrics = &self.gateway.metrics.gateway;
        metrics.suspected_workers.set(suspected);
        metrics.stalled_workers.set(ejected);
        metrics.unejected_workers.set(withheld);
    }

    fn report(&self, worker: &Worker, rank: DpRank, change: StallChange) {
        let (name, rank_number) = (&worker.name, rank.0);
        match change {
            StallChange::Suspected => {
                tracing::debug!(worker = %name, rank = rank_number, "worker suspected of a stall");
            }
            StallChange::Ejected(signal) => {
                let why = signal.name();
                self.gateway.metrics.gateway.ejected_workers.add(1);
                tracing::warn!(worker = %name, rank = rank_number, why, "worker ejected because of a stall");
                worker
                    .progress
                    .set_ejected(rank, Some(worker.loss().unwrap_or(Loss::Stalled)));
                // The first request for one token is sent at once: it is answered as soon as the engine goes on.
                tokio::spawn(generate(self.gateway.clone(), self.probe.clone(), worker.id, rank));
            }
            StallChange::Withheld(signal) => {
                let why = signal.name();
                tracing::debug!(worker = %name, rank = rank_number, why, "ejection withheld, too many workers look stalled");
            }
            StallChange::Recovered { from } => {
                if let StallState::Ejected { since, .. } = from {
                    let out_ms = self.gateway.clock.now().since(since).0 as u64;
                    tracing::info!(worker = %name, rank = rank_number, out_ms, "worker recovered from a stall");
                }
                worker.progress.set_ejected(rank, worker.loss());
            }
        }
    }
}

fn group_of(worker: &Worker) -> (usize, Role) {
    (Arc::as_ptr(&worker.lane) as usize, worker.spec.role)
}

/// Whether a worker serves nothing now, or seems to.
fn looks_stalled(worker: &Worker) -> bool {
    worker.is_out() || worker.progress.worst() != StallState::Progressing
}

/// What a tick found of one worker.
#[derive(Debug)]
struct Ticked {
    changes: Vec<(DpRank, StallChange)>,
    examination: Examination,
}

impl Worker {
    fn tick_progress(&self, now: Time, room: EjectionRoom) -> Ticked {
        let progress = &self.progress;
        let mut ticked = Ticked {
            changes: Vec::new(),
            examination: Examination::None,
        };
        for (rank, number) in progress.ranks.iter().zip(0..) {
            let mut inner = rank.inner();
            let work = rank.work(&inner);
            inner.detector.record_progress(Time(rank.last_token.load(Relaxed)));
            if let Some(change) = inner.detector.tick(now, &work, room) {
                ticked.changes.push((DpRank(number), change));
            }
            ticked.examination = ticked.examination.max(inner.detector.examination(now, &work));
        }
        ticked
    }

    /// What should be asked of it now.
    fn examination(&self, now: Time) -> Examination {
        let progress = &self.progress;
        let of = progress.ranks.iter().map(|rank| {
            let inner = rank.inner();
            let work = rank.work(&inner);
            inner.detector.examination(now, &work)
        });
        of.max().unwrap_or(Examination::None)
    }

    /// Why requests should leave it, if it is down.
    fn loss(&self) -> Option<Loss> {
        match self.state() {
            State::Down { found_by, .. } => Some(Loss::Down(found_by)),
            State::Up | State::Suspect | State::HalfOpen { .. } => None,
        }
    }
}

/// Asks a silent worker until it makes progress or leaves.
async fn examine(gateway: Arc<Gateway>, probe: ProgressProbe, worker: Arc<Worker>, examined: Examined) {
    let id = worker.id;
    loop {
        let is_there = gateway
            .table
            .load()
            .workers
            .get(&id)
            .is_some_and(|known| Arc::ptr_eq(known, &worker));
        let examination = worker.examination(gateway.clock.now());
        if !is_there || examination == Examination::None {
            break;
        }
        let asked = gateway.clock.now();
        let answered = probe.health(&worker.spec.url, HEALTH_TIMEOUT).await;
        for rank in &worker.progress.ranks {
            match answered {
                Ping::Answered => rank.inner().detector.record_api_answer(),
                Ping::Failed | Ping::TimedOut => rank.inner().detector.record_api_silence(asked),
            }
        }
        if answered == Ping::Answered && examination == Examination::Counters {
            let asked = gateway.clock.now();
            for (rank, value) in probe.counters(&worker.spec.url, COUNTERS_TIMEOUT).await {
                if let Some(rank) = worker.progress.ranks.get(usize::from(rank.0)) {
                    rank.inner().detector.record_counters(asked, value);
                }
            }
        }
        tokio::time::sleep(EXAMINE).await;
    }
    examined.end(id);
}

/// Asks an ejected rank for one token until the rank is back or its worker left.
async fn generate(gateway: Arc<Gateway>, probe: ProgressProbe, id: WorkerId, rank: DpRank) {
    loop {
        let Some(worker) = gateway.table.load().workers.get(&id).cloned() else {
            return;
        };
        if !matches!(worker.progress.state(rank), StallState::Ejected { .. }) {
            return;
        }
        let named = (worker.spec.ranks > 1).then_some(rank);
        let (url, model) = (&worker.spec.url, worker.spec.model.as_str());
        match probe.generate(url, model, named, GENERATE_TIMEOUT).await {
            Generated::Token => {}
            // It does not generate: whether it goes on is seen by sending it requests again.
            Generated::Refused => tokio::time::sleep(REFUSED_PAUSE).await,
            Generated::Nothing => {
                tokio::time::sleep(GENERATE_AGAIN).await;
                continue;
            }
        }
        if let Some(of) = worker.progress.ranks.get(usize::from(rank.0)) {
            of.token(gateway.clock.now());
        }
        tokio::time::sleep(TICK * 2).await;
    }
}

/// How an engine divides its steps.
pub(crate) fn mixing_of(dialect: Dialect) -> StepMixing {
    match dialect {
        Dialect::Sglang => StepMixing::PromptsFirst,
        Dialect::Vllm | Dialect::TrtLlm => StepMixing::ChunkWithStreams,
    }
}

/// Why an ejected worker is ejected, in words.
pub(crate) fn reason(state: StallState) -> Option<&'static str> {
    match state {
        StallState::Progressing => None,
        StallState::Suspected { .. } => Some("no token comes for longer than expected"),
        StallState::Ejected { signal, .. } => Some(StallSignal::name(signal)),
    }
}
