//! Does a trace of millions of requests fit into little memory? All that is allocated is counted while a long one is read.
#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{BufReader, Read};

use homing_trace::{Factor, ReadOptions, Reader, Traffic};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Notes for each thread how much it holds, and the most that it held at once.
struct Watching;

/// A thread that is being torn down has no more to note.
fn note(taken: usize, given: usize) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + taken.cast_signed() - given.cast_signed());
        PEAK.try_with(|peak| peak.set(peak.get().max(live.get())))
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// A file of so many requests that is nowhere.
struct Endless {
    made: u64,
    of: u64,
    line: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.line.is_empty() && self.made < self.of {
            let (n, m) = (self.made, self.made % 1_000);
            self.line = format!(
                "{{\"timestamp\": {n}, \"input_length\": 1500, \"output_length\": {m}, \"hash_ids\": [0, {m}, {n}]}}\n"
            )
            .into_bytes();
            self.made += 1;
        }
        let taken = self.line.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.line[..taken]);
        self.line.drain(..taken);
        Ok(taken)
    }
}

/// The most bytes that were held at once while so many requests were read, sped up and counted.
fn peak(of: u64) -> isize {
    let source = Endless {
        made: 0,
        of,
        line: Vec::new(),
    };
    LIVE.set(0);
    PEAK.set(0);
    let options = ReadOptions {
        window: 1_000,
        ..ReadOptions::new("endless")
    };
    let reader = Reader::open(BufReader::new(source), options).expect("it is known");
    let traffic = reader.sped_up(Factor::new(2.0).expect("above 0"));
    let read = traffic
        .filter(|request| request.as_ref().is_ok_and(|request| request.output.0 < 1_000))
        .count();
    assert_eq!(read as u64, of);
    PEAK.get()
}

#[test]
fn a_hundred_times_as_many_requests_take_no_more_memory() {
    let (few, many) = (peak(10_000), peak(1_000_000));
    assert!(few > 100_000, "what is read ahead is counted: {few}");
    assert!(
        many <= few + few / 10,
        "{few} bytes for ten thousand, {many} for a million"
    );
}
