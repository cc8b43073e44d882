//! Which frames are in these bytes? They come in pieces of any length.

use std::fmt;

use homing_domain::{KeyHasher, Label};
use zstd::bulk::Decompressor;

use super::body::{self, Body, Piece};
use super::{Frame, FrameError, ItemCount, MAX_CHUNK, VERSION};

/// The bytes of the length in front of a frame.
const LENGTH: usize = 4;

/// Reads frames from a stream that comes in pieces.
///
/// Call [`FrameReader::next_frame`] until it gives nothing before the next [`FrameReader::push`]; then at most one frame
/// and one piece are held. After an error the stream is of no more use, and every call gives that error.
#[derive(Debug)]
pub struct FrameReader {
    opener: Opener,
    limit: usize,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins.
    start: usize,
    failed: Option<FrameError>,
}

impl FrameReader {
    /// A reader of what was made with `hasher`, in frames of at most `limit` bytes; see [`super::MAX_FRAME`].
    pub fn new(hasher: &KeyHasher, limit: usize) -> Self {
        Self {
            opener: Opener::new(hasher.seed_id()),
            limit,
            buffer: Vec::new(),
            start: 0,
            failed: None,
        }
    }

    /// Takes the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(piece);
    }

    /// The next frame, if all of it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.try_next();
        if let Err(error) = &read {
            self.failed = Some(error.clone());
            self.buffer = Vec::new();
            self.start = 0;
        }
        read
    }

    /// How many bytes there are that are not yet a frame.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn try_next(&mut self) -> Result<Option<Frame>, FrameError> {
        let waiting = &self.buffer[self.start..];
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::TooLong {
                length,
                limit: self.limit,
            });
        }
        // What is wrong is said as soon as it can be seen, not after a long frame has come.
        Opener::check_version(&rest[..rest.len().min(length)])?;
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = self.opener.open(frame)?;
        self.start += LENGTH + length;
        Ok(Some(frame))
    }
}

/// Reads a message that is exactly one frame and no part of a list.
pub fn decode(hasher: &KeyHasher, message: &[u8]) -> Result<Frame, FrameError> {
    let mut opener = Opener::new(hasher.seed_id());
    match message.split_first_chunk::<LENGTH>() {
        Some((length, frame)) if u32::from_le_bytes(*length) as usize == frame.len() => opener.open(frame),
        _ => Err(FrameError::Malformed {
            what: "a message that is not one frame",
        }),
    }
}

/// What it takes to understand a frame.
struct Opener {
    seed_id: u64,
    /// Made when the first chunk comes, because it takes memory.
    decompressor: Option<Decompressor<'static>>,
    /// The last block of the list so far.
    last: Option<Label>,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("seed_id", &self.seed_id)
            .finish_non_exhaustive()
    }
}

impl Opener {
    const fn new(seed_id: u64) -> Self {
        Self {
            seed_id,
            decompressor: None,
            last: None,
        }
    }

    fn check_version(frame: &[u8]) -> Result<(), FrameError> {
        match frame.first() {
            Some(&theirs) if theirs != VERSION => Err(FrameError::Version { theirs }),
            _ => Ok(()),
        }
    }

    fn open(&mut self, frame: &[u8]) -> Result<Frame, FrameError> {
        let mut body = Body::new(frame);
        let theirs = body.u8()?;
        if theirs != VERSION {
            return Err(FrameError::Version { theirs });
        }
        let kind = body.u8()?;
        let frame = match kind {
            body::BATCH => {
                self.check_seed(&mut body)?;
                Frame::Batch(body.batch()?)
            }
            body::HEARTBEAT => {
                self.check_seed(&mut body)?;
                Frame::Heartbeat(body.heartbeat()?)
            }
            body::END_OF_REPLAY => {
                self.check_seed(&mut body)?;
                Frame::EndOfReplay(body.heartbeat()?)
            }
            body::HEADER => {
                self.check_seed(&mut body)?;
                self.last = None;
                Frame::Header(body.header()?)
            }
            body::ITEMS => self.items(&mut body)?,
            body::END => Frame::End(body.end()?),
            _ => {
                return Err(FrameError::Malformed {
                    what: "an unknown kind of frame",
                });
            }
        };
        body.finish()?;
        Ok(frame)
    }

    fn check_seed(&self, body: &mut Body<'_>) -> Result<(), FrameError> {
        let theirs = body.u64()?;
        if theirs != self.seed_id {
            return Err(FrameError::Seed {
                theirs,
                ours: self.seed_id,
            });
        }
        Ok(())
    }

    fn items(&mut self, body: &mut Body<'_>) -> Result<Frame, FrameError> {
        let length = body.u32()? as usize;
        if length > MAX_CHUNK {
            return Err(FrameError::TooLong {
                length,
                limit: MAX_CHUNK,
            });
        }
        let chunk = |error: std::io::Error| FrameError::Chunk {
            what: error.to_string(),
        };
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(chunk)?),
        };
        let plain = decompressor.decompress(body.rest(), length).map_err(chunk)?;
        if plain.len() != length {
            return Err(FrameError::Malformed {
                what: "a chunk that is shorter than it says",
            });
        }
        let mut plain = Body::new(&plain);
        let mut items = Vec::new();
        let mut count = 0;
        while let Some((item, piece)) = plain.item(&mut self.last)? {
            count += u32::from(piece == Piece::First);
            items.push(item);
        }
        Ok(Frame::Items(items, ItemCount(count)))
    }
}
