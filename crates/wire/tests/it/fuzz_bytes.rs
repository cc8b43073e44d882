//! What can bytes do to us? What the fuzz targets in `fuzz/` search with feedback, random bytes and changed captures try
//! here, on any toolchain.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

use homing_wire::testing;
use proptest::prelude::*;
use proptest::test_runner::Config;

/// Bytes that look like MessagePack more often than chance has it.
fn packed() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<Vec<u8>> = [
        "BlockStored",
        "BlockRemoved",
        "AllBlocksCleared",
        "type",
        "events",
        "CPU",
        "mamba",
    ]
    .iter()
    .map(|word| [&[0xa0 | word.len() as u8], word.as_bytes()].concat())
    .collect();
    let piece = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        (0..20_u8).prop_map(|small| vec![small]),
        (0x90..0x98_u8).prop_map(|array| vec![array]),
        Just(vec![0xc0]),
        prop::sample::select(words),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A captured payload with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let payloads: Vec<Vec<u8>> = crate::common::captures()
        .into_iter()
        .flat_map(|capture| capture.messages)
        .map(|captured| captured.frames[2].clone())
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    (prop::sample::select(payloads), changes, any::<u8>()).prop_map(|(mut payload, changes, size)| {
        for (place, byte) in changes {
            let place = place.index(payload.len());
            payload[place] = byte;
        }
        payload.insert(0, size);
        payload
    })
}

proptest! {
    #![proptest_config(Config { cases: 2000, ..Config::default() })]

    #[test]
    fn any_bytes(bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), packed()]) {
        testing::vllm(&bytes);
        testing::sglang(&bytes);
        testing::trtllm(&bytes);
        testing::frame(&bytes);
        testing::envelope(&bytes);
    }

    #[test]
    fn changed_captures(bytes in mutated()) {
        testing::vllm(&bytes);
        testing::sglang(&bytes);
    }

    #[test]
    fn changed_json(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        size in 0..5_u8,
    ) {
        let mut bytes = include_bytes!("../trtllm_events.json").to_vec();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.insert(0, size);
        testing::trtllm(&bytes);
    }

    #[test]
    fn changed_frames(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece: u8,
        cut: prop::sample::Index,
    ) {
        let mut bytes = frames();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        bytes.insert(0, piece);
        testing::frame(&bytes);
    }
}

/// A stream with a frame of every kind.
fn frames() -> Vec<u8> {
    use homing_domain::{CacheGroup, ContentHash, Digest, Label, Listed, ListedParent, Sequence, StoredBlock, Tier};
    use homing_wire::frame::{FrameWriter, Heartbeat, Position, SnapshotHeader, SnapshotWriter};

    let hasher = crate::common::hasher();
    let mut out = Vec::new();
    let writer = FrameWriter::new(&hasher);
    let capture = &crate::common::captures()[0];
    let mut reader = crate::common::decoder(capture.dialect, 32);
    for captured in &capture.messages[..3] {
        let batch = reader.decode(Sequence(1), &captured.frames[2]).unwrap().batch;
        writer.batch(&batch, &mut out).unwrap();
    }
    let beat = Heartbeat {
        position: Some(Position {
            sequence: Sequence(4),
            digest: Digest(5),
        }),
        incarnation: 6,
        epoch: 7,
    };
    writer.heartbeat(&beat, &mut out).unwrap();
    writer.end_of_replay(&beat, &mut out).unwrap();
    let header = SnapshotHeader {
        at: beat,
        complete: true,
        truncated: false,
        items: None,
    };
    let mut list = SnapshotWriter::new(&hasher, &header, &mut out).unwrap();
    for parent in [ListedParent::Root, ListedParent::Label(Label::new(3))] {
        let item = Listed {
            parent,
            tier: Tier::Host,
            group: CacheGroup(1),
            copies: 2,
            blocks: vec![
                StoredBlock {
                    label: Label::new(3),
                    content: ContentHash(9),
                };
                4
            ],
        };
        list.item(&item, &mut out).unwrap();
    }
    list.finish(&mut out).unwrap();
    out
}

#[test]
fn no_input_of_a_corpus_breaks_anything() {
    for (target, check) in [
        ("wire_vllm", testing::vllm as fn(&[u8])),
        ("wire_sglang", testing::sglang),
        ("wire_trtllm", testing::trtllm),
        ("wire_frame", testing::frame),
        ("wire_envelope", testing::envelope),
    ] {
        corpus::replay(target, check);
    }
}
