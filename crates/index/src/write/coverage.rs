//! Who holds how many leading blocks of this run? The writer's side of what readers see: for each slot a *cut*, the
//! number of leading blocks it holds, kept as sets of slots with the same cut, for the device and, where they differ,
//! for each wider choice of tiers.

use homing_domain::Tier;

use crate::heap::Kind;
use crate::index::Index;
use crate::record::{Fields, HAS_LOWER, RunId};
use crate::sets::SlotSet;
use crate::sync::Ordering;

/// The leading blocks that a slot holds on tiers up to each tier.
pub(crate) type Cuts = [u16; Tier::COUNT];

/// Slots with the same cut.
type Levels = Vec<(u16, SlotSet)>;

impl Index {
    /// The leading blocks of a run that a slot holds on the device.
    #[inline]
    pub(crate) fn cut(&self, run: RunId, slot: usize) -> u16 {
        let fields = self.runs.record(run).fields();
        if fields.full.contains(slot, &self.heap) {
            return fields.shape.len;
        }
        for (cut, set) in fields.shape.cuts.into_iter().zip(fields.levels) {
            if set.contains(slot, &self.heap) {
                return cut;
            }
        }
        if fields.extra == 0 {
            return 0;
        }
        self.extra_levels(&fields)
            .into_iter()
            .find(|(_, set)| set.contains(slot, &self.heap))
            .map_or(0, |(cut, _)| cut)
    }

    /// The leading blocks that a slot holds on each choice of tiers.
    pub(crate) fn cuts(&self, run: RunId, slot: usize) -> Cuts {
        let fields = self.runs.record(run).fields();
        let mut cuts = [self.cut(run, slot); Tier::COUNT];
        for (tier, (full, levels)) in self.lower(&fields).into_iter().enumerate() {
            let level = levels.into_iter().find(|(_, set)| set.contains(slot, &self.heap));
            let partly = level.map_or(0, |(cut, _)| cut);
            cuts[tier + 1] = if full.contains(slot, &self.heap) {
                fields.shape.len
            } else {
                partly
            };
        }
        cuts
    }

    /// Changes how many leading blocks a slot holds, alike on all choices of tiers.
    pub(crate) fn set_cut(&mut self, run: RunId, slot: usize, cut: u16) {
        self.set_cuts(run, slot, [cut; Tier::COUNT]);
    }

    /// Changes how many leading blocks a slot holds. Readers see the run as before or as after.
    pub(crate) fn set_cuts(&mut self, run: RunId, slot: usize, cuts: Cuts) {
        let mut fields = self.runs.record(run).fields();
        let noticed = !crate::bugs::planted!(self.config, NoVersionOnWrite);
        if noticed {
            self.runs.record(run).begin();
        }
        if fields.shape.flags & HAS_LOWER != 0 || cuts.iter().any(|cut| *cut != cuts[0]) {
            self.set_all(run, &mut fields, slot, cuts);
        } else if fields.extra == 0 {
            self.set_inline(run, &mut fields, slot, cuts[0]);
        } else {
            let mut levels = self.take_levels(run, &mut fields);
            let len = fields.shape.len;
            self.move_slot(run, (&mut fields.full, &mut levels), len, slot, cuts[0]);
            self.put_levels(run, &mut fields, &levels, &[]);
        }
        let record = self.runs.record(run);
        record.put(&fields);
        if noticed {
            record.end();
        }
    }

    /// The run has grown to `fields.shape.len`: those who held all of it hold a leading part now.
    pub(crate) fn lengthen(&mut self, run: RunId, mut fields: Fields) {
        let before = self.runs.record(run).shape().len;
        let new = fields.shape.len;
        self.runs.record(run).begin();
        let is_held = !fields.full.is_empty() || fields.shape.flags & HAS_LOWER != 0;
        if is_held && !crate::bugs::planted!(self.config, LevelNotUpdated) {
            let lower = self.lower(&fields);
            let mut levels = self.take_levels(run, &mut fields);
            demote(&mut fields.full, &mut levels, before);
            let lower: Vec<_> = lower
                .into_iter()
                .map(|(mut full, mut levels)| {
                    demote(&mut full, &mut levels, before);
                    (full, levels)
                })
                .collect();
            fields.shape.len = new;
            self.put_levels(run, &mut fields, &levels, &lower);
        }
        let record = self.runs.record(run);
        record.put(&fields);
        record.end();
    }

