//! What does an engine do? Caches chains with shared prefixes, evicts, clears, and says so batch by batch.
//!
//! A restart empties the cache and begins another stream. An agent beside an engine hears all of it while it is up, keeps
//! what it knows and passes the batches on as a stream of its own.

use homing_domain::{BlockKey, CacheGroup, ClearScope, KvBatch, KvChange, Listed, Removed, Stored, Tier};
use homing_feed::{Coverage, Identity, Recovery, Source};

use super::blocks::{Blocks, Salt};
use super::cache::{Cache, Entry};
use super::faults::{Fault, Happened};
use super::setup::{Labels, Numbering, Visible, WorkerSetup};
use super::stream::Stream;
use super::truth::Truth;
use homing_trace::rng::{Rng, mix};

/// An engine with its ranks, and its agent if it has one.
#[derive(Debug)]
pub struct Worker {
    /// What is fixed.
    pub setup: WorkerSetup,
    /// Which life of the engine, counted from 1.
    pub engine_life: u64,
    /// Which life of the agent, counted from 1.
    pub agent_life: u64,
    /// Whether the engine runs.
    pub engine_up: bool,
    /// Whether the agent runs.
    pub agent_up: bool,
    /// Its ranks.
    pub ranks: Vec<EngineRank>,
    /// When it last said something.
    pub said_ms: u64,
    /// When its engine last died.
    pub died_ms: u64,
    /// The engine's clock in this life, compared with ours.
    clock_ms: u64,
}

/// One rank of an engine.
#[derive(Debug)]
pub struct EngineRank {
    /// What it holds.
    pub cache: Cache,
    /// What it held when.
    pub truth: Truth,
    /// What it says.
    pub stream: Stream,
    /// What the agent knows and says of it.
    pub agent: Option<AgentRank>,
    /// Until when it does nothing.
    pub idle_until_ms: u64,
    salt: Salt,
}

/// One rank as its agent knows it.
#[derive(Debug)]
pub struct AgentRank {
    /// What the agent knows of the cache, as long as that is not all.
    known: Cache,
    /// Whether it knows all.
    pub coverage: Coverage,
    /// What it passes on.
    pub stream: Stream,
}

/// Hands out names of lives.
#[derive(Debug, Default)]
pub struct Lives(u64);

impl Lives {
    /// A name that was not used before.
    pub fn fresh(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// What surrounds an engine at work.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The time.
    pub now_ms: u64,
    /// Chance.
    pub rng: &'a mut Rng,
    /// All blocks.
    pub blocks: &'a mut Blocks,
    /// What happened.
    pub happened: &'a mut Happened,
}

impl Worker {
    /// An engine that just started.
    pub fn new(setup: WorkerSetup, lives: &mut Lives) -> Self {
        let mut worker = Self {
            engine_life: 1,
            agent_life: 1,
            engine_up: true,
            agent_up: true,
            ranks: Vec::new(),
            said_ms: 0,
            died_ms: 0,
            clock_ms: setup.clock_ms,
            setup,
        };
        for place in 0..worker.setup.ranks.len() {
            let rank = EngineRank {
                cache: Cache::new(worker.setup.copies),
                truth: Truth::default(),
                stream: Stream::new(lives.fresh(), worker.setup.ring),
                agent: None,
                idle_until_ms: 0,
                salt: worker.salt(place),
            };
            worker.ranks.push(rank);
        }
        worker.listen(lives, Coverage::Complete);
        worker
    }

    fn salt(&self, place: usize) -> Salt {
        let rank = self.setup.ranks[place];
        let of_rank = u64::from(rank.worker.0) << 16 | u64::from(rank.dp.0) | 1 << 40;
        match self.setup.labels {
            Labels::Common => Salt(0),
            Labels::PerRank => Salt(mix(of_rank)),
            Labels::PerLife => Salt(mix(of_rank ^ self.engine_life << 48)),
        }
    }

    /// What discovery tells of it.
    pub fn source(&self) -> Source {
        Source {
            identity: self.identity(),
            recovery: self.setup.recovery,
            clear_reach: self.setup.reach,
            copies: self.setup.copies,
        }
    }

    /// Which life of its source it is, as far as that is told.
    pub fn identity(&self) -> Identity {
        let is_list = self.setup.recovery == Recovery::List;
        let is_visible = is_list || self.setup.identity == Visible::Yes;
        Identity {
            engine: if is_visible { self.engine_life } else { 0 },
            agent: if is_list { self.agent_life } else { 0 },
        }
    }

    /// Whether its source can be reached at all.
    pub fn is_up(&self) -> bool {
        match self.setup.recovery {
            // An agent whose engine is gone says nothing.
            Recovery::List => self.agent_up && self.engine_up,
            Recovery::LiveOnly | Recovery::Replay => self.engine_up,
        }
    }

