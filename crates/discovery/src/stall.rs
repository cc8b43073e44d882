//! Whether an engine makes progress: a state machine for one rank, without clock and IO.
//!
//! ```text
//!                 silence > suspect limit          silence > eject limit, confirmed, no panic
//!   Progressing --------------------------> Suspected ------------------------------------> Ejected
//!        ^                                      |                                              |
//!        +------------- progress ---------------+------------------- progress ----------------+
//! ```
//!
//! *Progress* is a token of any stream, the end of an answer, or a change of the engine's own counters. *Silence* is the time
//! since the last progress while requests are outstanding. A suspected rank gets no request while another rank can serve it;
//! an ejected rank gets none at all.
//!
//! An ejection needs a second signal besides silence: the API server does not answer either (the process hangs), or it answers and
//! the engine's counters stand still (the engine core hangs). Slow health checks alone prove nothing and change nothing here.
//!
//! **Invariant:** an idle rank is never suspected, and a rank that shows progress is `Progressing` at the next tick.
//!
//! **Invariant:** the state changes in [`StallDetector::tick`] only, so that a caller sees every change.
//!
//! Limits follow the work: a prompt that takes ten seconds delays its first token, and each chunk of it delays the tokens of
//! running streams. The caller says so in [`ExpectedWork`].

mod estimate;

use std::time::Duration;

use homing_config::Config;
use homing_profile::{Millis, Time};

pub use estimate::{ObservedSteps, StepMixing, WaitingId, WorkEstimator};

/// Unanswered for this long, the API server counts as silent.
const API_SILENCE: Millis = Millis(300.0);
/// The counters must stand still for this long before they confirm a stall.
const COUNTERS_STILL: Millis = Millis(250.0);
/// Counters that were read longer ago confirm nothing.
const COUNTERS_FRESH: Millis = Millis(1_000.0);
/// How much longer than predicted a chunk of a prompt may delay a token.
const CHUNK_MARGIN: f64 = 1.5;
/// How much longer than predicted a first token may take before its rank is suspected.
const PREFILL_SUSPECT: f64 = 2.0;
/// How much longer than predicted a first token may take before its rank is ejected.
const PREFILL_EJECT: f64 = 3.0;
/// How much longer than the suspect limit running streams may be silent before an ejection.
const STREAM_EJECT: f64 = 1.5;
/// Unconfirmed limits are longer by this factor: the engine has no counters, or nothing is known of its speed yet.
const UNCONFIRMED: f64 = 4.0;
/// Without streams nothing but counters shows progress, and they are read less often than tokens come.
const UNARY_SUSPECT: Millis = Millis(1_500.0);
const UNARY_EJECT: Millis = Millis(3_000.0);
/// A caller whose ticks are this far apart was stopped itself: what it did not read in that time is no silence.
const OWN_PAUSE: Millis = Millis(300.0);

/// When a rank is suspected and ejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallConfig {
    /// The expected steps without a token after which a rank with running streams is suspected.
    pub step_multiple: f64,
    /// A rank is not suspected before this.
    pub suspect_after: Millis,
    /// A rank is not ejected before this.
    pub eject_after: Millis,
}

/// The work at a rank, and when it should show progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedWork {
    /// Streams that wait for their next token.
    pub streams: u32,
    /// Streamed requests that wait for their first token.
    pub waiting: u32,
    /// Requests whose answer comes in one piece.
    pub unary: u32,
    /// One step of the running streams.
    pub step: Millis,
    /// By how much a step may be longer because it computes a part of a prompt.
    pub chunk: Millis,
    /// The longest prefill among the requests without a token.
    pub prefill: Millis,
    /// Whether `step` and `prefill` were compared with what the rank does.
    pub calibration: Calibration,
}

/// Whether predictions were compared with what a rank does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibration {
    /// They come from a profile only.
    #[default]
    Missing,
    /// They were.
    Done,
}

/// Whether a rank makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallState {
    /// It does, or nothing is expected of it.
    Progressing,
    /// It is silent for longer than expected.
    Suspected {
        /// Since when.
        since: Time,
    },
    /// It gets no requests until it makes progress.
    Ejected {
        /// Since when.
        since: Time,
        /// The signal that confirmed it.
        signal: StallSignal,
    },
}

/// The signal that confirms a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallSignal {
    /// No token comes, and the API server does not answer.
    ApiSilent,
    /// No token comes, and the engine's counters stand still.
    CountersStill,
    /// No token comes for a long time, and the engine has no counters.
    TokensOnly,
}

/// Whether a rank may be ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionRoom {
    /// It may.
    Free,
    /// Too many ranks look stalled: the cause is perhaps elsewhere.
    Panic,
}

