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
