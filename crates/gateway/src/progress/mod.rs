//! What the requests at a worker say of its progress, and what a stall means for them.
//!
//! Requests report tokens here with a few atomic operations; the [`monitor`] reads them, drives a [`StallDetector`] for each rank and
//! carries out what it decides. Requests that wait for a rank watch it with [`RankWatch`].
//!
//! **Invariant:** a request counts as waiting, streaming or unary at one rank until its [`Presence`] is dropped.
//!
//! **Invariant:** a stream whose client does not read counts for nothing: its silence is not the worker's.

mod leave;
pub(crate) mod monitor;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homing_discovery::{
    ExpectedWork, FoundBy, ObservedSteps, StallConfig, StallDetector, StallState, StepMixing, WaitingId, WorkEstimator,
};
use homing_domain::{DpRank, RankId, Tokens};
use homing_profile::{Millis, Time, Timing};
use homing_scheduler::Health as Serves;
use tokio::sync::watch;

use crate::worker::Worker;

/// The pause before a request that could not be moved tries to leave again.
pub(crate) const MOVE_AGAIN: Duration = Duration::from_millis(250);

/// Why a request should leave a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The rank was ejected because it makes no progress.
    Stalled,
    /// The worker is down.
    Down(FoundBy),
}

/// What requests that wait for a rank are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Notice {
    /// Grows with every loss, so that a trial at a lost worker is not told of the loss before it.
    epoch: u64,
    loss: Option<Loss>,
}

/// The progress of a worker's ranks.
#[derive(Debug)]
pub(crate) struct WorkerProgress {
    ranks: Vec<RankProgress>,
}

#[derive(Debug)]
struct RankProgress {
    /// When the last token came.
    last_token: AtomicU64,
    /// The average time between two tokens of a stream in nanoseconds, and of how many.
    step_nanos: AtomicU64,
    steps: AtomicU32,
    /// Streams that wait for their next token.
    streams: AtomicU32,
    unary: AtomicU32,
    inner: Mutex<Inner>,
    notice: watch::Sender<Notice>,
}

/// The lock is held for microseconds: when requests begin, get their first token and end, and at each tick.
#[derive(Debug)]
struct Inner {
    detector: StallDetector,
    estimator: WorkEstimator,
}

/// The answer that a request waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedAnswer {
    pub(crate) prompt: Tokens,
    pub(crate) cached: Tokens,
    pub(crate) delivery: Delivered,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Streamed,
    InOnePiece,
}

/// A request at a rank. Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    worker: Arc<Worker>,
    rank: DpRank,
    state: PresenceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PresenceState {
    Absent,
    Waiting(WaitingId),
    Unary,
    /// A stream whose next token is awaited.
    Awaiting,
    /// A stream that its client does not read now, or whose token just came.
    Idle,
}

/// Tells a request when the rank that it waits for is lost.
#[derive(Debug)]
pub(crate) struct RankWatch {
    receiver: watch::Receiver<Notice>,
    epoch: u64,
}

impl Loss {
    /// Why a request left, in words.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Stalled => "makes no progress",
            Self::Down(_) => "went down",
        }
    }
}

impl RankWatch {
    /// Waits until the rank is lost. Ready at once while it is.
    pub(crate) async fn loss(&mut self) -> Loss {
        loop {
            let notice = *self.receiver.borrow_and_update();
            if let Some(loss) = notice.loss.filter(|_| notice.epoch != self.epoch) {
                return loss;
            }
            if self.receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl WorkerProgress {
    pub(crate) fn new(timing: &Timing, mixing: StepMixing, ranks: u16, config: StallConfig) -> Self {
        let rank = || RankProgress {
            last_token: AtomicU64::new(0),
            step_nanos: AtomicU64::new(0),
            steps: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            unary: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                detector: StallDetector::new(config),
                estimator: WorkEstimator::new(timing.clone(), mixing),
            }),
            notice: watch::Sender::default(),
        };
        Self {
            ranks: (0..ranks.max(1)).map(|_| rank()).collect(),
        }
    }

    /// How the router should treat a rank that the worker's health lets in.
    pub(crate) fn serves(&self, rank: DpRank) -> Serves {
        match self.state(rank) {
            StallState::Progressing => Serves::Up,
            StallState::Suspected { .. } => Serves::Suspected,
            StallState::Ejected { .. } => Serves::Down,
        }
    }

    pub(crate) fn state(&self, rank: DpRank) -> StallState {
        let of = self.ranks.get(usize::from(rank.0));
        of.map_or(StallState::Progressing, |of| of.inner().detector.state())
    }

    /// The worst state of all ranks.
    pub(crate) fn worst(&self) -> StallState {
        let states = self.ranks.iter().map(|rank| rank.inner().detector.state());
        let weight = |state: &StallState| match state {
            StallState::Progressing => 0,
            StallState::Suspected { .. } => 1,
            StallState::Ejected { .. } => 2,
        };
        states.max_by_key(weight).unwrap_or(StallState::Progressing)
    }

    /// Tells a request when this rank is lost. To be taken before the request is sent.
    pub(crate) fn watch(&self, rank: DpRank) -> Option<RankWatch> {
        let receiver = self.ranks.get(usize::from(rank.0))?.notice.subscribe();
        let epoch = receiver.borrow().epoch;
        Some(RankWatch { receiver, epoch })
    }

    /// The worker went down, or is tried again.
    pub(crate) fn set_down(&self, found_by: Option<FoundBy>) {
        for rank in &self.ranks {
            let is_ejected = matches!(rank.inner().detector.state(), StallState::Ejected { .. });
            let stalled = is_ejected.then_some(Loss::Stalled);
            rank.notify(found_by.map(Loss::Down).or(stalled));
        }
    }

    /// The rank was ejected, or is back. `found_by` says by what the worker is down, if it is.
    fn set_ejected(&self, rank: DpRank, loss: Option<Loss>) {
        if let Some(rank) = self.ranks.get(usize::from(rank.0)) {
            rank.notify(loss);
        }
    }
}

impl RankProgress {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, loss: Option<Loss>) {
        self.notice.send_if_modified(|notice| {
            let is_news = notice.loss != loss;
            if is_news {
                notice.epoch += u64::from(loss.is_some());
                notice.loss = loss;
            }
            is_news
        });
    }

