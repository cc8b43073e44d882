//! How much could one cache of this size have held, if it knew the future?
//!
//! Whenever there is too much, what is used again the latest goes first (Belady), and among equals what is deepest. A block is never
//! used later than those that extend it, so parents stay at least as long as children, and the blocks that are there are always whole
//! prefixes: the best for single blocks is the best for prefixes. Blocks that are not used again are not kept at all. Between requests
//! at most the capacity is kept; what a request needs while it runs is not counted. So this is an upper bound for any fleet whose
//! caches have that much room together.
//!
//! Cost: `n log n` for `n` blocks of all requests; 8 bytes for each are kept, and a capacity is tried without reading the trace again.

use std::collections::BTreeSet;

use homing_domain::{BlockSize, Tokens};
use rustc_hash::FxHashMap;

use super::infinite::{Walk, cached, share, unknown};
use crate::error::TraceError;
use crate::transform::Traffic;

/// The blocks that the requests of a trace use, in order.
#[derive(Debug)]
pub struct Accesses {
    size: BlockSize,
    requests: Vec<Used>,
    /// The full blocks of all requests, each under a small number.
    blocks: Vec<u32>,
    /// For each of them the request that uses it next; [`NEVER`] if none does.
    next: Vec<u32>,
    distinct: usize,
}

/// The blocks of a request.
#[derive(Debug)]
struct Used {
    prompt: Tokens,
    /// Where its blocks end in the list of all.
    end: usize,
    /// How many of them are of its prompt, and so looked up.
    looked_up: usize,
}

const NEVER: u32 = u32::MAX;

/// What a cache of some size could have held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// Tokens of each request's prompt that it could have held, in the order of the trace.
    pub cached: Vec<Tokens>,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens of all prompts that it could have held.
    pub cached_tokens: u64,
}

impl Pooled {
    /// Which share of the prompts' tokens it could have held.
    pub fn cached_share(&self) -> f64 {
        share(self.cached_tokens, self.prompt_tokens)
    }
}

impl Accesses {
    /// Reads a trace. Only full blocks of this size are cached.
    pub fn of<I: Traffic>(traffic: I, size: BlockSize) -> Result<Self, TraceError> {
        let mut walk = Walk::new(size);
        let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
        let (mut requests, mut blocks) = (Vec::new(), Vec::new());
        for request in traffic {
            let used = walk.step(&request?).map_err(unknown)?;
            let full = size.full_blocks(used.tokens).0 as usize;
            // A partial block of the prompt is left out; those that the answer fills come after it.
            let (prompt, answer) = walk.names.split_at(used.prompt);
            for name in prompt[..full].iter().chain(answer) {
                let fresh = numbers.len() as u32;
                blocks.push(*numbers.entry(*name).or_insert(fresh));
            }
            requests.push(Used {
                prompt: used.tokens,
                end: blocks.len(),
                looked_up: full,
            });
        }
        let mut accesses = Self {
            size,
            requests,
            next: vec![NEVER; blocks.len()],
            blocks,
            distinct: numbers.len(),
        };
        accesses.find_next();
        Ok(accesses)
    }

    /// Distinct full blocks.
    pub fn distinct_blocks(&self) -> u64 {
        self.distinct as u64
    }

    /// The most blocks at one moment that were used before and are used again: more room than this is of no use.
    pub fn working_set(&self) -> u64 {
        let mut change = vec![0_i64; self.requests.len() + 1];
        let mut start = 0;
        for (at, request) in self.requests.iter().enumerate() {
            for next in self.next[start..request.end].iter().filter(|next| **next != NEVER) {
                change[at] += 1;
                change[*next as usize] -= 1;
            }
            start = request.end;
        }
        let (mut now, mut most) = (0, 0);
        for change in change {
            now += change;
            most = most.max(now);
        }
        most.unsigned_abs()
    }

    /// What one cache of so many blocks could have held.
    pub fn pooled(&self, capacity: u64) -> Pooled {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let mut kept: BTreeSet<(u32, u32, u32)> = BTreeSet::new();
        // When each block is used next, if it is there; and how deep it lies.
        let mut place: Vec<(u32, u32)> = vec![(NEVER, 0); self.distinct];
        let mut pooled = Pooled {
            cached: Vec::with_capacity(self.requests.len()),
            prompt_tokens: 0,
            cached_tokens: 0,
        };
        let mut start = 0;
        for request in &self.requests {
            let blocks = &self.blocks[start..request.end];
            let there = |block: &&u32| place[**block as usize].0 != NEVER;
            let hits = blocks[..request.looked_up].iter().take_while(there).count();
            let held = cached(self.size, request.prompt, hits);
            pooled.cached.push(held);
            pooled.cached_tokens += u64::from(held.0);
            pooled.prompt_tokens += u64::from(request.prompt.0);
            for (depth, (&block, &next)) in blocks.iter().zip(&self.next[start..request.end]).enumerate() {
                let (before, old_depth) = place[block as usize];
                if before != NEVER {
                    kept.remove(&(before, old_depth, block));
                }
                place[block as usize] = (next, depth as u32);
                if next != NEVER {
                    kept.insert((next, depth as u32, block));
                }
            }
            while kept.len() > capacity
                && let Some((_, _, block)) = kept.pop_last()
            {
                place[block as usize].0 = NEVER;
            }
            start = request.end;
        }
        pooled
    }

