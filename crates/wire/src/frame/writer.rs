//! How is a frame written?

use homing_domain::{KeyHasher, KvBatch};

use super::body::{self, put_batch, put_heartbeat, put_u32, put_u64};
use super::{FrameError, Heartbeat, MAX_FRAME, VERSION};

/// Writes frames for readers with the same hash seed. Each method appends one frame to `out`, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct FrameWriter {
    seed_id: u64,
}

impl FrameWriter {
    /// A writer of what was made with `hasher`.
    pub const fn new(hasher: &KeyHasher) -> Self {
        Self {
            seed_id: hasher.seed_id(),
        }
    }

    /// A batch.
    pub fn batch(&self, batch: &KvBatch, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.seeded(body::BATCH, out, |out| put_batch(out, batch))
    }

    /// Where the sender is.
    pub fn heartbeat(&self, beat: &Heartbeat, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.seeded(body::HEARTBEAT, out, |out| put_heartbeat(out, beat))
    }

    /// What was asked for has been sent, up to here.
    pub fn end_of_replay(&self, beat: &Heartbeat, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.seeded(body::END_OF_REPLAY, out, |out| put_heartbeat(out, beat))
    }

    /// A frame whose body begins with the id of the seed.
    pub(super) fn seeded(self, kind: u8, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), FrameError> {
        frame(kind, out, |out| {
            put_u64(out, self.seed_id);
            put(out);
        })
    }
}

/// Appends a frame. Its length is known when its body is there, so the place for it is filled afterwards.
pub(super) fn frame(kind: u8, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), FrameError> {
    let start = out.len();
    put_u32(out, 0);
    out.extend([VERSION, kind]);
    put(out);
    let length = out.len() - start - 4;
    match u32::try_from(length) {
        Ok(short) if length <= MAX_FRAME => {
            out[start..start + 4].copy_from_slice(&short.to_le_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(FrameError::TooLong {
                length,
                limit: MAX_FRAME,
            })
        }
    }
}
