//! About where does a query leave a run? Of every 32nd block a run keeps a part of its key in one line beside its record. A
//! reader who asks for that line together with the record knows which 32 stored keys it has to compare with, where it
//! would otherwise have to look for them among the stored keys first, and wait for those.
//!
//! **Invariant:** samples are hints. They are of no version and may be those of another run, or of blocks that are gone:
//! what they say is true only if the stored keys say the same.

use homing_domain::BlockKey;

use crate::chunk::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// Blocks from one sample to the next.
pub(crate) const STRIDE: usize = 32;
/// Words of a run's line of samples.
pub(crate) const SAMPLE_WORDS: usize = 8;

const PER_WORD: usize = 4;
const BITS: usize = 64 / PER_WORD;
/// Longer runs have no samples of what lies behind.
const MOST: usize = SAMPLE_WORDS * PER_WORD;
/// Keys that are asked for before it is known whether they will be compared.
const ASKED: usize = 8;

/// The offsets before `end` of which there are samples, from the first that is not before `start`.
pub(crate) fn sampled(start: usize, end: usize) -> impl Iterator<Item = usize> + Clone {
    ((start | (STRIDE - 1))..end.min(MOST * STRIDE)).step_by(STRIDE)
}

/// One run's line.
#[derive(Clone, Copy)]
pub(crate) struct Samples<'a>(pub(crate) &'a [AtomicU64; SAMPLE_WORDS]);

impl Samples<'_> {
    /// Notes the key of a block, one of those that [`sampled`] names. For the writer.
    pub(crate) fn note(self, offset: usize, key: u64) {
        let number = offset / STRIDE;
        let (word, shift) = (&self.0[number / PER_WORD % SAMPLE_WORDS], number % PER_WORD * BITS);
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(others | sample(key) << shift, Ordering::Relaxed);
    }

    /// Asks for the line, and for those of these keys that it will be compared with.
    #[inline]
    pub(crate) fn prefetch(self, keys: &[BlockKey]) {
        prefetch(self.0);
        let compared = keys.iter().skip(STRIDE - 1).step_by(STRIDE).take(ASKED);
        compared.for_each(prefetch);
    }

    /// The blocks among which these keys probably leave the run: all before them match, those behind them do not. The keys
    /// are as many as may match.
    #[inline]
    pub(crate) fn window(self, keys: &[BlockKey]) -> (usize, usize) {
        let matches = |(number, key): &(usize, &BlockKey)| {
            let word = self.0[number / PER_WORD].load(Ordering::Relaxed);
            (word >> (number % PER_WORD * BITS)) & 0xffff == sample(key.0)
        };
        let sampled = keys.iter().skip(STRIDE - 1).step_by(STRIDE).take(MOST);
        let low = sampled.enumerate().take_while(matches).count() * STRIDE;
        (low, keys.len().min(low + STRIDE - 1))
    }
}

#[inline]
fn sample(key: u64) -> u64 {
    key >> (64 - BITS)
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    fn key(offset: usize) -> BlockKey {
        BlockKey((offset as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn the_window_is_where_keys_differ_however_the_run_grew() {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        let samples = Samples(&words);
        let mut len = 0;
        for more in [1, 30, 1, 1, 200, 31, 33, 700, 500] {
            sampled(len, len + more).for_each(|offset| samples.note(offset, key(offset).0));
            len += more;
            for matching in [1, 2, 31, 32, 33, 64, 100, 500, 1023, 1024, 1100, len] {
                let keys: Vec<BlockKey> = (0..len)
                    .map(|offset| {
                        if offset < matching {
                            key(offset)
                        } else {
                            key(offset + 5000)
                        }
                    })
                    .collect();
                let (low, high) = samples.window(&keys);
                let matching = matching.min(len);
                // Behind the last sample nothing is known.
                let last = (matching / STRIDE * STRIDE).min(MOST * STRIDE);
                assert_eq!((low, high), (last, len.min(last + STRIDE - 1)), "{matching} of {len}");
            }
        }
        assert_eq!(
            sampled(MOST * STRIDE - 1, 5000).collect::<Vec<_>>(),
            [MOST * STRIDE - 1]
        );
        assert_eq!(sampled(MOST * STRIDE, 5000).count(), 0);
    }
}
