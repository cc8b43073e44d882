//! Where do the words lie? In chunks of two mebibytes that never move, aligned so that the system can back each with
//! one huge page. A lookup is a few dependent memory accesses; with huge pages each of them is nearly twice as fast,
//! because the translation of its address is not a memory access of its own. Where there are no huge pages nothing
//! changes but that.
//!
//! [`prefetch`] and [`prefetch_early`] ask for memory that will be needed. This is the one file of the crate with `unsafe` code.
//!
//! A chunk is made a little at a time ([`Spare`]), or beside the writer (see `spares.rs`), because clearing two mebibytes
//! takes longer than anybody should wait.
//!
//! **Invariant:** `words` points to `len` initialised `AtomicU64`s, owned by this value alone: a mapping of the system's if it
//! is a whole chunk, else allocated with `layout(len)`; it is given back once, in `drop`. All bits zero is a valid `AtomicU64`.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::sync::AtomicU64;

/// Words in a chunk.
#[cfg(not(any(shuttle, loom)))]
pub(crate) const CHUNK_WORDS: usize = 1 << 18;

/// Words in a chunk: few, because every word is expensive under the explorers of schedules.
#[cfg(any(shuttle, loom))]
pub(crate) const CHUNK_WORDS: usize = 1 << 8;

/// A fixed array of words that readers and the writer share.
pub(crate) struct Chunk {
    #[cfg(not(any(shuttle, loom)))]
    words: std::ptr::NonNull<AtomicU64>,
    #[cfg(not(any(shuttle, loom)))]
    len: usize,
    #[cfg(any(shuttle, loom))]
    words: Vec<AtomicU64>,
}

/// A chunk in the making: only a part of it is cleared.
#[cfg(any(shuttle, loom))]
#[derive(Debug)]
pub(crate) struct Spare;

#[cfg(any(shuttle, loom))]
impl Spare {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn clear_more(&mut self) {}

    pub(crate) fn into_chunk(self) -> Chunk {
        Chunk::small(CHUNK_WORDS)
    }
}

#[cfg(any(shuttle, loom))]
impl Chunk {
    /// So many words of zeros.
    pub(crate) fn small(words: usize) -> Self {
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

#[cfg(not(any(shuttle, loom)))]
pub(crate) use aligned::{Spare, Words};

/// Words of a chunk, which lives as long as they do.
#[cfg(any(shuttle, loom))]
#[derive(Clone, Debug)]
pub(crate) struct Words {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

#[cfg(any(shuttle, loom))]
impl Words {
    pub(crate) fn of(chunk: &Arc<Chunk>, range: Range<usize>) -> Self {
        let chunk = chunk.clone();
        Self { chunk, range }
    }
}

#[cfg(any(shuttle, loom))]
impl Deref for Words {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        &self.chunk[self.range.clone()]
    }
}

#[cfg(any(shuttle, loom))]
impl Deref for Chunk {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[cfg(not(any(shuttle, loom)))]
#[expect(
    unsafe_code,
    reason = "aligned allocation with advice to the system; invariants in the module's documentation"
)]
mod aligned {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::system::{map, unmap};
    use super::{Arc, AtomicU64, CHUNK_WORDS, Chunk, Deref, Range};

    pub(super) const BYTES: usize = CHUNK_WORDS * size_of::<AtomicU64>();

    /// Bytes touched at a time.
    const PORTION: usize = 1 << 15;
    /// No system has smaller pages.
    const PAGE: usize = 1 << 12;

    /// Of a chunk that is smaller than a whole one: aligned to a cache line.
    const fn layout(words: usize) -> Layout {
        match Layout::from_size_align(words * size_of::<AtomicU64>(), 64) {
            Ok(layout) => layout,
            Err(_) => panic!("a chunk is smaller than the address space"),
        }
    }