/// What should be asked of a worker now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Examination {
    /// Nothing.
    None,
    /// Whether its API server answers.
    Api,
    /// That, and its counters.
    Counters,
}

/// What a tick changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallChange {
    /// Progress became overdue.
    Suspected,
    /// The rank was ejected.
    Ejected(StallSignal),
    /// The rank would have been ejected without the panic threshold. Said at every tick.
    Withheld(StallSignal),
    /// The rank makes progress again, or nothing is expected of it.
    Recovered {
        /// What it was before.
        from: StallState,
    },
}

/// What is known of the engine's counters.
#[derive(Clone, Copy, Debug)]
struct Counters {
    value: u64,
    first_seen: Time,
    last_seen: Time,
}

/// The progress of one rank.
#[derive(Clone, Debug)]
pub struct StallDetector {
    config: StallConfig,
    state: StallState,
    /// The last proof of progress.
    progress_at: Time,
    /// Since when requests are outstanding without a pause.
    busy_since: Option<Time>,
    counters: Option<Counters>,
    api_silent_since: Option<Time>,
    last_tick: Option<Time>,
}

impl StallSignal {
    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiSilent => "no token comes and /health is not answered",
            Self::CountersStill => "no token comes and the engine's counters stand still",
            Self::TokensOnly => "no token comes",
        }
    }
}

impl StallConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        let stall = &config.health.stall;
        let millis = |time: Duration| Millis(time.as_secs_f64() * 1e3);
        Self {
            step_multiple: stall.step_multiple,
            suspect_after: millis(stall.suspect_after),
            eject_after: millis(stall.eject_after),
        }
    }
}

impl ExpectedWork {
    /// Whether nothing is expected.
    pub fn is_idle(&self) -> bool {
        self.streams == 0 && self.waiting == 0 && self.unary == 0
    }
}

impl StallDetector {
    /// A rank of which nothing is expected yet.
    pub fn new(config: StallConfig) -> Self {
        Self {
            config,
            state: StallState::Progressing,
            progress_at: Time::ZERO,
            busy_since: None,
            counters: None,
            api_silent_since: None,
            last_tick: None,
        }
    }

    /// Whether it makes progress, as of the last tick.
    pub fn state(&self) -> StallState {
        self.state
    }

    /// For how long nothing came that was expected.
    pub fn silence(&self, now: Time) -> Millis {
        match self.busy_since {
            Some(since) => now.since(since.max(self.progress_at)),
            None => Millis::ZERO,
        }
    }

    /// A token came, or an answer ended.
    pub fn record_progress(&mut self, at: Time) {
        self.progress_at = self.progress_at.max(at);
    }

    /// The engine's progress counters had this value at `at`.
    pub fn record_counters(&mut self, at: Time, value: u64) {
        let fresh = Counters {
            value,
            first_seen: at,
            last_seen: at,
        };
        match &mut self.counters {
            Some(known) if known.value == value => known.last_seen = known.last_seen.max(at),
            Some(known) => {
                // The engine moved after the last reading. Readings of a rank that looks stalled are close to each other.
                let moved_after = known.last_seen;
                let looks_stalled_since = match self.state {
                    StallState::Progressing => None,
                    StallState::Suspected { since } | StallState::Ejected { since, .. } => Some(since),
                };
                let is_proof = looks_stalled_since.is_some_and(|since| moved_after >= since);
                let progress = if is_proof { at } else { moved_after };
                self.progress_at = self.progress_at.max(progress);
                self.counters = Some(fresh);
            }
            None => self.counters = Some(fresh),
        }
    }

    /// The API server answered.
    pub fn record_api_answer(&mut self) {
        self.api_silent_since = None;
    }

    /// The API server did not answer a question that was asked at `asked`.
    pub fn record_api_silence(&mut self, asked: Time) {
        self.api_silent_since.get_or_insert(asked);
    }

    /// What should be asked of the worker now. The API server is asked before the rank is suspected, so that both silences end
    /// together.
    pub fn examination(&self, now: Time, work: &ExpectedWork) -> Examination {
        let (silence, limit) = (self.silence(now).0, self.suspect_limit(work).0);
        match self.state {
            StallState::Suspected { .. } | StallState::Ejected { .. } => Examination::Counters,
            StallState::Progressing if work.is_idle() => Examination::None,
            StallState::Progressing if silence >= limit => Examination::Counters,
            StallState::Progressing if silence >= limit / 2.0 => Examination::Api,
            StallState::Progressing => Examination::None,
        }
    }

