//! How much of what is computed was computed before?
//!
//! A cache is full sooner or later, and then each block that comes displaces another. What that costs depends on how often such blocks
//! are missed later: if prompts are computed that nobody sees again, not at all. So of some blocks it is remembered that they were
//! seen, whoever holds them now.
//!
//! Only one of 32 blocks of a prompt is looked at, and of these one of 32 by its key remembered, so that prompts that share a prefix meet
//! in it. All that is remembered stands for 16 million blocks; in a fleet whose caches hold more than that the share comes out too low.
//!
//! Cost: one comparison for 32 blocks; at most half a MiB, which a processor's own cache holds.

use std::collections::VecDeque;

use homing_domain::BlockKey;
use rustc_hash::FxHashSet;

/// The first block that is looked at, from 0: not the very first, which prompts often share that share nothing else.
const FIRST: usize = 7;
const EVERY: usize = 32;
const ONE_OF: u64 = 32;
/// The most blocks that are remembered.
const REMEMBERED: usize = 1 << 14;
/// Each block moves the share by at least one part of so many.
const MEMORY: f64 = 1_024.0;
/// Fewer blocks than these say nothing.
const FEW: f64 = 32.0;

/// Some of the blocks of the last prompts, and how many of them were computed again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Again {
    known: FxHashSet<BlockKey>,
    /// The same as they came.
    came: VecDeque<BlockKey>,
    seen: f64,
    share: f64,
}

impl Again {
    /// A prompt with these blocks, of which those from `computed` on are to be computed.
    pub(crate) fn saw(&mut self, keys: &[BlockKey], computed: usize) {
        for (at, key) in keys.iter().enumerate().skip(FIRST).step_by(EVERY) {
            // The upper bits, because tables go by the lower ones.
            if !(key.0 >> 32).is_multiple_of(ONE_OF) {
                continue;
            }
            let before = !self.known.insert(*key);
            if at >= computed {
                self.seen = (self.seen + 1.0).min(MEMORY);
                self.share += (f64::from(u8::from(before)) - self.share) / self.seen;
            }
            if before {
                continue;
            }
            self.came.push_back(*key);
            if self.came.len() > REMEMBERED
                && let Some(oldest) = self.came.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }

    /// The share of computed blocks that were seen before; 0 while little is known.
    pub(crate) fn share(&self) -> f64 {
        if self.seen < FEW { 0.0 } else { self.share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of a prompt of 1,024 blocks, of which 32 are looked at, that shares nothing with others.
    fn prompt(number: u64) -> Vec<BlockKey> {
        let key = |block: u64| BlockKey((number << 20 | block).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (0..1_024).map(key).collect()
    }

    #[test]
    fn what_is_computed_again_is_told_from_what_is_new() {
        let mut again = Again::default();
        for number in 0..200 {
            again.saw(&prompt(number), 0);
        }
        assert!(again.share().abs() < 1e-9, "all was new");
        for number in 0..200 {
            again.saw(&prompt(number), 1_024);
        }
        assert!(again.share().abs() < 1e-9, "and nothing was computed");
        for _ in 0..20 {
            for number in 0..200 {
                again.saw(&prompt(number), 0);
            }
        }
        assert!(again.share() > 0.99, "{}", again.share());
        // Every other one is new.
        for number in 200..1_200 {
            again.saw(&prompt(number), 0);
            again.saw(&prompt(number % 200), 0);
        }
        assert!((0.4..0.6).contains(&again.share()), "{}", again.share());
    }

    #[test]
    fn few_blocks_say_nothing_and_not_more_are_remembered_than_may() {
        let mut again = Again::default();
        again.saw(&prompt(0), 0);
        again.saw(&prompt(0), 0);
        assert!(again.share().abs() < 1e-9);
        for number in 0..40_000 {
            again.saw(&prompt(number), 0);
        }
        assert_eq!(again.came.len(), REMEMBERED);
        assert_eq!(again.known.len(), REMEMBERED);
    }
}
