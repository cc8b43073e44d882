//! Is what real engines sent understood, and would we send the same bytes?

use crate::common::{captures, decoder, engine_batch, expected};
use homing_domain::{DpRank, KeyHasher, KvChange, Sequence};
use homing_wire::encode::{self, SglangForm, VllmForm};
use homing_wire::{Dialect, WireError, envelope};

#[test]
fn captured_messages_are_decoded_to_what_the_engine_meant() {
    for capture in captures() {
        let mut reader = decoder(capture.dialect, capture.block_size);
        for captured in &capture.messages {
            let message = envelope::live(&captured.frames).unwrap();
            assert_eq!(message.topic, b"kv-events");
            assert_eq!(message.sequence, Sequence(captured.decoded["seq"].as_u64().unwrap()));
            let decoded = reader.decode(message.sequence, message.payload).unwrap();
            assert_eq!(
                decoded.batch,
                expected(&captured.decoded, message.payload),
                "{}",
                capture.name
            );
            assert_eq!(decoded.dp, Some(DpRank(0)));
            assert!(decoded.skipped.is_empty(), "{:?}", decoded.skipped);
            assert_eq!(decoded.refused, None);
        }
    }
}

#[test]
fn captured_events_written_again_are_the_captured_bytes() {
    for capture in captures() {
        for captured in &capture.messages {
            let batch = engine_batch(&captured.decoded, &captured.frames[2]);
            let bytes = match capture.dialect {
                Dialect::Vllm => encode::vllm(&batch, VllmForm::Map),
                _ => encode::sglang(&batch, SglangForm::Map),
            };
            assert_eq!(
                bytes, captured.frames[2],
                "{} {}",
                capture.name, captured.decoded["seq"]
            );
        }
    }
}

#[test]
fn one_prompt_gives_the_same_contents_through_both_engines() {
    // Both captures begin with the same text; SGLang's blocks are half as large, and vLLM's can be split.
    let captures = captures();
    let blocks = |capture: &crate::common::Capture, number: usize| {
        let mut reader = decoder(capture.dialect, 16);
        let payload = &capture.messages[number].frames[2];
        let decoded = reader.decode(Sequence(0), payload).unwrap();
        let KvChange::Stored(stored) = &decoded.batch.changes[0] else {
            panic!("{decoded:?}");
        };
        stored.blocks.iter().map(|block| block.content).collect::<Vec<_>>()
    };
    let (vllm, sglang) = (blocks(&captures[0], 0), blocks(&captures[2], 0));
    assert_eq!(vllm.len(), 10);
    assert_eq!(vllm, sglang);
}

#[test]
fn a_message_cut_off_anywhere_is_an_error() {
    for capture in captures() {
        for captured in &capture.messages {
            let payload = &captured.frames[2];
            for length in 0..payload.len() {
                let cut = decoder(capture.dialect, 16).decode(Sequence(0), &payload[..length]);
                assert_eq!(cut, Err(WireError::CutOff { length }), "{} {length}", capture.name);
            }
            let mut longer = payload.clone();
            longer.extend([0xc0, 0xc0]);
            let trailing = decoder(capture.dialect, 16).decode(Sequence(0), &longer);
            assert_eq!(trailing, Err(WireError::Trailing { bytes: 2 }));
        }
    }
}

#[test]
fn a_changed_byte_never_panics() {
    for capture in captures() {
        for captured in &capture.messages {
            let mut payload = captured.frames[2].clone();
            for place in 0..payload.len() {
                let before = payload[place];
                payload[place] = before.wrapping_mul(31).wrapping_add(place as u8);
                let _ = decoder(capture.dialect, 16).decode(Sequence(0), &payload);
                payload[place] = before;
            }
        }
    }
}

#[test]
fn another_seed_gives_other_contents() {
    let capture = &captures()[0];
    let payload = &capture.messages[0].frames[2];
    let decode = |seed| {
        let mut reader = homing_wire::Decoder::new(homing_wire::DecoderConfig {
            dialect: Dialect::Vllm,
            hasher: KeyHasher::new(homing_domain::HashSeed::new(seed)),
            block_size: crate::common::size(32),
        });
        reader.decode(Sequence(0), payload).unwrap().batch
    };
    assert_ne!(decode(0), decode(1));
    assert_eq!(decode(1), decode(1));
}
