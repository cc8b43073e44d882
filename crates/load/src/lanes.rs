//! What does a decision over all ranks read? The few numbers of each rank that predictions need, 64 ranks beside each
//! other, so that one instruction works on several and a loop is long enough for the compiler to see it.
//!
//! **Invariant:** lanes say what [`RankLoad`] says, up to the precision of `f32`: [`Lanes::cost`] is made of its backlog or
//! its wait for space, whichever is longer, its factor, what one more sequence costs those that decode, and how much of its cache is in use.
//!
//! Moments are kept as milliseconds from a base that moves along, because `f32` counts milliseconds exactly for a few hours only.

use homing_profile::Time;

use crate::rank::{OVERDUE, OVERDUE_GRACE, RankLoad};

/// Ranks beside each other.
pub const WIDTH: usize = 64;

/// One number for each of a few ranks.
pub type Row = [f32; WIDTH];

/// Stands for room without a limit.
const ENDLESS: f32 = 1e30;

/// A few ranks. Places without a rank have lanes too, which mean nothing.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Lanes {
    /// All prompts ahead, as if the first had just been begun.
    backlog: Row,
    /// The first of them alone.
    head: Row,
    /// When it was begun, after the base.
    head_since: Row,
    /// Blocks that are free, and those in use: nobody waits for more than these.
    free: Row,
    used: Row,
    /// Until a block is released.
    block_ms: Row,
    /// Until there is a place among the sequences.
    place_wait: Row,
    /// By how much prefills take longer than the profile says.
    factor: Row,
    /// What another sequence of no context costs all that decode,
    decode_base: Row,
    /// and for each token of its context.
    decode_token: Row,
    /// The share of the cache that is in use.
    usage: Row,
    /// Which of the timings is theirs.
    kinds: [u32; WIDTH],
}

/// What some ranks beside each other would compute and load themselves for a request.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its prompt, by the profile.
    pub prefill: Row,
    /// What does not depend on how fast a rank is: KV from lower tiers, and what the prompt costs others.
    pub fixed: Row,
    /// Blocks that it needs.
    pub blocks: Row,
}

/// What weighs how much in one decision.
#[derive(Clone, Copy, Debug)]
pub struct LaneWeights {
    /// For how many steps it counts that those which decode become slower.
    pub decode: f32,
    /// Tokens that the request has.
    pub context: f32,
    /// What a cache costs that is in use as a whole, in milliseconds.
    pub room: f32,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            prefill: [0.0; WIDTH],
            fixed: [0.0; WIDTH],
            blocks: [0.0; WIDTH],
        }
    }
}

impl Lanes {
    /// The cost of a request on each: until it is begun, its prefill, what is fixed, and what it does to those that decode if it has
    /// so much context, times a weight. One loop over arrays, so that the compiler makes vector instructions of it.
    #[inline]
    #[expect(
        clippy::needless_range_loop,
        reason = "a plain loop over arrays becomes vector instructions"
    )]
    pub fn cost(&self, now: Since, own: &Own, weights: &LaneWeights, cost: &mut Row) {
        let (overdue, grace) = (OVERDUE as f32, OVERDUE_GRACE.0 as f32);
        for at in 0..WIDTH {
            let elapsed = greater(now.0 - self.head_since[at], 0.0);
            let limit = greater(overdue * self.head[at], grace);
            let done = lesser(elapsed, self.head[at]);
            let done = if elapsed > limit { 0.0 } else { done };
            let missing = lesser(own.blocks[at] - self.free[at], self.used[at]);
            let space = greater(missing, 0.0) * self.block_ms[at];
            let wait = greater(self.backlog[at] - done, greater(space, self.place_wait[at]));
            let prefill = own.prefill[at] * self.factor[at];
            let decode = weights.decode * (self.decode_base[at] + self.decode_token[at] * weights.context);
            cost[at] = wait + prefill + own.fixed[at] + decode + weights.room * self.usage[at];
        }
    }

    /// Which of the load's timings are theirs.
    #[inline]
    pub fn kinds(&self) -> &[u32; WIDTH] {
        &self.kinds
    }

    /// Takes over what is known of one rank.
    pub(crate) fn set(&mut self, at: usize, rank: &RankLoad, base: Time) {
        let others = rank.others.waiting as f32 * rank.typical_ms;
        let pending = rank.pending > 0;
        let step = rank.step_wait() as f32;
        self.backlog[at] = rank.time_of(rank.ahead) as f32 + others + step;
        self.head[at] = if pending {
            rank.time_of(rank.head) as f32 + step
        } else {
            0.0
        };
        self.head_since[at] = after(base, rank.head_since);
        self.free[at] = match rank.capacity {
            u32::MAX => ENDLESS,
            capacity => capacity as f32 - rank.claimed_blocks() as f32,
        };
        self.used[at] = rank.claimed_blocks() as f32;
        self.block_ms[at] = rank.block_ms;
        let over = (u64::from(rank.all_requests()) + 1).saturating_sub(u64::from(rank.max_sequences));
        self.place_wait[at] = over as f32 * rank.sequence_ms;
        self.factor[at] = rank.present_factor() as f32;
        let decoding = (rank.decoding + rank.awaiting + 1) as f32;
        self.decode_base[at] = rank.decode_ms + decoding * rank.per_sequence_ms;
        self.decode_token[at] = decoding * rank.per_context_ms;
        self.usage[at] = rank.usage() as f32;
        self.kinds[at] = rank.kind;
    }
}

impl Default for Lanes {
    fn default() -> Self {
        let row = [0.0; WIDTH];
        Self {
            backlog: row,
            head: row,
            head_since: row,
            free: row,
            used: row,
            block_ms: row,
            place_wait: row,
            factor: row,
            decode_base: row,
            decode_token: row,
            usage: row,
            kinds: [0; WIDTH],
        }
    }
}

/// A moment, as lanes count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Since(pub(crate) f32);

/// Milliseconds from `base` to `then`, which may be before it.
pub(crate) fn after(base: Time, then: Time) -> f32 {
    if then >= base {
        then.since(base).0 as f32
    } else {
        -(base.since(then).0 as f32)
    }
}

/// The greater of two numbers; other than `f32::max` it is one instruction.
#[inline]
fn greater(one: f32, other: f32) -> f32 {
    if one > other { one } else { other }
}

#[inline]
fn lesser(one: f32, other: f32) -> f32 {
    if one < other { one } else { other }
}