    /// Time passed.
    pub fn tick(&mut self, now: Time, work: &ExpectedWork, room: EjectionRoom) -> Option<StallChange> {
        if let Some(before) = self.last_tick.replace(now)
            && now.since(before) > OWN_PAUSE
        {
            self.forgive(now);
        }
        if work.is_idle() {
            self.busy_since = None;
        } else {
            self.busy_since.get_or_insert(now);
        }
        match self.state {
            StallState::Progressing => self.suspect(now, work),
            StallState::Suspected { since } => self.judge(now, since, work, room),
            StallState::Ejected { since, .. } => (self.progress_at > since).then(|| self.recover()),
        }
    }

    fn suspect(&mut self, now: Time, work: &ExpectedWork) -> Option<StallChange> {
        let is_overdue = !work.is_idle() && self.silence(now) >= self.suspect_limit(work);
        // Requests without streams show nothing until they end: their silence alone is no reason.
        let is_shown = work.streams + work.waiting > 0 || self.confirmation(now, work).is_some();
        (is_overdue && is_shown).then(|| {
            self.state = StallState::Suspected { since: now };
            StallChange::Suspected
        })
    }

    fn judge(&mut self, now: Time, since: Time, work: &ExpectedWork, room: EjectionRoom) -> Option<StallChange> {
        if work.is_idle() || self.progress_at > since {
            return Some(self.recover());
        }
        let signal = self.confirmation(now, work)?;
        if self.silence(now) < self.eject_limit(work, signal) {
            return None;
        }
        Some(match room {
            EjectionRoom::Free => {
                self.state = StallState::Ejected { since: now, signal };
                StallChange::Ejected(signal)
            }
            EjectionRoom::Panic => StallChange::Withheld(signal),
        })
    }

    fn recover(&mut self) -> StallChange {
        let from = std::mem::replace(&mut self.state, StallState::Progressing);
        self.api_silent_since = None;
        StallChange::Recovered { from }
    }

    /// Nothing is held against the rank that happened before.
    fn forgive(&mut self, now: Time) {
        self.busy_since = self.busy_since.map(|_| now);
        self.api_silent_since = None;
        if let Some(counters) = &mut self.counters {
            counters.first_seen = now;
            counters.last_seen = now;
        }
    }

    fn confirmation(&self, now: Time, work: &ExpectedWork) -> Option<StallSignal> {
        if let Some(asked) = self.api_silent_since {
            return (now.since(asked) >= API_SILENCE).then_some(StallSignal::ApiSilent);
        }
        let Some(counters) = self.counters else {
            return Some(StallSignal::TokensOnly);
        };
        let still = counters.last_seen.since(counters.first_seen);
        let must_be_still = COUNTERS_STILL.0.max(CHUNK_MARGIN * work.chunk.0);
        let is_fresh = now.since(counters.last_seen) <= COUNTERS_FRESH;
        (is_fresh && still.0 >= must_be_still).then_some(StallSignal::CountersStill)
    }

    fn suspect_limit(&self, work: &ExpectedWork) -> Millis {
        let least = self.config.suspect_after.0;
        let expected = if work.streams > 0 {
            self.stream_limit(work)
        } else if work.waiting > 0 {
            PREFILL_SUSPECT * work.prefill.0 + work.step.0
        } else {
            UNARY_SUSPECT.0 + PREFILL_SUSPECT * work.prefill.0
        };
        Millis(expected.max(least))
    }

    fn stream_limit(&self, work: &ExpectedWork) -> f64 {
        self.config.step_multiple * work.step.0 + CHUNK_MARGIN * work.chunk.0
    }

    fn eject_limit(&self, work: &ExpectedWork, signal: StallSignal) -> Millis {
        let suspect = self.suspect_limit(work).0;
        let expected = if work.streams > 0 {
            STREAM_EJECT * suspect
        } else if work.waiting > 0 {
            (PREFILL_EJECT * work.prefill.0).max(suspect)
        } else {
            UNARY_EJECT.0 + PREFILL_EJECT * work.prefill.0
        };
        let limit = expected.max(self.config.eject_after.0);
        Millis(match (signal, work.calibration) {
            // A process that answers nothing at all hangs, however slow its steps are.
            (StallSignal::ApiSilent, _) => (suspect + API_SILENCE.0).max(self.config.eject_after.0),
            (StallSignal::CountersStill, Calibration::Done) => limit,
            (StallSignal::CountersStill, Calibration::Missing) | (StallSignal::TokensOnly, Calibration::Done) => {
                UNCONFIRMED * limit
            }
            (StallSignal::TokensOnly, Calibration::Missing) => UNCONFIRMED * UNCONFIRMED * limit,
        })
    }
}

#[cfg(test)]
mod tests;
