//! Who drives the engine? One task that sleeps until the next step ends, and requests that are put in from outside.
//!
//! The engine is behind a lock that is held for microseconds: while a request is put in or taken out, and while a few steps end.
//!
//! **Invariant:** changes of the cache are published before the tokens of the same step are handed out.
//!
//! **Invariant:** nobody who waits for tokens holds the engine up: a request's channel has room for all it can get.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homing_config::{KvLoadFailure, MockDialect};
use homing_domain::{AdapterName, DpRank};
use homing_engine::{
    AdapterError, AdapterUse, ClearError, Engine, Load, OnFailure, Outcome, Request, RequestNo, Running, SubmitError,
    Time,
};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

use crate::clock::Clock;
use crate::faults::{Change, FaultBox, Faults, locked};
use crate::feed::Feed;
use crate::kv::{Errand, Fetched, Job, Kept, Kv, KvCounts, Ledger};
use crate::state::{Ear, Heard, News, State};
use crate::tally::{Over, Tally};
use crate::told::Form;
use crate::trace::Trace;

/// Ends of steps that are handled before requests get a turn.
const OUTCOMES_AT_ONCE: usize = 64;

/// An engine, its sockets of events and what waits for it.
#[derive(Debug)]
pub(crate) struct Core {
    state: Mutex<State>,
    /// Something was put in.
    wake: Notify,
    pub(crate) clock: Clock,
    pub(crate) faults: FaultBox,
    telling: Telling,
    /// What `/metrics` shows while the engine core stalls: an API server repeats what it was told last.
    frozen: Mutex<Option<Vec<RankNumbers>>>,
    /// KV for others and from them, where it is handed over.
    pub(crate) kv: Option<Kv>,
}

/// What is known of one rank.
type RankNumbers = (Load, AdapterUse, Tally);

/// Who hears of the cache.
#[derive(Debug)]
pub(crate) struct Telling {
    /// Which worker this is.
    pub(crate) worker: u16,
    /// How events are written.
    pub(crate) form: Form,
    /// By rank.
    pub(crate) feeds: Vec<Feed>,
    /// Allocations and evictions, where they are asked for.
    pub(crate) trace: Option<Trace>,
    /// How far its clock is ahead.
    pub(crate) ahead: Duration,
}

impl Telling {
    /// What its clock shows, in seconds of Unix time.
    fn now(&self) -> f64 {
        unix_seconds() + self.ahead.as_secs_f64()
    }
}

/// An answer that is being computed, in parts. Dropped, it is computed no further.
#[derive(Debug)]
pub(crate) struct Answer {
    core: Arc<Core>,
    requests: Vec<RequestNo>,
    from: mpsc::Receiver<Heard>,
}

impl Core {
    pub(crate) fn new(engine: Engine, clock: Clock, faults: Faults, telling: Telling, kv: Option<Kv>) -> Self {
        let ranks = usize::from(engine.config().ranks);
        let core = Self {
            state: Mutex::new(State {
                engine,
                ears: FxHashMap::default(),
                next: 0,
                tallies: (0..ranks).map(|_| Tally::default()).collect(),
                started: unix_seconds(),
                numbers: FxHashMap::default(),
                refused: 0,
                kv: Ledger::default(),
            }),
            wake: Notify::new(),
            clock,
            faults: FaultBox::new(faults),
            telling,
            frozen: Mutex::default(),
            kv,
        };
        core.state().engine.set_slowdown(faults.slowdown);
        core
    }

    /// Puts requests in, `n` for each prompt; their numbers are given here. All are taken, or none. The errand is the first one's.
    pub(crate) fn submit(
        self: &Arc<Self>,
        requests: Vec<Request>,
        n: usize,
        mut errand: Errand,
    ) -> Result<Answer, SubmitError> {
        let room: usize = requests.iter().map(|request| request.max_tokens.0 as usize + 5).sum();
        let (to, from) = mpsc::channel(room.max(1));
        let mut state = self.state();
        let asked = self.clock.now();
        let mut taken = Vec::with_capacity(requests.len());
        for (part, mut request) in (0..).zip(requests) {
            state.next += 1;
            let id = RequestNo(state.next);
            request.id = id;
            let ear = Ear {
                to: to.clone(),
                part,
                asked,
                turn: None,
                first: None,
                last: None,
                rank: DpRank(0),
                generated: 0,
                over: Over {
                    prompt: request.prompt.len() as u32,
                    max_tokens: request.max_tokens.0,
                    answers: (part as usize).is_multiple_of(n.max(1)).then_some(n),
                    ..Over::default()
                },
                errand: std::mem::take(&mut errand),
                cached_there: None,
            };
            if let Err(error) = state.engine.submit(request) {
                state.refused += u64::from(matches!(error, SubmitError::QueueFull(_)));
                for id in taken {
                    state.forget(id);
                }
                return Err(error);
            }
            state.ears.insert(id, ear);
            taken.push(id);
        }
        drop(state);
        self.wake.notify_one();
        Ok(Answer {
            core: self.clone(),
            requests: taken,
            from,
        })
    }

