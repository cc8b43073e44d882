//! How do we pass on what we heard? Our own frames: for the watch stream of an agent, for messages, and for lists of what
//! a rank holds.
//!
//! A frame is its length, a version, a kind and a body; `docs/wire-formats.md` has the layout. Batches and lists carry
//! content hashes, so they name the seed that these were made with, and a reader with another seed refuses them.
//!
//! **Invariant:** what is written is read back the same, and a frame or a list that is cut off is noticed.
//!
//! **Invariant:** a reader holds at most one frame of the size it was told, and what it was given last.
//!
//! Cost: 16 bytes a block, for hashes do not compress; 8 bytes a removal.

mod body;
mod reader;
mod snapshot;
mod writer;

use homing_domain::{Digest, KvBatch, Listed, Sequence};
use thiserror::Error;

pub use reader::{FrameReader, decode};
pub use snapshot::{SnapshotPart, SnapshotReader, SnapshotWriter};
pub use writer::FrameWriter;

/// The version of the layout. Readers refuse any other.
pub const VERSION: u8 = 1;

/// The longest frame, without its length, that is written, and the longest that readers should be told to accept.
pub const MAX_FRAME: usize = 64 << 20;

/// The most bytes in a chunk of a list before it is compressed.
pub const MAX_CHUNK: usize = 1 << 20;

/// A batch and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its number.
    pub sequence: Sequence,
    /// A hash of it as the engine sent it.
    pub digest: Digest,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A batch of an engine.
    Batch(KvBatch),
    /// Where the sender is.
    Heartbeat(Heartbeat),
    /// All that was asked for has been sent; what follows is as it comes.
    EndOfReplay(Heartbeat),
    /// A list begins.
    Header(SnapshotHeader),
    /// Some of the list.
    Items(Vec<Listed>, ItemCount),
    /// The list ends.
    End(SnapshotEnd),
}

/// How many items a chunk of a list adds to it: an item that was cut in pieces counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemCount(pub u32);

/// Where a sender is, and which life of the engine and of itself that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The last batch it has; `None` if it has none.
    pub position: Option<Position>,
    /// Which life of the engine. Positions of different ones do not compare.
    pub incarnation: u64,
    /// Which life of the sender. Positions of different ones do not compare.
    pub epoch: u64,
}

/// What a list is a list of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// What the rank holds after which batch, of which lives.
    pub at: Heartbeat,
    /// Whether it is all that the rank holds, or may lack what was cached before the sender listened.
    pub complete: bool,
    /// Whether something was forgotten for want of room.
    pub truncated: bool,
    /// How many items there are, where it is known beforehand.
    pub items: Option<u64>,
}

/// What a list was, to be compared with what was read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEnd {
    /// How many items there were.
    pub items: u64,
    /// How many blocks were in them.
    pub blocks: u64,
}

/// Why bytes are no frame, or no frame for us.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// It is of another version.
    #[error("a frame of version {theirs}; this is version {VERSION}")]
    Version {
        /// Its version.
        theirs: u8,
    },
    /// It was made with another hash seed, so that its hashes mean nothing here.
    #[error("made with hash seed {theirs:016x}, and ours is {ours:016x}: both sides need the same `hash-seed`")]
    Seed {
        /// The id of its seed.
        theirs: u64,
        /// The id of ours.
        ours: u64,
    },
    /// It is longer than the reader accepts, or too long to be written.
    #[error("a frame of {length} bytes; at most {limit} are accepted")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// It is not what its kind should be.
    #[error("a bad frame: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// A chunk of a list cannot be decompressed, or compressed.
    #[error("a chunk of the list: {what}")]
    Chunk {
        /// What the codec says.
        what: String,
    },
    /// The list is not complete.
    #[error("the list ends after {items} items and {blocks} blocks, without its end")]
    CutOff {
        /// Items read.
        items: u64,
        /// Blocks read.
        blocks: u64,
    },
    /// The list has not what its end says.
    #[error("the list should have {expected:?} and has {got:?}")]
    Counts {
        /// What its end says.
        expected: SnapshotEnd,
        /// What was read.
        got: SnapshotEnd,
    },
}
