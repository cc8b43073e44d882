//! What will a lookup need, whose keys are still being computed? Keys are chained, so the first runs of the path are known
//! long before the last key is. A scout goes ahead of the lookup and asks for them; it decides nothing, and the lookup is
//! the same without it.
//!
//! **Invariant:** a scout reads only what it asked for a piece of blocks ago, so that it does not wait: who waits here stops
//! the hashing, too. A path that goes on somewhere else than it says is none of its business.

use homing_domain::BlockKey;

use crate::blocks::key_word;
use crate::chunk::prefetch;
use crate::lookup::{ask_for_run, at_home};
use crate::slots::View;

/// Blocks that are hashed between two looks: as many as it takes for memory to come.
pub(crate) const PIECE: usize = 128;

/// How far along the path everything was asked for.
pub(crate) struct Scout<'a> {
    pub(crate) view: &'a View,
    /// Where the run begins that was asked for last.
    pub(crate) pos: usize,
}

impl Scout<'_> {
    /// Looks at the run that was asked for last, if any was, and asks for where the path probably leaves it and goes on.
    pub(crate) fn go_on(&mut self, keys: &[BlockKey]) {
        if keys.len() == 1 {
            ask_for_run(self.view, keys);
            return;
        }
        let key = keys[self.pos].0;
        let Some(found) = self
            .view
            .records
            .homes(key)
            .find_map(|run| at_home(self.view, key, run))
        else {
            return;
        };
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
        ask_for_run(self.view, &keys[next..]);
    }
}
