//! What kind of world is this? Drawn from the seed, so that every seed is another corner.
//!
//! Limits are small, that they are often met. Which faults there are is drawn too: a world with two kinds of faults
//! reaches states that one with twenty does not.

use homing_domain::RankId;
use homing_feed::{Bug, ClearReach, FeedConfig, Recovery};
use homing_index::Copies;

use super::faults::{Fault, Faults};
use homing_trace::rng::Rng;

/// All that is fixed for a world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The limits of every feed.
    pub feed: FeedConfig,
    /// Feeds.
    pub routers: usize,
    /// Engines.
    pub workers: Vec<WorkerSetup>,
    /// Faults that happen here.
    pub faults: Faults,
    /// How often each happens, per thousand chances.
    pub loss: u64,
    /// Batches that come twice, per thousand.
    pub repeats: u64,
    /// Answers that go wrong, per thousand.
    pub bad_answers: u64,
    /// Batches that find their lane full, per thousand.
    pub overflow: u64,
    /// The most that a batch or a heartbeat is under way.
    pub delay_ms: u64,
    /// The pause between ticks.
    pub tick_ms: u64,
    /// The mean pause between two acts of the monkey.
    pub monkey_ms: u64,
    /// How long there are faults.
    pub chaos_ms: u64,
}

/// One engine, and how it is heard.
#[derive(Clone, Debug)]
pub struct WorkerSetup {
    /// Its ranks.
    pub ranks: Vec<RankId>,
    /// What its source can do.
    pub recovery: Recovery,
    /// What its clears empty.
    pub reach: ClearReach,
    /// How it means a block that it stores again.
    pub copies: Copies,
    /// Batches that it keeps.
    pub ring: usize,
    /// The pause between two batches of a rank.
    pub pause_ms: u64,
    /// Entries that it holds at most.
    pub cache: usize,
    /// Whether a restart can be seen from outside its stream.
    pub identity: Visible,
    /// How an agent numbers what it passes on.
    pub numbering: Numbering,
    /// Items that an agent lists at most.
    pub list_limit: usize,
    /// How it names blocks.
    pub labels: Labels,
    /// How far its clock is off.
    pub clock_ms: u64,
}

/// Whether something can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// It can.
    Yes,
    /// It cannot: digests must tell.
    No,
}

/// How an agent numbers batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// As the engine did.
    OfEngine,
    /// From 0 in each life of its own.
    Own,
}

/// How an engine names blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// As every other does.
    Common,
    /// In its own way.
    PerRank,
    /// In another way in each life.
    PerLife,
}

impl Setup {
    /// The world of a seed.
    pub fn draw(rng: &mut Rng, bug: Option<Bug>) -> Self {
        let workers = rng.between(1, 3) as u32;
        let workers: Vec<WorkerSetup> = (0..workers).map(|worker| WorkerSetup::draw(rng, worker)).collect();
        Self {
            feed: feed_config(rng, bug),
            routers: rng.pick([1, 1, 2]),
            faults: Faults::draw(rng),
            loss: rng.pick([0, 5, 20, 80, 200]),
            repeats: rng.pick([0, 5, 30, 150]),
            bad_answers: rng.pick([50, 200, 400, 700]),
            overflow: rng.pick([0, 0, 10, 50]),
            delay_ms: rng.pick([2, 10, 40, 150]),
            tick_ms: rng.pick([20, 50]),
            monkey_ms: rng.pick([60, 200, 600]),
            chaos_ms: rng.between(4_000, 9_000),
            workers,
        }
    }

    /// Whether a kind of fault happens here.
    pub fn allows(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }

    /// How old what is seen of a view that claims to be verified may be.
    pub const fn lag_ms(&self) -> u64 {
        self.feed.verify_within_ms + self.delay_ms + 1
    }

    /// All ranks of all engines.
    pub fn ranks(&self) -> usize {
        self.workers.iter().map(|worker| worker.ranks.len()).sum()
    }

    /// How long after the last fault everything must be well: a repair that just failed for good is tried again, waits
    /// for all others and takes all its tries.
    pub fn settling_ms(&self) -> u64 {
        let feed = &self.feed;
        let tries = u64::from(feed.repair_tries.max(feed.repairs_in_a_row));
        let one = feed.repair_timeout_ms + (feed.backoff_base_ms << (feed.repair_tries - 1)) + 2 * self.tick_ms;
        let turns = (self.ranks() / feed.max_repairs + 1) as u64;
        1_000 + feed.retry_after_ms + tries.min(3) * one + turns * 2 * feed.repair_timeout_ms
    }

    /// How long a rank may be under repair at a stretch.
    pub fn longest_repair_ms(&self) -> u64 {
        let feed = &self.feed;
        let one = feed.repair_limit_ms + (feed.backoff_base_ms << (feed.repair_tries - 1)) + 2 * self.tick_ms;
        let turns = (self.ranks() / feed.max_repairs + 1) as u64;
        (u64::from(feed.repairs_in_a_row) + 1) * one * turns
    }
}

fn feed_config(rng: &mut Rng, bug: Option<Bug>) -> FeedConfig {
    let repair_timeout_ms = rng.pick([60, 150, 300]);
    FeedConfig {
        verify_within_ms: rng.pick([200, 500, 1_000]),
        buffer_batches: rng.pick([2, 8, 8, 32]),
        buffer_blocks: rng.pick([8, 64, 1_024]),
        max_repairs: rng.pick([1, 2, 16]),
        repair_timeout_ms,
        repair_limit_ms: repair_timeout_ms * rng.between(2, 5),
        backoff_base_ms: rng.pick([5, 20, 50]),
        repair_tries: rng.between(2, 6) as u32,
        // A source that keeps nothing takes four: twice from the cursor, twice from the beginning.
        repairs_in_a_row: rng.between(5, 12) as u32,
        retry_after_ms: rng.pick([200, 600]),
        drift_unknown_removals: rng.pick([2, 8, 32]),
        drift_window_ms: rng.pick([200, 1_000]),
        drift_cooldown_ms: rng.pick([300, 2_000]),
        seed: rng.number(),
        bug,
    }
}

impl WorkerSetup {
    fn draw(rng: &mut Rng, worker: u32) -> Self {
        let recovery = rng.pick([
            Recovery::LiveOnly,
            Recovery::Replay,
            Recovery::Replay,
            Recovery::List,
            Recovery::List,
        ]);
        let count = rng.pick([1, 1, 2, 3]);
        // Where a clear of the whole worker is on one stream only, that stream must not lose it for good, or nobody
        // can know of it: see docs/simulator.md.
        let reach = match recovery {
            Recovery::Replay if count > 1 => ClearReach::Worker,
            _ => ClearReach::Rank,
        };
        Self {
            ranks: (0..count).map(|dp| RankId::new(worker, dp)).collect(),
            recovery,
            reach,
            copies: rng.pick([Copies::Counted, Copies::Counted, Copies::Set]),
            ring: match reach {
                ClearReach::Worker => 1 << 20,
                ClearReach::Rank => rng.pick([0, 2, 4, 16, 64, 1 << 20]),
            },
            pause_ms: rng.pick([8, 20, 60, 200]),
            cache: rng.pick([6, 20, 50]),
            identity: rng.pick([Visible::Yes, Visible::No]),
            numbering: rng.pick([Numbering::OfEngine, Numbering::Own]),
            list_limit: rng.pick([1 << 20, 1 << 20, 1 << 20, 5]),
            labels: rng.pick([Labels::Common, Labels::PerRank, Labels::PerLife]),
            clock_ms: rng.pick([0, 1_000_000, 1_000_000]),
        }
    }
}
