//! What was heard, in a file, so that the same index can be rebuilt from it without any engine.
//!
//! A feed is a state machine whose time is an argument: whoever tells it the same at the same times gets the same index,
//! down to the order in which it lists a rank. So everything that is done to each feed is recorded ([`Recorder`]) and
//! done again to a new one ([`rebuild()`]).
//!
//! The file is eight bytes of magic, a version, and then entries, each with its length and checks of both. The first is
//! the header, as JSON: which workers, settings and hash seed there were. Each other one is what was done to one feed
//! and when; the last says that nothing is missing.
//!
//! **Invariant:** what waits to be written is bounded. When it is too much, or when the file cannot be written, the
//! recording ends and says so; the service goes on.
//!
//! **Invariant:** a recording that is cut off is read up to the cut, and one that is damaged is not read at all: there is no
//! recording that is read wrongly, up to collisions of the checks.
//!
//! It holds content hashes and labels, and no prompt. It grows for as long as the service runs.

mod entry;
mod envelope;
mod header;
mod parts;
mod put;
mod rebuild;
mod recorder;

use std::io;

use homing_config::Rejected;
use thiserror::Error;

pub use rebuild::{Ending, Rebuilt, rebuild};
pub use recorder::{Progress, Recorder, Recording};

/// The version of the format. Readers refuse any other.
pub const VERSION: u32 = 1;

/// Why a recording cannot be written or read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no recording of homing index")]
    Foreign,
    /// It is of another version.
    #[error("it is a recording of version {theirs}; this is version {VERSION}")]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// It ends before anything was recorded.
    #[error("it ends within its header")]
    NoHeader,
    /// Its hashes mean nothing here.
    #[error("it was made with hash seed {theirs:016x}, and ours is {ours:016x}: set `hash.seed` to what it was then")]
    Seed {
        /// The id of its seed.
        theirs: u64,
        /// The id of ours.
        ours: u64,
    },
    /// Its settings cannot be used.
    #[error("its settings cannot be used: {0}")]
    Settings(#[from] Rejected),
    /// It is damaged.
    #[error("it is damaged at byte {at}: {what}")]
    Damaged {
        /// Where the entry begins that cannot be read.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Something is too long to be recorded.
    #[error("a batch is too long to be recorded: {0}")]
    TooLong(#[from] homing_wire::FrameError),
}