    /// The run has shrunk to `len` blocks, the last of which has the key `last`: those who held that many hold all.
    pub(crate) fn shorten(&mut self, run: RunId, len: u16, last: u64) {
        let mut fields = self.runs.record(run).fields();
        self.runs.record(run).begin();
        let lower = self.lower(&fields);
        let mut levels = self.take_levels(run, &mut fields);
        self.promote(run, &mut fields.full, &mut levels, len);
        let lower: Vec<_> = lower
            .into_iter()
            .map(|(mut full, mut levels)| {
                self.promote(run, &mut full, &mut levels, len);
                (full, levels)
            })
            .collect();
        fields.shape.len = len;
        fields.last = last;
        self.put_levels(run, &mut fields, &levels, &lower);
        let record = self.runs.record(run);
        record.put(&fields);
        record.end();
    }

    /// Takes slots out of a run, whatever they hold of it. Says whether they held anything.
    pub(crate) fn sweep_run(&mut self, run: RunId, gone: &[u64]) -> bool {
        let mut fields = self.runs.record(run).fields();
        if fields.shape.flags & HAS_LOWER != 0 {
            let swept: Vec<usize> = self.holders(run).into_iter().map(|(slot, _)| slot).collect();
            for slot in swept.into_iter().filter(|slot| is_in(*slot, gone)) {
                self.set_cuts(run, slot, [0; Tier::COUNT]);
            }
            return true;
        }
        let levels = self.levels(&fields);
        let meets = |set: SlotSet| set.members(&self.heap).into_iter().any(|slot| is_in(slot, gone));
        if !meets(fields.full) && !levels.iter().any(|(_, set)| meets(*set)) {
            return false;
        }
        self.runs.record(run).begin();
        let mut levels = self.take_levels(run, &mut fields);
        let sets = std::iter::once(&mut fields.full).chain(levels.iter_mut().map(|(_, set)| set));
        for set in sets {
            let rest: Vec<usize> = set
                .members(&self.heap)
                .into_iter()
                .filter(|slot| !is_in(*slot, gone))
                .collect();
            set.release(&mut self.heap);
            *set = SlotSet::of(&rest, &mut self.heap, run);
        }
        levels.retain(|(_, set)| !set.is_empty());
        self.put_levels(run, &mut fields, &levels, &[]);
        let record = self.runs.record(run);
        record.put(&fields);
        record.end();
        true
    }

    /// The run becomes longer by what was the run `child`, of which `rest` hold so much, counted from the run's start.
    /// Readers see both as before, or the longer one.
    pub(crate) fn replace_by_longer(
        &mut self,
        run: RunId,
        mut fields: Fields,
        old_len: u16,
        rest: &[(usize, u16)],
        child: RunId,
    ) {
        self.runs.record(run).begin();
        let child_key = self.runs.record(child).first();
        self.runs.record(child).begin();
        self.first_keys.remove(child_key, u64::from(child));
        let mut levels = self.take_levels(run, &mut fields);
        demote(&mut fields.full, &mut levels, old_len);
        for (slot, cut) in rest {
            self.move_slot(run, (&mut fields.full, &mut levels), fields.shape.len, *slot, *cut);
        }
        self.put_levels(run, &mut fields, &levels, &[]);
        let record = self.runs.record(run);
        record.put(&fields);
        record.end();
    }

    /// Every slot that holds a leading part, with its cuts.
    pub(crate) fn holders(&self, run: RunId) -> Vec<(usize, Cuts)> {
        let fields = self.runs.record(run).fields();
        let mut slots: Vec<usize> = Vec::new();
        let lower = self.lower(&fields);
        let widest = lower
            .last()
            .map_or_else(|| (fields.full, self.levels(&fields)), Clone::clone);
        slots.extend(widest.0.members(&self.heap));
        slots.extend(widest.1.iter().flat_map(|(_, set)| set.members(&self.heap)));
        slots.into_iter().map(|slot| (slot, self.cuts(run, slot))).collect()
    }

    /// The most leading blocks that any slot holds, on any tier.
    pub(crate) fn widest_cut(&self, run: RunId) -> u16 {
        let fields = self.runs.record(run).fields();
        let most = |full: SlotSet, levels: &Levels| {
            if full.is_empty() {
                levels.iter().map(|(cut, _)| *cut).max().unwrap_or(0)
            } else {
                fields.shape.len
            }
        };
        if fields.shape.flags & HAS_LOWER == 0 {
            if !fields.full.is_empty() {
                return fields.shape.len;
            }
            if fields.extra == 0 {
                let inline = fields.shape.cuts.into_iter().zip(fields.levels);
                return inline
                    .filter(|(_, set)| !set.is_empty())
                    .map(|(cut, _)| cut)
                    .max()
                    .unwrap_or(0);
            }
            return most(fields.full, &self.levels(&fields));
        }
        self.lower(&fields)
            .last()
            .map_or(0, |(full, levels)| most(*full, levels))
    }

