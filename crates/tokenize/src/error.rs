//! What can go wrong with a tokenizer?

use std::path::PathBuf;

use thiserror::Error;

/// Why a folder gives no tokenizer.
#[derive(Debug, Error)]
pub enum LoadError {
    /// What was named is no folder.
    #[error("`{0}` is no folder; a tokenizer is a folder with a `tokenizer.json`")]
    NoFolder(PathBuf),
    /// A file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A file is longer than any tokenizer.
    #[error("`{file}` has {bytes} bytes, which is more than {limit}")]
    TooLong {
        /// Which.
        file: PathBuf,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        limit: u64,
    },
    /// A file is there and says something else.
    #[error("`{file}` is no tokenizer: {why}")]
    Wrong {
        /// Which.
        file: PathBuf,
        /// In the words of its reader.
        why: String,
    },
    /// There is not a single word.
    #[error("`{0}` has no words")]
    Empty(PathBuf),
}

/// Why a text has no tokens.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the text cannot be tokenized: {0}")]
pub struct EncodeError(pub(crate) String);

/// Why there are no tokens for a request. Whoever routes it does so by load, and the engine has the last word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PromptError {
    /// The engine makes something of it that is not known here.
    #[error("the engine's way with {0} is not followed here")]
    NotMirrored(&'static str),
    /// The model has no chat template.
    #[error("the model's folder has no chat template")]
    NoTemplate,
    /// The body is not what the protocol wants, so the engine will refuse it, too.
    #[error("`{field}` {why}")]
    Wrong {
        /// Where.
        field: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The template refuses the conversation, or does not work.
    #[error("the chat template says: {0}")]
    Template(String),
    /// It takes more work or memory than any conversation.
    #[error("{what} has more than {limit} {unit}")]
    TooMuch {
        /// What.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The tokenizer fails.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl PromptError {
    /// The kind of it, for counting: one of a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotMirrored(_) => "not_mirrored",
            Self::NoTemplate => "no_template",
            Self::Wrong { .. } => "wrong",
            Self::Template(_) => "template",
            Self::TooMuch { .. } => "too_much",
            Self::Encode(_) => "encode",
        }
    }
}
