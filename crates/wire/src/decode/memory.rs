//! Which blocks were skipped, and what is in those stored lately? Two memories of a decoder, both bounded.

use homing_domain::{CacheGroup, ContentHash, Label, Tier};
use rustc_hash::FxHashMap;

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) tier: Tier,
    pub(super) group: CacheGroup,
}

/// Skipped blocks that are remembered before half of them are forgotten.
const MAX_PASSED_OVER: usize = 65_536;

/// Copies of blocks that were skipped when they were stored. When it is full the older half is forgotten: the removals
/// of those are then passed on, as removals of what nobody knows.
#[derive(Debug, Default)]
pub(super) struct PassedOver {
    young: FxHashMap<(Label, Place), u32>,
    old: FxHashMap<(Label, Place), u32>,
}

impl PassedOver {
    /// One copy was skipped.
    pub(super) fn note(&mut self, label: Label, place: Place) {
        if self.young.len() >= MAX_PASSED_OVER / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        let copies = self.young.entry((label, place)).or_default();
        *copies = copies.saturating_add(1);
    }

    /// Whether a copy is known to have been skipped.
    pub(super) fn has(&self, label: Label, place: Place) -> bool {
        let key = &(label, place);
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    /// One copy goes. Whether it was one of these.
    pub(super) fn take(&mut self, label: Label, place: Place) -> bool {
        take_from(&mut self.young, label, place) || take_from(&mut self.old, label, place)
    }

    /// Whether there is none, which is the rule.
    pub(super) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// Everything on a tier, or on all of them, went.
    pub(super) fn clear(&mut self, tier: Option<Tier>) {
        let stays = |(_, place): &(Label, Place)| tier.is_some_and(|tier| place.tier != tier);
        self.young.retain(|key, _| stays(key));
        self.old.retain(|key, _| stays(key));
    }
}

fn take_from(copies: &mut FxHashMap<(Label, Place), u32>, label: Label, place: Place) -> bool {
    let Some(count) = copies.get_mut(&(label, place)) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        copies.remove(&(label, place));
    }
    true
}

/// Slots of the memory of contents at first, and at most. It grows when it is asked for what it no longer has, so that
/// it stays small with engines that never ask.
const FIRST_SLOTS: usize = 1 << 10;
const MAX_SLOTS: usize = 1 << 17;

/// What is in a block, and before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) parent: Option<Label>,
    pub(super) content: ContentHash,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    label: Label,
    group: CacheGroup,
    known: Known,
}

/// What is in the blocks that were stored lately: one slot per hash of the label, the latest wins.
#[derive(Debug, Default)]
pub(super) struct Recall {
    slots: Vec<Option<Slot>>,
}

impl Recall {
    #[inline]
    pub(super) fn note(&mut self, label: Label, group: CacheGroup, known: Known) {
        if self.slots.is_empty() {
            self.slots = vec![None; FIRST_SLOTS];
        }
        let slot = slot_of(label, self.slots.len());
        self.slots[slot] = Some(Slot { label, group, known });
    }

    /// What is in a block of a group. Makes room for more if it is not known.
    pub(super) fn find(&mut self, label: Label, group: CacheGroup) -> Option<Known> {
        let slot = self.slots.get(slot_of(label, self.slots.len())).copied().flatten();
        let known = slot.filter(|slot| slot.label == label && slot.group == group);
        if known.is_none() {
            self.grow();
        }
        known.map(|slot| slot.known)
    }

    fn grow(&mut self) {
        let slots = self.slots.len() * 4;
        if self.slots.is_empty() || slots > MAX_SLOTS {
            return;
        }
        for slot in std::mem::replace(&mut self.slots, vec![None; slots])
            .into_iter()
            .flatten()
        {
            self.slots[slot_of(slot.label, slots)] = Some(slot);
        }
    }
}

/// `slots` is a power of two, or 0.
#[inline]
fn slot_of(label: Label, slots: usize) -> usize {
    let mixed = label.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    mixed as usize & slots.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        tier: Tier::Device,
        group: CacheGroup(0),
    };
    const HOST: Place = Place {
        tier: Tier::Host,
        group: CacheGroup(0),
    };

    #[test]
    fn skipped_copies_are_counted_per_place() {
        let mut passed = PassedOver::default();
        let label = Label::new(7);
        passed.note(label, PLACE);
        passed.note(label, PLACE);
        passed.note(label, HOST);
        assert!(passed.take(label, PLACE) && passed.take(label, PLACE));
        assert!(!passed.take(label, PLACE));
        assert!(passed.has(label, HOST));
        passed.clear(Some(Tier::Device));
        assert!(passed.has(label, HOST));
        passed.clear(None);
        assert!(passed.is_empty());
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let mut passed = PassedOver::default();
        let count = 2 * MAX_PASSED_OVER as u64;
        for label in 0..count {
            passed.note(Label::new(label), PLACE);
        }
        assert!(passed.young.len() + passed.old.len() <= MAX_PASSED_OVER);
        assert!(passed.has(Label::new(count - 1), PLACE));
        assert!(passed.has(Label::new(count - MAX_PASSED_OVER as u64 / 2), PLACE));
        assert!(!passed.has(Label::new(0), PLACE));
    }

    #[test]
    fn contents_are_recalled_per_group_and_room_grows_when_asked() {
        let mut recall = Recall::default();
        let known = |n| Known {
            parent: None,
            content: ContentHash(n),
        };
        assert_eq!(recall.find(Label::new(0), CacheGroup(0)), None);
        for n in 0..100_000 {
            recall.note(Label::new(n), CacheGroup(0), known(n));
        }
        assert_eq!(recall.slots.len(), FIRST_SLOTS);
        let last = Label::new(99_999);
        assert_eq!(recall.find(last, CacheGroup(0)), Some(known(99_999)));
        assert_eq!(recall.find(last, CacheGroup(1)), None);
        for n in 0..100 {
            recall.find(Label::new(n), CacheGroup(0));
        }
        assert!(recall.slots.len() <= MAX_SLOTS && recall.slots.len() > MAX_SLOTS / 4);
        assert_eq!(recall.find(last, CacheGroup(0)), Some(known(99_999)));
    }
}
