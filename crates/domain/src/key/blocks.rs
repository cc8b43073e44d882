//! How do groups of tokens become content hashes and keys?
//!
//! The steps from group to group and from block to block, written once for all ways to compute the number of a group
//! (`way.rs`), each of which hands in a function that does. These steps must be inlined into their callers: only there may
//! a compiler use the vectors of a newer processor, and a loop this tight wants all registers.

use super::BlockKey;
use super::group::{GROUP, GroupConstants};

/// Tokens in a cache line are a group; so many lines before their turn they are told of.
pub(super) const LINES_AHEAD: usize = 64;

/// The constants between tokens and keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockConstants {
    pub(super) group: GroupConstants,
    /// The odd multiplier between the groups of a block.
    pub(super) group_step: u64,
    /// The odd multiplier between blocks.
    pub(super) step: u64,
}

/// A run of blocks whose keys are wanted.
pub(super) struct Run<'a> {
    /// What else is in each of them.
    pub(super) context: u64,
    /// The key before the first of them.
    pub(super) parent: BlockKey,
    /// Those of the blocks and of all that follow.
    pub(super) tokens: &'a [u32],
    /// One for each.
    pub(super) keys: &'a mut [BlockKey],
}

impl BlockConstants {
    /// What `parent` leaves in the key of its child. A product carries differences towards its high bits only; turned by
    /// half, the next one carries them on.
    #[inline]
    pub(super) const fn inherited(&self, parent: BlockKey) -> u64 {
        parent.0.wrapping_mul(self.step).rotate_left(32)
    }

    /// Where the chain of a block's groups starts. Holds the number of tokens, so that zeros that fill up a group are
    /// never taken for tokens.
    #[inline]
    pub(super) fn start(&self, context: u64, tokens: usize) -> u64 {
        context ^ (tokens as u64).wrapping_mul(self.group_step)
    }

    #[inline]
    fn add_group(&self, state: u64, group: u64) -> u64 {
        state.wrapping_mul(self.group_step).rotate_left(32).wrapping_add(group)
    }

    /// What a list of any length adds to `state`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see above")]
    pub(super) fn chained(&self, mut state: u64, list: &[u32], number: impl Fn(&[u32; GROUP]) -> u64) -> u64 {
        let (groups, rest) = list.as_chunks::<GROUP>();
        for group in groups {
            state = self.add_group(state, number(group));
        }
        let mut filled = [0; GROUP];
        match rest {
            [] => state,
            // As windows that look one token ahead end. It stays in a register; what is written in pieces and read as
            // a vector is waited for.
            [token] => {
                filled[0] = *token;
                self.add_group(state, number(&filled))
            }
            _ => {
                filled[..rest.len()].copy_from_slice(rest);
                self.add_group(state, number(&filled))
            }
        }
    }

    /// The keys of a run of blocks. `PAIRS` pairs of groups make `KEYS` blocks, one or two. `soon` is told of each line
    /// before it is read, but for the first [`LINES_AHEAD`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see above")]
    pub(super) fn chain<const PAIRS: usize, const KEYS: usize>(
        &self,
        run: Run<'_>,
        soon: impl Fn(&u32),
        numbers: impl Fn(&[[u32; GROUP]; 2]) -> [u64; 2],
    ) {
        let Run {
            context,
            mut parent,
            tokens,
            keys,
        } = run;
        let start = self.start(context, 2 * PAIRS * GROUP / KEYS);
        let mut next = |content: u64| {
            parent = BlockKey(self.inherited(parent) ^ content);
            parent
        };
        let mut several = |keys: &mut [BlockKey; KEYS], pairs: &[[[u32; GROUP]; 2]; PAIRS]| {
            let mut state = start;
            for pair in pairs {
                let [first, second] = numbers(pair);
                state = self.add_group(state, first);
                if KEYS == 2 {
                    keys[0] = next(state);
                    state = start;
                }
                state = self.add_group(state, second);
            }
            keys[KEYS - 1] = next(state);
        };
        let (pairs, odd) = tokens.as_chunks::<GROUP>().0.as_chunks::<2>();
        let (units, _) = pairs.as_chunks::<PAIRS>();
        let (keys, odd_key) = keys.as_chunks_mut::<KEYS>();
        let tell = |unit: &[[[u32; GROUP]; 2]; PAIRS]| unit.as_flattened().iter().for_each(|line| soon(&line[0]));

        let far = &units[(LINES_AHEAD / (2 * PAIRS)).min(units.len())..];
        let (with, without) = keys.split_at_mut(far.len().min(keys.len()));
        let rest = &units[with.len()..];
        for ((keys, unit), later) in with.iter_mut().zip(units).zip(far) {
            tell(later);
            several(keys, unit);
        }
        for (keys, unit) in without.iter_mut().zip(rest) {
            several(keys, unit);
        }
        // One block may be left where two are taken at a time: it is hashed beside itself.
        if let ([key], [group]) = (odd_key, odd) {
            *key = next(self.add_group(start, numbers(&[*group, *group])[0]));
        }
    }
}
