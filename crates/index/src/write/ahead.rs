//! Which buckets of the table of labels will be needed soon? The table is accessed at random, and far away: buckets are
//! asked for some labels before their turn, so that nobody waits for them.

use homing_domain::Label;

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
