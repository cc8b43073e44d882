//! What the requests at a rank should show, from a profile and from what the rank showed before.
//!
//! Cost: proportional to the requests without a token, at each tick.

use homing_domain::Tokens;
use homing_profile::{DecodeBatch, Millis, Time, Timing};

use super::{Calibration, ExpectedWork};

/// Tokens of prompts that engines compute in one step unless they are told otherwise, at most.
const CHUNK: u32 = 16_384;
/// Context of a running stream, where nothing better is known.
const CONTEXT: Tokens = Tokens(2_048);
/// The share of a new observation in an average.
const SMOOTHING: f64 = 0.2;
/// Steps that must be observed before they count as known.
const CALIBRATED_STEPS: u32 = 16;
/// The largest factor between predicted and observed prefills that is believed.
const MAX_FACTOR: f64 = 50.0;

/// How an engine divides its steps between prompts and running streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepMixing {
    /// A step computes a chunk of a prompt beside the running streams, as vLLM does.
    ChunkWithStreams,
    /// Prompts are computed before running streams go on, as SGLang does.
    PromptsFirst,
}

/// Estimates the work of one rank.
#[derive(Clone, Debug)]
pub struct WorkEstimator {
    timing: Timing,
    mixing: StepMixing,
    waiting: Vec<Waiting>,
    next: u64,
    /// How much longer prefills take than the profile predicts; never less than 1.
    factor: Option<f64>,
}

/// A streamed request without a token.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: WaitingId,
    since: Time,
    prefill: Millis,
    /// The longest step that computes a part of its prompt.
    chunk: Millis,
    company: Company,
}

/// Whether other requests waited when a request came. If none did, its first token tells how long prefills take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Alone,
    WithOthers,
}

/// A request without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingId(u64);

/// What was observed of the running streams of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedSteps {
    /// The average time between two tokens of a stream.
    pub mean: Millis,
    /// Of how many.
    pub count: u32,
}

impl ObservedSteps {
    /// One more.
    #[must_use]
    pub fn with(self, gap: Millis) -> Self {
        let mean = if self.count == 0 {
            gap
        } else {
            self.mean + (gap - self.mean) * SMOOTHING
        };
        Self {
            mean,
            count: self.count.saturating_add(1),
        }
    }
}

impl WorkEstimator {
    /// A rank without requests.
    pub fn new(timing: Timing, mixing: StepMixing) -> Self {
        Self {
            timing,
            mixing,
            waiting: Vec::new(),
            next: 0,
            factor: None,
        }
    }

    /// A streamed request was sent, of whose prompt so much is cached.
    pub fn begin_request(&mut self, now: Time, prompt: Tokens, cached: Tokens) -> WaitingId {
        let new = Tokens(prompt.0.saturating_sub(cached.0).max(1));
        let last_chunk = Tokens(new.0.min(CHUNK));
        let before = Tokens(prompt.0.saturating_sub(last_chunk.0));
        let id = WaitingId(self.next);
        self.next += 1;
        self.waiting.push(Waiting {
            id,
            since: now,
            prefill: self.timing.prefill(new, cached),
            chunk: self.timing.prefill(last_chunk, before),
            company: if self.waiting.is_empty() {
                Company::Alone
            } else {
                Company::WithOthers
            },
        });
        id
    }

    /// The first token of a request came.
    pub fn record_first_token(&mut self, now: Time, id: WaitingId) {
        let Some(waiting) = self.take(id) else { return };
        if waiting.company == Company::WithOthers || waiting.prefill <= Millis::ZERO {
            return;
        }
        let observed = (now.since(waiting.since).0 / waiting.prefill.0).clamp(1.0, MAX_FACTOR);
        self.factor = Some(match self.factor {
            None => observed,
            Some(known) => known + SMOOTHING * (observed - known),
        });
    }

    /// A request ended before its first token.
    pub fn end_request(&mut self, id: WaitingId) {
        self.take(id);
    }

    /// What the rank should be doing.
    pub fn work(&self, steps: ObservedSteps, streams: u32, unary: u32) -> ExpectedWork {
        let factor = self.factor.unwrap_or(1.0);
        let profile = self.timing.decode(DecodeBatch::even(streams.max(1), CONTEXT));
        let all: f64 = self.waiting.iter().map(|waiting| waiting.prefill.0).sum();
        let longest = |of: fn(&Waiting) -> Millis| self.waiting.iter().map(|waiting| of(waiting).0).fold(0.0, f64::max);
        let chunk = match self.mixing {
            StepMixing::PromptsFirst => all,
            // Many short prompts fill a step as one long prompt does.
            StepMixing::ChunkWithStreams => {
                let full = self.timing.prefill(Tokens(CHUNK), Tokens(0)).0;
                all.min(full.max(longest(|waiting| waiting.chunk)))
            }
        };
        let is_calibrated = steps.count >= CALIBRATED_STEPS || self.factor.is_some();
        ExpectedWork {
            streams,
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            unary,
            step: Millis(profile.0.max(steps.mean.0)),
            chunk: Millis(chunk * factor),
            prefill: Millis(longest(|waiting| waiting.prefill) * factor),
            calibration: if is_calibrated {
                Calibration::Done
            } else {
                Calibration::Missing
            },
        }
    }

    fn take(&mut self, id: WaitingId) -> Option<Waiting> {
        let place = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.swap_remove(place))
    }
}
