//! What else did real engines send? Evictions, answers to replays and restarts, as `e2e/record.py` heard them.

use std::fs;
use std::path::Path;

use crate::common::{decoder, split};
use homing_domain::{KvChange, Sequence};
use homing_wire::envelope::{self, Replayed};
use homing_wire::{Decoded, Dialect};

const ENGINES: [(&str, Dialect, u32); 2] = [
    ("vllm-0.32.0", Dialect::Vllm, 32),
    ("sglang-0.5.23", Dialect::Sglang, 16),
];

fn recording(engine: &str, what: &str) -> Vec<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/captures");
    split(&fs::read(folder.join(format!("{engine}-{what}.bin"))).expect("the recording is there"))
}

/// Decodes all of a live recording, with nothing left out.
fn decoded(engine: (&str, Dialect, u32), what: &str) -> Vec<Decoded> {
    let mut reader = decoder(engine.1, engine.2);
    let read = |frames: Vec<Vec<u8>>| {
        let message = envelope::live(&frames).expect("a live message");
        let decoded = reader.decode(message.sequence, message.payload).expect("a batch");
        assert!(decoded.skipped.is_empty(), "{} {what}: {:?}", engine.0, decoded.skipped);
        assert_eq!(decoded.refused, None);
        decoded
    };
    recording(engine.0, what).into_iter().map(read).collect()
}

#[test]
fn evictions_are_understood_and_come_before_the_stores_of_their_batch() {
    for engine in ENGINES {
        let batches = decoded(engine, "evict");
        let mut evictions = 0;
        for batch in &batches {
            let changes = &batch.batch.changes;
            let removed = changes
                .iter()
                .rposition(|change| matches!(change, KvChange::Removed(_)));
            let stored = changes.iter().position(|change| matches!(change, KvChange::Stored(_)));
            evictions += usize::from(removed.is_some());
            if let (Some(removed), Some(stored)) = (removed, stored) {
                assert!(removed < stored, "{}: {changes:?}", engine.0);
            }
        }
        assert!(evictions > 3, "{}: {evictions}", engine.0);
    }
}

#[test]
fn a_restarted_engine_counts_from_0_with_other_digests() {
    for engine in ENGINES {
        let batches = decoded(engine, "restart");
        let anew = batches.iter().rposition(|batch| batch.batch.sequence == Sequence(0));
        let (before, after) = batches.split_at(anew.unwrap());
        assert!(!before.is_empty() && after.len() > 4, "{}", engine.0);
        let numbers: Vec<u64> = after.iter().map(|batch| batch.batch.sequence.0).collect();
        assert_eq!(numbers, (0..after.len() as u64).collect::<Vec<_>>());
        assert!(after.iter().any(|batch| batch.batch.is_barrier()), "{}", engine.0);
    }
}

#[test]
fn replays_are_read_to_their_ends() {
    for (engine, ..) in ENGINES {
        let mut answers = vec![Vec::new()];
        for frames in recording(engine, "replay") {
            match envelope::replayed(&frames).unwrap() {
                Replayed::Batch(message) => answers.last_mut().unwrap().push(message.sequence.0),
                Replayed::End => answers.push(Vec::new()),
            }
        }
        let newest = *answers[1].last().unwrap();
        // From two before the newest, from the newest itself, and twice from beyond it; then nothing more was asked.
        assert_eq!(
            answers,
            [
                vec![newest - 2, newest - 1, newest],
                vec![newest],
                vec![],
                vec![],
                vec![]
            ],
            "{engine}"
        );
    }
}
