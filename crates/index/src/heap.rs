//! Where does a run keep its keys? In extents of a log: space is taken at the end of the newest chunk, what is given
//! back is only counted, and chunks that have become mostly empty are emptied by moving what is left (see
//! `write/compact.rs`). So space has no holes that cannot be used again, and memory goes back to the system.
//!
//! An extent begins with a header word that says what it is, how long it is and which run owns it.
//!
//! **Invariant:** the sum of live words is what the owners' extents add up to; an extent never crosses chunks.
//! Readers reach extents through a [`Directory`] that they hold; a chunk that left the directory lives on until its
//! last reader is gone.

use std::sync::Arc;

use crate::chunk::{CHUNK_WORDS, Chunk, Words};
use crate::spares::Reserve;
use crate::sync::{AtomicU64, Ordering};

/// Emptied chunks that are kept for a while; more go back to the system at once.
const EMPTIED: usize = 2;

/// Words of a cache line.
const LINE_WORDS: u32 = 8;
/// Shorter extents lie where they fall.
const LONG: u32 = 8 * LINE_WORDS;
const LONG_SET: u32 = LINE_WORDS;

/// Word address of an extent's header. 0 is no extent.
pub(crate) type Addr = u32;

/// What an extent holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Given back.
    Free,
    /// Keys and labels of a run.
    Blocks,
    /// The words of one set of slots.
    Set,
    /// The levels of a run that do not fit its record, and its coverage for lower tiers.
    Extra,
}

/// A header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Length in words, the header included.
    pub(crate) words: u32,
    /// The run it belongs to.
    pub(crate) owner: u32,
}

impl Header {
    fn encode(self) -> u64 {
        (self.kind as u64) << 60 | u64::from(self.words) << 32 | u64::from(self.owner)
    }

    pub(crate) fn decode(word: u64) -> Self {
        let kind = match word >> 60 {
            1 => Kind::Blocks,
            2 => Kind::Set,
            3 => Kind::Extra,
            _ => Kind::Free,
        };
        Self {
            kind,
            words: (word >> 32) as u32 & 0x0fff_ffff,
            owner: word as u32,
        }
    }
}

/// The chunks that exist, as readers see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    chunks: Vec<Option<Words>>,
}

impl Directory {
    /// The words from `addr` on, or `None` if that chunk is not (or no longer) known.
    #[inline]
    pub(crate) fn words(&self, addr: Addr) -> Option<&[AtomicU64]> {
        let chunk = self.chunks.get(addr as usize / CHUNK_WORDS)?.as_ref()?;
        Some(&chunk[addr as usize % CHUNK_WORDS..])
    }
}

#[derive(Debug)]
struct Part {
    chunk: Arc<Chunk>,
    used: u32,
    live: u32,
}

impl Part {
    /// Marks the words between two offsets as an extent that nobody owns.
    fn free_from(&self, start: u32, end: u32) {
        let header = Header {
            kind: Kind::Free,
            words: end - start,
            owner: 0,
        };
        self.chunk[start as usize].store(header.encode(), Ordering::Relaxed);
    }
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Heap {
    parts: Vec<Option<Part>>,
    /// The part that space is taken from.
    head: usize,
    /// The part being emptied, and how far.
    victim: Option<(usize, u32)>,
    live: u64,
    used: u64,
    reserve: Reserve,
    /// Chunks that were emptied lately, of which one may be used again.
    emptied: Vec<Arc<Chunk>>,
    /// Set when the directory that readers have is out of date.
    pub(crate) changed: bool,
}

impl Heap {
    /// With the first chunk, and the place where further ones come from.
    pub(crate) fn new(reserve: Reserve) -> Self {
        let mut heap = Self {
            parts: Vec::new(),
            head: 0,
            victim: None,
            live: 0,
            used: 0,
            reserve,
            emptied: Vec::new(),
            changed: true,
        };
        heap.open();
        // Address 0 means "none".
        heap.part_mut(0).used = 1;
        heap
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory {
            chunks: self
                .parts
                .iter()
                .map(|part| part.as_ref().map(|part| Words::of(&part.chunk, 0..CHUNK_WORDS)))
                .collect(),
        }
    }

    /// Words in extents that are owned.
    #[cfg(test)]
    pub(crate) fn live_words(&self) -> u64 {
        self.live
    }

    /// Words in chunks.
    pub(crate) fn reserved_words(&self) -> u64 {
        (self.parts.iter().flatten().count() + self.reserve.len() + self.emptied.len()) as u64 * CHUNK_WORDS as u64
    }

    /// Gives up what was made ready: nothing is going on.
    pub(crate) fn relax(&mut self) {
        self.reserve.release();
        self.emptied.clear();
    }