    impl Chunk {
        /// So many words of zeros, fewer than a whole chunk.
        pub(crate) fn small(words: usize) -> Self {
            assert!(words > 0 && words < CHUNK_WORDS);
            // SAFETY: the layout has a size above zero. Zero bytes are valid `AtomicU64`s.
            let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout(words)) }) else {
                handle_alloc_error(layout(words))
            };
            Self {
                words: start.cast(),
                len: words,
            }
        }
    }

    /// A chunk in the making.
    ///
    /// **Invariant:** `start` points to `BYTES` bytes that `map` returned and this value alone owns. They are zero.
    #[derive(Debug)]
    pub(crate) struct Spare {
        start: NonNull<u8>,
        touched: usize,
    }

    impl Spare {
        pub(crate) fn new() -> Self {
            Self {
                start: map(),
                touched: 0,
            }
        }

        /// Has the system clear some more of it.
        pub(crate) fn clear_more(&mut self) {
            let end = (self.touched + PORTION).min(BYTES);
            for at in (self.touched..end).step_by(PAGE) {
                // SAFETY: the byte lies within the mapping, which nobody else knows of. Volatile, because it is zero already and
                // a write that changes nothing is what is wanted.
                unsafe { self.start.as_ptr().add(at).write_volatile(0) };
            }
            self.touched = end;
        }

        pub(crate) fn into_chunk(mut self) -> Chunk {
            while self.touched < BYTES {
                self.clear_more();
            }
            // The mapping is the chunk's from here on. Zero bytes are valid `AtomicU64`s.
            Chunk {
                words: std::mem::ManuallyDrop::new(self).start.cast(),
                len: CHUNK_WORDS,
            }
        }
    }

    impl Drop for Spare {
        fn drop(&mut self) {
            // SAFETY: it was mapped in `new`, and not given to a chunk.
            unsafe { unmap(self.start) };
        }
    }

    // SAFETY: the allocation is owned by this value alone.
    unsafe impl Send for Spare {}
    // SAFETY: nothing can be read through a shared reference.
    unsafe impl Sync for Spare {}

    impl Drop for Chunk {
        fn drop(&mut self) {
            if self.len == CHUNK_WORDS {
                // SAFETY: a whole chunk was a `Spare`, whose mapping it has, and nobody else gives it back.
                unsafe { unmap(self.words.cast()) };
            } else {
                // SAFETY: allocated with this layout, and nobody else frees it.
                unsafe { dealloc(self.words.as_ptr().cast(), layout(self.len)) };
            }
        }
    }

    impl Deref for Chunk {
        type Target = [AtomicU64];
        fn deref(&self) -> &[AtomicU64] {
            // SAFETY: `words` points to that many initialised words for as long as `self` lives.
            unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
        }
    }

    // SAFETY: the words are owned by the chunk and are atomics.
    unsafe impl Send for Chunk {}
    // SAFETY: as above.
    unsafe impl Sync for Chunk {}

    /// Words of a chunk, which lives as long as they do. Their address is here and not only in the chunk: to find it there
    /// would be one more memory access to wait for.
    ///
    /// **Invariant:** `start` points to `len` words of `chunk`.
    #[derive(Clone)]
    pub(crate) struct Words {
        start: NonNull<AtomicU64>,
        len: usize,
        chunk: Arc<Chunk>,
    }

    impl Words {
        pub(crate) fn of(chunk: &Arc<Chunk>, range: Range<usize>) -> Self {
            let words = &chunk[range];
            Self {
                start: NonNull::from(words).cast(),
                len: words.len(),
                chunk: chunk.clone(),
            }
        }
    }

    impl Deref for Words {
        type Target = [AtomicU64];
        #[inline]
        fn deref(&self) -> &[AtomicU64] {
            // SAFETY: the chunk has these words for as long as `self` lives, and nobody moves or frees them meanwhile.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
        }
    }

    // SAFETY: the words are atomics, and the chunk that owns them may be sent and shared.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl std::fmt::Debug for Words {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Words({} of {:?})", self.len, self.chunk)
        }
    }
}

/// Where whole chunks come from: the system itself. Allocators give out again what somebody else gave back, and where a single
/// small page of two mebibytes was in use once, the system backs none of it with a huge one any more: clearing a chunk took five
/// times as long then, and giving it back was among the writer's longest pieces of work.
#[cfg(all(target_os = "linux", not(any(shuttle, loom, asan, miri))))]
#[expect(
    unsafe_code,
    reason = "mappings with advice to the system; what callers must see to is said of each"
)]
mod system {
    use std::alloc::{Layout, handle_alloc_error};
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::Ordering;

    use super::MAPPED;
    use super::aligned::BYTES;

