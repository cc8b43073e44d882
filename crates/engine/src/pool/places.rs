//! How do blocks come to their places and leave them? The steps that the operations of a pool are made of.

use homing_domain::Tier;

use super::list::{Links, List, NONE};
use super::log::{Act, Link, Origin};
use super::{BlockId, Kind, Place, Pool};
use crate::bugs::planted;

impl Pool {
    /// One more reference to a full block; the first one revives it.
    pub(super) fn hold(&mut self, index: u32) -> BlockId {
        let place = &mut self.places[index as usize];
        place.references += 1;
        if place.references == 1 {
            self.inactive.take(&mut self.places, index);
            self.active += 1;
        }
        self.id(index)
    }

    /// A new full block.
    pub(super) fn store(&mut self, link: Link, origin: Origin<'_>) -> BlockId {
        let equal = self.by_key.get(&link.key).copied();
        if let Some(equal) = equal {
            // It came earlier in the same call.
            return self.hold(equal);
        }
        if !self.tiers.is_empty() {
            self.tiers.touch(link.key);
        }
        let index = self.allocate();
        let place = &mut self.places[index as usize];
        place.kind = Kind::Full;
        (place.key, place.parent) = (link.key, link.parent);
        self.join_copies(index, None);
        self.log.stored(Tier::Device, link, origin);
        self.id(index)
    }

    /// A place with one reference, of a partial block. There is one: whoever calls has counted.
    pub(super) fn allocate(&mut self) -> u32 {
        let index = if let Some(index) = self.freed.pop() {
            index
        } else if self.places.len() < self.config.capacity.0 as usize {
            self.places.push(Place {
                key: self.config.hasher.root(),
                parent: self.config.hasher.root(),
                references: 0,
                life: 0,
                links: Links::LOOSE,
                copy_before: NONE,
                copy_after: NONE,
                kind: Kind::Free,
            });
            self.places.len() as u32 - 1
        } else {
            self.evict();
            self.freed.pop().expect("whoever calls has counted the places")
        };
        let place = &mut self.places[index as usize];
        place.references = 1;
        place.kind = Kind::Partial;
        self.active += 1;
        self.log.traced(Act::Allocated, index, self.counts());
        index
    }

    pub(super) fn evict(&mut self) {
        let Some(oldest) = self.inactive.oldest() else { return };
        self.inactive.take(&mut self.places, oldest);
        self.remove(oldest);
        self.log.traced(Act::Evicted, oldest, self.counts());
    }

    /// Takes a block out that is in neither list any more.
    pub(super) fn remove(&mut self, index: u32) {
        let Place { key, parent, kind, .. } = self.places[index as usize];
        if kind == Kind::Full {
            self.leave_copies(index);
            if !self.by_key.contains_key(&key) {
                self.tiers.write_back(Link { parent, key }, &mut self.log);
            }
            if !planted!(self.config.bug, EvictionNotTold) {
                self.log.removed(Tier::Device, key);
            }
        }
        self.free(index);
    }

    pub(super) fn free(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        place.kind = Kind::Free;
        place.references = 0;
        place.life = place.life.wrapping_add(1);
        self.freed.push(index);
    }

    /// A copy stands behind all others of its key; the first one is the one that is found.
    pub(super) fn join_copies(&mut self, index: u32, first: Option<u32>) {
        let Some(first) = first else {
            let place = &mut self.places[index as usize];
            (place.copy_before, place.copy_after) = (index, NONE);
            let key = place.key;
            self.by_key.insert(key, index);
            return;
        };
        let last = std::mem::replace(&mut self.places[first as usize].copy_before, index);
        self.places[last as usize].copy_after = index;
        let place = &mut self.places[index as usize];
        (place.copy_before, place.copy_after) = (last, NONE);
    }

    pub(super) fn leave_copies(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        let (key, before, after) = (place.key, place.copy_before, place.copy_after);
        (place.copy_before, place.copy_after) = (NONE, NONE);
        let first = self.by_key.get(&key).copied();
        if first == Some(index) {
            if after == NONE {
                self.by_key.remove(&key);
            } else {
                self.places[after as usize].copy_before = before;
                self.by_key.insert(key, after);
            }
            return;
        }
        self.places[before as usize].copy_after = after;
        // Whoever was last before is known to the first one.
        let behind = if after == NONE { first.unwrap_or(before) } else { after };
        self.places[behind as usize].copy_before = before;
    }

    pub(super) fn empty(&mut self) {
        // Lives go on, so that ids of before stay unknown.
        for index in 0..self.places.len() as u32 {
            if self.places[index as usize].kind != Kind::Free {
                let place = &mut self.places[index as usize];
                place.links = Links::LOOSE;
                (place.copy_before, place.copy_after) = (NONE, NONE);
                self.free(index);
            }
        }
        self.inactive = List::EMPTY;
        self.by_key.clear();
        self.tiers.clear();
    }
}
