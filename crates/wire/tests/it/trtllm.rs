//! Is TensorRT-LLM understood?
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::{content, decoder, hasher, only_store, size};
use homing_domain::{
    AdapterName, CacheSalt, Digest, DpRank, KvChange, Label, MediaId, Prompt, Removed, Sequence, Stored, StoredBlock,
    Tier,
};
use homing_wire::{Decoded, Decoder, Dialect, SkipReason};
use serde_json::{Value, json};

const EVENTS: &str = include_str!("../trtllm_events.json");

fn trtllm() -> Decoder {
    decoder(Dialect::TrtLlm, 4)
}

fn hear(reader: &mut Decoder, events: &Value) -> Vec<Decoded> {
    reader.decode_trtllm(events.to_string().as_bytes()).unwrap()
}

fn block(hash: u64, tokens: std::ops::Range<u32>) -> Value {
    let tokens: Vec<Value> = tokens.map(|token| json!({"token_id": token})).collect();
    json!({"block_hash": hash, "tokens": tokens, "cache_level": 0})
}

fn stored(number: u64, parent: Option<u64>, blocks: &[Value]) -> Value {
    json!({"event_id": number, "data": {"type": "stored", "parent_hash": parent, "blocks": blocks}})
}

fn removed(number: u64, hashes: &[u64]) -> Value {
    json!({"event_id": number, "data": {"type": "removed", "block_hashes": hashes}})
}

fn skipped(decoded: &Decoded) -> Vec<(SkipReason, u32)> {
    decoded.skipped.iter().collect()
}

#[test]
fn every_event_is_a_batch_of_its_own() {
    let decoded = trtllm().decode_trtllm(EVENTS.as_bytes()).unwrap();
    let numbers: Vec<u64> = decoded.iter().map(|one| one.batch.sequence.0).collect();
    assert_eq!(numbers, (0..8).collect::<Vec<u64>>());
    let changes = |number: usize| decoded[number].batch.changes.as_slice();
    let first = StoredBlock {
        label: Label::new(11),
        content: content(&[1, 2, 3, 4], None, &[]),
    };
    let second = StoredBlock {
        label: Label::new(u64::MAX),
        content: content(&[5, 6, 7, 8], None, &[]),
    };
    assert!(changes(0).is_empty() && changes(1).is_empty());
    assert_eq!(changes(2), [KvChange::Stored(Stored::plain(None, vec![first, second]))]);
    assert_eq!(skipped(&decoded[2]), [(SkipReason::PartialBlock, 1)]);
    // The smaller window does not hold whole prefixes.
    assert!(changes(3).is_empty());
    assert_eq!(skipped(&decoded[3]), [(SkipReason::UnusableGroup, 1)]);
    // A block moves to the host, with what is remembered of it, and is removed from there.
    let moved = Stored {
        tier: Tier::Host,
        ..Stored::plain(Some(first.label), vec![second])
    };
    let gone = |label, tier| {
        KvChange::Removed(Removed {
            tier,
            ..Removed::plain(vec![label])
        })
    };
    assert_eq!(changes(4), [gone(second.label, Tier::Device), KvChange::Stored(moved)]);
    assert_eq!(changes(5), [gone(second.label, Tier::Host)]);
    assert_eq!(skipped(&decoded[5]), [(SkipReason::RemovalOfSkipped, 1)]);
    assert!(changes(6).is_empty());
    assert_eq!(changes(7), [gone(first.label, Tier::Device)]);
}

