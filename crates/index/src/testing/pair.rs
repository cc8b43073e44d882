//! Do they agree? An index and an oracle, fed the same.

use homing_domain::{
    BlockKey, CacheGroup, ClearScope, ContentHash, HashSeed, KeyHasher, Label, ListedParent, RankId, Removed, Stored,
    StoredBlock, Tier,
};

use super::oracle::Truth;
use super::{Forgotten, Oracle, Script, Step};
use crate::{Answer, Bug, Copies, Index, IndexConfig, Reader, Slot};

/// Sequences in the small world, and blocks in each.
const SEQUENCES: u8 = 6;
const LENGTH: u8 = 24;
/// Workers from this number on only fill slots.
const FILLERS: u32 = 1000;

/// The index answered otherwise than the oracle.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// After how many steps.
    pub after: usize,
    /// What was asked and what came.
    pub what: String,
}

struct Rank {
    id: RankId,
    own_labels: bool,
    copies: Copies,
    slot: Slot,
}

/// An index and an oracle, fed the same.
pub struct Pair {
    hasher: KeyHasher,
    index: Index,
    reader: Reader,
    oracle: Oracle,
    ranks: Vec<Rank>,
    answer: Answer,
    /// What is asked after every step, made when so many blocks had been placed.
    queries: Vec<Vec<BlockKey>>,
    placed: usize,
    bounded: bool,
}

