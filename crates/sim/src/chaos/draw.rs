//! What world does a seed make?

use std::fmt;

use homing_domain::{Blocks, HashSeed, KeyHasher, Tokens};
use homing_engine::Style;
use homing_feed::FeedConfig;
use homing_profile::{Millis, Timing};
use homing_router::{CacheView, RouterConfig};
use homing_scheduler::policy::NAMES as POLICIES;
use homing_scheduler::queue::{ClassSpec, Limits, Order};
use homing_trace::{Spelling, Traffic};

use super::Bug;
use super::engines;
use super::split;
use super::traffic::{Amount, alike, drawn};
use crate::Rng;
use crate::fleet::faults::Among;
use crate::fleet::world::Care;
use crate::fleet::{FleetSetup, Links, Outcome, RouterSetup, WorkerSetup, World, WorldError};

/// Of a thousand worlds in how many all requests are alike, so that shares can be checked.
const ALIKE: u64 = 150;

/// One world.
#[derive(Clone, Debug)]
pub struct Run {
    /// All chance comes from it.
    pub seed: u64,
    /// Kinds of faults that may happen, by name.
    pub faults: Vec<&'static str>,
    /// The mistake that is made on purpose.
    pub bug: Option<Bug>,
    /// Whether the last things that happen are kept.
    pub log: bool,
}

/// A world before anything happened in it.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// What it is made of.
    pub setup: FleetSetup,
    care: Care,
    amount: Amount,
    rng: Rng,
}

impl fmt::Display for Drawn {
    /// What somebody who looks for a mistake wants to know first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FleetSetup {
            workers,
            routers,
            links,
            faults,
            split,
            ..
        } = &self.setup;
        let (engine, config) = (&workers.engine, &routers.config);
        writeln!(
            f,
            "{} workers of {} ranks: {}, {} blocks of {} tokens, {} running, {} waiting, a ring of {}",
            workers.count,
            engine.ranks,
            match engine.style {
                Style::Vllm(_) => "vLLM",
                Style::Sglang(_) => "SGLang",
            },
            engine.blocks.0,
            engine.block_size.get(),
            engine.max_running,
            engine.max_waiting,
            workers.ring
        )?;
        writeln!(
            f,
            "{} routers: {}, caches known by {:?}, start within {} ms, wait at most {} ms, lease {} ms, {} attempts",
            routers.count,
            routers.policy,
            routers.view,
            config.start_within.0,
            config.most_wait.0,
            config.load.lease.0,
            routers.attempts
        )?;
        for class in &config.classes {
            let ClassSpec {
                name, quantum, limits, ..
            } = class;
            writeln!(f, "{name}: quantum {quantum}, {limits:?}")?;
        }
        writeln!(
            f,
            "a hop {} ms, events {} ms late, asked every {} ms; {} requests in about {} ms",
            links.hop.0, links.event_lag.0, links.poll.0, self.amount.requests, self.amount.span.0
        )?;
        if let Some(split) = split {
            writeln!(
                f,
                "the first {} compute prompts: {:?}, a lease of {} ms, {:?}",
                split.prefill, split.link, split.lease.0, split.handoff
            )?;
        }
        for fault in faults {
            writeln!(f, "at {} for {} ms: {:?}", fault.at, fault.lasts.0, fault.kind)?;
        }
        Ok(())
    }
}

impl Run {
    /// What the world is made of.
    pub fn draw(&self) -> Drawn {
        let mut rng = Rng::new(self.seed);
        let care = if rng.chance(ALIKE) { Care::Shares } else { Care::Close };
        let timing = engines::timing(&mut rng);
        let mut workers = engines::workers(&mut rng, timing.clone());
        let theme = Theme::draw(self, care);
        if care == Care::Shares {
            // Queues are long when there are few to serve them.
            workers.count = workers.count.min(2);
            workers.engine.max_waiting = 1_000;
            workers.engine.blocks = Blocks(20_000);
        }
        if let Some(theme) = &theme {
            workers.count = workers.count.max(theme.workers);
        }
        let amount = Amount::draw(&mut rng, workers.count);
        let mut routers = routers(&mut rng, &workers, timing, care);
        let mut kinds = some(&mut rng, &self.faults);
        if let Some(theme) = &theme {
            routers.view = CacheView::Events;
            theme.policy.clone_into(&mut routers.policy);
            kinds.clone_from(&theme.kinds);
        }
        let among = Among {
            kinds,
            span: amount.span,
            workers: workers.count,
            routers: routers.count,
        };
        let count = if care == Care::Shares || self.faults.is_empty() {
            0
        } else {
            let count = rng.below(9) as u32;
            count.max(theme.as_ref().map_or(0, |theme| theme.faults))
        };
        let faults = among.draw(&mut rng, count);
        let links = Links {
            hop: Millis(rng.pick([0.1, 0.5, 5.0])),
            event_lag: Millis(rng.pick([0.0, 1.0, 5.0, 100.0])),
            poll: Millis(rng.pick([0.0, 250.0, 1_000.0])),
        };
        let mut setup = FleetSetup {
            seed: rng.number(),
            workers,
            routers,
            links,
            faults,
            split: None,
            spelling: Spelling::default(),
        };
        if theme.is_none() {
            split::perhaps(self, care, amount.span, &mut setup);
        }
        if let Some(bug) = self.bug {
            bug.plant(&mut setup);
        }
        Drawn {
            setup,
            care,
            amount,
            rng,
        }
    }