    /// `BYTES` zero bytes, aligned to so many, which are the caller's until `unmap`.
    pub(super) fn map() -> NonNull<u8> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a mapping of its own, wherever the system likes.
        let start = unsafe { libc::mmap(null_mut(), 2 * BYTES, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            handle_alloc_error(Layout::new::<[u8; BYTES]>());
        }
        // The upper half, if it is aligned: systems map from above, so that the next one will lie right below it.
        let before = match start.cast::<u8>().align_offset(BYTES) {
            0 => BYTES,
            before => before,
        };
        // SAFETY: the mapping is twice as long as what is kept, so that an aligned half lies in it. What lies before and behind that
        // is given back, and nobody knows of any of it. That advice may be refused is no error.
        unsafe {
            let kept = start.byte_add(before);
            libc::munmap(start, before);
            if before < BYTES {
                libc::munmap(kept.byte_add(BYTES), BYTES - before);
            }
            libc::madvise(kept, BYTES, libc::MADV_HUGEPAGE);
            MAPPED.fetch_add(BYTES, Ordering::Relaxed);
            NonNull::new_unchecked(kept.cast())
        }
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    ///
    /// `map` returned it, and nobody uses it any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>) {
        MAPPED.fetch_sub(BYTES, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { libc::munmap(start.as_ptr().cast(), BYTES) };
    }
}

/// From the allocator: on systems other than Linux, and where a checker of memory watches, which knows the bounds of what is
/// allocated and not of what is mapped.
#[cfg(all(any(not(target_os = "linux"), asan, miri), not(any(shuttle, loom))))]
#[expect(unsafe_code, reason = "the same from the allocator, where we know no better")]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::aligned::BYTES;

    const LAYOUT: Layout = match Layout::from_size_align(BYTES, BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a chunk is smaller than the address space"),
    };

    pub(super) fn map() -> NonNull<u8> {
        // SAFETY: the layout has a size above zero.
        NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).unwrap_or_else(|| handle_alloc_error(LAYOUT))
    }

    /// # Safety
    ///
    /// `map` returned it, and nobody uses it any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>) {
        // SAFETY: as the caller promised.
        unsafe { dealloc(start.as_ptr(), LAYOUT) };
    }
}

/// Bytes that all indexes of this process have from the system itself, and not from the allocator: for those who count what
/// an allocator gives.
pub fn mapped_bytes() -> usize {
    MAPPED.load(std::sync::atomic::Ordering::Relaxed)
}

static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Asks for the cache line of `place`, without waiting for it.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "an instruction that reads nothing and cannot fail")]
pub(crate) fn prefetch<T>(place: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect but on caches, whatever the address; this one is of a live reference.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
}

/// The same for what is needed a good while later: into the second cache only, which can wait for more lines at once
/// than the first.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "an instruction that reads nothing and cannot fail")]
pub(crate) fn prefetch_early<T>(place: &T) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(place).cast()) };
}

/// Elsewhere memory is waited for.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch<T>(_place: &T) {}

/// The same.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch_early<T>(_place: &T) {}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({} words)", self.len())
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn a_chunk_starts_empty_and_keeps_what_is_written() {
        let mut spare = Spare::new();
        spare.clear_more();
        let chunk = spare.into_chunk();
        assert_eq!(chunk.len(), CHUNK_WORDS);
        assert!(chunk.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        chunk[CHUNK_WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(chunk[CHUNK_WORDS - 1].load(Ordering::Relaxed), 7);
        assert_eq!(chunk.as_ptr().addr() % (CHUNK_WORDS * 8), 0);
        #[cfg(all(target_os = "linux", not(any(asan, miri))))]
        assert!(mapped_bytes() >= CHUNK_WORDS * 8);
    }

    #[test]
    fn words_are_those_of_the_chunk_and_keep_it() {
        let chunk = Arc::new(Chunk::small(8));
        let words = Words::of(&chunk, 2..5);
        chunk[2].store(7, Ordering::Relaxed);
        words[2].store(9, Ordering::Relaxed);
        assert_eq!((words.len(), chunk[4].load(Ordering::Relaxed)), (3, 9));
        drop(chunk);
        assert_eq!(words.clone()[0].load(Ordering::Relaxed), 7);
    }
}