#[test]
fn a_digest_is_of_the_event_alone() {
    let decoded = trtllm().decode_trtllm(br#" [ {"event_id": 5, "data": {"type":"created"}} , null ] "#);
    let decoded = decoded.unwrap();
    assert_eq!(decoded[0].batch.sequence, Sequence(5));
    assert_eq!(
        decoded[0].batch.digest,
        Digest::of(br#"{"event_id": 5, "data": {"type":"created"}}"#)
    );
    // What has no number is counted with the last that has.
    assert_eq!(skipped(&decoded[0]), [(SkipReason::BadFields, 1)]);
}

#[test]
fn ranks_of_one_endpoint_are_kept_apart() {
    let mut reader = trtllm();
    let on = |mut event: Value, rank: u16| {
        event["attention_dp_rank"] = json!(rank);
        event
    };
    let partial = || stored(0, None, &[block(1, 0..2)]);
    let decoded = hear(
        &mut reader,
        &json!([
            on(partial(), 0),
            on(stored(0, None, &[block(1, 0..4)]), 1),
            on(removed(1, &[1]), 1),
            on(removed(1, &[1]), 0)
        ]),
    );
    let ranks: Vec<_> = decoded.iter().map(|one| one.dp).collect();
    assert_eq!(ranks, [0, 1, 1, 0].map(|rank| Some(DpRank(rank))));
    let lengths: Vec<usize> = decoded.iter().map(|one| one.batch.changes.len()).collect();
    assert_eq!(lengths, [0, 1, 1, 0]);
}

#[test]
fn bad_events_cost_no_others() {
    let bad = [
        (json!({"event_id": 1}), SkipReason::BadFields),
        (
            json!({"event_id": 1, "data": {"type": "moved"}}),
            SkipReason::UnknownEvent,
        ),
        (
            json!({"event_id": 1, "data": {"type": "stored"}}),
            SkipReason::BadFields,
        ),
        (
            json!({"event_id": 1, "data": {"type": "removed", "block_hashes": [true]}}),
            SkipReason::BadFields,
        ),
        (
            json!({"event_id": 1, "data": {"type": "removed"}}),
            SkipReason::BadFields,
        ),
        (
            json!({"event_id": 1, "data": {"type": "updated"}}),
            SkipReason::BadFields,
        ),
        (
            json!({"event_id": 1, "data": {"type": "updated", "block_hash": 9, "cache_level": {"new_value": 1, "old_value": 0}}}),
            SkipReason::NoTokens,
        ),
        (
            json!({"event_id": 1, "data": {"type": "stored", "blocks": [{"block_hash": 1, "tokens": [], "cache_level": 7}]}}),
            SkipReason::UnknownMedium,
        ),
        (
            json!({"event_id": 1, "data": {"type": "stored", "blocks": [{"block_hash": 1, "tokens": [{"token_id": -1}]}]}}),
            SkipReason::BadFields,
        ),
    ];
    for (event, reason) in bad {
        let good = stored(2, None, &[block(1, 0..4)]);
        let decoded = hear(&mut trtllm(), &json!([event, good]));
        assert_eq!(decoded.len(), 2);
        assert_eq!(skipped(&decoded[0]), [(reason, 1)], "{event}");
        assert_eq!(decoded[1].batch.changes.len(), 1, "{event}");
    }
}

#[test]
fn what_is_no_answer_is_an_error_in_words() {
    let mut reader = trtllm();
    assert_eq!(reader.decode_trtllm(b"null"), Ok(vec![]));
    assert_eq!(reader.decode_trtllm(b"[]"), Ok(vec![]));
    let texts = [
        (
            "",
            "the events are not JSON: EOF while parsing a value (line 1, column 0)",
        ),
        (
            "[{}",
            "the events are not JSON: EOF while parsing a list (line 1, column 3)",
        ),
        (
            "[{}]",
            "the message is no batch of events: events with an `event_id` were expected, at byte 0",
        ),
    ];
    for (json, text) in texts {
        assert_eq!(reader.decode_trtllm(json.as_bytes()).unwrap_err().to_string(), text);
    }
    for length in 0..EVENTS.trim_end().len() {
        assert!(reader.decode_trtllm(&EVENTS.as_bytes()[..length]).is_err(), "{length}");
    }
}

#[test]
fn larger_blocks_are_split_moved_and_removed_in_all_parts() {
    let mut reader = decoder(Dialect::TrtLlm, 2);
    let tokens: Vec<u32> = (0..8).collect();
    let decoded = hear(
        &mut reader,
        &json!([stored(0, None, &[block(1, 0..4), block(2, 4..8)])]),
    );
    let mut keys = Vec::new();
    hasher().keys(&Prompt::text(&tokens, size(2)), &mut keys);
    assert_eq!(crate::common::chained(&decoded[0].batch.changes), keys);
    let blocks = &only_store(&decoded[0].batch.changes).blocks;
    let moved = json!([{"event_id": 1, "data": {"type": "updated", "block_hash": 2,
        "cache_level": {"new_value": 1, "old_value": 0}}}]);
    let decoded = hear(&mut reader, &moved);
    let host: Vec<StoredBlock> = decoded[0]
        .batch
        .changes
        .iter()
        .filter_map(|change| match change {
            KvChange::Stored(stored) if stored.tier == Tier::Host => Some(stored.blocks.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(host, blocks[2..]);
    let decoded = hear(&mut reader, &json!([removed(2, &[2]), removed(3, &[1])]));
    for (one, tier) in decoded.iter().zip([Tier::Host, Tier::Device]) {
        assert!(
            matches!(one.batch.changes.as_slice(), [KvChange::Removed(gone)] if gone.labels.len() == 2 && gone.tier == tier)
        );
    }
}

#[test]
fn other_block_sizes_are_refused_where_they_are_certain() {
    let mut reader = decoder(Dialect::TrtLlm, 16);
    let decoded = hear(
        &mut reader,
        &json!([stored(0, None, &[block(1, 0..8), block(2, 8..16)])]),
    );
    assert_eq!(skipped(&decoded[0]), [(SkipReason::BlockSize, 1)]);
    assert_eq!(decoded[0].refused.unwrap().engine, 8);
    let decoded = hear(
        &mut reader,
        &json!([stored(1, Some(2), &[block(3, 16..24)]), removed(2, &[1, 2, 3])]),
    );
    assert!(decoded.iter().all(|one| one.batch.changes.is_empty()), "{decoded:?}");
}

#[test]
fn adapters_salts_and_media_are_part_of_the_content() {
    let with = |members: Value| {
        let mut one = block(1, 0..4);
        for (name, value) in members.as_object().unwrap() {
            one[name] = value.clone();
        }
        let decoded = hear(&mut trtllm(), &json!([stored(0, None, &[one])]));
        let stored = only_store(&decoded[0].batch.changes).clone();
        (stored.blocks[0].content, stored.adapter, stored.salt)
    };
    let tokens = [0, 1, 2, 3];
    let (plain, _, _) = with(json!({"lora_id": 0, "cache_salt": ""}));
    assert_eq!(plain, content(&tokens, None, &[]));
    let numbered = with(json!({"lora_id": 3}));
    assert_eq!(numbered.1, Some(AdapterName::new("lora-3")));
    assert_eq!(numbered.0, content(&tokens, Some("lora-3"), &[]));
    let named = with(json!({"lora_id": 3, "lora_name": "sql"}));
    assert_eq!(named.0, content(&tokens, Some("sql"), &[]));
    assert_eq!(with(json!({"cache_salt": "t"})).2, Some(CacheSalt::new("t")));
    let image = with(json!({"mm_keys": [{"type": "mm_key", "hash": "ab", "start_offset": 7}]}));
    assert_eq!(image.0, content(&tokens, None, &[(MediaId::new("ab"), -7)]));
    let table: Vec<Value> = tokens
        .iter()
        .map(|token| json!({"token_id": token, "token_extra_id": 5}))
        .collect();
    assert_ne!(with(json!({"tokens": table})).0, plain);
    // Names of blocks may be text.
    let (text, _, _) = with(json!({"block_hash": "00ff"}));
    assert_eq!(text, plain);
}
