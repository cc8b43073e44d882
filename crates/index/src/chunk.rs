//! Where do the words lie? In chunks of two mebibytes that never move, aligned so that the system can back each with
//! one huge page. A lookup is a few dependent memory accesses; with huge pages each of them is nearly twice as fast,
//! because the translation of its address is not a memory access of its own. Where there are no huge pages nothing
//! changes but that.
//!
//! [`prefetch`] asks for memory that will be needed soon. This is the one file of the crate with `unsafe` code.
//!
//! **Invariant:** `words` points to `CHUNK_WORDS` initialised `AtomicU64`s, allocated with `Chunk::layout()` and owned
//! by this value alone; it is freed once, in `drop`. All bits zero is a valid `AtomicU64`.

use std::ops::Deref;

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
    #[cfg(any(shuttle, loom))]
    words: Vec<AtomicU64>,
}

#[cfg(any(shuttle, loom))]
impl Chunk {
    pub(crate) fn new() -> Self {
        Self {
            words: (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
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
    use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::{AtomicU64, CHUNK_WORDS, Chunk, Deref};

    const BYTES: usize = CHUNK_WORDS * size_of::<AtomicU64>();

    impl Chunk {
        const fn layout() -> Layout {
            // SAFETY (of the unwrap, checked at compile time): the alignment is a power of two and the size a multiple.
            match Layout::from_size_align(BYTES, BYTES) {
                Ok(layout) => layout,
                Err(_) => panic!("a chunk's size is a power of two"),
            }
        }

        /// A chunk of zeros.
        pub(crate) fn new() -> Self {
            const { assert!(BYTES.is_power_of_two()) };
            let layout = Self::layout();
            // SAFETY: the layout has a size above zero.
            let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
                handle_alloc_error(layout)
            };
            advise_huge_pages(start);
            // SAFETY: `start` is valid for writes of `BYTES` bytes, and zero bytes are valid `AtomicU64`s.
            unsafe { start.as_ptr().write_bytes(0, BYTES) };
            Self { words: start.cast() }
        }
    }

    #[cfg(target_os = "linux")]
    fn advise_huge_pages(start: NonNull<u8>) {
        // SAFETY: the range was just allocated by us and is not shared yet; this advice changes no contents. That it
        // may be refused is no error.
        unsafe { libc::madvise(start.as_ptr().cast(), BYTES, libc::MADV_HUGEPAGE) };
    }

    #[cfg(not(target_os = "linux"))]
    fn advise_huge_pages(_start: NonNull<u8>) {}

    impl Drop for Chunk {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout, and nobody else frees it.
            unsafe { dealloc(self.words.as_ptr().cast(), Self::layout()) };
        }
    }

    impl Deref for Chunk {
        type Target = [AtomicU64];
        fn deref(&self) -> &[AtomicU64] {
            // SAFETY: `words` points to that many initialised words for as long as `self` lives.
            unsafe { std::slice::from_raw_parts(self.words.as_ptr(), CHUNK_WORDS) }
        }
    }

    // SAFETY: the words are owned by the chunk and are atomics.
    unsafe impl Send for Chunk {}
    // SAFETY: as above.
    unsafe impl Sync for Chunk {}
}

/// Asks for the cache line of `place`, without waiting for it.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "an instruction that reads nothing and cannot fail")]
pub(crate) fn prefetch<T>(place: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect but on caches, whatever the address; this one is of a live reference.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
}

/// Elsewhere memory is waited for.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch<T>(_place: &T) {}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({CHUNK_WORDS} words)")
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn a_chunk_starts_empty_and_keeps_what_is_written() {
        let chunk = Chunk::new();
        assert_eq!(chunk.len(), CHUNK_WORDS);
        assert!(chunk.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        chunk[CHUNK_WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(chunk[CHUNK_WORDS - 1].load(Ordering::Relaxed), 7);
        assert_eq!(chunk.as_ptr().align_offset(64), 0);
    }
}
