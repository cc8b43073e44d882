//! Where does one event of a stream end and the next begin?
use std::borrow::Cow;

use bytes::Bytes;
use thiserror::Error;

/// An event as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    raw: Bytes,
}

/// An event is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct EventTooLong {
    /// What it may have.
    pub limit: usize,
}

impl Event {
    /// All its bytes, the end included.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }
    /// The value of its last `event` line.
    pub fn name(&self) -> Option<&[u8]> {
        None
    }
    /// The values of its `data` lines, joined. `None` where it has none.
    pub fn data(&self) -> Option<Cow<'_, [u8]>> {
        None
    }
    /// Whether it is the `[DONE]` at the end of a stream of OpenAI's.
    pub fn is_done(&self) -> bool {
        false
    }
}

/// Splits a stream into events.
#[derive(Debug)]
pub struct Splitter {
    max_event: usize,
}

impl Splitter {
    /// Events may have so many bytes.
    pub fn new(max_event: usize) -> Self {
        Self { max_event }
    }
    /// Takes a piece of the stream. All events of the piece before must have been taken.
    pub fn push(&mut self, _chunk: Bytes) {}
    /// The next event that is whole.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLong> {
        let _ = self.max_event;
        Ok(None)
    }
    /// What came after the last whole event, when the stream has ended.
    pub fn rest(&mut self) -> Bytes {
        Bytes::new()
    }
}
