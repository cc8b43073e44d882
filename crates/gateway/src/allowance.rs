//! How much may somebody still use?
//!
//! A bucket holds what may be used in a minute and fills evenly. Who takes more than there is waits; what is known only afterwards,
//! such as the length of an answer, is charged then, and can leave less than nothing.
//!
//! **Invariant:** over any time, no more is given than the bucket holds and what came in meanwhile, but for what was charged
//! afterwards, which is paid back before more is given.
//!
//! A request that needs more than a full bucket holds waits until it is full, and leaves less than nothing: otherwise it would wait
//! for ever.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use homing_config::keys::Quota;

const MINUTE: f64 = 60.0;

/// What one key, or one tenant, may use.
#[derive(Debug)]
pub(crate) struct Allowance {
    quota: Quota,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    per_minute: f64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    amount: f64,
    at: Instant,
}

impl Allowance {
    /// All of it is there.
    pub(crate) fn new(quota: Quota, now: Instant) -> Self {
        let bucket = |rate: Option<u64>| rate.map(|rate| Bucket::new(rate as f64, now));
        Self {
            quota,
            requests: bucket(quota.requests),
            tokens: bucket(quota.tokens),
        }
    }

    pub(crate) fn quota(&self) -> Quota {
        self.quota
    }

    /// Takes a request, or says when there is one.
    pub(crate) fn request(&self, now: Instant) -> Result<(), Duration> {
        self.requests.as_ref().map_or(Ok(()), |bucket| bucket.take(now, 1.0))
    }

    /// Gives back a request that somebody else refused.
    pub(crate) fn request_back(&self, now: Instant) {
        if let Some(bucket) = &self.requests {
            bucket.charge(now, -1.0);
        }
    }

    /// Takes tokens, or says when there are so many.
    pub(crate) fn tokens(&self, now: Instant, tokens: f64) -> Result<(), Duration> {
        self.tokens.as_ref().map_or(Ok(()), |bucket| bucket.take(now, tokens))
    }

    /// Tokens that were used beyond what was taken, or, if it is negative, were not.
    pub(crate) fn charge_tokens(&self, now: Instant, tokens: f64) {
        if let Some(bucket) = &self.tokens {
            bucket.charge(now, tokens);
        }
    }
}

impl Bucket {
    fn new(per_minute: f64, now: Instant) -> Self {
        Self {
            per_minute,
            level: Mutex::new(Level {
                amount: per_minute,
                at: now,
            }),
        }
    }

    fn take(&self, now: Instant, amount: f64) -> Result<(), Duration> {
        let mut level = self.filled(now);
        let needed = amount.min(self.per_minute);
        if level.amount >= needed {
            level.amount -= amount;
            return Ok(());
        }
        let seconds = (needed - level.amount) * MINUTE / self.per_minute;
        Err(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    fn charge(&self, now: Instant, amount: f64) {
        let mut level = self.filled(now);
        level.amount = (level.amount - amount).min(self.per_minute);
    }

    fn filled(&self, now: Instant) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads look at the clock before they wait for each other.
        let passed = now.saturating_duration_since(level.at).as_secs_f64();
        level.amount = (level.amount + passed * self.per_minute / MINUTE).min(self.per_minute);
        level.at = level.at.max(now);
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(requests: Option<u64>, tokens: Option<u64>, now: Instant) -> Allowance {
        Allowance::new(Quota { requests, tokens }, now)
    }

    #[test]
    fn a_minute_is_given_at_once_and_then_evenly() {
        let now = Instant::now();
        let allowance = of(Some(60), None, now);
        for _ in 0..60 {
            allowance.request(now).unwrap();
        }
        assert_eq!(allowance.request(now), Err(Duration::from_secs(1)));
        let later = now + Duration::from_secs(2);
        assert_eq!(allowance.request(later), Ok(()));
        assert_eq!(allowance.request(later), Ok(()));
        assert!(allowance.request(later).is_err());
        allowance.request_back(later);
        assert_eq!(allowance.request(later), Ok(()));
        let much_later = later + Duration::from_hours(1);
        assert_eq!((0..100).filter(|_| allowance.request(much_later).is_ok()).count(), 60);
    }

    #[test]
    fn what_is_charged_afterwards_is_paid_back_first() {
        let now = Instant::now();
        let allowance = of(None, Some(600), now);
        allowance.tokens(now, 500.0).unwrap();
        allowance.charge_tokens(now, 700.0);
        // 600 are missing to nothing, and one more is wanted: ten come in a second.
        assert_eq!(allowance.tokens(now, 1.0), Err(Duration::from_secs_f64(60.1)));
        assert_eq!(allowance.tokens(now + Duration::from_secs(61), 1.0), Ok(()));
        allowance.charge_tokens(now + Duration::from_secs(61), -1e9);
        assert_eq!(allowance.tokens(now + Duration::from_secs(61), 600.0), Ok(()));
    }

    #[test]
    fn what_is_more_than_a_minute_waits_for_a_whole_one() {
        let now = Instant::now();
        let allowance = of(None, Some(60), now);
        assert_eq!(allowance.tokens(now, 1000.0), Ok(()));
        let wait = allowance.tokens(now, 1000.0).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1000));
        assert_eq!(allowance.tokens(now + wait, 1000.0), Ok(()));
    }

    #[test]
    fn what_is_not_limited_is_not() {
        let now = Instant::now();
        let allowance = of(None, None, now);
        for _ in 0..1000 {
            allowance.request(now).unwrap();
            allowance.tokens(now, 1e12).unwrap();
        }
    }

    #[test]
    fn a_clock_that_is_behind_gives_nothing_twice() {
        let now = Instant::now();
        let allowance = of(Some(1), None, now);
        let later = now + Duration::from_mins(1);
        allowance.request(later).unwrap();
        assert!(allowance.request(now).is_err());
        assert!(allowance.request(later).is_err());
    }
}
