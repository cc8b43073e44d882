//! What is asked of an engine, and what does it answer?

use std::sync::Arc;

use homing_domain::{AdapterName, CacheSalt, DpRank, KvBatch, Tokens};
use thiserror::Error;

use crate::handover::{Handover, Reserved, Staged};
use crate::pool::{Act, Counts};
use crate::text::Ending;
use crate::time::Time;

/// A request as its driver numbers it. Not used twice while the first one lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNo(pub u64);

/// Which rank serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one with the fewest requests, the first of equals.
    #[default]
    Any,
    /// This one.
    On(DpRank),
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number.
    pub id: RequestNo,
    /// The tokens to continue. Shared with whoever keeps them.
    pub prompt: Arc<[u32]>,
    /// The most tokens to generate. With 0 the prompt is computed and nothing more.
    pub max_tokens: Tokens,
    /// Whether it ends earlier by itself.
    pub ending: Ending,
    /// Tokens that end it.
    pub stop: Vec<u32>,
    /// Together with the prompt, all that decides the text.
    pub seed: u64,
    /// The adapter to compute with.
    pub adapter: Option<AdapterName>,
    /// What keeps its blocks apart from others'.
    pub salt: Option<CacheSalt>,
    /// The lower, the sooner, where the engine looks at it.
    pub priority: i32,
    /// Where.
    pub placement: Placement,
    /// What is done with its KV besides.
    pub handover: Handover,
}

impl Request {
    /// A prompt and a length, and nothing else.
    pub fn plain(id: u64, prompt: impl Into<Arc<[u32]>>, max_tokens: u32) -> Self {
        Self {
            id: RequestNo(id),
            prompt: prompt.into(),
            max_tokens: Tokens(max_tokens),
            ending: Ending::AtLength,
            stop: Vec::new(),
            seed: 0,
            adapter: None,
            salt: None,
            priority: 0,
            placement: Placement::Any,
            handover: Handover::None,
        }
    }
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {tokens} tokens, but prompt and answer may have {limit} together")]
    PromptTooLong {
        /// What it has.
        tokens: usize,
        /// What the engine can do.
        limit: u32,
    },
    /// The number is in use.
    #[error("request {} is running already", .0.0)]
    Repeated(RequestNo),
    /// The engine has no such rank.
    #[error("there is no rank {}", .0.0)]
    UnknownRank(DpRank),
    /// The engine has no such adapter.
    #[error("there is no adapter {0}")]
    UnknownAdapter(AdapterName),
    /// Too many wait.
    #[error("{0} requests are waiting already")]
    QueueFull(u32),
}

/// Why a request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It has as many tokens as it may.
    Length,
    /// It came to an end by itself, or to a token that ends it.
    Stop,
}

/// A token of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Whose.
    pub request: RequestNo,
    /// The token.
    pub token: u32,
}

/// A request that is computed for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Which.
    pub request: RequestNo,
    /// How long its prompt is.
    pub prompt: Tokens,
    /// How many tokens of it came from the cache. Never all: at least one is computed.
    pub cached: Tokens,
    /// How many of those came from another engine just now.
    pub taken: Tokens,
}

/// A request that is over. Its last token, if any, is in the same outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub request: RequestNo,
    /// Why.
    pub reason: Finish,
    /// How long its prompt is.
    pub prompt: Tokens,
    /// How many tokens of that came from the cache when it was first computed.
    pub cached: Tokens,
    /// How many tokens were generated.
    pub generated: Tokens,
    /// How often it lost its blocks to others and was computed anew.
    pub preemptions: u32,
}

/// Changes of a rank's cache, as the engine tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    /// The numbered batch.
    pub batch: KvBatch,
    /// For each change of the batch the tokens of its blocks, where [`crate::pool::Events::WithTokens`] asks for them and they
    /// are known; else empty.
    pub tokens: Vec<Vec<u32>>,
}

/// A line of the trace of allocations and evictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When.
    pub at: Time,
    /// On which rank.
    pub rank: DpRank,
    /// What was done.
    pub act: Act,
    /// To which places.
    pub blocks: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// How the pool stood afterwards.
    pub counts: Counts,
}

/// How busy a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that are computed.
    pub running: u32,
    /// Requests that wait, preempted ones included.
    pub waiting: u32,
    /// Tokens of those that wait.
    pub waiting_tokens: u64,
    /// How the cache stands.
    pub blocks: Counts,
    /// Preemptions since the start.
    pub preemptions: u64,
    /// Tokens of prompts that were looked for in the cache since the start.
    pub prefix_queries: u64,
    /// Tokens of prompts that were found there.
    pub prefix_hits: u64,
    /// Requests that are over and whose blocks stay for another engine.
    pub staged: u32,
    /// Their blocks; one that two of them hold counts twice.
    pub staged_blocks: u32,
    /// Requests whose blocks are there and whose KV is on its way here, cancelled ones included.
    pub incoming: u32,
    /// Their blocks, counted as above.
    pub incoming_blocks: u32,
    /// Tokens of prompts that were wanted from other engines since the start.
    pub external_queries: u64,
    /// Tokens of prompts that came from there.
    pub external_hits: u64,
}

/// What a step brought, or what is told without one. Reused from step to step.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Which rank.
    pub rank: DpRank,
    /// When the step began.
    pub started: Time,
    /// When it ended.
    pub at: Time,
    /// Tokens of prompts that it computed.
    pub prefilled: u64,
    /// Sequences that it computed one token of.
    pub decoded: u32,
    /// Tokens of answers, at most one for each request.
    pub tokens: Vec<Output>,
    /// Requests that it computed for the first time.
    pub admitted: Vec<Admitted>,
    /// Requests that lost their blocks when it began, and wait again.
    pub preempted: Vec<RequestNo>,
    /// Requests that are over.
    pub finished: Vec<Finished>,
    /// Those of them whose blocks stay.
    pub staged: Vec<Staged>,
    /// Requests whose leases have ended: their blocks have gone.
    pub lapsed: Vec<RequestNo>,
    /// Requests whose KV the driver is to bring.
    pub reserved: Vec<Reserved>,
    /// Changes of the cache.
    pub events: Option<EventBatch>,
    /// How busy the rank is now.
    pub load: Load,
    /// Allocations and evictions, where they are asked for.
    pub trace: Vec<TraceRecord>,
}

impl Outcome {
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        let Self {
            tokens,
            admitted,
            preempted,
            finished,
            staged,
            lapsed,
            reserved,
            trace,
            ..
        } = self;
        tokens.clear();
        admitted.clear();
        preempted.clear();
        finished.clear();
        staged.clear();
        lapsed.clear();
        reserved.clear();
        trace.clear();
        self.events = None;
        (self.prefilled, self.decoded) = (0, 0);
    }
}
