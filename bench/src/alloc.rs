//! How many bytes does this keep alive? A global allocator that counts the sizes asked for, and what comes past it.
//!
//! It counts only while told to, so that speed is measured without it. Whatever is freed in a counted stretch must have
//! been allocated in it, or the count is wrong.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mimalloc::MiMalloc;

/// The allocator that the product uses, for all contenders alike, with a counter before it.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
/// Wraps around below zero on the way; what is left at the end does not.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` and says how many more bytes are alive after it, on all threads together.
pub fn grown_by<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LIVE.store(0, Ordering::SeqCst);
    ON.store(true, Ordering::SeqCst);
    let before = mapped();
    let result = work();
    ON.store(false, Ordering::SeqCst);
    let past = mapped().wrapping_sub(before);
    (result, LIVE.load(Ordering::SeqCst).wrapping_add(past))
}

/// What our index has from the system past the allocator.
fn mapped() -> usize {
    #[cfg(feature = "ours")]
    return homing_index::mapped_bytes();
    #[cfg(not(feature = "ours"))]
    0
}

fn count(more: usize, less: usize) {
    if ON.load(Ordering::Relaxed) {
        LIVE.fetch_add(more.wrapping_sub(less), Ordering::Relaxed);
    }
}

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written without; every call is passed on as it came"
)]
// SAFETY: all four methods forward their arguments unchanged to `MiMalloc`, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as the caller promised.
        unsafe { MiMalloc.realloc(at, layout, size) }
    }
}
