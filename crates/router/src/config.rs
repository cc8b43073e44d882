//! Which bounds and defaults hold?

use homing_domain::{BlockSize, KeyHasher, Tokens};
use homing_index::ApproximateConfig;
use homing_load::LoadConfig;
use homing_profile::Millis;
use homing_scheduler::queue::{ClassSpec, Limits, Order};

use crate::apart::ApartConfig;

/// What a router is made of, besides its policy.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// How prompts were hashed, for ranks whose caches are guessed.
    pub hasher: KeyHasher,
    /// Bounds of what is booked.
    pub load: LoadConfig,
    /// A request is let go while the prompts ahead of it on some eligible rank are predicted to take no longer than this;
    /// otherwise it waits here, where its order and its rank can still be changed, and not in an engine. Steps that are in
    /// progress do not count, so an engine that only decodes always gets the next prompt.
    pub start_within: Millis,
    /// Nobody waits longer than this, whatever deadline was given.
    pub most_wait: Millis,
    /// Classes of requests that wait; there is at least one.
    pub classes: Vec<ClassSpec>,
    /// Bounds of all that waits.
    pub total: Limits,
    /// Bounds of the guess for engines without events.
    pub approximate: ApproximateConfig,
    /// What a request is expected to generate before anything was seen.
    pub first_output: Tokens,
    /// The share of requests that generate at most what is expected of them.
    pub output_quantile: f64,
    /// How pairs of workers are chosen and bounded.
    pub apart: ApartConfig,
    /// From where chance begins.
    pub seed: u64,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
    /// The same for the queue.
    #[cfg(any(test, feature = "testing"))]
    pub queue_bug: Option<homing_scheduler::Bug>,
}

impl RouterConfig {
    /// The defaults for a block size.
    pub fn new(block_size: BlockSize, hasher: KeyHasher) -> Self {
        Self {
            hasher,
            load: LoadConfig::new(block_size),
            start_within: Millis(200.0),
            most_wait: Millis(60_000.0),
            classes: vec![ClassSpec {
                name: "default".to_owned(),
                quantum: 1,
                order: Order::FirstCome,
                limits: Limits::default(),
            }],
            total: Limits::default(),
            approximate: ApproximateConfig::default(),
            first_output: Tokens(256),
            // More than half, because a request that grows beyond what was expected of it may cost another one all it has.
            output_quantile: 0.75,
            apart: ApartConfig::default(),
            seed: 0,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
            #[cfg(any(test, feature = "testing"))]
            queue_bug: None,
        }
    }
}