    /// All extents that a run's coverage uses, released.
    pub(crate) fn release_coverage(&mut self, run: RunId) {
        let mut fields = self.runs.record(run).fields();
        let lower = self.lower(&fields);
        let levels = self.take_levels(run, &mut fields);
        fields.full.release(&mut self.heap);
        for (_, set) in levels {
            set.release(&mut self.heap);
        }
        for (full, levels) in lower {
            full.release(&mut self.heap);
            for (_, set) in levels {
                set.release(&mut self.heap);
            }
        }
    }

    /// The levels for the device.
    pub(crate) fn levels(&self, fields: &Fields) -> Levels {
        let inline = fields
            .shape
            .cuts
            .into_iter()
            .zip(fields.levels)
            .filter(|(_, set)| !set.is_empty());
        let mut levels: Levels = inline.collect();
        if fields.extra != 0 {
            levels.extend(self.extra_levels(fields));
        }
        levels
    }

    fn extra_levels(&self, fields: &Fields) -> Levels {
        let words = self.heap.words(fields.extra);
        read_levels(words, &mut 1)
    }

    /// For each lower tier the slots that hold all, and the levels. Empty where they are those for the device.
    pub(crate) fn lower(&self, fields: &Fields) -> Vec<(SlotSet, Levels)> {
        if fields.shape.flags & HAS_LOWER == 0 {
            return Vec::new();
        }
        let words = self.heap.words(fields.extra);
        let mut at = 1;
        read_levels(words, &mut at);
        (1..Tier::COUNT)
            .map(|_| {
                let full = SlotSet(words[at].load(Ordering::Relaxed));
                at += 1;
                (full, read_levels(words, &mut at))
            })
            .collect()
    }

    /// Takes the levels for the device out of the record and gives the extra extent back. The sets stay as they are.
    fn take_levels(&mut self, _run: RunId, fields: &mut Fields) -> Levels {
        let levels = self.levels(fields);
        if fields.extra != 0 {
            self.heap.free(fields.extra);
            fields.extra = 0;
        }
        fields.levels = [SlotSet::EMPTY; 2];
        fields.shape.cuts = [0; 2];
        levels
    }

    /// Puts levels into the record and, where they do not fit, into an extra extent.
    fn put_levels(&mut self, run: RunId, fields: &mut Fields, levels: &[(u16, SlotSet)], lower: &[(SlotSet, Levels)]) {
        for (index, (cut, set)) in levels.iter().take(2).enumerate() {
            fields.shape.cuts[index] = *cut;
            fields.levels[index] = *set;
        }
        fields.shape.flags &= !HAS_LOWER;
        if levels.len() <= 2 && lower.is_empty() {
            return;
        }
        let rest = &levels[2.min(levels.len())..];
        let mut words = Vec::new();
        write_levels(&mut words, rest);
        for (full, levels) in lower {
            words.push(full.0);
            write_levels(&mut words, levels);
        }
        fields.extra = self.heap.alloc(Kind::Extra, words.len() as u32 + 1, run);
        for (to, word) in self.heap.words(fields.extra)[1..].iter().zip(&words) {
            to.store(*word, Ordering::Relaxed);
        }
        if !lower.is_empty() {
            fields.shape.flags |= HAS_LOWER;
        }
    }

