//! Does what the engine says fit what we believe?
//!
//! A complete view knows every block that is removed and every parent. Some removals of unknown blocks, or orphans whose
//! parent does not come, are evidence that it has drifted; so is a doubt of whoever relied on it. Evidence that stays after a
//! repair is the engine's way of speaking, so the pause between repairs doubles. A doubt that stays is another thing: then what
//! the source tells is not so, and telling it again does not help. The view then begins empty, and the source is asked again after
//! a pause: an engine does not announce again what it has cached, so an empty view would miss it for ever.

use crate::config::FeedConfig;

/// What helps a view that has drifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// To ask the source for all of it.
    Rebuild,
    /// To begin again with nothing: it was rebuilt a short while ago, and is doubted again.
    BeginEmpty,
}

/// Whether the content that the source reports is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SourceTrust {
    #[default]
    Trusted,
    /// The view was emptied because the source was wrong twice. It is rebuilt after the pause.
    Suspended,
    /// The view was rebuilt after that. One more doubt empties it at once, and doubles the pause.
    OnProbation,
}

/// Most doublings of the pause between two repairs.
pub(crate) const MAX_DOUBLINGS: u32 = 6;

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
    source_trust: SourceTrust,
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

    /// Whether a repair is due: there is evidence, or the source was suspended, and the last repair was long enough ago.
    pub(crate) fn is_due(&self, now_ms: u64, config: &FeedConfig) -> bool {
        if self.source_trust == SourceTrust::OnProbation && self.is_doubted {
            return true;
        }
        let orphans = self
            .orphans_since_ms
            .is_some_and(|since| now_ms.saturating_sub(since) >= config.drift_window_ms);
        let rested = self
            .repaired_ms
            .is_none_or(|last| now_ms.saturating_sub(last) >= self.pause_ms(config));
        let is_evident = orphans || self.is_doubted || self.unknown_removals >= config.drift_unknown_removals;
        rested && (is_evident || self.is_suspended())
    }

    /// Whether the view was emptied because its source was wrong, and waits to be rebuilt.
    pub(crate) fn is_suspended(&self) -> bool {
        self.source_trust == SourceTrust::Suspended
    }

    fn pause_ms(&self, config: &FeedConfig) -> u64 {
        config.drift_cooldown_ms << self.doublings
    }

    /// A repair begins. Says which.
    pub(crate) fn repair_begins(&mut self, now_ms: u64, config: &FeedConfig) -> Remedy {
        let is_retry = self.is_suspended();
        let is_soon = self
            .repaired_ms
            .is_some_and(|last| now_ms.saturating_sub(last) < 2 * self.pause_ms(config));
        let remedy = if is_soon && self.is_doubted && !is_retry {
            Remedy::BeginEmpty
        } else {
            Remedy::Rebuild
        };
        if !is_retry {
            self.doublings = if is_soon {
                (self.doublings + 1).min(MAX_DOUBLINGS)
            } else {
                0
            };
            self.source_trust = SourceTrust::Trusted;
        }
        self.repaired_ms = Some(now_ms);
        self.clear_evidence();
        if remedy == Remedy::BeginEmpty {
            self.source_trust = SourceTrust::Suspended;
        }
        remedy
    }

    /// The view was replaced: what was noticed of the old one says nothing about it.
    pub(crate) fn forget(&mut self) {
        self.clear_evidence();
        if self.is_suspended() {
            self.source_trust = SourceTrust::OnProbation;
        }
    }

    fn clear_evidence(&mut self) {
        self.unknown_removals = 0;
        self.orphans_since_ms = None;
        self.is_doubted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_source_is_asked_again_after_a_pause_that_doubles_with_each_doubt() {
        use Remedy::{BeginEmpty, Rebuild};
        let config = FeedConfig::default();
        let mut drift = Drift::default();
        let mut remedies = Vec::new();
        for second in 0..2_000 {
            let now_ms = second * 1_000;
            if !drift.is_suspended() {
                drift.doubted();
            }
            if drift.is_due(now_ms, &config) {
                let remedy = drift.repair_begins(now_ms, &config);
                if remedy == Rebuild {
                    // The view that was rebuilt takes the place of the old one.
                    drift.forget();
                }
                remedies.push((second, remedy));
            }
        }
        let expected = [
            (0, Rebuild),
            (60, BeginEmpty),
            (180, Rebuild),
            (181, BeginEmpty),
            (421, Rebuild),
            (422, BeginEmpty),
            (902, Rebuild),
            (903, BeginEmpty),
            (1863, Rebuild),
            (1864, BeginEmpty),
        ];
        assert_eq!(remedies, expected);
    }

    #[test]
    fn a_rebuild_that_fails_is_tried_again_and_one_that_holds_ends_the_probation() {
        let config = FeedConfig::default();
        let mut drift = Drift::default();
        for now_ms in [0, 60_000] {
            drift.doubted();
            drift.repair_begins(now_ms, &config);
        }
        assert!(drift.is_suspended());
        assert!(!drift.is_due(179_000, &config) && drift.is_due(180_000, &config));
        assert_eq!(drift.repair_begins(180_000, &config), Remedy::Rebuild);
        assert!(drift.is_suspended(), "nothing has replaced the empty view yet");
        assert!(!drift.is_due(299_000, &config) && drift.is_due(300_000, &config));
        assert_eq!(drift.repair_begins(300_000, &config), Remedy::Rebuild);
        drift.forget();
        assert!(!drift.is_suspended() && !drift.is_due(10_000_000, &config));
        drift.doubted();
        assert_eq!(drift.repair_begins(10_000_000, &config), Remedy::Rebuild, "long after");
    }

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