    /// Goes backwards and notes for each block which request uses it next. The last request's number is never [`NEVER`].
    fn find_next(&mut self) {
        let mut next_of = vec![NEVER; self.distinct];
        for at in (0..self.requests.len()).rev() {
            let start = at.checked_sub(1).map_or(0, |before| self.requests[before].end);
            let request = &self.requests[at];
            for access in (start..request.end).rev() {
                let block = self.blocks[access] as usize;
                self.next[access] = next_of[block];
                // What an answer fills is made there, so nobody needs to keep it until then.
                let looked_up = access - start < request.looked_up;
                next_of[block] = if looked_up { at as u32 } else { NEVER };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{ContentId, Prompt, Segment};
    use crate::request::Request;
    use homing_profile::Time;
    use proptest::prelude::*;

    const SIZE: BlockSize = BlockSize::new(4).expect("not zero");

    /// A request of blocks, each a content of its own, and one token more, so that all blocks can be cached.
    fn request(blocks: &[u64]) -> Request {
        let segment = |(content, length)| Segment {
            content: ContentId(content),
            length: Tokens(length),
        };
        let blocks = blocks.iter().map(|&block| (block, SIZE.get())).chain([(99, 1)]);
        let prompt = Prompt::fresh(blocks.map(segment).collect::<Vec<_>>());
        Request::at(Time::ZERO, prompt, Tokens(1))
    }

    /// The most leading blocks that can be found, over all ways to keep prefixes of what was there. Blocks are named by their whole
    /// prefix.
    fn brute_force(requests: &[Vec<u64>], kept: &BTreeSet<Vec<u64>>, capacity: usize) -> usize {
        let Some((request, rest)) = requests.split_first() else {
            return 0;
        };
        let prefixes = (1..=request.len()).map(|length| request[..length].to_vec());
        let hits = prefixes.clone().take_while(|prefix| kept.contains(prefix)).count();
        let there: Vec<Vec<u64>> = kept
            .iter()
            .cloned()
            .chain(prefixes)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let best = (0..1_u32 << there.len())
            .filter(|set| set.count_ones() as usize <= capacity)
            .map(|set| {
                let chosen = there.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                brute_force(rest, &chosen.map(|(_, prefix)| prefix.clone()).collect(), capacity)
            });
        hits + best.max().unwrap_or(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn no_way_to_keep_blocks_of_tiny_cases_is_better_and_one_is_as_good(
            requests in prop::collection::vec(prop::collection::vec(0..2_u64, 1..4), 1..5),
            capacity in 0..4_usize,
        ) {
            let accesses = Accesses::of(requests.iter().map(|blocks| Ok(request(blocks))), SIZE).unwrap();
            let pooled = accesses.pooled(capacity as u64);
            let most = brute_force(&requests, &BTreeSet::new(), capacity);
            prop_assert_eq!(pooled.cached_tokens, most as u64 * u64::from(SIZE.get()));
        }

        #[test]
        fn a_cache_for_everything_is_as_good_as_one_without_end_and_a_smaller_one_never_better(
            requests in prop::collection::vec(prop::collection::vec(0..3_u64, 0..6), 1..40),
        ) {
            let traffic = || requests.iter().map(|blocks| Ok(request(blocks)));
            let accesses = Accesses::of(traffic(), SIZE).unwrap();
            let infinite = super::super::Summary::of(traffic(), SIZE, |_| homing_profile::Millis::ZERO).unwrap();
            let all = accesses.pooled(accesses.distinct_blocks());
            prop_assert_eq!(all.cached_tokens, infinite.cached_tokens);
            prop_assert_eq!(all.prompt_tokens, infinite.prompt_tokens);
            let enough = accesses.pooled(accesses.working_set());
            prop_assert_eq!(enough.cached_tokens, infinite.cached_tokens);
            let mut less = 0;
            for capacity in 0..=accesses.distinct_blocks() {
                let tokens = accesses.pooled(capacity).cached_tokens;
                prop_assert!(tokens >= less);
                less = tokens;
            }
        }
    }
}
