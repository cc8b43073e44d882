//! What is a world made of?

use homing_engine::EngineConfig;
use homing_feed::FeedConfig;
use homing_profile::{Millis, Timing};
use homing_router::{CacheView, RouterConfig};
use homing_trace::Spelling;

use super::faults::Fault;
use super::split::SplitSetup;
use crate::Rng;

/// How the engines differ from what routers believe of them, so that predictions are not made by what they predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disparity {
    /// Each worker's speed is drawn from one less this share to one more.
    pub speed: f64,
    /// Each worker's steps take so much longer, drawn between these.
    pub overhead: (Millis, Millis),
    /// Each step's time is off by up to this share.
    pub noise: f64,
    /// The last worker is slower by this factor.
    pub slow: f64,
}

impl Disparity {
    /// Engines that are just as routers believe.
    pub const NONE: Self = Self {
        speed: 0.0,
        overhead: (Millis::ZERO, Millis::ZERO),
        noise: 0.0,
        slow: 1.0,
    };
}

impl Default for Disparity {
    fn default() -> Self {
        Self {
            speed: 0.3,
            overhead: (Millis(1.0), Millis(5.0)),
            noise: 0.1,
            slow: 1.0,
        }
    }
}

/// How long messages take, and what of them is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// From a router to a worker, and back.
    pub hop: Millis,
    /// From the end of a step to a router that hears its events.
    pub event_lag: Millis,
    /// How often routers ask workers how busy they are; never if it is zero.
    pub poll: Millis,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            hop: Millis(0.5),
            event_lag: Millis(5.0),
            poll: Millis(1_000.0),
        }
    }
}

/// The engines.
#[derive(Clone, Debug)]
pub struct WorkerSetup {
    /// How many.
    pub count: u32,
    /// What each is. Its timing is what they really take, before the disparity.
    pub engine: EngineConfig,
    /// How they differ.
    pub disparity: Disparity,
    /// Batches that each can send again.
    pub ring: usize,
}

/// The routers.
#[derive(Clone, Debug)]
pub struct RouterSetup {
    /// How many. Each request comes to one of them by chance.
    pub count: u32,
    /// What each is; its seed is changed for each.
    pub config: RouterConfig,
    /// Their policy, by name, with weights if it has any (see [`homing_scheduler::policy::by_spec`]).
    pub policy: String,
    /// What they believe of the engines.
    pub timing: Timing,
    /// From where they know caches.
    pub view: CacheView,
    /// Their feeds.
    pub feed: FeedConfig,
    /// How often a request is tried.
    pub attempts: u32,
}

/// A whole world, but for its traffic.
#[derive(Clone, Debug)]
pub struct FleetSetup {
    /// From which all chance comes.
    pub seed: u64,
    /// The engines.
    pub workers: WorkerSetup,
    /// The routers.
    pub routers: RouterSetup,
    /// That some workers compute prompts for others; none where each serves whole requests.
    pub split: Option<SplitSetup>,
    /// What is between them.
    pub links: Links,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// How prompts are spelled.
    pub spelling: Spelling,
}

/// What a worker really is.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) config: EngineConfig,
    pub(crate) slowdown: f64,
}

impl FleetSetup {
    /// How many times as fast as its timing says the worker of this number is.
    pub(crate) fn speed(&self, number: u32) -> f64 {
        1.0 / self.worker(number).slowdown
    }

    /// Tokens that the cache of one worker has room for.
    pub fn cache_tokens(&self) -> u64 {
        let engine = &self.workers.engine;
        u64::from(engine.blocks.0) * u64::from(engine.ranks) * u64::from(engine.block_size.get())
    }

    /// What the worker of this number really is.
    pub(crate) fn worker(&self, number: u32) -> Drawn {
        let of = &self.workers.disparity;
        let mut rng = Rng::new(self.seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let share = |rng: &mut Rng| rng.below(1 << 20) as f64 / f64::from(1 << 20);
        let speed = 1.0 + of.speed * (2.0 * share(&mut rng) - 1.0);
        let (least, most) = (of.overhead.0.0, of.overhead.1.0);
        let overhead = Millis(least + (most - least) * share(&mut rng));
        let slow = if number + 1 == self.workers.count { of.slow } else { 1.0 };
        let mut config = self.workers.engine.clone();
        config.disturbance.overhead = overhead;
        config.disturbance.noise = of.noise;
        config.disturbance.seed = rng.number();
        config.label_mask = rng.number();
        Drawn {
            config,
            slowdown: slow / speed,
        }
    }
}