impl Pair {
    /// Runs a script. With `bug` the index makes that mistake.
    pub fn run(script: &Script, bug: Option<Bug>) -> Result<(), Mismatch> {
        let mut pair = Self::new(script, bug);
        for (number, step) in script.steps.iter().enumerate() {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pair.step(step)?;
                pair.check()
            }));
            let what = match checked {
                Ok(Ok(())) => continue,
                Ok(Err(what)) => what,
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                        .unwrap_or_default()
                }
            };
            return Err(Mismatch {
                after: number + 1,
                what: format!("{step:?}: {what}"),
            });
        }
        Ok(())
    }

    fn new(script: &Script, bug: Option<Bug>) -> Self {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let capacity = if script.capacity == 0 { 1 << 20 } else { script.capacity };
        let config = IndexConfig {
            capacity,
            orphans_per_rank: script.orphans,
            max_ranks: 300,
            bug,
            small_pieces: true,
            ..IndexConfig::new(hasher)
        };
        let mut index = Index::new(config);
        for filler in 0..u32::from(script.padding) {
            index
                .add_rank(RankId::new(FILLERS + filler, 0), Copies::Counted)
                .expect("there are slots");
        }
        let mut oracle = Oracle::new(hasher, script.orphans);
        let mut ranks = Vec::new();
        for (number, (own_labels, set)) in script.ranks.iter().enumerate() {
            let id = RankId::new(number as u32, 0);
            let copies = if *set { Copies::Set } else { Copies::Counted };
            let slot = index.add_rank(id, copies).expect("there are slots");
            oracle.add_rank(id, copies);
            ranks.push(Rank {
                id,
                own_labels: *own_labels,
                copies,
                slot,
            });
        }
        let reader = index.reader();
        let bounded = script.capacity != 0;
        Self {
            hasher,
            index,
            reader,
            oracle,
            ranks,
            answer: Answer::default(),
            queries: queries(hasher),
            placed: 0,
            bounded,
        }
    }

    fn rank(&self, number: u8) -> usize {
        number as usize % self.ranks.len()
    }

    /// The label of a block of a sequence on a rank. Ranks with labels of their own also use labels of others for other
    /// blocks.
    fn label(&self, rank: usize, sequence: u8, block: u8) -> Label {
        let (line, depth) = shared_line(sequence % SEQUENCES, block);
        let shared = 1000 + u64::from(line) * 100 + u64::from(depth);
        Label::new(if self.ranks[rank].own_labels {
            shared + 7 + 50 * (rank as u64 % 3)
        } else {
            shared
        })
    }

    fn stored(&self, rank: usize, sequence: u8, from: u8, count: u8) -> Stored {
        let parent = (from > 0).then(|| self.label(rank, sequence, from - 1));
        let blocks = (from..(from + count).min(LENGTH)).map(|block| StoredBlock {
            label: self.label(rank, sequence, block),
            content: content(sequence, block),
        });
        Stored::plain(parent, blocks.collect())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Store {
                rank,
                sequence,
                from,
                count,
                tier,
                group,
            } => {
                let rank = self.rank(*rank);
                let stored = Stored {
                    tier: *tier,
                    group: CacheGroup(*group % 2),
                    ..self.stored(rank, *sequence, *from % LENGTH, *count % LENGTH)
                };
                self.store(rank, &stored)?;
            }
            Step::StoreStrange { rank, parent, blocks } => {
                let blocks = blocks.iter().map(|(label, c)| StoredBlock {
                    label: strange(*label),
                    content: ContentHash(u64::from(*c % 4)),
                });
                let stored = Stored::plain(parent.map(strange), blocks.collect());
                self.store(self.rank(*rank), &stored)?;
            }
            Step::Remove {
                rank,
                sequence,
                from,
                count,
                tier,
                group,
                tail_first,
            } => {
                let rank = self.rank(*rank);
                let stored = self.stored(rank, *sequence, *from % LENGTH, *count % LENGTH);
                let mut labels: Vec<Label> = stored.blocks.iter().map(|block| block.label).collect();
                if *tail_first {
                    labels.reverse();
                }
                self.remove(
                    rank,
                    &Removed {
                        labels,
                        tier: *tier,
                        group: CacheGroup(*group % 2),
                    },
                )?;
            }
            Step::Clear { rank, tier } => {
                let rank = self.rank(*rank);
                let scope = tier.map_or(ClearScope::AllTiers, ClearScope::Only);
                let before = self.oracle.truth();
                self.ranks[rank].slot = self
                    .index
                    .clear(self.ranks[rank].slot, scope)
                    .map_err(|e| e.to_string())?;
                self.oracle.clear(self.ranks[rank].id, scope);
                self.between_pieces(rank, &before)?;
            }
            Step::Rejoin { rank } => self.rejoin(self.rank(*rank))?,
            Step::Reinstall { rank } => self.reinstall(self.rank(*rank))?,
            Step::Replace { rank, sequence, count } => self.replace(self.rank(*rank), *sequence, *count % LENGTH)?,
            Step::Renumber { run } => self.index.renumber_one((*run).into()),
            Step::Maintain => while self.index.maintain(50).is_pending() {},
        }
        Ok(())
    }

    /// While a tier is being cleared, a rank holds no more than before and no less than after. Some ranks are left like
    /// that: their next event, or that of another, has to cope with it.
    fn between_pieces(&mut self, rank: usize, before: &Truth) -> Result<(), String> {
        let Rank { id, slot, .. } = self.ranks[rank];
        while self.index.is_clearing(slot) {
            self.index.verify()?;
            let after = self.oracle.truth();
            for keys in &self.queries {
                self.reader.lookup(keys, &mut self.answer);
                let found = Tier::ALL.map(|tier| self.answer.depth(slot, tier).0);
                let (most, least) = (before.depths(id, keys), after.depths(id, keys));
                let within = |((found, most), least): ((u32, u32), u32)| (least..=most).contains(&found);
                let bounds = found
                    .into_iter()
                    .zip(most.unwrap_or_default())
                    .zip(least.unwrap_or_default());
                if !bounds.into_iter().all(within) {
                    return Err(format!(
                        "{id}: {found:?} is not between {least:?} and {most:?} of {keys:?}"
                    ));
                }
            }
            if rank % 2 == 1 {
                break;
            }
            self.index.maintain(1);
        }
        Ok(())
    }

    fn store(&mut self, rank: usize, stored: &Stored) -> Result<(), String> {
        self.index
            .store(self.ranks[rank].slot, stored)
            .expect("the slot is live");
        let refused = self.forget()?;
        self.oracle.store_except(self.ranks[rank].id, stored, &refused);
        Ok(())
    }

    /// What the index evicted for an event goes before the oracle hears of the event. Returns what was refused.
    fn forget(&mut self) -> Result<Vec<(Label, BlockKey)>, String> {
        let forgotten = self.index.take_forgotten();
        if !self.bounded && forgotten != Forgotten::default() {
            return Err(format!("{forgotten:?} although there is room"));
        }
        for (key, ranks) in forgotten.evicted {
            self.oracle.forget(key, &ranks);
        }
        Ok(forgotten.refused)
    }

    fn remove(&mut self, rank: usize, removed: &Removed) -> Result<(), String> {
        let expected = self.oracle.remove(self.ranks[rank].id, removed) as u32;
        let outcome = self
            .index
            .remove(self.ranks[rank].slot, removed)
            .expect("the slot is live");
        let unknown = outcome.unknown + outcome.unknown_tolerated;
        let tolerated = self.oracle.is_truncated(self.ranks[rank].id);
        if unknown != expected || tolerated != (outcome.unknown == 0 && (unknown > 0 || tolerated)) && unknown > 0 {
            return Err(format!(
                "{outcome:?}, but {expected} are unknown (truncated: {tolerated})"
            ));
        }
        Ok(())
    }

    fn rejoin(&mut self, rank: usize) -> Result<(), String> {
        let Rank { id, copies, slot, .. } = self.ranks[rank];
        self.index.drop_rank(slot).map_err(|error| error.to_string())?;
        self.oracle.drop_rank(id);
        self.check()?;
        self.ranks[rank].slot = self.index.add_rank(id, copies).map_err(|error| error.to_string())?;
        self.oracle.add_rank(id, copies);
        Ok(())
    }

    fn reinstall(&mut self, rank: usize) -> Result<(), String> {
        let Rank { id, copies, slot, .. } = self.ranks[rank];
        let listing = self.index.list(slot).map_err(|error| error.to_string())?;
        // A bounded index may forget while two copies of a rank's content are in it, and orphans of a listing that lie
        // behind a hole count against another bound than they did before: then only the answers of now are compared.
        let behind_holes = listing
            .items
            .iter()
            .any(|item| matches!(item.parent, ListedParent::Key(_)));
        if self.bounded || behind_holes {
            let mut other = Index::new(IndexConfig::new(self.hasher));
            let slot = other.add_rank(id, copies).map_err(|error| error.to_string())?;
            for item in &listing.items {
                other.restore(slot, item).map_err(|error| error.to_string())?;
            }
            let reader = other.reader();
            let mut answer = Answer::default();
            let truth = self.oracle.truth();
            for keys in &self.queries {
                reader.lookup(keys, &mut answer);
                let expected = truth.depths(id, keys);
                let found = Tier::ALL.map(|tier| answer.depth(slot, tier).0);
                if Some(found) != expected {
                    return Err(format!("after a reinstallation {found:?} instead of {expected:?}"));
                }
            }
            return Ok(());
        }
        let draft = self.index.draft(id, copies).map_err(|error| error.to_string())?;
        for item in &listing.items {
            self.index.restore(draft, item).map_err(|error| error.to_string())?;
        }
        if listing.truncated {
            self.index.mark_truncated(draft).map_err(|error| error.to_string())?;
        }
        self.index.publish(draft).map_err(|error| error.to_string())?;
        self.ranks[rank].slot = draft;
        Ok(())
    }

    fn replace(&mut self, rank: usize, sequence: u8, count: u8) -> Result<(), String> {
        let Rank { id, copies, .. } = self.ranks[rank];
        let stored = self.stored(rank, sequence, 0, count);
        let draft = self.index.draft(id, copies).map_err(|error| error.to_string())?;
        self.index.store(draft, &stored).map_err(|error| error.to_string())?;
        let refused = self.forget()?;
        // Nobody sees the draft until it is published.
        self.check()?;
        self.index.publish(draft).map_err(|error| error.to_string())?;
        self.ranks[rank].slot = draft;
        self.oracle.add_rank(id, copies);
        self.oracle.store_except(id, &stored, &refused);
        Ok(())
    }

    /// Every answer, every size and the index's own invariants.
    fn check(&mut self) -> Result<(), String> {
        self.index.verify()?;
        let truth = self.oracle.truth();
        if self.placed != self.oracle.placed() {
            self.placed = self.oracle.placed();
            self.queries = queries(self.hasher);
            self.queries.extend(self.oracle.sequences());
        }
        self.reader.lookup(&[], &mut self.answer);
        let ranks = self.answer.ranks().filter(|(rank, _)| rank.worker.0 < FILLERS);
        let mut ranks: Vec<(RankId, Slot)> = ranks.collect();
        ranks.sort_unstable_by_key(|(rank, _)| *rank);
        let expected = truth.lookup(&[]);
        if !ranks.iter().map(|(rank, _)| rank).eq(expected.keys()) {
            return Err(format!("there are {ranks:?} instead of {expected:?}"));
        }
        for keys in &self.queries {
            self.reader.lookup(keys, &mut self.answer);
            for (rank, slot) in ranks.iter().filter(|(_, slot)| !self.index.is_clearing(*slot)) {
                let found = Tier::ALL.map(|tier| self.answer.depth(*slot, tier).0);
                let expected = truth.depths(*rank, keys);
                if Some(found) != expected || !self.answer.is_settled() {
                    return Err(format!("{rank}: found {found:?} instead of {expected:?} of {keys:?}"));
                }
            }
        }
        for rank in &self.ranks {
            let Ok(stats) = self.index.rank_stats(rank.slot) else {
                continue;
            };
            let (orphans, truncated) = (self.oracle.orphans(rank.id), self.oracle.is_truncated(rank.id));
            if (stats.orphans as usize, stats.truncated) != (orphans, truncated) {
                return Err(format!(
                    "{stats:?} of {} instead of {orphans} orphans, truncated {truncated}",
                    rank.id
                ));
            }
        }
        Ok(())
    }
}

