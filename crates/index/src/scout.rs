//! What will a lookup need, whose keys are still being computed? Keys are chained, so the first runs of the path are known
//! long before the last key is. A scout goes ahead of the lookup and asks for them; it decides nothing, and the lookup is
//! the same without it.
//!
//! **Invariant:** a scout reads only what it asked for a good many blocks ago, so that it does not wait: who waits here stops
//! the hashing, too. A path that goes on somewhere else than it says is none of its business.

use homing_domain::BlockKey;

use crate::blocks::key_word;
use crate::chunk::prefetch;
use crate::lookup::{ask_for_run, guessed};
use crate::record::{Record, RunId};
use crate::slots::View;

/// Blocks that are hashed between the first look and the second: more than it takes for memory to come, because each look also
/// interrupts the hashing. There are twice as many until the third, and so on.
pub(crate) const PIECE: usize = 192;

/// How far along the path everything was asked for.
pub(crate) struct Scout<'a> {
    view: &'a View,
    /// Where the run begins that was asked for last, and which it is if its parent said so.
    pos: usize,
    child: RunId,
}

impl<'a> Scout<'a> {
    pub(crate) fn new(view: &'a View) -> Self {
        Self { view, pos: 0, child: 0 }
    }

    /// Looks at the run that was asked for last, if any was, and asks for where the path probably leaves it and goes on.
    pub(crate) fn go_on(&mut self, keys: &[BlockKey]) {
        if keys.len() == 1 {
            ask_for_run(self.view, keys, 0);
            return;
        }
        let (view, key) = (self.view, keys[self.pos].0);
        let found = match self.child {
            0 => view.records.homes(key).find_map(|run| guessed(view, key, run)),
            child => guessed(view, key, child),
        };
        let Some(found) = found else { return };
        found.fields.full.prefetch(&self.view.heap);
        let departure = found.fields.shape.departure as usize;
        let next = self.pos + departure;
        if departure == 0 || next >= keys.len() {
            return;
        }
        let stored = self.view.heap.words(found.fields.blocks);
        if let Some(place) = stored.and_then(|words| words.get(key_word(departure))) {
            prefetch(place);
        }
        self.pos = next;
        self.child = Record::usual_child(found.version);
        ask_for_run(self.view, &keys[next..], self.child);
    }
}
