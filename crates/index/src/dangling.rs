//! Which runs follow a block that is not in the index? Their blocks are held, behind a hole that every rank has. When
//! the missing block comes they are linked to it again.

use homing_domain::BlockKey;
use rustc_hash::FxHashMap;

use crate::record::RunId;

/// Runs by the key of the block that is missing before them, and the other way round.
#[derive(Debug, Default)]
pub(crate) struct Dangling {
    missing_before: FxHashMap<RunId, BlockKey>,
    after: FxHashMap<BlockKey, Vec<RunId>>,
}

impl Dangling {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.missing_before.is_empty()
    }

    pub(crate) fn insert(&mut self, run: RunId, missing: BlockKey) {
        self.missing_before.insert(run, missing);
        self.after.entry(missing).or_default().push(run);
    }

    /// The key of the block that is missing before a run.
    pub(crate) fn missing_before(&self, run: RunId) -> Option<BlockKey> {
        self.missing_before.get(&run).copied()
    }

    pub(crate) fn remove(&mut self, run: RunId) -> Option<BlockKey> {
        let missing = self.missing_before.remove(&run)?;
        if let Some(runs) = self.after.get_mut(&missing) {
            runs.retain(|other| *other != run);
            if runs.is_empty() {
                self.after.remove(&missing);
            }
        }
        Some(missing)
    }

    /// The runs that the block with this key is missing before.
    pub(crate) fn after(&self, key: BlockKey) -> Vec<RunId> {
        self.after.get(&key).cloned().unwrap_or_default()
    }
}
