//! Which blocks does one slot call by labels of its own? A map in 64 parts, so that no growth of it takes long.

use homing_domain::Label;
use rustc_hash::FxHashMap;

use crate::slots::label_hash;
use crate::write::Place;

const PARTS: usize = 64;

/// From labels that are not the run's own to places.
#[derive(Debug)]
pub(crate) struct OwnLabels {
    parts: Box<[FxHashMap<Label, Place>; PARTS]>,
    len: usize,
}

impl OwnLabels {
    pub(crate) fn new() -> Self {
        Self {
            parts: Box::new(std::array::from_fn(|_| FxHashMap::default())),
            len: 0,
        }
    }

    pub(crate) fn get(&self, label: Label) -> Option<Place> {
        self.parts[part_of(label)].get(&label).copied()
    }

    pub(crate) fn insert(&mut self, label: Label, place: Place) {
        if self.parts[part_of(label)].insert(label, place).is_none() {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, label: Label) {
        let part = &mut self.parts[part_of(label)];
        if part.remove(&label).is_some() {
            self.len -= 1;
            if part.len() * 8 < part.capacity() {
                part.shrink_to(part.len() * 2);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        let entry = size_of::<(Label, Place)>() + 1;
        self.parts
            .iter()
            .map(|part| (part.capacity() * 8 / 7 * entry) as u64)
            .sum()
    }
}

fn part_of(label: Label) -> usize {
    (label_hash(label) >> 58) as usize % PARTS
}
