//! What does a scheduler read of one rank? Sums that are kept up to date when something happens, so that reading them costs a
//! few nanoseconds; what changes with time alone is worked out while reading.
//!
//! **Invariant:** only the prompt at the head of a rank runs down with time, and not below nothing: those behind it count in
//! full until their own first token.

use homing_domain::{BlockSize, RankId, Tokens};
use homing_profile::{Chunk, DecodeBatch, Millis, Step, Time, Timing};

use crate::config::RankSpec;
use crate::report::Others;

/// A prompt that takes so many times as long as predicted makes its rank suspect.
pub const OVERDUE: f64 = 3.0;
/// No prompt is overdue before this.
pub const OVERDUE_GRACE: Millis = Millis(250.0);
/// Output blocks are weighed in parts of this many.
pub const PARTS: u64 = 256;

/// Whether a rank does what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does, or nothing was asked of it.
    Well,
    /// The prompt at its head is long overdue: the engine may be stuck.
    Suspect,
}

/// What a rank would have if it took a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Potential {
    /// Prompt tokens still to compute.
    pub prefill_tokens: u64,
    /// Until the request's own prompt would be begun.
    pub backlog: Millis,
    /// Blocks in use.
    pub blocks: u64,
    /// Requests, those that wait for their first token included.
    pub requests: u32,
}

/// Prompts that are to be computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Their tokens that are not cached.
    pub(crate) tokens: u64,
    /// What these take by the profile beyond the steps that they are in, in microseconds: long prompts take more for each token.
    pub(crate) work: u64,
}

/// One rank.
#[derive(Clone, Debug)]
pub struct RankLoad {
    pub(crate) rank: RankId,
    pub(crate) kind: u32,
    pub(crate) head_since: Time,
    pub(crate) head: Ahead,
    pub(crate) pending: u32,
    /// Those whose prompt is computed elsewhere and whose KV has not come.
    pub(crate) awaiting: u32,
    pub(crate) ahead: Ahead,
    pub(crate) decoding: u32,
    pub(crate) prompt_blocks: u64,
    pub(crate) output_blocks: u64,
    /// Blocks of output that are expected beyond these.
    pub(crate) coming: u64,
    pub(crate) output_parts: u64,
    pub(crate) context: u64,
    pub(crate) others: Others,
    pub(crate) capacity: u32,
    pub(crate) max_sequences: u32,
    pub(crate) verified: bool,
    /// What steps take beyond the work in them, for each prompt token, at the present decodes; factor and residual included.
    pub(crate) token_ms: f32,
    /// What a prompt of someone else takes.
    pub(crate) typical_ms: f32,
    pub(crate) factor: f32,
    /// By how much everything takes longer while the rank is busy, beyond the factor.
    pub(crate) residual: f32,
    /// What a prompt waits for the step in progress and for what decodes in its own, factor and residual included.
    pub(crate) step_ms: f32,
    /// A step of those that decode, factor included.
    pub(crate) decode_ms: f32,
    pub(crate) per_sequence_ms: f32,
    pub(crate) per_context_ms: f32,
    /// Until a block is released, and until a sequence ends.
    pub(crate) block_ms: f32,
    pub(crate) sequence_ms: f32,
    /// Tokens of a prompt of someone else, of whom only the number is known.
    pub(crate) typical_prompt: f32,
}

impl RankLoad {
    pub(crate) fn new(spec: &RankSpec, kind: u32) -> Self {
        Self {
            rank: spec.rank,
            kind,
            head_since: Time::ZERO,
            head: Ahead::default(),
            pending: 0,
            awaiting: 0,
            ahead: Ahead::default(),
            decoding: 0,
            prompt_blocks: 0,
            output_blocks: 0,
            coming: 0,
            output_parts: 0,
            context: 0,
            others: Others::default(),
            capacity: spec.capacity.unwrap_or(u32::MAX),
            max_sequences: spec.max_sequences.unwrap_or(u32::MAX),
            verified: false,
            token_ms: 0.0,
            typical_ms: 0.0,
            factor: 1.0,
            residual: 1.0,
            step_ms: 0.0,
            decode_ms: 0.0,
            per_sequence_ms: 0.0,
            per_context_ms: 0.0,
            block_ms: 0.0,
            sequence_ms: 0.0,
            typical_prompt: 512.0,
        }
    }

    /// Which rank this is.
    pub fn rank(&self) -> RankId {
        self.rank
    }

    /// Which of the load's timings is its own.
    pub fn kind(&self) -> usize {
        self.kind as usize
    }

    /// Bookings without a first token.
    pub fn pending(&self) -> u32 {
        self.pending + self.awaiting
    }

    /// Prompt tokens booked and not cached whose request has no first token yet, whatever time has passed.
    pub fn pending_tokens(&self) -> u64 {
        self.ahead.tokens
    }

    /// Bookings whose prompt is computed elsewhere and that have no first token. They will decode soon.
    pub fn awaiting(&self) -> u32 {
        self.awaiting
    }

