//! Who holds how much? The answer to a lookup, as levels: at each depth the set of slots that reach exactly so far. A
//! level costs the same whether one rank is in it or five hundred, which is why the scheduler consumes this form.

use std::sync::Arc;

use homing_domain::{Blocks, RankId, Tier};

use crate::record::RunId;
use crate::sets::bits_in;
use crate::slots::{Live, Slot};

/// Slots that hold the same number of leading blocks.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    depth: u32,
    words: &'a [u64],
}

impl<'a> Level<'a> {
    /// How many leading blocks these slots hold.
    pub fn depth(&self) -> Blocks {
        Blocks(self.depth)
    }

    /// The slots as a bitset: slot `i` is bit `i % 64` of word `i / 64`.
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    /// The numbers of the slots.
    pub fn slots(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(index, word)| bits_in(*word, index * 64))
    }
}

/// The answer to one lookup, and the room to make the next one without allocating.
#[derive(Debug, Default)]
pub struct Answer {
    levels: Vec<(u32, u32)>,
    words: Vec<u64>,
    width: usize,
    /// Which levels belong to which tier: `levels[starts[t]..ends[t]]`.
    spans: [(u32, u32); Tier::COUNT],
    live: Arc<Live>,
    settled: bool,
    pub(crate) scratch: Scratch,
}

/// Room for a lookup under way.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) alive: Vec<u64>,
    pub(crate) stay: Vec<u64>,
    pub(crate) part: Vec<u64>,
    pub(crate) visited: Vec<(RunId, u64)>,
    /// Where a walk found no run to follow the path.
    pub(crate) absent: Option<usize>,
}

impl Answer {
    /// The levels for blocks on tiers up to `deepest`, in no particular order. A slot is in at most one of them; one
    /// that is in none holds nothing of the prefix.
    pub fn levels(&self, deepest: Tier) -> impl Iterator<Item = Level<'_>> {
        let (start, end) = self.spans[deepest.index()];
        self.levels[start as usize..end as usize]
            .iter()
            .map(|(depth, at)| Level {
                depth: *depth,
                words: &self.words[*at as usize..*at as usize + self.width],
            })
    }

    /// How many leading blocks one slot holds on tiers up to `deepest`.
    pub fn depth(&self, slot: Slot, deepest: Tier) -> Blocks {
        let index = slot.index();
        let in_it = |level: &Level<'_>| {
            level
                .words
                .get(index / 64)
                .is_some_and(|word| word >> (index % 64) & 1 == 1)
        };
        if self.rank_in(index).is_none_or(|(_, live)| live != slot) {
            return Blocks(0);
        }
        self.levels(deepest)
            .find(in_it)
            .map_or(Blocks(0), |level| level.depth())
    }

    /// The rank in a slot, at the time of the lookup.
    pub fn rank_in(&self, slot: usize) -> Option<(RankId, Slot)> {
        *self.live.ranks.get(slot)?
    }

    /// Slots up to the last that was taken at the time of the lookup.
    pub fn slots(&self) -> usize {
        self.live.ranks.len()
    }

    /// The ranks that counted in the lookup.
    pub fn ranks(&self) -> impl Iterator<Item = (RankId, Slot)> {
        self.live.ranks.iter().flatten().copied()
    }

    /// Whether the answer is the state of the index at one instant. If not, the index changed under three attempts,
    /// and the answer is a mixture of what was seen.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    pub(crate) fn begin(&mut self, live: &Arc<Live>) {
        self.levels.clear();
        self.words.clear();
        self.spans = [(0, 0); Tier::COUNT];
        self.settled = false;
        self.width = live.words.len();
        if !Arc::ptr_eq(&self.live, live) {
            self.live = live.clone();
        }
        self.scratch.visited.clear();
        self.scratch.absent = None;
        for words in [&mut self.scratch.stay, &mut self.scratch.part] {
            words.resize(self.width, 0);
        }
    }

    pub(crate) fn emit(&mut self, depth: u32, from: impl Fn(&Scratch) -> &Vec<u64>) {
        let words = from(&self.scratch);
        if depth > 0 && words.iter().any(|word| *word != 0) {
            self.levels.push((depth, self.words.len() as u32));
            self.words.extend_from_slice(words);
        }
    }

    pub(crate) fn level_count(&self) -> u32 {
        self.levels.len() as u32
    }

    pub(crate) fn set_span(&mut self, tier: Tier, span: (u32, u32)) {
        self.spans[tier.index()] = span;
    }

    pub(crate) fn settle(&mut self, settled: bool) {
        self.settled = settled;
    }
}
