//! What is wrong with a trace, and where?

use std::sync::Arc;

use thiserror::Error;

/// Something is wrong with a line of a trace. Whoever reads may go on with the next line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{label}:{line}: {problem}")]
pub struct TraceError {
    /// What the caller called the trace: mostly a file's name.
    pub label: Arc<str>,
    /// The line, counted from 1; 0 for the trace as a whole.
    pub line: u64,
    /// What it is.
    pub problem: Problem,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The source does not give more.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// There is no line in it.
    #[error("there is nothing in it")]
    Empty,
    /// A line is longer than allowed.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The most bytes.
        limit: usize,
    },
    /// The first line is of no known format.
    #[error(
        "no known format: expected JSON with \"hash_ids\", \"session_id\" or \"homing\", or CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens"
    )]
    UnknownFormat,
    /// It is no JSON, or not the JSON that is expected.
    #[error("{0}")]
    Json(String),
    /// A field is not there.
    #[error("there is no {0}")]
    Missing(&'static str),
    /// A value is none that is possible.
    #[error("{field} is {value:?}, expected {expected}")]
    Value {
        /// Of which field.
        field: &'static str,
        /// What is there, shortened.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Lengths and blocks contradict each other.
    #[error(
        "{ids} blocks of {block} tokens do not fit a prompt of {tokens} tokens, which has {expected}: is the block size right?"
    )]
    Blocks {
        /// Blocks that are listed.
        ids: usize,
        /// Tokens of each.
        block: u32,
        /// Tokens of the prompt.
        tokens: u32,
        /// Blocks that it has.
        expected: usize,
    },
    /// It arrives earlier than what was read long before it.
    #[error("arrives before the line that stands {window} lines or more before it: the trace must be sorted by time")]
    OutOfOrder {
        /// How far lines may be out of order.
        window: usize,
    },
    /// A line of CSV has other columns than the first.
    #[error("there are {found} columns, expected {expected}")]
    Columns {
        /// How many there are.
        found: usize,
        /// How many the first line has.
        expected: usize,
    },
    /// A quoted cell does not end.
    #[error("a quoted cell does not end")]
    Quote,
    /// Too many requests wait for others of their sessions.
    #[error("more than {limit} requests wait for earlier ones of their sessions")]
    TooManyWait {
        /// As many as may.
        limit: usize,
    },
    /// A request continues a session that the trace did not tell of before.
    #[error(transparent)]
    Session(#[from] crate::conversation::UnknownSession),
}

impl Problem {
    pub(crate) fn value(field: &'static str, value: &str, expected: &'static str) -> Self {
        // What is shown is short, whatever is in the file.
        let value = value.chars().take(40).collect();
        Self::Value { field, value, expected }
    }
}
