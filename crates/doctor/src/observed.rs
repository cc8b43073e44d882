//! What was seen of an engine? Data, without a word about what it means.

use homing_config::WorkerSpec;
use homing_discovery::Facts;

/// All that was seen of an engine.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What was said of it, and what it says where nothing was said.
    pub spec: WorkerSpec,
    /// What it says of itself.
    pub facts: Facts,
    /// How far its clock is from ours; `None` where it does not say what it shows.
    pub skew: Option<Skew>,
    /// Whether adapters can be loaded while it runs.
    pub updating: Updating,
    /// Prompts that were made into tokens here and there.
    pub tokens: Vec<Compared>,
    /// Ranks that were listened to and sent prompts; none if that was not wanted.
    pub ranks: Vec<RankSeen>,
    /// Ranks beyond those.
    pub unseen_ranks: u16,
}

/// How far a clock is from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// How far it is ahead; below 0 it is behind.
    pub ahead_ms: i64,
    /// How much that may be off.
    pub give_or_take_ms: u64,
}

/// Whether adapters can be loaded while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updating {
    /// Yes.
    Allowed,
    /// No.
    Refused,
    /// It cannot be told, and why.
    Unknown(String),
}

/// Of what kind a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Plain,
    /// A conversation.
    Chat,
    /// A conversation with tools.
    Tools,
}

impl Kind {
    /// All of them; each needs what the one before it needs, and more.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Chat, Self::Tools];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Plain => "a text",
            Self::Chat => "a chat",
            Self::Tools => "a chat with tools",
        }
    }
}

/// A prompt that was made into tokens here and there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Of what kind it is.
    pub kind: Kind,
    /// How that went.
    pub outcome: Tokenized,
}

/// How a prompt was made into tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenized {
    /// The same here and there.
    Equal {
        /// How many.
        tokens: usize,
    },
    /// Not the same.
    Differs {
        /// How many here.
        ours: usize,
        /// How many there.
        theirs: usize,
        /// The first that differs, counted from 0.
        at: usize,
    },
    /// Here it cannot be done, and why.
    NotHere(String),
    /// There it cannot, and why.
    NotThere(String),
    /// There it can; here there is no tokenizer.
    OnlyThere {
        /// How many tokens it has.
        tokens: usize,
    },
    /// Neither can.
    Nowhere(String),
}

/// What was seen of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSeen {
    /// Which.
    pub dp: u16,
    /// Whether its events could be subscribed to.
    pub subscription: Subscription,
    /// Whether it sends again what was lost.
    pub replay: ReplaySeen,
    /// What came of the prompt that was sent twice; an error is why there is no answer.
    pub probed: Result<Probed, String>,
}

/// Whether events could be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// Nobody publishes, or nobody is to be listened to.
    Nobody,
    /// It stands, at this address.
    Stands(String),
    /// It does not.
    Failed {
        /// Where.
        at: String,
        /// Why, in words.
        why: String,
    },
}

/// Whether what was lost can be had again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaySeen {
    /// No place to ask is known.
    Nowhere,
    /// An agent has it, or there is nothing to ask for.
    NotNeeded(&'static str),
    /// It answers there.
    Answers(String),
    /// It does not.
    Failed {
        /// Where.
        at: String,
        /// Why, in words.
        why: String,
    },
}

/// What came of the prompt that was sent twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Blocks of ours in it that the engine can have cached.
    pub blocks: u32,
    /// Leading blocks of it that the index had after the first answer.
    pub indexed: u32,
    /// Batches of events that were heard meanwhile.
    pub batches: u64,
    /// Events in them that could not be used, by why.
    pub skipped: Vec<(&'static str, u64)>,
    /// How old the last batch was when it came, by the engine's clock and ours.
    pub lag_ms: Option<u64>,
    /// How long it was waited for them.
    pub waited_ms: u64,
    /// What the first answer says.
    pub first: Counts,
    /// What the second says.
    pub again: Counts,
}

/// What an answer says about its prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens of the prompt, as the engine counts them.
    pub prompt: Option<u32>,
    /// Tokens of it that came from the cache.
    pub cached: Option<u32>,
}