    /// Does a little of the work of making the next chunk, if it will be needed soon.
    pub(crate) fn prepare(&mut self) {
        if self.part(self.head).used as usize <= CHUNK_WORDS / 2 {
            return;
        }
        // A chunk that was emptied serves again, once no reader holds a view with it.
        let unseen = self.emptied.iter().position(|chunk| Arc::strong_count(chunk) == 1);
        if let Some(index) = unseen.filter(|_| self.reserve.is_empty())
            && let Some(chunk) = Arc::into_inner(self.emptied.swap_remove(index))
        {
            self.reserve.keep(chunk);
        }
        self.reserve.prepare();
    }

    /// Takes an extent of `words` words, header included.
    pub(crate) fn alloc(&mut self, kind: Kind, words: u32, owner: u32) -> Addr {
        debug_assert!((words as usize) < CHUNK_WORDS);
        if self.gap_before(kind, words) + words > CHUNK_WORDS as u32 - self.part(self.head).used {
            self.open();
        }
        let (head, gap) = (self.head, self.gap_before(kind, words));
        let part = self.part_mut(head);
        let offset = part.used + gap;
        if gap > 0 {
            part.free_from(part.used, offset);
        }
        part.used = offset + words;
        part.live += words;
        part.chunk[offset as usize].store(Header { kind, words, owner }.encode(), Ordering::Relaxed);
        self.live += u64::from(words);
        self.used += u64::from(gap + words);
        (head * CHUNK_WORDS) as u32 + offset
    }

    /// Words to leave free before an extent of so many: what follows the header of a long one begins with a cache line.
    fn gap_before(&self, kind: Kind, words: u32) -> u32 {
        let long = if kind == Kind::Set { LONG_SET } else { LONG };
        if words < long {
            return 0;
        }
        let behind_header = self.part(self.head).used + 1;
        behind_header.next_multiple_of(LINE_WORDS) - behind_header
    }

    /// Gives an extent back. Its words stay readable until its chunk is emptied.
    pub(crate) fn free(&mut self, addr: Addr) {
        let header = self.header(addr);
        debug_assert_ne!(header.kind, Kind::Free, "freed twice");
        self.word(addr).store(
            Header {
                kind: Kind::Free,
                ..header
            }
            .encode(),
            Ordering::Relaxed,
        );
        self.part_mut(addr as usize / CHUNK_WORDS).live -= header.words;
        self.live -= u64::from(header.words);
    }

    /// Makes an extent `words` long where it lies, if what follows it is free, and says whether it did.
    pub(crate) fn extend(&mut self, addr: Addr, words: u32) -> bool {
        let (index, offset) = (addr as usize / CHUNK_WORDS, addr % CHUNK_WORDS as u32);
        let header = self.header(addr);
        let (part, end, wanted) = (self.part(index), offset + header.words, offset + words);
        // Who empties a chunk remembers where an extent begins that may not begin there afterwards.
        if self.victim.is_some_and(|(victim, _)| victim == index) || wanted as usize > CHUNK_WORDS {
            return false;
        }
        let mut free = end;
        while free < wanted && free < part.used {
            let next = Header::decode(part.chunk[free as usize].load(Ordering::Relaxed));
            if next.kind != Kind::Free {
                return false;
            }
            free += next.words;
        }
        if free < wanted && index != self.head {
            return false;
        }
        if free > wanted {
            part.free_from(wanted, free);
        }
        let taken = wanted.saturating_sub(part.used);
        let part = self.part_mut(index);
        part.used += taken;
        part.live += wanted - end;
        self.used += u64::from(taken);
        self.live += u64::from(wanted - end);
        self.word(addr)
            .store(Header { words, ..header }.encode(), Ordering::Relaxed);
        true
    }

    /// Makes an extent `words` long where it lies, and gives the rest back.
    pub(crate) fn shrink(&mut self, addr: Addr, words: u32) {
        let header = self.header(addr);
        let offset = addr % CHUNK_WORDS as u32;
        if words == header.words {
            return;
        }
        let part = self.part_mut(addr as usize / CHUNK_WORDS);
        part.free_from(offset + words, offset + header.words);
        part.live -= header.words - words;
        self.live -= u64::from(header.words - words);
        self.word(addr)
            .store(Header { words, ..header }.encode(), Ordering::Relaxed);
    }

    /// Says that an extent has another owner now.
    pub(crate) fn set_owner(&mut self, addr: Addr, owner: u32) {
        let header = self.header(addr);
        self.word(addr)
            .store(Header { owner, ..header }.encode(), Ordering::Relaxed);
    }

    pub(crate) fn header(&self, addr: Addr) -> Header {
        Header::decode(self.word(addr).load(Ordering::Relaxed))
    }

    pub(crate) fn word(&self, addr: Addr) -> &AtomicU64 {
        &self.words(addr)[0]
    }

    /// The words from `addr` to the end of its chunk.
    #[inline]
    pub(crate) fn words(&self, addr: Addr) -> &[AtomicU64] {
        let part = self.part(addr as usize / CHUNK_WORDS);
        &part.chunk[addr as usize % CHUNK_WORDS..]
    }

