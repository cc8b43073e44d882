//! What does it cost to read what engines send?
//!
//!     cargo run --release -p homing-wire --example cost
//!
//! Decoding and hashing together, one thread, the best of many rounds.

use std::time::Instant;

use homing_domain::{BlockSize, HashSeed, KeyHasher, Sequence};
use homing_wire::encode::{EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, VllmForm, vllm};
use homing_wire::{Decoder, DecoderConfig, Dialect};

const BLOCK: u32 = 16;
const ROUNDS: usize = 200;

fn main() {
    let (one, many) = (vec![stored(0, 1)], vec![stored(0, 256)]);
    let singles: Vec<EngineEvent> = (0..256).map(|block| stored(block, 1)).collect();
    let removals: Vec<EngineEvent> = (0..256).map(removed).collect();
    println!("{:<44} {:>9}", "", "ns each");
    for (what, events, count) in [
        ("a message with one block", &one, 1),
        ("a block, 256 in one event", &many, 256),
        ("a block in an event of its own, 256 events", &singles, 256),
        ("a removal, 256 events", &removals, 256),
    ] {
        for (form, name) in [(VllmForm::Array(13), "as a list"), (VllmForm::Map, "as a map")] {
            println!(
                "{:<44} {:>9.0}",
                format!("{what}, {name}"),
                measure(events, form) / f64::from(count)
            );
        }
    }
}

fn stored(first: u64, blocks: u64) -> EngineEvent {
    let hashes = (first..first + blocks).map(EngineHash::Unsigned).collect();
    let tokens = (0..blocks as u32 * BLOCK).map(|token| token * 7 % 50_000).collect();
    EngineEvent::Stored(EngineStored::plain(None, hashes, tokens, BLOCK))
}

fn removed(block: u64) -> EngineEvent {
    EngineEvent::Removed(EngineRemoved {
        hashes: vec![EngineHash::Unsigned(block)],
        medium: None,
        group: None,
        locality: None,
    })
}

fn measure(events: &[EngineEvent], form: VllmForm) -> f64 {
    let batch = EngineBatch {
        ts: 1.0,
        events: events.to_vec(),
        dp: None,
    };
    let payload = vllm(&batch, form);
    let mut decoder = Decoder::new(DecoderConfig {
        dialect: Dialect::Vllm,
        hasher: KeyHasher::new(HashSeed::PUBLIC),
        block_size: BlockSize::new(BLOCK).expect("not zero"),
    });
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        let began = Instant::now();
        let read = decoder.decode(Sequence(round as u64), &payload);
        best = best.min(began.elapsed().as_nanos() as f64);
        assert!(read.is_ok_and(|read| !read.batch.changes.is_empty() && read.skipped.is_empty()));
    }
    best
}