    /// Empties the cache.
    pub(crate) fn clear(&self, running: Running) -> Result<(), ClearError> {
        let cleared = self.state().engine.clear(running);
        self.wake.notify_one();
        cleared
    }

    pub(crate) fn load_adapter(&self, name: &AdapterName) -> Result<(), AdapterError> {
        self.state().engine.load_adapter(name)
    }

    pub(crate) fn unload_adapter(&self, name: &AdapterName) -> Result<(), AdapterError> {
        self.state().engine.unload_adapter(name)
    }

    pub(crate) fn adapters(&self) -> Vec<AdapterName> {
        let mut names: Vec<AdapterName> = self.state().engine.adapters().cloned().collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn serves(&self, name: &str) -> bool {
        self.state().engine.adapters().any(|adapter| adapter.as_str() == name)
    }

    /// Changes what goes wrong.
    pub(crate) fn change(&self, change: &Change) -> Faults {
        let stalled = self.faults.now().stall;
        let faults = self.faults.change(change);
        if faults.stall != stalled {
            let frozen = faults.stall.then(|| self.numbers());
            *locked(&self.frozen) = frozen;
            self.wake.notify_one();
        }
        self.state().engine.set_slowdown(faults.slowdown);
        faults
    }

    /// Begins a new life: as if the process had died and come back at the same addresses.
    pub(crate) async fn restart(&self) -> Result<(), homing_transport::zmq::SetupError> {
        for feed in &self.telling.feeds {
            feed.close();
        }
        {
            let mut state = self.state();
            for id in state.engine.restart() {
                if let Some(ear) = state.ears.remove(&id) {
                    ear.tell(News::Lost);
                }
            }
            state.tallies.iter_mut().for_each(|tally| *tally = Tally::default());
            // Two lives of one second are told apart all the same.
            state.started = unix_seconds().max(state.started + 0.01);
            state.numbers.clear();
            state.refused = 0;
            state.kv = Ledger::default();
        }
        for feed in &self.telling.feeds {
            feed.reopen().await?;
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Looks at a rank: how busy it is, which adapters it has, what was counted.
    pub(crate) fn look<T>(&self, rank: DpRank, see: impl FnOnce(&Load, &AdapterUse, &Tally) -> T) -> Option<T> {
        if let Some(frozen) = &*locked(&self.frozen) {
            let (load, adapters, tally) = frozen.get(usize::from(rank.0))?;
            return Some(see(load, adapters, tally));
        }
        let state = self.state();
        let load = state.engine.load(rank)?;
        let adapters = state.engine.adapter_use(rank)?;
        Some(see(&load, &adapters, state.tallies.get(usize::from(rank.0))?))
    }

    /// The numbers of all ranks.
    fn numbers(&self) -> Vec<RankNumbers> {
        let state = self.state();
        let ranks = state.tallies.iter().zip(0..);
        ranks
            .filter_map(|(tally, rank)| {
                let rank = DpRank(rank);
                Some((state.engine.load(rank)?, state.engine.adapter_use(rank)?, tally.clone()))
            })
            .collect()
    }

    /// Requests of this life that were refused because too many wait.
    pub(crate) fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Where each rank tells of its cache.
    pub(crate) fn feeds(&self) -> &[Feed] {
        &self.telling.feeds
    }

    /// When this life began, in seconds of Unix time.
    pub(crate) fn started(&self) -> f64 {
        self.state().started
    }

    /// Drives the engine for as long as it is polled.
    pub(crate) async fn drive(self: Arc<Self>) {
        let mut outcome = Outcome::default();
        loop {
            // The API server goes on answering meanwhile.
            self.faults.flowing().await;
            let next = self.work(&mut outcome);
            for job in self.jobs() {
                tokio::spawn(crate::kv::run(Arc::clone(&self), job));
            }
            match next {
                Next::Now => tokio::task::yield_now().await,
                Next::Asked => self.wake.notified().await,
                Next::At(time) => {
                    tokio::select! {
                        () = sleep_until(self.clock.instant(time)) => {}
                        () = self.wake.notified() => {}
                    }
                }
            }
        }
    }

    /// Does what is due, but not too much of it.
    fn work(&self, outcome: &mut Outcome) -> Next {
        let mut state = self.state();
        let now = self.clock.now();
        for _ in 0..OUTCOMES_AT_ONCE {
            if !state.engine.poll(now, outcome) {
                return state.engine.wake_at().map_or(Next::Asked, Next::At);
            }
            self.publish(&mut state, outcome);
            if let Some(trace) = self.telling.trace.as_ref().filter(|_| !outcome.trace.is_empty()) {
                trace.tell(self.telling.worker, std::mem::take(&mut outcome.trace));
            }
            state.hand_out(outcome, &self.clock);
        }
        Next::Now
    }

    /// What is to be started since the last time.
    fn jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.state().kv.jobs)
    }

    fn publish(&self, state: &mut State, outcome: &Outcome) {
        let (Some(events), Some(feed)) = (&outcome.events, self.telling.feeds.get(usize::from(outcome.rank.0))) else {
            return;
        };
        let numbers = &mut state.numbers;
        let payload = self
            .telling
            .form
            .payload(events, outcome.rank, self.telling.now(), |name| {
                let next = numbers.len() as u64 + 1;
                *numbers.entry(name.clone()).or_insert(next)
            });
        feed.tell(events.batch.sequence.0, payload, &self.faults.now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// KV for others and from them.
impl Core {
    /// Tells this life of this worker from others.
    pub(crate) fn engine_id(&self) -> String {
        let mark = self.kv.as_ref().map_or(0, Kv::mark);
        format!("{mark:016x}-{:016x}", self.state().started.to_bits())
    }

    pub(crate) fn kv_counts(&self) -> KvCounts {
        self.state().kv.counts
    }

    /// What stays under this name, of this life. Its lease begins anew: someone has come for it.
    pub(crate) fn kept(&self, engine: &str, name: &str) -> Option<Kept> {
        let kv = self.kv.as_ref()?;
        if self.engine_id() != engine {
            return None;
        }
        let mut state = self.state();
        let kept = state.kv.kept(name)?.clone();
        state.engine.renew(kept.request, kv.lease_ends(&self.clock));
        Some(kept)
    }

    /// Gives back what stays under this name: another engine has it or does not want it.
    pub(crate) fn release(&self, name: &str) {
        let mut state = self.state();
        let State { engine, kv, .. } = &mut *state;
        if kv.release(engine, name) {
            kv.counts.released += 1;
        }
        drop(state);
        // A place became free.
        self.wake.notify_one();
    }

    /// Lets a lease end at once.
    pub(crate) fn lapse(&self, name: &str) {
        let mut state = self.state();
        if let Some(request) = state.kv.kept(name).map(|kept| kept.request) {
            state.engine.renew(request, self.clock.now());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// KV has come.
    pub(crate) fn received(&self, fetched: Fetched) {
        let mut state = self.state();
        if state.engine.received(fetched.request) {
            state.kv.counts.received += 1;
            let rank = state.ears.get_mut(&fetched.request).map(|ear| {
                if self.telling.form.dialect == MockDialect::Sglang {
                    // It says what was cached where the prompt was computed.
                    ear.cached_there = Some(fetched.cached);
                }
                usize::from(ear.rank.0)
            });
            if let Some(tally) = state.tallies.get_mut(rank.unwrap_or(0)) {
                tally.transfer.observe(fetched.took.as_secs_f64());
                tally.transferred.observe(fetched.bytes as f64);
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// KV does not come.
    pub(crate) fn missed(&self, request: RequestNo) {
        let mut state = self.state();
        let fails = self.kv.as_ref().map(|kv| kv.settings.load_failure) == Some(KvLoadFailure::Fail)
            || self.telling.form.dialect == MockDialect::Sglang;
        let then = if fails { OnFailure::End } else { OnFailure::Recompute };
        if state.engine.transfer_failed(request, then) {
            state.kv.counts.failed += 1;
            if let Some(tally) = state.tallies.first_mut() {
                tally.failed_transfers += 1;
            }
            if fails && let Some(ear) = state.ears.remove(&request) {
                ear.tell(News::Missed);
            }
        }
        drop(state);
        self.wake.notify_one();
    }
}

/// When there is something to do.
enum Next {
    Now,
    At(Time),
    /// When something is asked.
    Asked,
}

impl Answer {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Waits for what happens next; `None` when everything was said.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        self.from.recv().await
    }

    /// Computes a part no further: all of it was said.
    pub(crate) fn end(&self, part: u32) {
        if let Some(id) = self.requests.get(part as usize) {
            self.core.state().complete(*id, &self.core.clock);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.core.state();
        for &id in &self.requests {
            state.forget(id);
        }
        drop(state);
        // A place became free.
        self.core.wake.notify_one();
    }
}

/// Now, in seconds of Unix time.
pub(crate) fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