/// Whole sequences, and all prefixes of strange ones that are near the root.
fn queries(hasher: KeyHasher) -> Vec<Vec<BlockKey>> {
    let mut queries: Vec<Vec<BlockKey>> = (0..SEQUENCES)
        .map(|sequence| chain(hasher, (0..LENGTH).map(|block| content(sequence, block))))
        .collect();
    for code in 0..64_u64 {
        queries.push(chain(hasher, (0..3).map(|digit| ContentHash(code >> (2 * digit) & 3))));
    }
    queries
}

fn chain(hasher: KeyHasher, contents: impl Iterator<Item = ContentHash>) -> Vec<BlockKey> {
    let mut key = hasher.root();
    contents
        .map(|content| {
            key = hasher.child(key, content);
            key
        })
        .collect()
}

/// Sequences share prefixes: 0 and 1 the first 5 blocks, 2 and 3 the first 11, 4 and 0 the first 14.
fn shared_line(sequence: u8, block: u8) -> (u8, u8) {
    let line = match sequence {
        1 if block < 5 => 0,
        3 if block < 11 => 2,
        4 if block < 14 => shared_line(0, block).0,
        sequence => sequence,
    };
    (line, block)
}

fn content(sequence: u8, block: u8) -> ContentHash {
    let (line, depth) = shared_line(sequence % SEQUENCES, block);
    ContentHash(1_000_003 * (u64::from(line) + 1) + 97 * u64::from(depth))
}

fn strange(label: u8) -> Label {
    // Labels of the sequences among them, and 0.
    Label::new(match label % 12 {
        0..=7 => u64::from(label % 12),
        other => 1000 + u64::from(other - 8),
    })
}