    /// The stream that routers hear.
    pub fn stream(&self, place: usize) -> &Stream {
        let rank = &self.ranks[place];
        rank.agent.as_ref().map_or(&rank.stream, |agent| &agent.stream)
    }

    /// What an agent lists of a rank, at most so many items as it may, and whether that is all that it knows.
    pub fn list(&self, place: usize, blocks: &Blocks) -> Option<(Vec<Listed>, bool)> {
        let rank = &self.ranks[place];
        let known = match rank.agent.as_ref()? {
            agent if agent.coverage == Coverage::Warming => &agent.known,
            _ => &rank.cache,
        };
        Some(known.list(blocks, rank.salt, self.setup.list_limit))
    }

    /// The engine dies: nothing is held any more.
    pub fn die(&mut self, now_ms: u64) {
        self.engine_up = false;
        self.died_ms = now_ms;
        for rank in &mut self.ranks {
            rank.cache.clear();
            rank.truth.record(now_ms, &rank.cache);
        }
    }

    /// The engine starts anew. Its agent, if it is up, is there from the beginning.
    pub fn start(&mut self, lives: &mut Lives, rng: &mut Rng) {
        self.engine_up = true;
        self.engine_life += 1;
        self.clock_ms += rng.pick([0, 500_000]);
        for place in 0..self.ranks.len() {
            let salt = self.salt(place);
            let stream = Stream::new(lives.fresh(), self.setup.ring);
            let rank = &mut self.ranks[place];
            rank.stream = stream;
            rank.salt = salt;
            rank.idle_until_ms = 0;
        }
        self.listen(lives, Coverage::Complete);
    }

    /// An agent begins to listen, and knows all that its engine holds or nothing of it.
    pub fn listen(&mut self, lives: &mut Lives, coverage: Coverage) {
        if self.setup.recovery != Recovery::List {
            return;
        }
        for rank in &mut self.ranks {
            let known = Cache::new(self.setup.copies);
            let mut stream = Stream::new(lives.fresh(), self.setup.ring);
            if coverage == Coverage::Complete && self.setup.numbering == Numbering::OfEngine {
                stream.resume(&rank.stream);
            }
            rank.agent = Some(AgentRank {
                known,
                coverage,
                stream,
            });
        }
    }

    /// One rank says something. What routers hear of it is returned, with the rank's place.
    pub fn act(&mut self, place: usize, near: &mut Surroundings<'_>) -> Option<KvBatch> {
        let is_full = self.ranks[place].cache.entries().len() > self.setup.cache;
        let (salt, mut changes) = (self.ranks[place].salt, Vec::new());
        for _ in 0..near.rng.pick([0, 1, 1, 1, 2, 4]) {
            let rank = &mut self.ranks[place];
            let kind = near.rng.below(100);
            let change = match kind {
                0..50 if !is_full => Some(store(&mut rank.cache, salt, near)),
                50..62 if !is_full => store_again(&mut rank.cache, salt, near),
                0..97 => remove(&mut rank.cache, salt, near),
                _ => clear_tier(&mut rank.cache, near),
            };
            changes.extend(change);
        }
        self.say(place, changes, near)
    }

    /// All tiers of a rank are cleared, or of all ranks where clears reach so far; something may be stored right after.
    pub fn clear(&mut self, place: usize, near: &mut Surroundings<'_>) -> Option<KvBatch> {
        let reach = match self.setup.reach {
            homing_feed::ClearReach::Worker => 0..self.ranks.len(),
            homing_feed::ClearReach::Rank => place..place + 1,
        };
        for rank in &mut self.ranks[reach] {
            rank.cache.clear();
            rank.truth.record(near.now_ms, &rank.cache);
        }
        let (salt, cache) = (self.ranks[place].salt, &mut self.ranks[place].cache);
        let mut changes = vec![KvChange::Cleared(ClearScope::AllTiers)];
        if near.rng.chance(300) {
            changes.push(store(cache, salt, near));
        }
        self.say(place, changes, near)
    }