    /// Sequences that decode.
    pub fn decoding(&self) -> u32 {
        self.decoding
    }

    /// Tokens whose KV they read.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Requests of ours: those that wait for their first token and those that decode.
    pub fn requests(&self) -> u32 {
        self.pending() + self.decoding
    }

    /// Requests of ours and of others.
    pub fn all_requests(&self) -> u32 {
        self.requests() + self.others.waiting + self.others.running
    }

    /// Blocks of prompts in use, shared ones counted once.
    pub fn prompt_blocks(&self) -> u64 {
        self.prompt_blocks
    }

    /// Blocks of outputs in use.
    pub fn output_blocks(&self) -> u64 {
        self.output_blocks
    }

    /// Blocks of outputs, those of a request counting less the nearer it is to its expected end.
    pub fn fading_output_blocks(&self) -> f64 {
        self.output_parts as f64 / PARTS as f64
    }

    /// Blocks in use, those of others included.
    pub fn used_blocks(&self) -> u64 {
        self.prompt_blocks + self.output_blocks + u64::from(self.others.blocks)
    }

    /// Blocks in use, and those that requests which run are expected to need: whoever takes these away makes one of them lose
    /// all it has.
    pub fn claimed_blocks(&self) -> u64 {
        self.used_blocks() + self.coming
    }

    /// How much of its cache is in use, from 0 to 1; nothing if its size is not known.
    pub fn usage(&self) -> f64 {
        if self.capacity == u32::MAX || self.capacity == 0 {
            return 0.0;
        }
        (self.used_blocks() as f64 / f64::from(self.capacity)).min(1.0)
    }

    /// By how much its prefills take longer than the profile says where nothing else is to be done.
    pub fn factor(&self) -> f64 {
        f64::from(self.factor)
    }

    /// How long it takes for each token of a typical prompt, at its present decodes.
    pub fn token_ms(&self) -> f64 {
        f64::from(self.typical_ms) / f64::from(self.typical_prompt.max(1.0))
    }

    /// By how much a prefill that begins now would take longer than the profile says.
    #[inline]
    pub fn present_factor(&self) -> f64 {
        if self.is_idle() {
            f64::from(self.factor)
        } else {
            f64::from(self.factor * self.residual)
        }
    }

    /// Whether it has ever given a first token.
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// Whether nothing is to be done there.
    pub fn is_idle(&self) -> bool {
        self.all_requests() == 0
    }

    /// Until all that is ahead has been computed: prompts, of which the head runs down with time and those of others count by
    /// their number, and the step in progress.
    #[inline]
    pub fn backlog(&self, now: Time) -> Millis {
        let (elapsed, predicted) = self.head(now);
        let done = if self.pending == 0 || elapsed > overdue_after(predicted) {
            0.0
        } else {
            elapsed.min(predicted)
        };
        let others = f64::from(self.others.waiting) * f64::from(self.typical_ms);
        Millis(self.time_of(self.ahead) + others + self.step_wait() - done)
    }

    /// Until the prompts ahead have been computed, without the step in progress. Nothing if there are none.
    #[inline]
    pub fn prompts_ahead(&self, now: Time) -> Millis {
        Millis((self.backlog(now).0 - self.step_wait()).max(0.0))
    }

    /// How long prompts take one after the other, in steps that they share with what decodes.
    #[inline]
    pub(crate) fn time_of(&self, ahead: Ahead) -> f64 {
        let work = ahead.work as f64 / 1_000.0 * f64::from(self.factor * self.residual);
        work + ahead.tokens as f64 * f64::from(self.token_ms)
    }

    /// What a prompt waits for sequences that decode: until their present step ends, and for their part in its own.
    #[inline]
    pub fn step_wait(&self) -> f64 {
        if self.decoding == 0 {
            0.0
        } else {
            f64::from(self.step_ms)
        }
    }

    /// Whether the head is overdue.
    #[inline]
    pub fn standing(&self, now: Time) -> Standing {
        let (elapsed, predicted) = self.head(now);
        if self.pending > 0 && elapsed > overdue_after(predicted) {
            Standing::Suspect
        } else {
            Standing::Well
        }
    }

    /// How long a request that needs `blocks` more waits until there is room, and a place among the sequences.
    #[inline]
    pub fn space_wait(&self, blocks: u64) -> Millis {
        // One that needs more than there is begins when nothing else is in use: engines cut off what does not fit.
        let capacity = u64::from(self.capacity);
        let missing = (self.claimed_blocks() + blocks.min(capacity)).saturating_sub(capacity);
        let over = (u64::from(self.all_requests()) + 1).saturating_sub(u64::from(self.max_sequences));
        let (space, place) = (
            missing as f64 * f64::from(self.block_ms),
            over as f64 * f64::from(self.sequence_ms),
        );
        Millis(space.max(place))
    }

