//! How much of a trace did come before?
//!
//! Cost: memory in proportion to the distinct blocks, time to the blocks.

use homing_domain::{BlockSize, Tokens};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashSet;

use super::MAX_CONVERSATIONS;
use super::blocks::Namer;
use crate::conversation::{Answer, Conversations, UnknownSession};
use crate::error::{Problem, TraceError};
use crate::request::Request;
use crate::transform::Traffic;

/// How large a request is for a cache that forgets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// When it can arrive.
    pub at: Time,
    /// Tokens of its whole prompt.
    pub prompt: Tokens,
    /// Tokens of it in full blocks that came before. At least one token is left to compute.
    pub cached: Tokens,
    /// Tokens that will be generated.
    pub output: Tokens,
    /// Blocks of its prompt; the last may be partial.
    pub blocks: u32,
    /// Leading blocks that came before, in prompts or answers.
    pub cached_blocks: u32,
}

impl Sized {
    /// Tokens of its prompt that must be computed.
    pub fn new_tokens(&self) -> Tokens {
        Tokens(self.prompt.0 - self.cached.0)
    }
}

/// Each request with how much of it came before.
pub fn infinite_cache<I: Traffic>(traffic: I, block: BlockSize) -> InfiniteCache<I> {
    InfiniteCache {
        traffic,
        walk: Walk::new(block),
        seen: FxHashSet::default(),
    }
}

/// See [`infinite_cache`].
#[derive(Debug)]
pub struct InfiniteCache<I> {
    traffic: I,
    walk: Walk,
    seen: FxHashSet<u64>,
}

impl<I> InfiniteCache<I> {
    /// Distinct blocks so far, those of prompts and those that answers in sessions fill.
    pub fn distinct_blocks(&self) -> u64 {
        self.seen.len() as u64
    }
}

impl<I: Traffic> Iterator for InfiniteCache<I> {
    type Item = Result<Sized, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = match self.traffic.next()? {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        let blocks = match self.walk.step(&request) {
            Ok(blocks) => blocks,
            Err(error) => return Some(Err(unknown(error))),
        };
        let names = &self.walk.names;
        let known = names[..blocks.prompt]
            .iter()
            .take_while(|name| self.seen.contains(name));
        let known = known.count();
        self.seen.extend(names);
        Some(Ok(Sized {
            at: request.arrival.earliest(),
            prompt: blocks.tokens,
            cached: cached(self.walk.size, blocks.tokens, known),
            output: request.output,
            blocks: blocks.prompt as u32,
            cached_blocks: known as u32,
        }))
    }
}

/// Tokens in so many leading full blocks of a prompt, of which one at least is computed.
pub(super) fn cached(size: BlockSize, prompt: Tokens, blocks: usize) -> Tokens {
    let full = size.full_blocks(prompt).0.min(blocks as u32);
    Tokens(full.saturating_mul(size.get()).min(prompt.0.saturating_sub(1)))
}

/// An error that is of no line: the request was read well.
pub(super) fn unknown(error: UnknownSession) -> TraceError {
    TraceError {
        label: "trace".into(),
        line: 0,
        problem: Problem::Session(error),
    }
}

/// Goes from request to request, with the blocks of each.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) size: BlockSize,
    /// The blocks of the last request: those of its prompt, and after them those that its answer fills.
    pub(super) names: Vec<u64>,
    /// The same with the answer, while they are compared.
    longer: Vec<u64>,
    open: Conversations,
}

/// How many blocks a request has.
pub(super) struct Blocks {
    pub(super) tokens: Tokens,
    pub(super) prompt: usize,
}

impl Walk {
    pub(super) fn new(size: BlockSize) -> Self {
        Self {
            size,
            names: Vec::new(),
            longer: Vec::new(),
            open: Conversations::new(MAX_CONVERSATIONS),
        }
    }

    pub(super) fn step(&mut self, request: &Request) -> Result<Blocks, UnknownSession> {
        let text = self.open.text(request)?;
        let tokens = text.len();
        self.names.clear();
        Namer::new(self.size, request.adapter.as_ref()).names(&text, &mut self.names);
        let prompt = self.names.len();
        if let Some(session) = request.session {
            self.open.answered(session, text, Answer::StandIn(request.output));
            if let Some(text) = self.open.so_far(session) {
                self.longer.clear();
                Namer::new(self.size, request.adapter.as_ref()).names(text, &mut self.longer);
                // The last token of an answer is said and not computed.
                let full = self.size.full_blocks(Tokens(text.len().0.saturating_sub(1))).0 as usize;
                let before = self.size.full_blocks(tokens).0 as usize;
                self.names
                    .extend_from_slice(self.longer.get(before..full).unwrap_or_default());
            }
        }
        Ok(Blocks { tokens, prompt })
    }
}

/// All requests of a trace together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that a cache that forgets nothing would have.
    pub cached_tokens: u64,
    /// Tokens that will be generated.
    pub output_tokens: u64,
    /// Blocks of prompts, partial ones included.
    pub blocks: u64,
    /// Blocks of prompts that came before.
    pub cached_blocks: u64,
    /// The last arrival.
    pub span: Time,
    /// What all of it takes, by the caller's measure.
    pub work: Millis,
}

impl Summary {
    /// Adds a request that takes so long.
    pub fn add(&mut self, request: &Sized, work: Millis) {
        self.requests += 1;
        self.prompt_tokens += u64::from(request.prompt.0);
        self.cached_tokens += u64::from(request.cached.0);
        self.output_tokens += u64::from(request.output.0);
        self.blocks += u64::from(request.blocks);
        self.cached_blocks += u64::from(request.cached_blocks);
        self.span = self.span.max(request.at);
        self.work += work;
    }

    /// The summary of a trace. `work` tells how long one worker takes for a request.
    pub fn of<I: Traffic>(
        traffic: I,
        block: BlockSize,
        mut work: impl FnMut(&Sized) -> Millis,
    ) -> Result<Self, TraceError> {
        infinite_cache(traffic, block).try_fold(Self::default(), |mut sum, request| {
            let request = request?;
            sum.add(&request, work(&request));
            Ok(sum)
        })
    }

    /// Which share of the prompts' tokens a cache that forgets nothing would have.
    pub fn cached_share(&self) -> f64 {
        share(self.cached_tokens, self.prompt_tokens)
    }

    /// Which share of the prompts' blocks came before.
    pub fn cached_share_of_blocks(&self) -> f64 {
        share(self.cached_blocks, self.blocks)
    }
}

pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
