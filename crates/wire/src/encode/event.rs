//! What does an engine know of an event, before it is bytes?

/// The name that an engine gives to a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineHash {
    /// A number, as vLLM sends by default.
    Unsigned(u64),
    /// A number that may be below zero, as SGLang sends.
    Signed(i64),
    /// A digest.
    Bytes(Vec<u8>),
}

/// The tokens of stored blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineTokens {
    /// One after the other.
    Plain(Vec<u32>),
    /// Pairs of each with the next: one pair less than tokens.
    Pairs(Vec<u32>),
}

/// What else is in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// An adapter's name, a salt, or a medium's identifier in older versions.
    Text(String),
    /// A medium, with the distance of its first token from the block's first.
    Media(String, i64),
    /// A digest.
    Bytes(Vec<u8>),
}

/// Blocks came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineStored {
    /// Their names.
    pub hashes: Vec<EngineHash>,
    /// The one before the first.
    pub parent: Option<EngineHash>,
    /// Their tokens.
    pub tokens: EngineTokens,
    /// Tokens in each.
    pub block_size: u32,
    /// The adapter, by number.
    pub lora_id: Option<u64>,
    /// Where they lie.
    pub medium: Option<String>,
    /// The adapter, by name.
    pub lora_name: Option<String>,
    /// What else is in each.
    pub extra_keys: Option<Vec<Option<Vec<ExtraKey>>>>,
    /// The cache group.
    pub group: Option<u32>,
    /// The kind of the cache group.
    pub kind: Option<String>,
    /// The window of the cache group.
    pub sliding_window: Option<u32>,
    /// Whether they are this worker's own.
    pub locality: Option<String>,
    /// The salt, as SGLang tells it.
    pub cache_salt: Option<String>,
}

impl EngineStored {
    /// Blocks of the base model, about which nothing special is said.
    pub fn plain(parent: Option<EngineHash>, hashes: Vec<EngineHash>, tokens: Vec<u32>, block_size: u32) -> Self {
        Self {
            hashes,
            parent,
            tokens: EngineTokens::Plain(tokens),
            block_size,
            lora_id: None,
            medium: None,
            lora_name: None,
            extra_keys: None,
            group: None,
            kind: None,
            sliding_window: None,
            locality: None,
            cache_salt: None,
        }
    }
}

/// Blocks went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRemoved {
    /// Their names.
    pub hashes: Vec<EngineHash>,
    /// Where they lay.
    pub medium: Option<String>,
    /// The cache group.
    pub group: Option<u32>,
    /// Whether they were this worker's own.
    pub locality: Option<String>,
}

/// Something changed in an engine's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// Blocks came.
    Stored(EngineStored),
    /// Blocks went.
    Removed(EngineRemoved),
    /// All blocks went.
    Cleared,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineBatch {
    /// When, in seconds of Unix time.
    pub ts: f64,
    /// What changed.
    pub events: Vec<EngineEvent>,
    /// The data-parallel rank.
    pub dp: Option<u16>,
}
