//! What is wrong with a profile?

use thiserror::Error;

/// Why a text is no profile. Fields are named as in the file.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProfileError {
    /// It is no JSON, or a field is missing, unknown or of another type.
    #[error("the profile cannot be read: {0}")]
    Unreadable(String),
    /// A number is outside its range.
    #[error("{field} is {value}, but must be {wanted}")]
    OutOfRange {
        /// Which number.
        field: String,
        /// What it is.
        value: f64,
        /// What it may be.
        wanted: &'static str,
    },
    /// A table's points do not increase.
    #[error(
        "{table}[{index}] does not come after the point before it: points must increase in {order}, without repeats"
    )]
    NotSorted {
        /// Which table.
        table: &'static str,
        /// The first point that is out of place.
        index: usize,
        /// What they are ordered by.
        order: &'static str,
    },
    /// A table has too few points to say anything.
    #[error("{table} has {points} points, but at least {wanted} are needed")]
    TooFew {
        /// Which table.
        table: &'static str,
        /// How many it has.
        points: usize,
        /// How many it needs.
        wanted: usize,
    },
    /// A table has more points than anyone measures.
    #[error("{table} has {points} points, but at most {limit} are taken")]
    TooMany {
        /// Which table.
        table: &'static str,
        /// How many it has.
        points: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The type of the KV cache has an unknown width.
    #[error("dtype {0:?} is not one of bf16, fp16, fp32, fp8; or give kv_bytes_per_token")]
    UnknownType(String),
    /// No profile of that name comes with Homing.
    #[error("there is no profile named {name:?}; there are {known}")]
    UnknownName {
        /// What was asked for.
        name: String,
        /// What there is, separated by commas.
        known: String,
    },
}
