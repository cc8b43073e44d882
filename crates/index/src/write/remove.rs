//! Blocks went: who holds them no more?

use homing_domain::{CacheGroup, Label, Tier};

use super::{Place, Stretch};
use crate::bugs::planted;
use crate::detail::{Detail, Holding};
use crate::index::Index;

impl Index {
    /// Removes at most [`Index::STEP`] labels. Returns how many named nothing.
    pub(crate) fn remove_step(&mut self, slot: usize, labels: &[Label], (tier, group): (Tier, CacheGroup)) -> u32 {
        if let Some(label) = labels.first() {
            self.ask_for(slot, *label);
        }
        let tier = if planted!(self.config, TierIgnored) {
            Tier::Device
        } else {
            tier
        };
        if (tier, group) == (Tier::Device, CacheGroup(0))
            && let Some(unknown) = self.remove_plain(slot, labels)
        {
            return unknown;
        }
        let mut unknown = 0;
        for label in labels {
            let holding = Holding {
                label: *label,
                tier,
                group,
            };
            let found = match self.resolve(slot, *label) {
                Some(place) => self.unhold(slot, place, holding),
                None => self.remove_unplaced(slot, holding),
            };
            unknown += u32::from(!found);
        }
        self.publish_details(slot);
        unknown
    }

    /// Takes a copy of an orphan away. Says whether there was one. The label is given up even if the block was never heard
    /// of, or forgotten.
    fn remove_unplaced(&mut self, slot: usize, holding: Holding) -> bool {
        let orphans = &mut self.slots.info_mut(slot).orphans;
        let found = orphans.remove(holding);
        if !planted!(self.config, LabelOutlivesBlock) {
            orphans.give_up(holding.label);
        }
        found
    }

    /// If the slot simply holds fewer leading blocks of each run after this, does it and returns how many labels named
    /// nothing. Else changes nothing.
    fn remove_plain(&mut self, slot: usize, labels: &[Label]) -> Option<u32> {
        let mut ranges = std::mem::take(&mut self.work.ranges);
        ranges.clear();
        let unknown = self.gather(slot, labels, &mut ranges);
        if unknown.is_some() && join(&mut ranges) && ranges.iter().all(|range| self.is_tail(slot, *range)) {
            // Shallowest first: what lies behind is not counted any more when it goes.
            if ranges.len() > 1 {
                ranges.sort_unstable_by_key(|range| self.runs.meta(range.run).depth);
                if planted!(self.config, RemoveDeepFirst) {
                    ranges.reverse();
                }
            }
            for range in &ranges {
                self.set_cut(range.run, slot, range.from);
                self.slots.info_mut(slot).blocks -= u64::from(range.to - range.from);
                self.cut_lead(slot, *range);
            }
            for range in &ranges {
                self.trim(range.run);
            }
            self.work.ranges = ranges;
            return unknown;
        }
        self.work.ranges = ranges;
        None
    }

    /// Collects the blocks that the labels name as ranges of runs. `None` if they are not that simple.
    fn gather(&self, slot: usize, labels: &[Label], ranges: &mut Vec<Stretch>) -> Option<u32> {
        if !self.slots.info(slot).orphans.is_empty() {
            return None;
        }
        let mut unknown = 0;
        let mut rest = labels;
        while let [label, others @ ..] = rest {
            rest = others;
            let Some(place) = self.resolve(slot, *label) else {
                unknown += 1;
                continue;
            };
            let (range, count) = self.extend_range(slot, place, rest)?;
            ranges.push(range);
            rest = &rest[count..];
        }
        Some(unknown)
    }

    /// How many of the labels name the blocks beside this one, one after the other: engines remove blocks in order, one
    /// way or the other. `None` if the slot holds more than a leading part of the run.
    fn extend_range(&self, slot: usize, place: Place, labels: &[Label]) -> Option<(Stretch, usize)> {
        let detail = self.slots.info(slot).details.get(place.run);
        if detail.is_some_and(|detail| !detail.is_lead()) {
            return None;
        }
        let (held, cut) = (self.blocks_of(place.run), self.cut(place.run, slot) as usize);
        let name = |detail: &Detail, offset| detail.own_label(offset).unwrap_or_else(|| held.label(offset));
        let mut rest = labels;
        if !self.ambiguous.is_empty() {
            let doubtful = labels.iter().position(|label| self.ambiguous.contains(label));
            rest = &labels[..doubtful.unwrap_or(labels.len())];
        }
        let (mut from, mut to) = (place.offset as usize, place.offset as usize + 1);
        loop {
            let down = match detail {
                None => held.count_labels_down(from, numbers(rest)),
                Some(detail) => count_same((0..from).rev().map(|offset| name(detail, offset)), numbers(rest)),
            };
            rest = &rest[down..];
            let up = match detail {
                None => held.count_labels(to, cut, numbers(rest)),
                Some(detail) => count_same((to..cut).map(|offset| name(detail, offset)), numbers(rest)),
            };
            rest = &rest[up..];
            (from, to) = (from - down, to + up);
            if down + up == 0 || rest.is_empty() {
                break;
            }
        }
        let range = Stretch {
            run: place.run,
            from: from as u16,
            to: to as u16,
        };
        Some((range, to - from - 1))
    }

    /// Whether the range is the end of what the slot plainly holds of the run.
    fn is_tail(&self, slot: usize, range: Stretch) -> bool {
        self.cut(range.run, slot) == range.to
    }
}

fn numbers(labels: &[Label]) -> impl Iterator<Item = u64> {
    labels.iter().map(|label| label.get())
}

/// How many of these are the same, one after the other.
fn count_same(names: impl Iterator<Item = u64>, labels: impl Iterator<Item = u64>) -> usize {
    names.zip(labels).take_while(|(name, label)| name == label).count()
}

/// Makes ranges that touch one, so that each run has one range if its blocks are all named. Says whether no block is named
/// twice.
fn join(ranges: &mut Vec<Stretch>) -> bool {
    ranges.sort_unstable_by_key(|range| (range.run, range.from));
    let mut apart = true;
    ranges.dedup_by(|next, range| {
        if next.run != range.run || next.from > range.to {
            return false;
        }
        apart &= next.from == range.to;
        range.to = range.to.max(next.to);
        true
    });
    apart
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::record::RunId;

    fn joined(ranges: &[(RunId, u16, u16)]) -> Option<Vec<(RunId, u16, u16)>> {
        let stretches = ranges.iter().map(|(run, from, to)| Stretch {
            run: *run,
            from: *from,
            to: *to,
        });
        let mut stretches: Vec<Stretch> = stretches.collect();
        let once = join(&mut stretches);
        once.then(|| {
            stretches
                .iter()
                .map(|range| (range.run, range.from, range.to))
                .collect()
        })
    }

    #[test]
    fn a_run_that_is_named_in_parts_is_one_range() {
        let parts = [(7, 4, 6), (3, 0, 2), (7, 6, 9), (3, 5, 6), (7, 2, 4)];
        assert_eq!(joined(&parts), Some(vec![(3, 0, 2), (3, 5, 6), (7, 2, 9)]));
    }

    #[test]
    fn a_block_that_is_named_twice_is_noticed() {
        assert_eq!(joined(&[(7, 4, 6), (3, 0, 2), (7, 5, 6)]), None);
        assert_eq!(joined(&[(7, 4, 6), (7, 4, 6)]), None);
    }
}