    /// What happens in it.
    pub fn run(&self) -> Result<Outcome, WorldError> {
        let Drawn {
            setup,
            care,
            amount,
            mut rng,
        } = self.draw();
        let classes = setup.routers.config.classes.clone();
        if care == Care::Shares {
            self.go(setup, care, alike(&mut rng, amount, &classes)?)
        } else {
            self.go(setup, care, drawn(&mut rng, amount, &classes)?)
        }
    }

    fn go(&self, setup: FleetSetup, care: Care, traffic: impl Traffic) -> Result<Outcome, WorldError> {
        let world = World::new(setup, traffic)?.with_care(care);
        let world = if self.log { world.with_log() } else { world };
        world.run(&mut |_, _| ())
    }
}

/// What a world is about, if it is about one thing: some mistakes show only when the same happens several times.
#[derive(Debug)]
struct Theme {
    kinds: Vec<&'static str>,
    /// At least so many.
    workers: u32,
    faults: u32,
    policy: &'static str,
}

impl Theme {
    /// Of a thousand worlds so many are about workers that leave and get each other's places, and so many about streams of events.
    const MOVES: u64 = 120;
    const STREAMS: u64 = 120;

    /// Of chance of its own, so that worlds without a theme are what they would be if there were none.
    fn draw(run: &Run, care: Care) -> Option<Self> {
        let mut rng = Rng::new(!run.seed);
        let drawn = rng.below(1_000);
        let (about, workers, policies): (&[&str], u32, _) = if drawn < Self::MOVES {
            (&["leave"], 4, ["sticky", "sticky", "time", "weighted"])
        } else if drawn < Self::MOVES + Self::STREAMS {
            (
                &["repeat", "reorder", "loss", "feed-cut"],
                1,
                ["time", "time", "blocks", "weighted"],
            )
        } else {
            return None;
        };
        let allowed = run.faults.iter().copied();
        let kinds: Vec<&str> = allowed.filter(|kind| about.contains(kind)).collect();
        let policy = rng.pick(policies);
        (care != Care::Shares && !kinds.is_empty()).then_some(Self {
            kinds,
            workers,
            faults: 5,
            policy,
        })
    }
}

/// A few of these: two kinds of faults reach states that forty do not.
fn some(rng: &mut Rng, of: &[&'static str]) -> Vec<&'static str> {
    if of.len() < 2 || rng.chance(300) {
        return of.to_vec();
    }
    (0..rng.between(1, 4)).map(|_| of[rng.place(of.len())]).collect()
}

fn routers(rng: &mut Rng, workers: &WorkerSetup, timing: Timing, care: Care) -> RouterSetup {
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let mut config = RouterConfig::new(workers.engine.block_size, hasher);
    config.seed = rng.number();
    config.start_within = Millis(rng.pick([5.0, 50.0, 300.0, 2_000.0]));
    config.most_wait = Millis(rng.between(500, 20_000) as f64);
    config.load.lease = Millis(rng.pick([2_000.0, 10_000.0, 60_000.0]));
    config.load.max_bookings = rng.pick([8, 64, 1 << 20]);
    config.first_output = Tokens(rng.pick([1, 30, 256, 4_000]));
    config.total = limits(rng, 3);
    let classes = if care == Care::Shares { 2 } else { rng.between(1, 3) };
    config.classes = (0..classes).map(|number| class(rng, number)).collect();
    if care == Care::Shares {
        config.load.max_bookings = 1 << 20;
        config.start_within = Millis(50.0);
        config.first_output = Tokens(20);
    }
    RouterSetup {
        count: rng.between(1, 3) as u32,
        config,
        policy: POLICIES[rng.place(POLICIES.len())].to_owned(),
        timing: if rng.chance(300) { engines::timing(rng) } else { timing },
        view: rng.pick([
            CacheView::Events,
            CacheView::Events,
            CacheView::Events,
            CacheView::Guess,
            CacheView::Nothing,
        ]),
        feed: feed(rng),
        attempts: rng.between(1, 4) as u32,
    }
}

fn class(rng: &mut Rng, number: u64) -> ClassSpec {
    ClassSpec {
        name: format!("class {number}"),
        quantum: rng.between(1, 5) as u32,
        order: if rng.chance(300) {
            let per_token = Millis(rng.pick([0.1, 1.0, 10.0]));
            Order::Shortest { per_token }
        } else {
            Order::FirstCome
        },
        limits: limits(rng, 1),
    }
}

fn limits(rng: &mut Rng, times: usize) -> Limits {
    Limits {
        requests: times * rng.pick([2, 10, 60, 1_000]),
        tokens: times as u64 * rng.pick([3_000, 30_000, 1_000_000]),
        first_token: Millis(rng.pick([1_000.0, 10_000.0, 1e9])),
    }
}

fn feed(rng: &mut Rng) -> FeedConfig {
    FeedConfig {
        verify_within_ms: rng.between(500, 5_000),
        buffer_batches: rng.pick([2, 8, 1_024]),
        buffer_blocks: rng.pick([16, 1 << 20]),
        max_repairs: rng.pick([1, 4, 16]),
        repair_timeout_ms: rng.between(200, 3_000),
        repair_limit_ms: rng.between(2_000, 10_000),
        backoff_base_ms: rng.between(10, 200),
        repair_tries: rng.between(2, 8) as u32,
        retry_after_ms: rng.between(500, 5_000),
        drift_window_ms: rng.between(500, 5_000),
        drift_cooldown_ms: rng.between(1_000, 5_000),
        ..FeedConfig::default()
    }
}
