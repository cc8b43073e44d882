//! What can be wrong with what an operator typed?
//!
//! Every message says which knob, what it was set to, what it may be, and where it was set. A secret is not repeated.

use std::fmt;
use std::io;
use std::path::PathBuf;

use homing_domain::{BlockSize, ModelName};

use crate::discover::{DiscoverProblem, MAX_PLACES};
use crate::load::MAX_FILE_BYTES;
use crate::resolve::{Setting, Source};
use crate::worker::{MAX_WORKERS, WorkerName, WorkerProblem};

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file is not there or not ours to read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is too long.
    #[error("{}: is longer than {MAX_FILE_BYTES} bytes", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
    },
    /// The file holds no secret. What stands there is not repeated.
    #[error("{}: must hold {} to {} visible characters, and nothing else", file.display(), crate::secret::SHORTEST, crate::secret::LONGEST)]
    NoSecret {
        /// The file.
        file: PathBuf,
    },
    /// The file is not TOML. What stands there is not repeated: it could be a secret.
    #[error("{file}:{line}: not TOML: {message}")]
    NotToml {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The file sets something that does not exist.
    #[error("{file}: there is no knob `{key}`{}", suggestion(*.nearest))]
    UnknownKey {
        /// The file.
        file: String,
        /// The key, with its section.
        key: String,
        /// The knob that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A value is not written as values of its knob are.
    #[error("`{knob}` = {shown}, {place}: must be {expected}")]
    Malformed {
        /// The knob.
        knob: &'static str,
        /// What was typed, if it may be shown.
        shown: Shown,
        /// Where.
        place: Source,
        /// What is allowed.
        expected: String,
    },
    /// A value lies outside of its knob's range.
    #[error("`{knob}` = {shown}, {place}: out of range, must be {range}")]
    OutOfRange {
        /// The knob.
        knob: &'static str,
        /// What was typed.
        shown: Shown,
        /// Where.
        place: Source,
        /// What is allowed.
        range: String,
    },
    /// Two values are each allowed, but not together.
    #[error("`{}` = {}, {}: {rule} `{}` = {}, {}{}",
        .left.knob().path, .left.shown(), .left.source, .right.knob().path, .right.shown(), .right.source, condition(.when))]
    Disagree {
        /// The one that the rule is about.
        left: Box<Setting>,
        /// The rule.
        rule: &'static str,
        /// The other.
        right: Box<Setting>,
        /// When the rule applies; empty if always.
        when: &'static str,
    },
    /// Something is wrong with a worker.
    #[error("{worker}, {place}: {problem}")]
    Worker {
        /// Which one.
        worker: WorkerName,
        /// Where it was written.
        place: Source,
        /// What is wrong.
        problem: Box<WorkerProblem>,
    },
    /// The file names workers in another way than it can.
    #[error("{file}: workers are written as tables that begin with [[worker]]")]
    NotWorkers {
        /// The file.
        file: String,
    },
    /// Something is wrong with a place to look for workers.
    #[error("`discover` = {shown}, {place}: {problem}")]
    Discover {
        /// What was typed, if it may be shown.
        shown: Shown,
        /// Where.
        place: Source,
        /// What is wrong.
        problem: Box<DiscoverProblem>,
    },
    /// There are more places to look for workers than can be.
    #[error("there are {count} places to look for workers, {place}: must be {MAX_PLACES} at most")]
    TooManyPlaces {
        /// How many.
        count: usize,
        /// Where they were written.
        place: Source,
    },
    /// The file lists places to look for workers in another way than it can.
    #[error("{file}: `discover` is a list of texts")]
    NotPlaces {
        /// The file.
        file: String,
    },
    /// There are more workers than can be.
    #[error("there are {count} workers, {place}: must be {MAX_WORKERS} at most")]
    TooManyWorkers {
        /// How many.
        count: usize,
        /// Where they were written.
        place: Source,
    },
    /// The workers of one index have more ranks than it can hold.
    #[error("workers of model `{model}` with {block_size} have {ranks} ranks in all, {place}: must not exceed `{}` = {}, {}",
        .limit.knob().path, .limit.shown(), .limit.source)]
    TooManyRanks {
        /// Their model.
        model: ModelName,
        /// Their block size.
        block_size: BlockSize,
        /// Their ranks.
        ranks: u32,
        /// Where the workers were written.
        place: Source,
        /// What bounds them.
        limit: Box<Setting>,
    },
}

/// What was typed, or that it is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Anyone may see it.
    Text(String),
    /// It could be a secret.
    Hidden,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Hidden => f.write_str("(not shown)"),
        }
    }
}

/// Everything that is wrong, found in one go.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct Rejected {
    /// At least one.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

pub(crate) fn suggestion(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn condition(when: &str) -> String {
    if when.is_empty() {
        String::new()
    } else {
        format!(" (when {when})")
    }
}
