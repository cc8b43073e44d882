//! What kind of engine is it?

use homing_domain::{BlockSize, Blocks, HashSeed, KeyHasher, Tokens};
use homing_profile::{Millis, Timing};
use thiserror::Error;

use crate::pool::{CopyRule, Events, PoolConfig, Removals, TierConfig, Tracing};
use crate::text::Vocabulary;

/// The most ranks of one engine.
pub const MAX_RANKS: u16 = 1_024;

/// All that an engine is. Values are those of the engines' own flags, under names that say what they do.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// How it chooses what to compute.
    pub style: Style,
    /// Blocks of KV cache of each rank.
    pub blocks: Blocks,
    /// Tokens of a block, or page.
    pub block_size: BlockSize,
    /// The most tokens of prompt and answer together. Must fit into the cache.
    pub max_model_len: Tokens,
    /// The most sequences that are computed together.
    pub max_running: u32,
    /// The most requests that wait on a rank; more are refused.
    pub max_waiting: u32,
    /// Whether equal prefixes are computed once.
    pub prefix_caching: PrefixCaching,
    /// Data-parallel ranks, each with a cache of its own.
    pub ranks: u16,
    /// Whether ranks wait for each other.
    pub barrier: Barrier,
    /// How long steps take.
    pub timing: Timing,
    /// What makes steps longer than their timing says.
    pub disturbance: Disturbance,
    /// Adapters on the device.
    pub adapters: AdapterConfig,
    /// What it says.
    pub vocabulary: Vocabulary,
    /// What happens to equal blocks.
    pub copies: CopyRule,
    /// Tiers below the device, nearest first.
    pub tiers: Vec<TierConfig>,
    /// What is told of the cache.
    pub events: Events,
    /// Whether allocations and evictions are recorded.
    pub tracing: Tracing,
    /// Names blocks.
    pub hasher: KeyHasher,
    /// Makes labels from keys. Engines with one mask call equal blocks alike.
    pub label_mask: u64,
    /// A mistake that is made on purpose.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

/// How an engine chooses what to compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Style {
    /// As vLLM does.
    Vllm(VllmConfig),
    /// As SGLang does.
    Sglang(SglangConfig),
}

/// What only vLLM has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VllmConfig {
    /// The most tokens of a step.
    pub max_batched_tokens: Tokens,
    /// Whether a prompt may be computed in several steps.
    pub chunked_prefill: ChunkedPrefill,
    /// Who comes first.
    pub order: Order,
    /// What must fit before a request is admitted.
    pub reserve: Reserve,
    /// The share of blocks, 0 to 1, that admissions leave alone, so that running sequences can grow.
    pub watermark: f64,
}

/// What only SGLang has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SglangConfig {
    /// The most tokens of prompts in a step, except that one prompt may always go.
    pub max_prefill_tokens: Tokens,
    /// The most tokens of prompts in a step; a longer prompt is computed in several.
    pub chunk_tokens: Tokens,
    /// Who comes first.
    pub order: Order,
    /// Whether sequences generate in steps that compute prompts.
    pub mixing: Mixing,
    /// The most tokens that are expected of one answer when room is looked for.
    pub clip_new_tokens: Tokens,
    /// The share of the tokens that running requests may still generate for which room is kept, at first.
    pub new_token_ratio: f64,
    /// What that share falls to.
    pub min_new_token_ratio: f64,
    /// In how many decode steps it falls.
    pub ratio_decay_steps: u32,
    /// After how many decode steps in a row events are told; they are told after every prefill and when nothing is left to do.
    pub event_interval: u32,
}

/// Who comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Who came first.
    Arrival,
    /// The lowest number; among equals who came first.
    Priority,
    /// Whose prefix in the cache is the longest, while at most 128 wait; else who came first. Only SGLang does this.
    LongestPrefix,
}

/// Whether a prompt may be computed in several steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkedPrefill {
    /// Yes.
    On,
    /// No: it waits until it fits into a step.
    Off,
}

/// What must fit into the cache before a request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// All of its prompt.
    WholePrompt,
    /// What is computed of it in this step.
    Chunk,
}

