//! Our index: one writer, readers that take no lock, answers as levels.
//!
//! This file is the only one that knows its API.

use homing_domain::{
    BlockKey, BlockSize, ContentHash, HashSeed, KeyHasher, Label, Prompt, RankId, Removed, Stored, StoredBlock, Tier,
};
use homing_index::{Answer, Copies, Index as Homing, IndexConfig, Reader as HomingReader, Slot};
use homing_keeper::SpareMaker;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

use crate::catalog::{BLOCK_TOKENS, Catalog, Labels};
use crate::contender::{Index, Reader, Slice};
use crate::log::{Change, Op};

/// Work units per call of `maintain`.
const MAINTENANCE: u32 = 200;
/// Events between two calls of `maintain` while events are applied.
const EVENTS_PER_MAINTENANCE: usize = 64;

/// Its writing side.
pub struct Ours {
    index: Homing,
    /// Makes memory beside the writer, as in production.
    spares: SpareMaker,
    slots: Vec<Slot>,
    hasher: KeyHasher,
}

/// An event, as its methods take it.
pub enum Event {
    /// For `store`.
    Store(Slot, Stored),
    /// For `remove`.
    Remove(Slot, Removed),
}

impl Ours {
    /// An empty index with its ranks.
    pub fn new(workers: usize) -> Self {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let mut index = Homing::new(IndexConfig {
            capacity: 1 << 26,
            ..IndexConfig::new(hasher)
        });
        let slots = (0..workers as u32)
            .map(|worker| {
                let slot = index.add_rank(RankId::new(worker, 0), Copies::Counted);
                slot.expect("a new rank of an empty index has a slot")
            })
            .collect();
        let spares = SpareMaker::start(&index).expect("a thread can be started");
        Self {
            index,
            spares,
            slots,
            hasher,
        }
    }

    fn one(&mut self, event: &Event) {
        match event {
            Event::Store(slot, stored) => assert!(self.index.store(*slot, stored).is_ok(), "a live slot stores"),
            Event::Remove(slot, removed) => assert!(self.index.remove(*slot, removed).is_ok(), "a live slot removes"),
        }
    }

    fn maintain(&mut self) -> bool {
        let pending = self.index.maintain(MAINTENANCE);
        self.spares.tend();
        pending.is_pending()
    }
}

impl Index for Ours {
    type Event = Event;
    type Input = Vec<BlockKey>;
    type Reader = OursReader;

    fn event(&self, op: Op<'_>, catalog: &Catalog, labels: Labels) -> Event {
        let name = |id: &u32| Label::new(labels.of(catalog.block(*id), op.worker));
        let slot = self.slots[op.worker];
        match op.change {
            Change::Store { parent } => {
                let blocks = op.blocks.iter().map(|id| StoredBlock {
                    label: name(id),
                    content: ContentHash(catalog.block(*id).ours),
                });
                Event::Store(slot, Stored::plain(parent.as_ref().map(name), blocks.collect()))
            }
            Change::Remove => Event::Remove(slot, Removed::plain(op.blocks.iter().map(name).collect())),
        }
    }

    fn apply(&mut self, events: Vec<Event>) {
        for some in events.chunks(EVENTS_PER_MAINTENANCE) {
            for event in some {
                self.one(event);
            }
            self.maintain();
        }
        while self.maintain() {}
    }

    fn reader(&self) -> OursReader {
        let most = self.slots.iter().map(|slot| slot.index()).max().unwrap_or(0);
        let mut workers = vec![usize::MAX; most + 1];
        for (worker, slot) in self.slots.iter().enumerate() {
            workers[slot.index()] = worker;
        }
        OursReader {
            reader: self.index.reader(),
            workers,
            hasher: self.hasher,
            answer: Answer::default(),
            keys: Vec::new(),
            unsettled: 0,
        }
    }

    fn input(&self, tokens: &[u32]) -> Vec<BlockKey> {
        let mut keys = Vec::new();
        self.hasher.keys(&prompt(tokens), &mut keys);
        keys
    }

    fn apply_in_slices(&mut self, events: Vec<Event>) -> Vec<Slice> {
        let mut slices = Vec::with_capacity(events.len() * 2);
        let timed = |slices: &mut Vec<Slice>, work: &mut dyn FnMut() -> bool| {
            let (busy, start) = (thread_time(), Instant::now());
            let more = work();
            slices.push(Slice {
                wall: start.elapsed().as_nanos() as u64,
                busy: thread_time() - busy,
            });
            more
        };
        for event in &events {
            timed(&mut slices, &mut || {
                self.one(event);
                false
            });
            timed(&mut slices, &mut || self.maintain());
        }
        for slot in std::mem::take(&mut self.slots) {
            timed(&mut slices, &mut || {
                assert!(self.index.drop_rank(slot).is_ok(), "a live slot is dropped");
                false
            });
            while timed(&mut slices, &mut || self.maintain()) {}
        }
        slices
    }
}

/// How long this thread has had a core, in ns.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Its reading side.
pub struct OursReader {
    reader: HomingReader,
    /// The worker in each slot.
    workers: Vec<usize>,
    hasher: KeyHasher,
    answer: Answer,
    keys: Vec<BlockKey>,
    unsettled: u64,
}

impl OursReader {
    /// Consumes the answer as the scheduler does: level by level, with every word of each level's set.
    fn fold(&mut self) -> u64 {
        self.unsettled += u64::from(!self.answer.is_settled());
        self.answer.levels(Tier::Device).fold(0, |sum, level| {
            let depth = u64::from(level.depth().0);
            level.words().iter().fold(sum + depth, |sum, word| sum ^ word)
        })
    }
}

impl Reader for OursReader {
    type Input = Vec<BlockKey>;

    fn lookup(&mut self, input: &Self::Input) -> u64 {
        self.reader.lookup(input, &mut self.answer);
        self.fold()
    }

    fn lookup_tokens(&mut self, tokens: &[u32]) -> u64 {
        self.reader.keys_of(&self.hasher, &prompt(tokens), &mut self.keys);
        self.reader.lookup(&self.keys, &mut self.answer);
        self.fold()
    }

    fn depths(&mut self, input: &Self::Input, depths: &mut [u32]) {
        depths.fill(0);
        self.reader.lookup(input, &mut self.answer);
        for level in self.answer.levels(Tier::Device) {
            for slot in level.slots() {
                depths[self.workers[slot]] = level.depth().0;
            }
        }
    }

    fn unsettled(&self) -> u64 {
        self.unsettled
    }
}

fn prompt(tokens: &[u32]) -> Prompt<'_> {
    const SIZE: BlockSize = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");
    Prompt::text(tokens, SIZE)
}