    /// Whether emptying a chunk would pay: more than a quarter of what was taken is not owned any more.
    pub(crate) fn is_sparse(&self) -> bool {
        self.victim.is_some() || self.used > self.live + self.live / 3 + CHUNK_WORDS as u64
    }

    /// The next extent to move out of the chunk that is being emptied, or `None` if a step ended with nothing to move.
    /// Call again while [`Heap::is_sparse`].
    pub(crate) fn next_to_move(&mut self, mut steps: u32) -> Option<(Addr, Header)> {
        if self.victim.is_none() {
            self.victim = self.emptiest().map(|index| (index, u32::from(index == 0)));
        }
        let (index, mut offset) = self.victim?;
        while steps > 0 {
            steps -= 1;
            let part = self.part(index);
            if offset >= part.used || part.live == 0 {
                self.close(index);
                return None;
            }
            let addr = (index * CHUNK_WORDS) as u32 + offset;
            let header = self.header(addr);
            offset += header.words;
            self.victim = Some((index, offset));
            if header.kind != Kind::Free {
                return Some((addr, header));
            }
        }
        None
    }

    fn emptiest(&self) -> Option<usize> {
        let candidates = self.parts.iter().enumerate().filter(|(index, _)| *index != self.head);
        candidates
            .filter_map(|(index, part)| Some((part.as_ref()?.live, index)))
            .min()
            .map(|(_, index)| index)
    }

    fn close(&mut self, index: usize) {
        let part = self.part(index);
        debug_assert_eq!(part.live, 0, "an extent was left behind");
        self.used -= u64::from(part.used) - u64::from(index == 0);
        let part = self.parts[index].take();
        if self.emptied.len() < EMPTIED {
            self.emptied.extend(part.map(|part| part.chunk));
        }
        self.victim = None;
        self.changed = true;
    }

    fn open(&mut self) {
        let part = Part {
            chunk: Arc::new(self.reserve.take()),
            used: 0,
            live: 0,
        };
        let free = self.parts.iter().position(Option::is_none);
        self.head = free.unwrap_or(self.parts.len());
        if self.head == self.parts.len() {
            self.parts.push(Some(part));
        } else {
            self.parts[self.head] = Some(part);
        }
        if self.head == 0 {
            self.part_mut(0).used = 1;
        }
        self.changed = true;
    }

    #[inline]
    fn part(&self, index: usize) -> &Part {
        self.parts[index]
            .as_ref()
            .expect("an address names a chunk that exists")
    }

    fn part_mut(&mut self, index: usize) -> &mut Part {
        self.parts[index]
            .as_mut()
            .expect("an address names a chunk that exists")
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn space_that_was_given_back_comes_back() {
        let mut heap = Heap::new(Reserve::default());
        let extents: Vec<Addr> = (0..3000).map(|owner| heap.alloc(Kind::Blocks, 1000, owner)).collect();
        assert!(!heap.is_sparse());
        let before = heap.reserved_words();
        for addr in extents.iter().skip(1) {
            heap.free(*addr);
        }
        let mut kept = extents[0];
        while heap.is_sparse() {
            if let Some((addr, header)) = heap.next_to_move(64) {
                assert_eq!((addr, header.owner), (kept, 0));
                kept = heap.alloc(header.kind, header.words, header.owner);
                heap.free(addr);
            }
        }
        heap.relax();
        assert_eq!(heap.live_words(), 1000);
        assert_eq!(before / CHUNK_WORDS as u64, 12);
        assert!(heap.reserved_words() <= 2 * CHUNK_WORDS as u64);
        assert!(heap.directory().words(kept).is_some());
    }

    #[test]
    fn an_extent_grows_into_what_is_free_behind_it_and_no_further() {
        let mut heap = Heap::new(Reserve::default());
        let first = heap.alloc(Kind::Blocks, 100, 1);
        assert!(heap.extend(first, 150), "nothing follows yet");
        let second = heap.alloc(Kind::Blocks, 50, 2);
        assert_eq!(second, first + 150);
        assert!(!heap.extend(first, 151));
        heap.shrink(first, 40);
        heap.shrink(first, 10);
        assert_eq!(heap.live_words(), 60);
        assert!(!heap.extend(first, 151));
        assert!(heap.extend(first, 120), "both pieces that were given back");
        assert_eq!(heap.header(first).words, 120);
        let rest = heap.header(first + 120);
        assert_eq!((rest.kind, rest.words), (Kind::Free, 30));
        assert_eq!(heap.live_words(), 170);
        heap.free(second);
        assert!(heap.extend(first, 300), "over the end of what was taken");
        assert_eq!(heap.alloc(Kind::Blocks, 5, 3), first + 300);
        assert!(!heap.extend(first, CHUNK_WORDS as u32 + 1));
        assert_eq!(heap.live_words(), 305);
    }
}