/// Whether sequences generate in steps that compute prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixing {
    /// No: prompts go first.
    PrefillAlone,
    /// Yes.
    PrefillWithDecode,
}

/// Whether equal prefixes are computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCaching {
    /// Yes.
    On,
    /// No; nothing is told of the cache either.
    Off,
}

/// Whether ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// No.
    Off,
    /// Steps of all ranks begin together and take as long as the longest, as they do where experts are shared.
    EachStep,
}

/// What makes steps longer or shorter than their timing says, as real ones are. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Each step takes so much longer.
    pub overhead: Millis,
    /// Each step's time is off by up to this share.
    pub noise: f64,
    /// Where the noise is drawn from.
    pub seed: u64,
}

/// Adapters on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterConfig {
    /// How many fit, which is also how many different ones a step can have.
    pub slots: u32,
    /// How much longer a step takes that uses one which is not there yet.
    pub load: Millis,
}

/// Why a configuration makes no engine.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// A number must not be 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// There are more ranks than an engine can have.
    #[error("{0} ranks are more than {MAX_RANKS}")]
    TooManyRanks(u16),
    /// The longest sequence does not fit into the cache, so it could never run.
    #[error("a sequence of {max_model_len} does not fit into a cache of {capacity} tokens")]
    ModelTooLong {
        /// The longest sequence.
        max_model_len: Tokens,
        /// What fits.
        capacity: u64,
    },
    /// A prompt that may not be split does not fit into a step, so it could never run.
    #[error("without chunked prefill a step of {max_batched_tokens} must take a prompt of {max_model_len}")]
    StepTooShort {
        /// The longest step.
        max_batched_tokens: Tokens,
        /// The longest sequence.
        max_model_len: Tokens,
    },
    /// A chunk must hold a page.
    #[error("a chunk of {chunk} is less than a page of {page} tokens")]
    ChunkTooShort {
        /// The longest chunk.
        chunk: Tokens,
        /// Tokens of a page.
        page: u32,
    },
    /// A share is none.
    #[error("{name} is {value}, but must be from 0 to 1")]
    NoShare {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// A step of vLLM cannot be ordered so.
    #[error("the longest prefix first is an order of SGLang only")]
    WrongOrder,
    /// There are no words, or the end is one of them.
    #[error("the vocabulary must have words, and its end must not be one of them")]
    Vocabulary,
}

impl EngineConfig {
    /// vLLM with its defaults, `blocks` of 16 tokens, and the longest sequence that fits, up to 131,072 tokens.
    pub fn vllm(blocks: Blocks, timing: Timing) -> Self {
        let style = Style::Vllm(VllmConfig {
            max_batched_tokens: Tokens(8_192),
            chunked_prefill: ChunkedPrefill::On,
            order: Order::Arrival,
            reserve: Reserve::WholePrompt,
            watermark: 0.0,
        });
        Self::with(style, blocks, 16, timing)
    }

    /// SGLang with its defaults, `pages` of one token, and the longest sequence that fits, up to 131,072 tokens.
    pub fn sglang(pages: Blocks, timing: Timing) -> Self {
        let style = Style::Sglang(SglangConfig {
            max_prefill_tokens: Tokens(16_384),
            chunk_tokens: Tokens(8_192),
            order: Order::Arrival,
            mixing: Mixing::PrefillAlone,
            clip_new_tokens: Tokens(4_096),
            new_token_ratio: 0.7,
            min_new_token_ratio: 0.098,
            ratio_decay_steps: 600,
            event_interval: 40,
        });
        Self::with(style, pages, 1, timing)
    }

