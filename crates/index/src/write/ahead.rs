//! What will be needed soon? The table of labels is accessed at random, and far away: buckets are asked for some labels
//! before their turn, so that nobody waits for them.

use homing_domain::Label;

use super::Place;
use crate::blocks::key_word;
use crate::chunk::prefetch;
use crate::index::Index;
use crate::slots::label_hash;
use crate::table::Table;

/// How many labels ahead their buckets are asked for.
const AHEAD: usize = 32;

/// The hashes of labels whose turn comes next.
pub(crate) struct Ahead {
    hashes: [u64; AHEAD],
}

impl Ahead {
    /// Asks for the buckets of the first labels; `label` knows them by number, as long as there are any.
    #[inline]
    pub(crate) fn new(table: &Table, label: impl Fn(usize) -> Option<Label>) -> Self {
        let mut hashes = [0; AHEAD];
        for (hash, early) in hashes.iter_mut().zip((0..AHEAD).map_while(label)) {
            *hash = label_hash(early);
            table.prefetch(*hash);
        }
        Self { hashes }
    }

    /// The hash of a label whose turn has come: they come one after the other. Asks for a later bucket meanwhile.
    #[inline]
    pub(crate) fn turn(&mut self, table: &Table, number: usize, label: impl Fn(usize) -> Option<Label>) -> u64 {
        let place = number % AHEAD;
        let hash = self.hashes[place];
        if let Some(later) = label(number + AHEAD) {
            self.hashes[place] = label_hash(later);
            table.prefetch(self.hashes[place]);
        }
        hash
    }
}

impl Index {
    /// Asks for the block that a label probably names and for those before it, where engines go on: its bucket, then what is
    /// known of the run, then keys and labels. Each waits for the one before it, and brings all of its kind at once.
    pub(crate) fn ask_for(&self, label: Label) {
        let Some(place) = self.labels.find(label_hash(label), |_| true).map(Place::decode) else {
            return;
        };
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