    /// By how much each step becomes longer for those that decode if one more of this context joins.
    #[inline]
    pub fn decode_increase(&self, context: Tokens) -> Millis {
        Millis(f64::from(self.per_sequence_ms) + f64::from(self.per_context_ms) * f64::from(context.0))
    }

    /// What each step costs all that decode if one more of this context joins: by how much it becomes longer for those that are
    /// there, and all of it for the one that joins.
    #[inline]
    pub fn decode_cost(&self, context: Tokens) -> Millis {
        let increase = self.decode_increase(context).0;
        Millis(f64::from(self.decode_ms) + f64::from(self.decoding + self.awaiting + 1) * increase)
    }

    /// What it would have if it took a request of so many tokens not cached and blocks not in use.
    pub fn potential(&self, now: Time, tokens: Tokens, blocks: u64) -> Potential {
        Potential {
            prefill_tokens: self.ahead.tokens + u64::from(tokens.0),
            backlog: self.backlog(now),
            blocks: self.used_blocks() + blocks,
            requests: self.requests() + 1,
        }
    }

    /// Since when the head is at it, and how long it should take.
    #[inline]
    fn head(&self, now: Time) -> (f64, f64) {
        (now.since(self.head_since).0, self.time_of(self.head) + self.step_wait())
    }

    pub(crate) fn batch(&self) -> DecodeBatch {
        DecodeBatch {
            sequences: self.decoding,
            context: self.context,
        }
    }
}

#[inline]
fn overdue_after(predicted: f64) -> f64 {
    (OVERDUE * predicted).max(OVERDUE_GRACE.0)
}

/// What a profile says of a rank at its present decodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slopes {
    pub(crate) token_ms: f64,
    pub(crate) typical_ms: f64,
    pub(crate) step_ms: f64,
    pub(crate) decode_ms: f64,
    pub(crate) per_sequence_ms: f64,
    pub(crate) per_context_ms: f64,
    /// A step with hardly anything in it.
    base: Millis,
    at: DecodeBatch,
}

impl Slopes {
    /// A context long enough to measure a slope by.
    const CONTEXT: Tokens = Tokens(4_096);

    /// Prompts that a step is measured with, at most.
    const PROMPTS: u32 = 16;

    /// At these decodes, for prompts of about `typical` tokens in steps of `chunk`.
    pub(crate) fn of(timing: &Timing, chunk: Tokens, typical: f32, at: DecodeBatch) -> Self {
        let new = (typical as u32).clamp(1, chunk.0.max(1));
        let prompts = (chunk.0 / new).clamp(1, Self::PROMPTS);
        let one = Chunk {
            new: Tokens(new),
            cached: Tokens(0),
        };
        let prefill = &[one; Self::PROMPTS as usize][..prompts as usize];
        let of = |decode| timing.step(&Step { prefill, decode });
        let (step, alone) = (of(at), of(DecodeBatch::default()));
        let per_sequence_ms = timing.decode_increase(at, Tokens(0)).0;
        let with_context = timing.decode_increase(at, Self::CONTEXT).0;
        // The first sequence brings the whole step with it, which is no increase for anybody.
        let per_sequence_ms = if at.sequences == 0 { 0.0 } else { per_sequence_ms };
        let base = timing.prefill(Tokens(1), Tokens(0));
        let work_of = |new: Tokens| beyond(timing.prefill(new, Tokens(0)), base).0;
        let work = work_of(Tokens(new));
        let tokens = f64::from(new * prompts);
        let token_ms = ((step.0 - work * f64::from(prompts)) / tokens).max(0.0);
        let typical = Tokens(typical as u32);
        Self {
            token_ms,
            typical_ms: work_of(typical) + token_ms * f64::from(typical.0),
            decode_ms: timing.decode(at).0,
            // Whoever comes finds the step that is in progress half done.
            step_ms: timing.decode(at).0 / 2.0 + (step.0 - alone.0).max(0.0),
            per_sequence_ms,
            per_context_ms: ((with_context - per_sequence_ms) / f64::from(Self::CONTEXT.0)).max(0.0),
            base,
            at,
        }
    }

    /// What a prompt takes beyond the step that it is in, of what it takes in a step of its own.
    pub(crate) fn work_of(&self, prefill: Millis) -> Millis {
        beyond(prefill, self.base)
    }

    /// Whether the decodes have changed by more than an eighth since.
    pub(crate) fn outdated(&self, now: DecodeBatch) -> bool {
        let far = |a: u64, b: u64| a.abs_diff(b) * 8 > a.max(b);
        far(u64::from(self.at.sequences), u64::from(now.sequences)) || far(self.at.context, now.context)
    }
}

fn beyond(time: Millis, base: Millis) -> Millis {
    Millis((time.0 - base.0).max(0.0))
}

/// Blocks of a text of so many tokens, the last of which need not be full.
pub(crate) fn blocks_of(tokens: u64, size: BlockSize) -> u64 {
    tokens.div_ceil(u64::from(size.get()))
}
