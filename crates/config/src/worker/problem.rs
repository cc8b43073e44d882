//! What can be wrong with a worker?

use std::fmt;
use std::path::PathBuf;

use crate::error::{Shown, suggestion};
use crate::worker::address::{AddressFault, Endpoint};
use crate::worker::keys::WorkerKey;
use crate::worker::{MAX_LABELS, SYNTAX};

/// Which worker of a list, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerName {
    /// Its place in the list, from 1.
    pub number: usize,
    /// Its address, if it has one that may be shown.
    pub url: Option<String>,
}

/// What is wrong with one worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerProblem {
    /// It has no address.
    #[error("`url` is missing; a worker is written as {SYNTAX}")]
    NoUrl,
    /// A part of its text is no key with a value.
    #[error("{part} is not KEY=VALUE")]
    NotKeyValue {
        /// The part.
        part: Shown,
    },
    /// In the file it is something else than a table.
    #[error("must be a table with `url` and other keys")]
    NotATable,
    /// There is no such key.
    #[error("there is no key `{key}`{}", suggestion(*.nearest))]
    UnknownKey {
        /// What was typed.
        key: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// A key stands there twice.
    #[error("`{key}` is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value is not of its key's form.
    #[error("`{key}` = {shown}: must be {expected}")]
    Malformed {
        /// The key.
        key: String,
        /// What was typed, if it may be shown.
        shown: Shown,
        /// What is allowed.
        expected: String,
    },
    /// An address is none.
    #[error("`{key}` = {shown}: {fault}")]
    Address {
        /// The key.
        key: WorkerKey,
        /// What was typed, if it may be shown.
        shown: Shown,
        /// What is wrong with it.
        fault: AddressFault,
    },
    /// There are more labels than are kept.
    #[error("has more than {MAX_LABELS} labels")]
    TooManyLabels,
    /// A key means nothing without another.
    #[error("`{key}` needs `{other}`")]
    Needs {
        /// The key.
        key: WorkerKey,
        /// The one that it needs.
        other: WorkerKey,
    },
    /// Two keys say different things about the same.
    #[error("`{key}` and `{other}` exclude each other{why}")]
    Excludes {
        /// One.
        key: WorkerKey,
        /// The other.
        other: WorkerKey,
        /// Why, in words that follow.
        why: &'static str,
    },
    /// Engines of this dialect are polled, others are not.
    #[error("`events` = {events} does not go with `dialect` = {dialect}: {rule}")]
    EventsOfOtherDialect {
        /// The address.
        events: String,
        /// The dialect.
        dialect: &'static str,
        /// What goes with it.
        rule: &'static str,
    },
    /// There is no port for each of its ranks.
    #[error("`{key}` = {endpoint} has no room for `ranks` = {ranks}: {why}")]
    NoRoomForRanks {
        /// Which endpoint.
        key: WorkerKey,
        /// That of rank 0.
        endpoint: Endpoint,
        /// How many ranks there are.
        ranks: u16,
        /// Why, in words.
        why: &'static str,
    },
    /// It shall be known by events, and nobody tells them.
    #[error("`cache-view` is `events`{from}, which needs `events` or `agent`; or say `cache-view=approximate`")]
    NoSource {
        /// Where it was set, if not by the worker itself.
        from: &'static str,
    },
    /// What is opened on this machine is for operators to name.
    #[error(
        "`{key}` = {endpoint}: ports and sockets on the gateway's own machine (`bind:` and `ipc:`) may be named in flags, variables and \
         the settings file only"
    )]
    OperatorOnly {
        /// Which endpoint.
        key: WorkerKey,
        /// The endpoint.
        endpoint: String,
    },
    /// A local socket is not where sockets must be.
    #[error("`{key}` = ipc://{path}: must be in {}, which `events.socket-dir` names", directory.display())]
    OutsideSocketDir {
        /// Which endpoint.
        key: WorkerKey,
        /// Its path.
        path: String,
        /// The directory.
        directory: PathBuf,
    },
    /// Another worker has the same address.
    #[error("`url` = {url} is also that of {other}")]
    SameUrl {
        /// The address.
        url: String,
        /// The other.
        other: WorkerName,
    },
    /// Two streams would be one.
    #[error("`{key}` = {span} meets `{other_key}` = {other_span} of {other}")]
    SharedEndpoint {
        /// Which endpoint.
        key: WorkerKey,
        /// From that of its first rank to that of its last.
        span: Span,
        /// Which one it meets.
        other_key: WorkerKey,
        /// That of its first rank to that of its last.
        other_span: Span,
        /// Whose it is.
        other: WorkerName,
    },
}

/// The endpoints of all ranks of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// That of rank 0.
    pub first: Endpoint,
    /// How many there are.
    pub ranks: u16,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            Endpoint::Tcp { port, .. } if self.ranks > 1 => {
                write!(f, "{} to {}", self.first, u32::from(port) + u32::from(self.ranks) - 1)
            }
            _ => write!(f, "{}", self.first),
        }
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            Some(url) => write!(f, "worker {} ({url})", self.number),
            None => write!(f, "worker {}", self.number),
        }
    }
}
