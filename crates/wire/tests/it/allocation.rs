//! Can a short message make us allocate much? Every allocation is watched while hostile messages are read.
#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{captures, decoder, hasher};
use homing_domain::Sequence;
use homing_wire::Dialect;
use homing_wire::frame::{FrameReader, MAX_FRAME, decode};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Notes of each thread its largest allocation, and the most that it held at once.
struct Watching;

/// So many bytes were taken, and so many given back. A thread that is being torn down has no more to note.
fn note(taken: usize, given: usize) {
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(taken)));
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

/// What a decoder may take whatever the message: its memory of contents at first.
const FIXED: usize = 64 << 10;
/// How many times the message's length one allocation may be, and all that is held at once.
const TIMES: usize = 16;
const TIMES_IN_ALL: usize = 64;

fn within(name: &str, length: usize, work: impl FnOnce()) {
    LARGEST.set(0);
    LIVE.set(0);
    PEAK.set(0);
    work();
    let (largest, peak) = (LARGEST.get(), PEAK.get().cast_unsigned());
    assert!(
        largest <= FIXED + TIMES * length,
        "{name}: {largest} bytes at once for {length} bytes"
    );
    assert!(
        peak <= FIXED + TIMES_IN_ALL * length,
        "{name}: {peak} bytes held for {length} bytes"
    );
}

fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let claim = |head: &[u8]| {
        let mut bytes = b"\x93\x05\x91\x95\xabBlockStored".to_vec();
        bytes.extend(head);
        bytes
    };
    let mut many_events = b"\x92\x05\xdd\x00\x01\x00\x00".to_vec();
    many_events.extend(std::iter::repeat_n(0xc0, 1 << 16));
    let mut many_clears = b"\x92\x05\xdc\x10\x00".to_vec();
    let mut many_stores = b"\x92\x05\xdc\x10\x00".to_vec();
    let mut many_removals = b"\x92\x05\xdc\x10\x00".to_vec();
    for number in 0..0x1000_u16 {
        let medium = if number % 2 == 0 { b"\xa3CPU" } else { b"\xa3GPU" };
        many_clears.extend(b"\x82\xa4type\xb0AllBlocksCleared\xa6medium");
        many_clears.extend(medium);
        many_stores.extend(b"\x95\xabBlockStored\x91\x01\xc0\x91\x01\x01");
        many_removals.extend(b"\x93\xacBlockRemoved\x91\x01");
        many_removals.extend(medium);
    }
    let mut small_tokens = b"\x92\x05\x91\x95\xabBlockStored\xdc\x80\x00".to_vec();
    small_tokens.extend(std::iter::repeat_n(7, 0x8000));
    small_tokens.extend(b"\xc0\xdc\x80\x00");
    small_tokens.extend(std::iter::repeat_n(7, 0x8000));
    small_tokens.push(1);
    // A hundred thousand of which a hundred are there.
    let exaggerated = |head: &[u8]| {
        let mut bytes = claim(head);
        bytes.extend([1; 100]);
        bytes
    };
    vec![
        ("hashes that are exaggerated", exaggerated(b"\xdd\x00\x01\x86\xa0")),
        (
            "tokens that are exaggerated",
            exaggerated(b"\x91\x01\xc0\xdd\x00\x01\x86\xa0"),
        ),
        ("events that are only claimed", b"\x92\x05\xdd\xff\xff\xff\xff".to_vec()),
        ("hashes that are only claimed", claim(b"\xdd\xff\xff\xff\xff\x01")),
        (
            "tokens that are only claimed",
            claim(b"\x91\x01\xc0\xdd\x7f\xff\xff\xff\x01"),
        ),
        ("bytes that are only claimed", claim(b"\x91\xc6\xff\xff\xff\xff\x01")),
        ("entries that are only claimed", b"\xdf\xff\xff\xff\xff\xa1x".to_vec()),
        ("many events of no form", many_events),
        ("many clears", many_clears),
        ("many stores of one block", many_stores),
        ("many removals of one block", many_removals),
        ("blocks of one token", small_tokens),
        ("depth", vec![0x91; 1 << 16]),
    ]
}

#[test]
fn messages_take_a_small_multiple_of_their_length() {
    for (name, bytes) in hostile() {
        for dialect in [Dialect::Vllm, Dialect::Sglang] {
            let mut reader = decoder(dialect, 1);
            within(name, bytes.len(), || drop(reader.decode(Sequence(0), &bytes)));
        }
    }
    for capture in captures() {
        let mut reader = decoder(capture.dialect, 16);
        for captured in &capture.messages {
            let payload = &captured.frames[2];
            within(capture.name, payload.len(), || {
                drop(reader.decode(Sequence(0), payload));
            });
        }
    }
}

#[test]
fn a_removal_of_split_blocks_takes_as_much_more_as_they_have_parts() {
    let mut reader = decoder(Dialect::Vllm, 1);
    let mut store = b"\x92\x05\x91\x95\xabBlockStored\x91\x01\xc0\xdc\x00\x80".to_vec();
    store.extend([7; 128]);
    store.extend([0xcc, 128]);
    let stored = reader.decode(Sequence(0), &store).unwrap();
    assert!(stored.skipped.is_empty());
    let mut remove = b"\x92\x05\x91\x92\xacBlockRemoved\xdc\x10\x00".to_vec();
    remove.extend([5; 0x1000]);
    let parts = 128;
    within("a removal", parts * remove.len(), || {
        drop(reader.decode(Sequence(1), &remove));
    });
}

#[test]
fn json_takes_a_small_multiple_of_its_length() {
    let repeated = |text: &str| format!("[{}0]", format!("{text},").repeat(4096));
    for text in [
        "0".to_owned(),
        "[]".to_owned(),
        r#"{"event_id":1,"data":{"type":"removed","block_hashes":[1]}}"#.to_owned(),
        r#"{"event_id":1,"data":{"type":"stored","blocks":[{"block_hash":1,"tokens":[{"token_id":1}]}]}}"#.to_owned(),
        format!("{}1{}", "[".repeat(100), "]".repeat(100)),
    ] {
        let json = repeated(&text);
        let mut reader = decoder(Dialect::TrtLlm, 1);
        within(&text, json.len(), || drop(reader.decode_trtllm(json.as_bytes())));
    }
}

#[test]
fn frames_take_a_small_multiple_of_their_length() {
    // A batch that claims four billion changes, and one of as many removals as fit.
    let head = [&[1, 1][..], &hasher().seed_id().to_le_bytes(), &[0; 8 + 8 + 9]].concat();
    let mut bodies = vec![[&head[..], &[0xff; 4]].concat()];
    let mut many = [&head[..], &4096_u32.to_le_bytes()].concat();
    for _ in 0..4096 {
        many.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    }
    bodies.push(many);
    // A chunk that claims to be of four billion bytes.
    bodies.push([&[1, 5][..], &[0xff; 4]].concat());
    for body in bodies {
        let mut message = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        message.extend(&body);
        within("a frame", message.len(), || drop(decode(&hasher(), &message)));
    }
    let mut reader = FrameReader::new(&hasher(), MAX_FRAME);
    let claim = (MAX_FRAME as u32).to_le_bytes();
    within("a frame that is only claimed", claim.len(), || {
        reader.push(&claim);
        assert_eq!(reader.next_frame(), Ok(None));
    });
}
