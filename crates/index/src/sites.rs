//! Where do the segments of a table lie? The first few on their own, further ones of a table that only the writer looks
//! at side by side in whole chunks, which the system can back with huge pages: a table of millions of labels is accessed
//! at random, and the translation of an address must not be a memory access of its own.
//!
//! **Invariant:** a site that was given back is used again only in a table without readers.

use std::sync::Arc;

use crate::chunk::{CHUNK_WORDS, Chunk, Words};
use crate::segment::SEGMENT_WORDS;
use crate::spares::Reserve;
use crate::sync::AtomicU64;

/// Sites of a chunk.
const PER_CHUNK: usize = CHUNK_WORDS / SEGMENT_WORDS;
/// So many segments lie on their own before chunks are opened for them.
const FEW: usize = 32;

/// Who looks at a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    WriterOnly,
    Readers,
}

/// Room for one segment.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    words: Words,
    /// One more than its place among all sites in chunks; 0 if it lies on its own.
    number: u32,
}

impl Site {
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[derive(Debug)]
struct Part {
    chunk: Arc<Chunk>,
    /// Sites that are not in use.
    free: Vec<u16>,
}

/// All sites of a table.
#[derive(Debug)]
pub(crate) struct Sites {
    sharing: Sharing,
    on_their_own: usize,
    parts: Vec<Part>,
    reserve: Reserve,
}

impl Sites {
    pub(crate) fn new(sharing: Sharing, reserve: Reserve) -> Self {
        Self {
            sharing,
            on_their_own: 0,
            parts: Vec::new(),
            reserve,
        }
    }

    /// Room for a segment: of zeros the first time, else with whatever was there.
    pub(crate) fn take(&mut self) -> Site {
        if self.sharing == Sharing::Readers || self.on_their_own < FEW && self.parts.is_empty() {
            self.on_their_own += 1;
            // The first chunk is made ready, too, if there will be one.
            if self.sharing == Sharing::WriterOnly && self.on_their_own > FEW / 2 {
                self.reserve.prepare();
            }
            let chunk = Arc::new(Chunk::small(SEGMENT_WORDS));
            return Site {
                words: Words::of(&chunk, 0..SEGMENT_WORDS),
                number: 0,
            };
        }
        let with_room = self.parts.iter().position(|part| !part.free.is_empty());
        let number = with_room.unwrap_or_else(|| self.open());
        let part = &mut self.parts[number];
        let index = part.free.pop().unwrap_or(0) as usize;
        let site = Site {
            words: Words::of(&part.chunk, index * SEGMENT_WORDS..(index + 1) * SEGMENT_WORDS),
            number: (number * PER_CHUNK + index) as u32 + 1,
        };
        // The next chunk is made ready while this one fills.
        if number + 1 == self.parts.len() && self.parts[number].free.len() < PER_CHUNK / 2 {
            self.reserve.prepare();
        }
        site
    }

    pub(crate) fn give_back(&mut self, site: &Site) {
        let Some(number) = (site.number as usize).checked_sub(1) else {
            self.on_their_own -= 1;
            return;
        };
        self.parts[number / PER_CHUNK].free.push((number % PER_CHUNK) as u16);
        while self.parts.last().is_some_and(|part| part.free.len() == PER_CHUNK) {
            self.parts.pop();
        }
    }

    /// Gives up what was made ready: nothing is going on.
    pub(crate) fn relax(&mut self) {
        self.reserve.release();
    }

    /// Whether the highest chunk could be emptied into the others with room to spare.
    pub(crate) fn is_sparse(&self) -> bool {
        let Some((last, others)) = self.parts.split_last() else {
            return false;
        };
        let room: usize = others.iter().map(|part| part.free.len()).sum();
        room > PER_CHUNK / 4 + (PER_CHUNK - last.free.len())
    }

    /// Whether a site lies in the highest chunk.
    pub(crate) fn is_high(&self, site: &Site) -> bool {
        site.number as usize > self.parts.len().saturating_sub(1) * PER_CHUNK
    }

    /// Bytes of all sites.
    pub(crate) fn bytes(&self) -> u64 {
        ((self.parts.len() + self.reserve.len()) * CHUNK_WORDS * 8 + self.on_their_own * SEGMENT_WORDS * 8) as u64
    }

    fn open(&mut self) -> usize {
        self.parts.push(Part {
            chunk: Arc::new(self.reserve.take()),
            free: (0..PER_CHUNK as u16).rev().collect(),
        });
        self.parts.len() - 1
    }
}