    /// The common case: at most two levels, all in the record.
    fn set_inline(&mut self, run: RunId, fields: &mut Fields, slot: usize, cut: u16) {
        let len = fields.shape.len;
        let has_room = |fields: &Fields| fields.levels.iter().position(|set| set.is_empty());
        // Out of where it was. The only one at its level takes the level along.
        if fields.full.contains(slot, &self.heap) {
            if cut == len {
                return;
            }
            fields.full = fields.full.without(slot, &mut self.heap, run);
        }
        for index in 0..2 {
            if !fields.levels[index].contains(slot, &self.heap) {
                continue;
            }
            if fields.shape.cuts[index] == cut {
                return;
            }
            fields.levels[index] = fields.levels[index].without(slot, &mut self.heap, run);
        }
        // Into where it belongs.
        if cut == 0 {
        } else if cut == len {
            fields.full = fields.full.with(slot, &mut self.heap, run);
        } else if let Some(index) =
            (0..2).find(|index| fields.shape.cuts[*index] == cut && !fields.levels[*index].is_empty())
        {
            fields.levels[index] = fields.levels[index].with(slot, &mut self.heap, run);
        } else if let Some(index) = has_room(fields) {
            fields.shape.cuts[index] = cut;
            fields.levels[index] = SlotSet::of(&[slot], &mut self.heap, run);
        } else {
            let mut levels = self.take_levels(run, fields);
            levels.push((cut, SlotSet::of(&[slot], &mut self.heap, run)));
            self.put_levels(run, fields, &levels, &[]);
        }
    }

    fn move_slot(&mut self, run: RunId, coverage: (&mut SlotSet, &mut Levels), len: u16, slot: usize, cut: u16) {
        let (full, levels) = coverage;
        *full = full.without(slot, &mut self.heap, run);
        for (_, set) in levels.iter_mut() {
            if set.contains(slot, &self.heap) {
                *set = set.without(slot, &mut self.heap, run);
            }
        }
        levels.retain(|(_, set)| !set.is_empty());
        if cut == 0 {
        } else if cut == len {
            *full = full.with(slot, &mut self.heap, run);
        } else if let Some((_, set)) = levels.iter_mut().find(|(level, _)| *level == cut) {
            *set = set.with(slot, &mut self.heap, run);
        } else {
            levels.push((cut, SlotSet::of(&[slot], &mut self.heap, run)));
        }
    }

    /// With cuts that differ between tiers: everything is made anew.
    fn set_all(&mut self, run: RunId, fields: &mut Fields, slot: usize, cuts: Cuts) {
        let mut holders = self.holders(run);
        holders.retain(|(holder, _)| *holder != slot);
        if cuts != [0; Tier::COUNT] {
            holders.push((slot, cuts));
        }
        self.release_coverage(run);
        let len = fields.shape.len;
        let mut by_tier: Vec<(SlotSet, Levels)> = vec![(SlotSet::EMPTY, Vec::new()); Tier::COUNT];
        let mut alike = true;
        for (slot, cuts) in holders {
            alike &= cuts.iter().all(|cut| *cut == cuts[0]);
            for (tier, (full, levels)) in by_tier.iter_mut().enumerate() {
                self.move_slot(run, (full, levels), len, slot, cuts[tier]);
            }
        }
        if alike {
            for (full, levels) in by_tier.drain(1..) {
                full.release(&mut self.heap);
                for (_, set) in levels {
                    set.release(&mut self.heap);
                }
            }
        }
        let (full, levels) = by_tier.swap_remove(0);
        // What was first is last now: put the lower tiers in order again.
        if by_tier.len() == Tier::COUNT - 1 {
            by_tier.rotate_left(1);
        }
        (fields.full, fields.extra, fields.levels, fields.shape.cuts) = (full, 0, [SlotSet::EMPTY; 2], [0; 2]);
        self.put_levels(run, fields, &levels, &by_tier);
    }

    fn promote(&mut self, run: RunId, full: &mut SlotSet, levels: &mut Levels, len: u16) {
        // Whoever reached further, or all of the longer run, holds all of the shorter one.
        for (cut, set) in std::mem::take(levels) {
            if cut >= len {
                *full = full.join(set, &mut self.heap, run);
            } else {
                levels.push((cut, set));
            }
        }
    }
}

fn is_in(slot: usize, words: &[u64]) -> bool {
    words.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

fn demote(full: &mut SlotSet, levels: &mut Levels, cut: u16) {
    if !full.is_empty() {
        levels.push((cut, std::mem::take(full)));
    }
}

fn read_levels(words: &[crate::sync::AtomicU64], at: &mut usize) -> Levels {
    let load = |index: usize| words[index].load(Ordering::Relaxed);
    let count = load(*at) as usize;
    let start = *at + 1;
    *at = start + 2 * count;
    (0..count)
        .map(|pair| (load(start + 2 * pair) as u16, SlotSet(load(start + 2 * pair + 1))))
        .collect()
}

fn write_levels(words: &mut Vec<u64>, levels: &[(u16, SlotSet)]) {
    words.push(levels.len() as u64);
    for (cut, set) in levels {
        words.extend([u64::from(*cut), set.0]);
    }
}
