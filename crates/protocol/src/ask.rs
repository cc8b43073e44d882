//! What does a body ask? What routing must know of it, and where the rest lies.
use thiserror::Error;

use crate::endpoint::Endpoint;
use crate::json::{Fields, Limits, NotJson, Span};

/// Whether the answer comes at once or in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In one piece.
    #[default]
    Whole,
    /// As a stream of events.
    Streamed,
}

/// Which usage a client wants in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageAsked {
    /// None.
    #[default]
    No,
    /// One at the end.
    AtEnd,
    /// One with every piece.
    Always,
}

/// What the prompt is, and where it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// There is none.
    #[default]
    None,
    /// A text.
    Text(Span),
    /// Token ids.
    Tokens(Span),
    /// Several texts.
    Texts {
        /// The list.
        span: Span,
        /// How many.
        count: usize,
    },
    /// Several lists of token ids.
    TokenLists {
        /// The list of lists.
        span: Span,
        /// How many.
        count: usize,
    },
    /// A conversation.
    Messages(Span),
    /// Something that we do not know.
    Other(Span),
}

/// What is special about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Feature {
    /// Tools are offered.
    Tools,
    /// Pictures.
    Images,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
    /// Files.
    Files,
    /// Log probabilities of the answer.
    Logprobs,
    /// Log probabilities of the prompt.
    PromptLogprobs,
    /// The answer's form is prescribed.
    Grammar,
    /// Penalties that depend on what was said.
    Penalties,
    /// Bias, bad or allowed tokens.
    LogitBias,
    /// Texts that end the answer.
    StopTexts,
    /// Tokens that end the answer.
    StopTokens,
    /// The text that ends the answer is part of it.
    KeepStop,
    /// The prompt comes back.
    Echo,
    /// Text that follows.
    Suffix,
    /// A least number of tokens.
    MinTokens,
    /// The end of text does not end it.
    IgnoreEos,
    /// Reasoning is asked for or steered.
    Reasoning,
    /// The last message is to be continued.
    ContinueFinal,
    /// Without the beginning of an answer.
    NoGenerationPrompt,
    /// The likeliest token is taken each time.
    Greedy,
    /// A seed is given.
    Seed,
    /// Several answers are searched for side by side.
    BeamSearch,
    /// An earlier response is continued.
    PreviousResponse,
    /// The response is to be kept.
    Store,
    /// The response is computed in the background.
    Background,
    /// KV is to be transferred.
    KvTransfer,
    /// The prompt is cut.
    TruncatePrompt,
    /// Token ids are asked for.
    TokenIds,
    /// A template of the client's own, or its arguments.
    Template,
    /// Embeddings instead of a prompt.
    PromptEmbeds,
    /// Special tokens are shown.
    SpecialTokens,
}

/// Which features a request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// Whether it has this one.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u8 & 1 == 1
    }
}

/// What a body asks.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where it was sent.
    pub endpoint: Endpoint,
    /// The model or adapter.
    pub model: Option<String>,
    /// How the answer comes.
    pub delivery: Delivery,
    /// The usage that the client wants to see.
    pub usage: UsageAsked,
    /// Answers to each prompt.
    pub n: u32,
    /// Answers computed for each prompt.
    pub best_of: u32,
    /// The most tokens of an answer.
    pub max_output: Option<u32>,
    /// The least.
    pub min_output: Option<u32>,
    /// The prompt.
    pub prompt: Prompt,
    /// What is special.
    pub features: Features,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// What keeps its cache apart.
    pub cache_salt: Option<String>,
    /// The engine's priority, lower first.
    pub priority: Option<i64>,
    /// OpenAI's `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<String>,
    /// OpenAI's `prompt_cache_key`.
    pub prompt_cache_key: Option<String>,
    /// vLLM's `session_id`.
    pub session_id: Option<String>,
    /// OpenAI's `previous_response_id`.
    pub previous_response: Option<String>,
    /// The `homing` object.
    pub homing: Option<Span>,
    /// All fields at the top.
    pub fields: Fields,
}

/// Why a body cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadBody {
    /// Too long.
    #[error("the body has {bytes} bytes, but may have {limit}")]
    TooLong {
        /// What it has.
        bytes: usize,
        /// What it may have.
        limit: usize,
    },
    /// No JSON.
    #[error("the body is not valid JSON: {0}")]
    NotJson(#[from] NotJson),
    /// A field has another form than it must have.
    #[error("`{field}` must be {must}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
}

impl BadBody {
    /// The status that says so.
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLong { .. } => 413,
            Self::NotJson(_) | Self::Field { .. } => 400,
        }
    }
}

impl Ask {
    /// Reads a body.
    pub fn read(endpoint: Endpoint, body: &[u8], limits: Limits) -> Result<Self, BadBody> {
        let fields = Fields::read(body, limits)?;
        Ok(Self {
            endpoint,
            model: None,
            delivery: Delivery::Whole,
            usage: UsageAsked::No,
            n: 1,
            best_of: 1,
            max_output: None,
            min_output: None,
            prompt: Prompt::None,
            features: Features::default(),
            stops: Vec::new(),
            cache_salt: None,
            priority: None,
            user: None,
            prompt_cache_key: None,
            session_id: None,
            previous_response: None,
            homing: None,
            fields,
        })
    }
}
