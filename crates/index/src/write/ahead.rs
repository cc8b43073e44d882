//! What will be needed soon? The table of labels is accessed at random, and far away: buckets are asked for some labels
//! before their turn, so that nobody waits for them.

use homing_domain::Label;

use crate::blocks::key_word;
use crate::chunk::prefetch;
use crate::index::Index;
use crate::slots::{label_hash, own_hash};
use crate::table::Table;

/// How many labels ahead their buckets are asked for.
const AHEAD: usize = 32;

/// The hashes of labels whose turn comes next.
pub(crate) struct Ahead {
    hashes: [u64; AHEAD],
}

impl Ahead {
    /// Asks for the buckets of the first labels; `hash` knows their hashes by number, as long as there are any.
    #[inline]
    pub(crate) fn new(table: &Table, hash: impl Fn(usize) -> Option<u64>) -> Self {
        let mut hashes = [0; AHEAD];
        for (place, early) in hashes.iter_mut().zip((0..AHEAD).map_while(hash)) {
            *place = early;
            table.prefetch(early);
        }
        Self { hashes }
    }

    /// The hash of a label whose turn has come: they come one after the other. Asks for a later bucket meanwhile.
    #[inline]
    pub(crate) fn turn(&mut self, table: &Table, number: usize, hash: impl Fn(usize) -> Option<u64>) -> u64 {
        let place = number % AHEAD;
        let now = self.hashes[place];
        if let Some(later) = hash(number + AHEAD) {
            self.hashes[place] = later;
            table.prefetch(later);
        }
        now
    }
}

impl Index {
    /// Asks for the block that a label probably names and for those before it, where engines go on: its bucket, then what is
    /// known of the run, then keys and labels. Each waits for the one before it, and brings all of its kind at once.
    pub(crate) fn ask_for(&self, slot: usize, label: Label) {
        if self.slots.info(slot).own_labels > 0 && self.names.find(own_hash(slot, label), |_| true).is_some() {
            // What is known of it lies elsewhere.
            return;
        }
        let Some(found) = self.labels.find(label_hash(label), |_| true) else {
            return;
        };
        let place = self.renumbered.place(found);
        self.runs.prefetch(place.run);
        let words = self.heap.words(self.runs.record(place.run).blocks());
        let key = key_word(place.offset as usize);
        let before = |lines: usize| key.saturating_sub(lines * LINE);
        for word in [0, key + LINE, key, before(1), before(3)] {
            words.get(word).into_iter().for_each(prefetch);
        }
    }
}

/// Words of a cache line.
const LINE: usize = 8;