    fn say(&mut self, place: usize, changes: Vec<KvChange>, near: &mut Surroundings<'_>) -> Option<KvBatch> {
        let sent_ms = Some(near.now_ms + self.clock_ms);
        self.said_ms = near.now_ms;
        let salt = self.ranks[place].salt;
        let rank = &mut self.ranks[place];
        rank.truth.record(near.now_ms, &rank.cache);
        let batch = rank.stream.emit(sent_ms, changes);
        let Some(agent) = &mut rank.agent else {
            return Some(batch);
        };
        if !self.agent_up {
            return None;
        }
        agent.hear(&batch, salt, near.blocks);
        Some(match self.setup.numbering {
            Numbering::OfEngine => {
                agent.stream.pass(batch.clone());
                batch
            }
            Numbering::Own => agent.stream.emit(sent_ms, batch.changes),
        })
    }
}

impl AgentRank {
    fn hear(&mut self, batch: &KvBatch, salt: Salt, blocks: &Blocks) {
        if batch.is_barrier() {
            self.coverage = Coverage::Complete;
        }
        if self.coverage == Coverage::Complete {
            return;
        }
        for change in &batch.changes {
            match change {
                KvChange::Stored(stored) => {
                    let mut parent = stored.parent.and_then(|label| blocks.named(label, salt));
                    for block in &stored.blocks {
                        let before = parent.unwrap_or(blocks.root());
                        let key = blocks.hasher.child(before, block.content);
                        self.known.store(blocks, (key, stored.tier));
                        parent = Some(key);
                    }
                }
                KvChange::Removed(removed) => {
                    let keys = removed.labels.iter().filter_map(|label| blocks.named(*label, salt));
                    keys.for_each(|key| self.known.remove((key, removed.tier)));
                }
                KvChange::Cleared(ClearScope::Only(tier)) => self.known.clear_tier(*tier),
                KvChange::Cleared(ClearScope::AllTiers) => self.known.clear(),
            }
        }
    }
}

/// A chain that continues what is held, or begins anew.
fn store(cache: &mut Cache, salt: Salt, near: &mut Surroundings<'_>) -> KvChange {
    let held = any_entry(cache, near.rng).map(|entry| entry.0);
    let parent = held.filter(|_| near.rng.chance(700));
    let root = near.blocks.root();
    let tier = near.rng.pick([Tier::Device, Tier::Device, Tier::Device, Tier::Host]);
    let mut keys: Vec<BlockKey> = Vec::new();
    for _ in 0..near.rng.between(1, 4) {
        let before = keys.last().copied().or(parent).unwrap_or(root);
        let choice = near.rng.below(3);
        keys.push(near.blocks.child(before, choice));
    }
    for key in &keys {
        cache.store(near.blocks, (*key, tier));
    }
    stored(parent, &keys, tier, salt, near.blocks)
}

/// Another copy of what is held, perhaps on another tier.
fn store_again(cache: &mut Cache, salt: Salt, near: &mut Surroundings<'_>) -> Option<KvChange> {
    let key = any_entry(cache, near.rng)?.0;
    let tier = near.rng.pick([Tier::Device, Tier::Host, Tier::Disk]);
    let parent = near.blocks.parent(key).filter(|parent| *parent != near.blocks.root());
    if parent.is_some_and(|parent| !cache.holds(parent)) {
        return None;
    }
    cache.store(near.blocks, (key, tier));
    Some(stored(parent, &[key], tier, salt, near.blocks))
}

/// One copy each of some blocks, wherever they are in their chains.
fn remove(cache: &mut Cache, salt: Salt, near: &mut Surroundings<'_>) -> Option<KvChange> {
    let (_, tier) = any_entry(cache, near.rng)?;
    let on_tier = |entry: &&Entry| entry.1 == tier;
    let entries: Vec<Entry> = cache.entries().keys().filter(on_tier).copied().collect();
    let (start, count) = (near.rng.place(entries.len()), near.rng.between(1, 3) as usize);
    let gone: Vec<Entry> = entries.into_iter().skip(start).take(count).collect();
    for entry in &gone {
        cache.remove(*entry);
    }
    Some(KvChange::Removed(Removed {
        labels: gone.iter().map(|(key, _)| salt.label(*key)).collect(),
        tier,
        group: CacheGroup(0),
    }))
}

fn clear_tier(cache: &mut Cache, near: &mut Surroundings<'_>) -> Option<KvChange> {
    let (_, tier) = any_entry(cache, near.rng)?;
    cache.clear_tier(tier);
    near.happened.count(Fault::ClearTier);
    Some(KvChange::Cleared(ClearScope::Only(tier)))
}

fn stored(parent: Option<BlockKey>, keys: &[BlockKey], tier: Tier, salt: Salt, blocks: &Blocks) -> KvChange {
    KvChange::Stored(Stored {
        tier,
        ..Stored::plain(
            parent.map(|key| salt.label(key)),
            keys.iter().map(|key| blocks.stored(*key, salt)).collect(),
        )
    })
}

fn any_entry(cache: &Cache, rng: &mut Rng) -> Option<Entry> {
    let entries = cache.entries();
    entries.keys().nth(rng.place(entries.len())).copied()
}
