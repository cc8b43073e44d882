//! What was received?

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

/// Where the frames of a message end in its bytes. Engines send three or four frames.
pub(crate) type Ends = SmallVec<[u32; 4]>;

/// A message: one or more frames of bytes. Cheap to clone.
///
/// **Invariant:** it holds on to its own bytes only, not to a buffer that other messages were read into, so that
/// whoever keeps a message keeps what it counts.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    bytes: Bytes,
    ends: Ends,
}

impl Message {
    /// `ends` rise and the last of them is the length of `bytes`.
    pub(crate) fn new(bytes: Vec<u8>, ends: Ends) -> Self {
        debug_assert_eq!(ends.last().map(|&end| end as usize), Some(bytes.len()));
        debug_assert!(ends.is_sorted());
        Self {
            // Without spare capacity: see the invariant.
            bytes: Bytes::from(bytes.into_boxed_slice()),
            ends,
        }
    }

    /// How many frames there are; at least one.
    pub fn frame_count(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes all frames have together.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// The frame at this place, if there are so many.
    pub fn frame(&self, place: usize) -> Option<&[u8]> {
        self.range(place).map(|range| &self.bytes[range])
    }

    /// The frame at this place as bytes that outlive the message without being copied.
    pub fn frame_bytes(&self, place: usize) -> Option<Bytes> {
        self.range(place).map(|range| self.bytes.slice(range))
    }

    /// All frames in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|place| self.frame(place).unwrap_or_default())
    }

    fn range(&self, place: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(place)? as usize;
        let start = match place {
            0 => 0,
            _ => self.ends[place - 1] as usize,
        };
        Some(start..end)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = (0..self.ends.len()).filter_map(|place| self.frame_bytes(place));
        formatter.debug_list().entries(frames).finish()
    }
}