    fn with(style: Style, blocks: Blocks, block_size: u32, timing: Timing) -> Self {
        let block_size = BlockSize::new(block_size).expect("it is not 0");
        Self {
            style,
            blocks,
            block_size,
            max_model_len: block_size.tokens_in(blocks).min(Tokens(131_072)),
            max_running: 256,
            max_waiting: 65_536,
            prefix_caching: PrefixCaching::On,
            ranks: 1,
            barrier: Barrier::Off,
            timing,
            disturbance: Disturbance::default(),
            adapters: AdapterConfig {
                slots: 0,
                load: Millis(0.0),
            },
            vocabulary: Vocabulary::default(),
            copies: match style {
                Style::Vllm(_) => CopyRule::Physical,
                Style::Sglang(_) => CopyRule::Shared,
            },
            tiers: Vec::new(),
            events: Events::On,
            tracing: Tracing::Off,
            hasher: KeyHasher::new(HashSeed::PUBLIC),
            label_mask: 0,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }

    /// The same with blocks of another size, and as many tokens of cache, rounded down.
    #[must_use]
    pub fn with_block_size(self, block_size: BlockSize) -> Self {
        let tokens = u64::from(self.blocks.0) * u64::from(self.block_size.get());
        let blocks = Blocks((tokens / u64::from(block_size.get())).min(u64::from(u32::MAX)) as u32);
        Self {
            max_model_len: self.max_model_len.min(block_size.tokens_in(blocks)),
            blocks,
            block_size,
            ..self
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("blocks", self.blocks.0),
            ("max_model_len", self.max_model_len.0),
            ("max_running", self.max_running),
            ("max_waiting", self.max_waiting),
            ("ranks", self.ranks.into()),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero(name));
            }
        }
        if self.ranks > MAX_RANKS {
            return Err(ConfigError::TooManyRanks(self.ranks));
        }
        let capacity = u64::from(self.blocks.0) * u64::from(self.block_size.get());
        if u64::from(self.max_model_len.0) > capacity {
            let max_model_len = self.max_model_len;
            return Err(ConfigError::ModelTooLong {
                max_model_len,
                capacity,
            });
        }
        if !self.vocabulary.is_right() {
            return Err(ConfigError::Vocabulary);
        }
        match &self.style {
            Style::Vllm(config) => config.check(self.max_model_len),
            Style::Sglang(config) => config.check(self.block_size),
        }
    }

    pub(crate) fn pool(&self) -> PoolConfig {
        PoolConfig {
            capacity: self.blocks,
            copies: self.copies,
            hasher: self.hasher,
            label_mask: self.label_mask,
            removals: match self.style {
                Style::Vllm(_) => Removals::OneByOne,
                Style::Sglang(_) => Removals::Joined,
            },
            events: self.events,
            tracing: self.tracing,
            tiers: self.tiers.clone(),
            #[cfg(any(test, feature = "testing"))]
            bug: self.bug,
        }
    }

    pub(crate) fn order(&self) -> Order {
        match &self.style {
            Style::Vllm(config) => config.order,
            Style::Sglang(config) => config.order,
        }
    }
}

impl Disturbance {
    /// By how much the time of a step is off.
    pub(crate) fn noise(&self, life: u64, step: u64) -> f64 {
        if self.noise <= 0.0 {
            return 1.0;
        }
        let drawn = crate::text::mix(self.seed ^ crate::text::mix(life << 48 ^ step));
        let share = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + self.noise.min(1.0) * (2.0 * share - 1.0)
    }
}

impl VllmConfig {
    fn check(&self, max_model_len: Tokens) -> Result<(), ConfigError> {
        if self.max_batched_tokens == Tokens(0) {
            return Err(ConfigError::Zero("max_batched_tokens"));
        }
        if self.order == Order::LongestPrefix {
            return Err(ConfigError::WrongOrder);
        }
        if self.chunked_prefill == ChunkedPrefill::Off && self.max_batched_tokens < max_model_len {
            let max_batched_tokens = self.max_batched_tokens;
            return Err(ConfigError::StepTooShort {
                max_batched_tokens,
                max_model_len,
            });
        }
        share("watermark", self.watermark)
    }
}

impl SglangConfig {
    fn check(&self, page: BlockSize) -> Result<(), ConfigError> {
        for (name, value) in [
            ("max_prefill_tokens", self.max_prefill_tokens.0),
            ("ratio_decay_steps", self.ratio_decay_steps),
            ("event_interval", self.event_interval),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero(name));
            }
        }
        let (chunk, page) = (self.chunk_tokens, page.get());
        if chunk.0 < page {
            return Err(ConfigError::ChunkTooShort { chunk, page });
        }
        share("new_token_ratio", self.new_token_ratio)?;
        share("min_new_token_ratio", self.min_new_token_ratio)
    }
}

fn share(name: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::NoShare { name, value })
}
