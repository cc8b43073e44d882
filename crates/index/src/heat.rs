//! How hot is this prefix? Counts of recent uses per block, over a sliding window, in fixed memory.
//!
//! A count-min sketch over block keys, in four parts of the window that take turns: a count is never too low for the
//! parts it covers, and too high only where other hot blocks share its cells. Whoever books a request marks its blocks;
//! lookups do not write.

use homing_domain::BlockKey;

use crate::sync::{AtomicU64, Ordering};

const CELLS: usize = 1 << 14;
const ROWS: usize = 2;
/// Parts of the window.
const PARTS: u64 = 4;
const COUNT_BITS: u32 = 16;

/// Recent-use counts. Shared between threads.
#[derive(Debug)]
pub struct Heat {
    /// Each word holds the number of a part of the window modulo 2^48, and the uses counted in it.
    cells: Vec<AtomicU64>,
    part_ms: u64,
}

impl Heat {
    /// Counts over the last `window_ms` milliseconds, to a quarter of it.
    pub fn new(window_ms: u64) -> Self {
        let cells = PARTS as usize * ROWS * CELLS;
        Self {
            cells: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            part_ms: (window_ms / PARTS).max(1),
        }
    }

    /// The blocks were used at `now_ms`, a time that does not go back.
    pub fn mark(&self, keys: &[BlockKey], now_ms: u64) {
        let part = now_ms / self.part_ms + 1;
        for key in keys {
            for row in 0..ROWS {
                let cell = self.cell(*key, row, part);
                let word = cell.load(Ordering::Relaxed);
                let fresh = if word >> COUNT_BITS == part {
                    word
                } else {
                    part << COUNT_BITS
                };
                // Two marks at the same instant may count once; a count is a hint.
                let full = fresh & ((1 << COUNT_BITS) - 1) == (1 << COUNT_BITS) - 1;
                cell.store(if full { fresh } else { fresh + 1 }, Ordering::Relaxed);
            }
        }
    }

    /// How often the block was used in the window that ends at `now_ms`.
    pub fn uses(&self, key: BlockKey, now_ms: u64) -> u32 {
        let newest = now_ms / self.part_ms + 1;
        let oldest = newest.saturating_sub(PARTS - 1).max(1);
        let in_part = |part: u64| {
            let count = |row: usize| {
                let word = self.cell(key, row, part).load(Ordering::Relaxed);
                if word >> COUNT_BITS == part {
                    (word & ((1 << COUNT_BITS) - 1)) as u32
                } else {
                    0
                }
            };
            (0..ROWS).map(count).min().unwrap_or(0)
        };
        (oldest..=newest).map(in_part).sum()
    }

    fn cell(&self, key: BlockKey, row: usize, part: u64) -> &AtomicU64 {
        let hash = if row == 0 { key.0 } else { key.0.rotate_left(31) };
        let place = (part % PARTS) as usize * ROWS + row;
        &self.cells[place * CELLS + hash as usize % CELLS]
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn uses_are_counted_and_forgotten() {
        let heat = Heat::new(4000);
        let (hot, cold) = (BlockKey(0x1234_5678_9abc_def0), BlockKey(0x0fed_cba9_8765_4321));
        for second in 0..4 {
            heat.mark(&[hot], second * 1000);
        }
        assert_eq!(heat.uses(hot, 3000), 4);
        assert_eq!(heat.uses(cold, 3000), 0);
        assert_eq!(heat.uses(hot, 5500), 2, "the first two quarters are out of the window");
        assert_eq!(heat.uses(hot, 60_000), 0);
        heat.mark(&[hot], 60_000);
        assert_eq!(
            heat.uses(hot, 60_000),
            1,
            "what was counted a minute ago is not counted again"
        );
    }
}
