//! What can be wrong with a whole message? A bad event inside a good one is no error: it is skipped and counted.

use thiserror::Error;

use crate::dialect::Dialect;

/// Why nothing of a message could be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// It ends in the middle of a value.
    #[error("the message ends after {length} bytes, in the middle of a value")]
    CutOff {
        /// Its length.
        length: usize,
    },
    /// It has a form that no engine sends.
    #[error("the message is no batch of events: {what}, at byte {at}")]
    Form {
        /// What was expected.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// Something follows after the batch.
    #[error("{bytes} bytes follow after the batch")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// It should be JSON and is not.
    #[error("the events are not JSON: {what} (line {line}, column {column})")]
    Json {
        /// What the parser says.
        what: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The decoder is for another kind of messages.
    #[error("a decoder for {dialect} cannot read {given}")]
    Dialect {
        /// What it decodes.
        dialect: Dialect,
        /// What it was given.
        given: &'static str,
    },
}