    fn token(&self, now: Time) {
        self.last_token.fetch_max(now.0, Relaxed);
    }

    /// A stream had so long to wait for a token.
    fn observe_step(&self, gap: Duration) {
        let observed = self.observed_steps().with(Millis(gap.as_secs_f64() * 1e3));
        // Two at once lose one of many observations.
        self.step_nanos.store(observed.mean.nanos(), Relaxed);
        self.steps.store(observed.count, Relaxed);
    }

    fn observed_steps(&self) -> ObservedSteps {
        ObservedSteps {
            mean: Millis(self.step_nanos.load(Relaxed) as f64 / 1e6),
            count: self.steps.load(Relaxed),
        }
    }

    /// What the rank should be doing.
    fn work(&self, inner: &Inner) -> ExpectedWork {
        let (streams, unary) = (self.streams.load(Relaxed), self.unary.load(Relaxed));
        inner.estimator.work(self.observed_steps(), streams, unary)
    }
}

impl Presence {
    /// A request is sent to a rank. Without an expected answer it counts when its answer begins to stream.
    pub(crate) fn new(worker: Arc<Worker>, rank: RankId, expected: Option<ExpectedAnswer>, now: Time) -> Self {
        let mut presence = Self {
            worker,
            rank: rank.dp,
            state: PresenceState::Absent,
        };
        let Some(expected) = expected else { return presence };
        let worker = presence.worker.clone();
        let progress = &worker.progress;
        let Some(of) = progress.ranks.get(usize::from(rank.dp.0)) else {
            return presence;
        };
        presence.state = match expected.delivery {
            Delivered::InOnePiece => {
                of.unary.fetch_add(1, Relaxed);
                PresenceState::Unary
            }
            Delivered::Streamed => {
                let id = of
                    .inner()
                    .estimator
                    .begin_request(now, expected.prompt, expected.cached);
                PresenceState::Waiting(id)
            }
        };
        presence
    }

    /// The answer begins to stream.
    pub(crate) fn begin_stream(&mut self, now: Time) {
        self.set(PresenceState::Idle, Some(now));
    }

    /// The next token is awaited.
    pub(crate) fn await_token(&mut self) {
        if self.state == PresenceState::Idle {
            self.set(PresenceState::Awaiting, None);
        }
    }

    /// A token came.
    pub(crate) fn record_token(&self, now: Time) {
        if let Some(rank) = self.rank() {
            rank.token(now);
        }
    }

    /// Something of the answer came: its worker is waited for no more until the client has taken it.
    pub(crate) fn receive(&mut self) {
        if self.state == PresenceState::Awaiting {
            self.set(PresenceState::Idle, None);
        }
    }

    /// The time between two tokens of the stream.
    pub(crate) fn observe_step(&self, gap: Duration) {
        if let Some(rank) = self.rank() {
            rank.observe_step(gap);
        }
    }

    /// Tells when the rank is lost.
    pub(crate) fn watch(&self) -> Option<RankWatch> {
        self.worker.progress.watch(self.rank)
    }

    fn rank(&self) -> Option<&RankProgress> {
        self.worker.progress.ranks.get(usize::from(self.rank.0))
    }

    /// `progress_at`: the change itself is progress.
    fn set(&mut self, state: PresenceState, progress_at: Option<Time>) {
        let before = std::mem::replace(&mut self.state, state);
        let Some(rank) = self.rank() else { return };
        if let Some(now) = progress_at {
            rank.token(now);
        }
        match before {
            PresenceState::Absent | PresenceState::Idle => {}
            PresenceState::Waiting(id) => match progress_at {
                Some(now) => rank.inner().estimator.record_first_token(now, id),
                None => rank.inner().estimator.end_request(id),
            },
            PresenceState::Unary => {
                rank.unary.fetch_sub(1, Relaxed);
            }
            PresenceState::Awaiting => {
                rank.streams.fetch_sub(1, Relaxed);
            }
        }
        if state == PresenceState::Awaiting {
            rank.streams.fetch_add(1, Relaxed);
        }
    }

    /// The whole answer came.
    pub(crate) fn finish(&mut self, now: Time) {
        self.set(PresenceState::Absent, Some(now));
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.set(PresenceState::Absent, None);
    }
}
