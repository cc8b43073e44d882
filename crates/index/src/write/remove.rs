//! Blocks went: who holds them no more?

use homing_domain::{CacheGroup, Label, Tier};

use super::{Place, Stretch};
use crate::bugs::planted;
use crate::detail::Holding;
use crate::index::Index;

impl Index {
    /// Removes at most [`Index::STEP`] labels. Returns how many named nothing.
    pub(crate) fn remove_step(&mut self, slot: usize, labels: &[Label], (tier, group): (Tier, CacheGroup)) -> u32 {
        if let Some(label) = labels.first() {
            self.ask_for(*label);
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
        if unknown.is_some() && ranges.iter().all(|range| self.is_tail(slot, *range)) {
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

    /// Collects the blocks that the labels name as one range per run. `None` if they are not that simple.
    fn gather(&self, slot: usize, labels: &[Label], ranges: &mut Vec<Stretch>) -> Option<u32> {
        let info = self.slots.info(slot);
        if !info.orphans.is_empty() || info.own_labels.is_some() {
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
            if ranges.iter().any(|range| range.run == place.run) {
                return None;
            }
            let (range, count) = self.extend_range(slot, place, rest);
            ranges.push(range);
            rest = &rest[count..];
        }
        Some(unknown)
    }

    /// How many of the labels name the blocks beside this one, one after the other: engines remove blocks in order, one
    /// way or the other.
    fn extend_range(&self, slot: usize, place: Place, labels: &[Label]) -> (Stretch, usize) {
        let (held, cut) = (self.blocks_of(place.run), self.cut(place.run, slot) as usize);
        let mut rest = labels;
        if !self.ambiguous.is_empty() {
            let doubtful = labels.iter().position(|label| self.ambiguous.contains(label));
            rest = &labels[..doubtful.unwrap_or(labels.len())];
        }
        let (mut from, mut to) = (place.offset as usize, place.offset as usize + 1);
        loop {
            let down = held.count_labels_down(from, rest.iter().map(|label| label.get()));
            rest = &rest[down..];
            let up = held.count_labels(to, cut, rest.iter().map(|label| label.get()));
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
        (range, to - from - 1)
    }

    /// Whether the range is the end of what the slot plainly holds of the run.
    fn is_tail(&self, slot: usize, range: Stretch) -> bool {
        let details = &self.slots.info(slot).details;
        (details.is_empty() || !details.contains_key(&range.run)) && self.cut(range.run, slot) == range.to
    }
}
