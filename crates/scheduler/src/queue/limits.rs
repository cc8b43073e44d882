//! How much may wait, and when is there room again?

use homing_domain::RequestId;
use homing_profile::{Millis, Time};

/// Bounds of what waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Requests.
    pub requests: usize,
    /// Prompt tokens, cached or not: all of them are kept while they wait.
    pub tokens: u64,
    /// The time to a first token beyond which a request is refused rather than queued.
    pub first_token: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 4_096,
            tokens: 64_000_000,
            first_token: Millis(60_000.0),
        }
    }
}

/// Why a request was not queued.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A limit would be exceeded.
    #[error("{scope}: {what} would be {value}, at most {limit} are allowed; try again in {} ms", .retry_after.0.ceil())]
    Exceeded {
        /// Of which class, or of all.
        scope: String,
        /// Of what.
        what: &'static str,
        /// What it would be.
        value: u64,
        /// What it may be.
        limit: u64,
        /// When there may be room.
        retry_after: Millis,
    },
    /// A request of this id waits already.
    #[error("request {0} waits already")]
    Known(RequestId),
    /// There is no such class.
    #[error("there is no class {0}")]
    NoSuchClass(usize),
}

/// What waits, and how fast it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) requests: usize,
    pub(super) tokens: u64,
    pub(super) flow: Flow,
}

impl Held {
    pub(super) fn add(&mut self, tokens: u64) {
        self.requests += 1;
        self.tokens += tokens;
    }

    pub(super) fn remove(&mut self, tokens: u64) {
        self.requests -= 1;
        self.tokens -= tokens;
    }
}

/// How fast requests are taken. Seen whenever one comes, which is when it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// Taken since it was last seen.
    requests: f64,
    tokens: f64,
    seen: Option<Time>,
    /// For each millisecond, lately.
    requests_per_ms: f64,
    tokens_per_ms: f64,
}

impl Flow {
    const MEMORY: Millis = Millis(10_000.0);

    pub(super) fn took(&mut self, tokens: u64) {
        self.requests += 1.0;
        self.tokens += tokens as f64;
    }

    fn see(&mut self, now: Time) {
        let passed = self.seen.map_or(Millis::ZERO, |seen| now.since(seen));
        if self.seen.is_some() && passed.0 <= 0.0 {
            return;
        }
        if passed.0 > 0.0 {
            let kept = (-passed.0 / Self::MEMORY.0).exp();
            let mix = |old: f64, new: f64| old * kept + new / passed.0 * (1.0 - kept);
            self.requests_per_ms = mix(self.requests_per_ms, self.requests);
            self.tokens_per_ms = mix(self.tokens_per_ms, self.tokens);
        }
        (self.requests, self.tokens, self.seen) = (0.0, 0.0, Some(now));
    }
}

/// A request that wants to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) tokens: u64,
    pub(super) first_token: Millis,
    pub(super) now: Time,
}

impl Limits {
    /// Whether one more fits beside what is held.
    pub(super) fn check(&self, scope: &str, held: &mut Held, wish: Wish) -> Result<(), Refused> {
        held.flow.see(wish.now);
        let exceeded = |what, value: u64, limit: u64, room: f64| {
            Err(Refused::Exceeded {
                scope: scope.to_owned(),
                what,
                value,
                limit,
                retry_after: Millis(if room.is_finite() { room } else { wish.first_token.0 }.clamp(100.0, 60_000.0)),
            })
        };
        let (requests, tokens) = (held.requests + 1, held.tokens.saturating_add(wish.tokens));
        if requests > self.requests {
            // As long as it takes until what is too much has been taken, at the pace of the last seconds.
            let room = (requests - self.requests) as f64 / held.flow.requests_per_ms;
            return exceeded("waiting requests", requests as u64, self.requests as u64, room);
        }
        if tokens > self.tokens {
            let room = (tokens - self.tokens) as f64 / held.flow.tokens_per_ms;
            return exceeded("waiting prompt tokens", tokens, self.tokens, room);
        }
        if wish.first_token.0 > self.first_token.0 {
            let (value, limit) = (wish.first_token.0 as u64, self.first_token.0 as u64);
            let room = wish.first_token.0 - self.first_token.0;
            return exceeded("milliseconds to the first token", value, limit, room);
        }
        Ok(())
    }
}
