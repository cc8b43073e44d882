//! Does what the engine says fit what we believe?
//!
//! A complete view knows every block that is removed and every parent. Some removals of unknown blocks, or orphans whose
//! parent does not come, are evidence that it has drifted; so is a doubt of whoever relied on it. Evidence that stays after a
//! repair is the engine's way of speaking, so the pause between repairs doubles. A doubt that stays is another thing: then what
//! the source tells is not so, and telling it again does not help.

use crate::config::FeedConfig;

/// What helps a view that has drifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// To ask the source for all of it.
    Rebuild,
    /// To begin again with nothing: it was rebuilt a short while ago, and is doubted again.
    BeginEmpty,
}

#[derive(Debug, Default)]
pub(crate) struct Drift {
    window_start_ms: u64,
    unknown_removals: u32,
    orphans_since_ms: Option<u64>,
    /// Whether whoever relied on the view found less than it promised.
    is_doubted: bool,
    /// The last repair because of drift, and how often the pause was doubled.
    repaired_ms: Option<u64>,
    doublings: u32,
}

impl Drift {
    /// Removals of unknown blocks came.
    pub(crate) fn unknown_removals(&mut self, now_ms: u64, count: u32, config: &FeedConfig) {
        if now_ms.saturating_sub(self.window_start_ms) >= config.drift_window_ms {
            self.window_start_ms = now_ms;
            self.unknown_removals = 0;
        }
        self.unknown_removals = self.unknown_removals.saturating_add(count);
    }

    /// So many orphans wait now.
    pub(crate) fn orphans(&mut self, now_ms: u64, count: u64) {
        self.orphans_since_ms = match (count, self.orphans_since_ms) {
            (0, _) => None,
            (_, Some(since)) => Some(since),
            (_, None) => Some(now_ms),
        };
    }

    /// Whoever relied on the view found less than it promised.
    pub(crate) fn doubted(&mut self) {
        self.is_doubted = true;
    }

    /// Whether there is evidence enough for a repair, and the last one was long enough ago.
    pub(crate) fn is_due(&self, now_ms: u64, config: &FeedConfig) -> bool {
        let orphans = self
            .orphans_since_ms
            .is_some_and(|since| now_ms.saturating_sub(since) >= config.drift_window_ms);
        let pause = config.drift_cooldown_ms << self.doublings;
        let rested = self.repaired_ms.is_none_or(|last| now_ms.saturating_sub(last) >= pause);
        rested && (orphans || self.is_doubted || self.unknown_removals >= config.drift_unknown_removals)
    }

    /// A repair begins. Says which.
    pub(crate) fn repair_begins(&mut self, now_ms: u64, config: &FeedConfig) -> Remedy {
        let pause = config.drift_cooldown_ms << self.doublings;
        let soon = self
            .repaired_ms
            .is_some_and(|last| now_ms.saturating_sub(last) < 2 * pause);
        self.doublings = if soon { (self.doublings + 1).min(6) } else { 0 };
        self.repaired_ms = Some(now_ms);
        let remedy = if soon && self.is_doubted {
            Remedy::BeginEmpty
        } else {
            Remedy::Rebuild
        };
        self.forget();
        remedy
    }

    /// The view was replaced: what was noticed of the old one says nothing about it.
    pub(crate) fn forget(&mut self) {
        self.unknown_removals = 0;
        self.orphans_since_ms = None;
        self.is_doubted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_that_stays_is_asked_about_less_and_less_often() {
        let config = FeedConfig::default();
        let mut drift = Drift::default();
        let mut repairs = Vec::new();
        for second in 0..1000 {
            let now = second * 1000;
            drift.unknown_removals(now, 20, &config);
            if drift.is_due(now, &config) {
                drift.repair_begins(now, &config);
                repairs.push(second);
            }
        }
        let pauses: Vec<u64> = repairs.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.len() >= 3 && pauses.is_sorted() && pauses[0] >= 60, "{pauses:?}");
        assert!(pauses.last() > pauses.first(), "{pauses:?}");
    }

    #[test]
    fn a_few_unknown_removals_are_no_evidence_and_neither_are_orphans_that_join() {
        let config = FeedConfig::default();
        let mut drift = Drift::default();
        drift.unknown_removals(0, 31, &config);
        drift.unknown_removals(10_000, 31, &config);
        drift.orphans(10_000, 5);
        drift.orphans(15_000, 0);
        drift.orphans(16_000, 1);
        assert!(!drift.is_due(20_001, &config));
        assert!(drift.is_due(26_000, &config));
    }
}
