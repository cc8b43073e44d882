//! What does the feed allow itself?

/// Limits and times. See the reference page of settings for what each costs.
#[derive(Clone, Copy, Debug)]
pub struct FeedConfig {
    /// A view is live if it was verified within this time.
    pub verify_within_ms: u64,
    /// Live batches kept per rank while a repair is under way.
    pub buffer_batches: usize,
    /// Blocks in them.
    pub buffer_blocks: usize,
    /// Repairs under way at once, over all ranks. Probes of idle sources do not count.
    pub max_repairs: usize,
    /// A repair that brings nothing for so long is tried again.
    pub repair_timeout_ms: u64,
    /// One try of a repair takes at most so long, however much it brings.
    pub repair_limit_ms: u64,
    /// The pause after the first failed try; it doubles with each.
    pub backoff_base_ms: u64,
    /// Tries before a repair has failed for good.
    pub repair_tries: u32,
    /// Repairs that one rank may need in a row before that counts as a failure.
    pub repairs_in_a_row: u32,
    /// After a repair failed for good, another begins after this time even if nothing is heard.
    pub retry_after_ms: u64,
    /// Removals of unknown blocks within [`FeedConfig::drift_window_ms`] that are evidence of drift.
    pub drift_unknown_removals: u32,
    /// How long orphans may wait for their parent, and over which time unknown removals are counted.
    pub drift_window_ms: u64,
    /// The least time between two repairs because of drift; it doubles up to sixty-four times while they do not help.
    pub drift_cooldown_ms: u64,
    /// Where jitter is drawn from.
    pub seed: u64,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

impl FeedConfig {
    /// Longest pause between two repairs because of drift or doubts.
    pub const fn max_drift_pause_ms(&self) -> u64 {
        self.drift_cooldown_ms << crate::drift::MAX_DOUBLINGS
    }
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            verify_within_ms: 5_000,
            buffer_batches: 1_024,
            buffer_blocks: 1 << 20,
            max_repairs: 16,
            repair_timeout_ms: 30_000,
            repair_limit_ms: 300_000,
            backoff_base_ms: 200,
            repair_tries: 8,
            repairs_in_a_row: 16,
            retry_after_ms: 30_000,
            drift_unknown_removals: 32,
            drift_window_ms: 10_000,
            drift_cooldown_ms: 60_000,
            seed: 1,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }
}
