//! What does a rank hold? A list, written and read chunk by chunk, so that neither side ever holds all of it.

use std::fmt;

use homing_domain::{KeyHasher, Listed};
use zstd::bulk::Compressor;

use super::body::{self, BLOCK, Piece, put_end, put_header, put_item, put_u32};
use super::writer::frame;
use super::{Frame, FrameError, FrameReader, FrameWriter, MAX_CHUNK, MAX_FRAME, SnapshotEnd, SnapshotHeader};

/// Bytes after which a chunk is written.
const FULL_CHUNK: usize = MAX_CHUNK / 4;
/// Blocks in a piece of an item: a longer one is cut, so that no chunk is beyond its limit.
const PIECE: usize = FULL_CHUNK / BLOCK;
/// The fastest level: hashes do not compress, and what else there is compresses at any.
const LEVEL: i32 = 1;

/// Writes a list: header, items, end.
pub struct SnapshotWriter {
    compressor: Compressor<'static>,
    chunk: Vec<u8>,
    written: SnapshotEnd,
}

impl fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotWriter")
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl SnapshotWriter {
    /// Begins a list of what was made with `hasher`: its header is appended to `out`.
    pub fn new(hasher: &KeyHasher, header: &SnapshotHeader, out: &mut Vec<u8>) -> Result<Self, FrameError> {
        let compressor = Compressor::new(LEVEL).map_err(|error| chunk_error(&error))?;
        FrameWriter::new(hasher).seeded(body::HEADER, out, |out| put_header(out, header))?;
        Ok(Self {
            compressor,
            chunk: Vec::new(),
            written: SnapshotEnd { items: 0, blocks: 0 },
        })
    }

    /// Adds an item. Now and then a chunk is appended to `out`, which may be sent and emptied at any time.
    pub fn item(&mut self, item: &Listed, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (first, rest) = item.blocks.split_at(item.blocks.len().min(PIECE));
        put_item(&mut self.chunk, item, Piece::First, first);
        self.flush_full(out)?;
        for blocks in rest.chunks(PIECE) {
            put_item(&mut self.chunk, item, Piece::Further, blocks);
            self.flush_full(out)?;
        }
        self.written.items += 1;
        self.written.blocks += item.blocks.len() as u64;
        Ok(())
    }

    /// Ends the list: what is left of it is appended to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<SnapshotEnd, FrameError> {
        self.flush(out)?;
        frame(body::END, out, |out| put_end(out, &self.written))?;
        Ok(self.written)
    }

    fn flush_full(&mut self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        if self.chunk.len() >= FULL_CHUNK {
            self.flush(out)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let small = self
            .compressor
            .compress(&self.chunk)
            .map_err(|error| chunk_error(&error))?;
        let length = u32::try_from(self.chunk.len()).unwrap_or(u32::MAX);
        self.chunk.clear();
        frame(body::ITEMS, out, |out| {
            put_u32(out, length);
            out.extend_from_slice(&small);
        })
    }
}

fn chunk_error(error: &std::io::Error) -> FrameError {
    FrameError::Chunk {
        what: error.to_string(),
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotPart {
    /// What it is a list of; first.
    Header(SnapshotHeader),
    /// Some of it. Long items come in pieces, each of which names the last block of the one before as its parent.
    Items(Vec<Listed>),
    /// All of it was read, and it is as long as it should be; last.
    End(SnapshotEnd),
}

/// Reads a list that comes in pieces, and sees to it that it is complete.
#[derive(Debug)]
pub struct SnapshotReader {
    frames: FrameReader,
    read: SnapshotEnd,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Within,
    Ended,
}

impl SnapshotReader {
    /// A reader of lists of what was made with `hasher`.
    pub fn new(hasher: &KeyHasher) -> Self {
        Self {
            frames: FrameReader::new(hasher, MAX_FRAME.min(2 * MAX_CHUNK)),
            read: SnapshotEnd { items: 0, blocks: 0 },
            state: State::Before,
        }
    }

    /// Takes the next piece of the stream. As with [`FrameReader`], take all parts before the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.frames.push(piece);
    }

    /// The next part, if all of it is there.
    pub fn next_part(&mut self) -> Result<Option<SnapshotPart>, FrameError> {
        let Some(frame) = self.frames.next_frame()? else {
            return Ok(None);
        };
        match (self.state, frame) {
            (State::Before, Frame::Header(header)) => {
                self.state = State::Within;
                Ok(Some(SnapshotPart::Header(header)))
            }
            (State::Within, Frame::Items(items, count)) => {
                self.read.items += u64::from(count.0);
                self.read.blocks += items.iter().map(|item| item.blocks.len() as u64).sum::<u64>();
                Ok(Some(SnapshotPart::Items(items)))
            }
            (State::Within, Frame::End(end)) => {
                if end != self.read {
                    return Err(FrameError::Counts {
                        expected: end,
                        got: self.read,
                    });
                }
                self.state = State::Ended;
                Ok(Some(SnapshotPart::End(end)))
            }
            _ => Err(FrameError::Malformed {
                what: "a frame that is not in its place in a list",
            }),
        }
    }

    /// The stream has ended: whether the list has, too.
    pub fn finish(&self) -> Result<SnapshotEnd, FrameError> {
        if self.state == State::Ended && self.frames.pending() == 0 {
            return Ok(self.read);
        }
        Err(FrameError::CutOff {
            items: self.read.items,
            blocks: self.read.blocks,
        })
    }
}
