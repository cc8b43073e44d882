//! Is vLLM understood, in all its versions?
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::{HOST, chained, content, decoder, hasher, message, named, only_store, removed, size};
use homing_domain::{
    AdapterName, CacheGroup, CacheSalt, ClearScope, DpRank, KvChange, Label, Media, MediaId, Prompt, Removed, Sequence,
    Stored, Tier, Tokens, Window,
};
use homing_wire::encode::{self, EngineEvent, EngineHash, EngineStored, ExtraKey, VllmForm};
use homing_wire::{Decoded, Decoder, Dialect, SkipReason, WireError};
use proptest::prelude::*;

/// Blocks of four tokens, named by their numbers, after `parent`.
fn stored(parent: Option<u64>, blocks: std::ops::Range<u64>) -> EngineStored {
    let tokens = (blocks.start * 4..blocks.end * 4).map(|token| token as u32).collect();
    EngineStored::plain(parent.map(EngineHash::Unsigned), named(blocks), tokens, 4)
}

fn vllm() -> Decoder {
    decoder(Dialect::Vllm, 4)
}

fn hear(reader: &mut Decoder, events: Vec<EngineEvent>) -> Decoded {
    hear_as(reader, VllmForm::Map, events)
}

fn hear_as(reader: &mut Decoder, form: VllmForm, events: Vec<EngineEvent>) -> Decoded {
    reader
        .decode(Sequence(7), &encode::vllm(&message(events), form))
        .unwrap()
}

fn store(event: EngineStored) -> EngineEvent {
    EngineEvent::Stored(event)
}

fn remove(labels: impl IntoIterator<Item = u64>) -> EngineEvent {
    EngineEvent::Removed(removed(named(labels)))
}

fn skipped(decoded: &Decoded) -> Vec<(SkipReason, u32)> {
    decoded.skipped.iter().collect()
}

fn labels(numbers: impl IntoIterator<Item = u64>) -> Vec<Label> {
    numbers.into_iter().map(Label::new).collect()
}

#[test]
fn every_historical_length_and_the_map_say_the_same() {
    let events = || {
        vec![
            store(stored(None, 0..3)),
            store(stored(Some(2), 3..5)),
            remove([4]),
            remove([3]),
            EngineEvent::Cleared,
        ]
    };
    let expected = hear(&mut vllm(), events());
    assert_eq!(expected.batch.sent_ms, Some(1500));
    assert_eq!(expected.dp, Some(DpRank(0)));
    assert_eq!(expected.batch.changes.len(), 4);
    assert_eq!(
        expected.batch.changes[2],
        KvChange::Removed(Removed::plain(labels([4, 3])))
    );
    for length in 5..=13 {
        let decoded = hear_as(&mut vllm(), VllmForm::Array(length), events());
        assert_eq!(decoded.batch.changes, expected.batch.changes, "{length}");
        assert!(decoded.skipped.is_empty());
    }
}

#[test]
fn fields_that_an_older_version_lacks_are_read_where_they_are() {
    let mut event = stored(None, 0..1);
    event.lora_id = Some(3);
    event.medium = Some("cpu".to_owned());
    event.lora_name = Some("sql".to_owned());
    event.extra_keys = Some(vec![Some(vec![
        ExtraKey::Text("sql".to_owned()),
        ExtraKey::Text("salt".to_owned()),
    ])]);
    event.group = Some(1);
    event.kind = Some("mla_attention".to_owned());
    let at = |form| hear_as(&mut vllm(), form, vec![store(event.clone())]).batch.changes;
    let facts = |form| {
        let changes = at(form);
        let Stored {
            tier,
            group,
            adapter,
            salt,
            ..
        } = only_store(&changes).clone();
        (
            tier,
            group.0,
            adapter.map(|a| a.to_string()),
            salt.map(|s| s.to_string()),
        )
    };
    let (numbered, sql, salt) = (
        Some("lora-3".to_owned()),
        Some("sql".to_owned()),
        Some("salt".to_owned()),
    );
    assert_eq!(facts(VllmForm::Array(5)), (Tier::Device, 0, None, None));
    assert_eq!(facts(VllmForm::Array(6)), (Tier::Device, 0, numbered.clone(), None));
    assert_eq!(facts(VllmForm::Array(7)), (Tier::Host, 0, numbered, None));
    assert_eq!(facts(VllmForm::Array(8)), (Tier::Host, 0, sql.clone(), None));
    assert_eq!(facts(VllmForm::Array(9)), (Tier::Host, 0, sql.clone(), salt.clone()));
    assert_eq!(facts(VllmForm::Array(11)), (Tier::Host, 1, sql.clone(), salt.clone()));
    assert_eq!(facts(VllmForm::Map), (Tier::Host, 1, sql, salt));
}

#[test]
fn batches_may_be_maps_and_longer_than_they_are() {
    // {"ts": nil, "new": [1, {}], "events": [["AllBlocksCleared", 5]], "data_parallel_rank": 9}
    let mut bytes = vec![0x84, 0xa2];
    bytes.extend(b"ts\xc0\xa3new\x92\x01\x80\xa6events\x91\x92\xb0AllBlocksCleared\x05\xb2data_parallel_rank\x09");
    let decoded = vllm().decode(Sequence(1), &bytes).unwrap();
    assert_eq!(decoded.batch.sent_ms, None);
    assert_eq!(decoded.dp, Some(DpRank(9)));
    assert_eq!(decoded.batch.changes, [KvChange::Cleared(ClearScope::AllTiers)]);
    assert!(decoded.batch.is_barrier());
    // Two elements, and five.
    for bytes in [&b"\x92\x05\x90"[..], b"\x95\x05\x90\x01\x80\xa1x"] {
        let decoded = vllm().decode(Sequence(1), bytes).unwrap();
        assert_eq!(decoded.batch.sent_ms, Some(5000));
        assert!(decoded.batch.changes.is_empty());
    }
}

#[test]
fn what_is_no_batch_is_an_error_in_words() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "the message ends after 0 bytes, in the middle of a value"),
        (
            b"\x05",
            "the message is no batch of events: a list of time and events, or a map with `events`, was expected, at byte 1",
        ),
        (
            b"\x91\x05",
            "the message is no batch of events: a list of time and events, or a map with `events`, was expected, at byte 1",
        ),
        (
            b"\x81\xa1x\x05",
            "the message is no batch of events: a list of time and events, or a map with `events`, was expected, at byte 4",
        ),
        (
            b"\x92\xa1x\x90",
            "the message is no batch of events: the time in seconds was expected, at byte 3",
        ),
        (
            b"\x92\x05\x80",
            "the message is no batch of events: a list of events was expected, at byte 3",
        ),
        (
            b"\x93\x05\x90\xff",
            "the message is no batch of events: a data-parallel rank was expected, at byte 4",
        ),
        (b"\x92\x05\x90\x00", "1 bytes follow after the batch"),
    ];
    for (bytes, text) in cases {
        let error = vllm().decode(Sequence(0), bytes).unwrap_err();
        assert_eq!(error.to_string(), text, "{bytes:x?}");
    }
    let wrong = decoder(Dialect::TrtLlm, 4).decode(Sequence(0), b"\x92\x05\x90");
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "a decoder for trtllm cannot read MessagePack"
    );
    let wrong = vllm().decode_trtllm(b"[]");
    assert!(matches!(wrong, Err(WireError::Dialect { .. })));
}

#[test]
fn hashes_are_numbers_of_either_sign_or_bytes() {
    let mut event = stored(None, 0..3);
    event.hashes = vec![
        EngineHash::Signed(-5),
        EngineHash::Bytes(vec![1; 32]),
        EngineHash::Unsigned(u64::MAX),
    ];
    let decoded = hear(&mut vllm(), vec![store(event)]);
    let stored = only_store(&decoded.batch.changes);
    let heard: Vec<Label> = stored.blocks.iter().map(|block| block.label).collect();
    assert_eq!(
        heard,
        [
            Label::from_signed(-5),
            Label::from_bytes(&[1; 32]),
            Label::new(u64::MAX)
        ]
    );
}

#[test]
fn a_bad_event_costs_no_other() {
    // A store whose tokens are text, an event of no known kind, numbers, nothing, a nameless map.
    let good = encode::vllm(&message(vec![store(stored(None, 0..1))]), VllmForm::Array(5));
    let good = &good[11..good.len() - 1];
    let bad: [(&[u8], SkipReason); 9] = [
        (b"\x95\xabBlockStored\x91\x07\xc0\xa1x\x04", SkipReason::BadFields),
        (
            b"\x94\xabBlockStored\x91\x07\xc0\x94\x01\x02\x03\x04",
            SkipReason::BadFields,
        ),
        (
            b"\x95\xabBlockStored\x91\xc3\xc0\x94\x01\x02\x03\x04\x04",
            SkipReason::BadFields,
        ),
        (
            b"\x95\xabBlockStored\x91\x07\xc0\x94\x01\x02\x03\xff\x04",
            SkipReason::BadFields,
        ),
        (b"\x91\xacBlockRemoved", SkipReason::BadFields),
        (b"\x92\xa7Ignored\x93\x01\x02\x03", SkipReason::UnknownEvent),
        (b"\x05", SkipReason::BadFields),
        (b"\x90", SkipReason::BadFields),
        (b"\x82\xa4type\x05\x01\x02", SkipReason::BadFields),
    ];
    for (event, reason) in bad {
        let mut bytes = vec![0x93, 0x05, 0x93];
        for part in [good, event, good] {
            bytes.extend_from_slice(part);
        }
        bytes.push(0xc0);
        let decoded = vllm().decode(Sequence(0), &bytes).unwrap();
        assert_eq!(decoded.batch.changes.len(), 2, "{event:x?}");
        assert_eq!(skipped(&decoded), [(reason, 1)], "{event:x?}");
    }
}

#[test]
fn unknown_places_are_skipped_and_known_ones_are_told_apart() {
    let on = |medium: &str| {
        let mut event = stored(None, 0..1);
        event.medium = Some(medium.to_owned());
        hear(&mut vllm(), vec![store(event)])
    };
    assert_eq!(only_store(&on("STORAGE").batch.changes).tier, Tier::Disk);
    assert_eq!(only_store(&on("shared").batch.changes).tier, Tier::External);
    assert_eq!(skipped(&on("tape")), [(SkipReason::UnknownMedium, 1)]);

    let at = |locality: &str| {
        let mut event = stored(None, 0..1);
        event.locality = Some(locality.to_owned());
        hear(&mut vllm(), vec![store(event)])
    };
    assert!(at("LOCAL").skipped.is_empty());
    assert_eq!(skipped(&at("REMOTE")), [(SkipReason::RemoteLocality, 1)]);
    assert_eq!(skipped(&at("elsewhere")), [(SkipReason::RemoteLocality, 1)]);
    let mut gone = removed(named([1]));
    gone.locality = Some("REMOTE".to_owned());
    for form in [VllmForm::Map, VllmForm::Array(13)] {
        let decoded = hear_as(&mut vllm(), form, vec![EngineEvent::Removed(gone.clone())]);
        // Lists never had a place for it at removals, so there it is not said.
        let expected = usize::from(form != VllmForm::Map);
        assert_eq!(decoded.batch.changes.len(), expected);
    }
}

#[test]
fn of_a_hybrid_model_only_groups_with_whole_prefixes_count() {
    let in_group = |group, kind: Option<&str>| {
        let mut event = stored(None, 0..1);
        (event.group, event.kind) = (Some(group), kind.map(str::to_owned));
        store(event)
    };
    let gone = |group| {
        let mut event = removed(named([0]));
        event.group = Some(group);
        EngineEvent::Removed(event)
    };
    let mut reader = vllm();
    let decoded = hear(
        &mut reader,
        vec![
            in_group(0, Some("full_attention")),
            in_group(1, Some("sliding_window")),
            in_group(2, Some("mamba")),
            in_group(3, Some("sink_full_attention")),
            in_group(4, Some("hyena")),
            in_group(5, None),
        ],
    );
    assert_eq!(decoded.batch.changes.len(), 2);
    assert_eq!(
        skipped(&decoded),
        [
            (SkipReason::UnusableGroup, 2),
            (SkipReason::UnknownGroupKind, 1),
            (SkipReason::UnlearnedGroup, 1)
        ]
    );
    // Removals do not name the kind: it was learned.
    let decoded = hear(&mut reader, (0..6).map(gone).collect());
    let groups: Vec<CacheGroup> = decoded
        .batch
        .changes
        .iter()
        .map(|change| match change {
            KvChange::Removed(removed) => removed.group,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(groups, [CacheGroup(0), CacheGroup(3)]);
    assert_eq!(decoded.skipped.total(), 4);
    // All kinds that vLLM has ever named.
    for (kind, counts) in [
        ("full_attention", true),
        ("mla_attention", true),
        ("sink_full_attention", true),
        ("sliding_window", false),
        ("sliding_window_mla", false),
        ("mamba", false),
        ("chunked_local_attention", false),
        ("encoder_only_attention", false),
        ("cross_attention", false),
        ("unknown", false),
    ] {
        let decoded = hear(&mut vllm(), vec![in_group(0, Some(kind))]);
        assert_eq!(decoded.skipped.is_empty(), counts, "{kind}");
    }
}

#[test]
fn tokens_that_do_not_fit_are_refused_and_so_is_the_removal() {
    let mut reader = vllm();
    let mut event = stored(None, 0..3);
    event.hashes.pop();
    let decoded = hear(&mut reader, vec![store(event)]);
    assert_eq!(skipped(&decoded), [(SkipReason::TokensDoNotFit, 1)]);
    // A child would hang in the air, and so would its own.
    let decoded = hear(
        &mut reader,
        vec![store(stored(Some(1), 5..6)), store(stored(Some(5), 6..7))],
    );
    assert_eq!(skipped(&decoded), [(SkipReason::AfterSkipped, 2)]);
    let decoded = hear(&mut reader, vec![remove([0]), remove([1, 9]), remove([6])]);
    assert_eq!(decoded.batch.changes, [KvChange::Removed(Removed::plain(labels([9])))]);
    assert_eq!(skipped(&decoded), [(SkipReason::RemovalOfSkipped, 3)]);
    // Only as many copies as were skipped.
    let decoded = hear(&mut reader, vec![remove([0])]);
    assert_eq!(decoded.batch.changes.len(), 1);
    let mut none = stored(None, 0..1);
    none.hashes.clear();
    let decoded = hear(&mut reader, vec![store(none)]);
    assert_eq!(skipped(&decoded), [(SkipReason::TokensDoNotFit, 1)]);
}

#[test]
fn a_partial_block_is_skipped_until_it_is_full() {
    let mut reader = vllm();
    let partial = EngineStored::plain(Some(EngineHash::Unsigned(0)), named([77]), vec![4, 5], 2);
    let decoded = hear(&mut reader, vec![store(stored(None, 0..1)), store(partial)]);
    assert_eq!(skipped(&decoded), [(SkipReason::PartialBlock, 1)]);
    assert_eq!(decoded.refused, None);
    let decoded = hear(&mut reader, vec![remove([77]), store(stored(Some(0), 1..2))]);
    assert_eq!(skipped(&decoded), [(SkipReason::RemovalOfSkipped, 1)]);
    assert_eq!(decoded.batch.changes.len(), 1);
}

#[test]
fn a_clear_forgets_what_was_skipped() {
    let mut reader = vllm();
    let mut event = stored(None, 0..1);
    event.block_size = 3;
    hear(&mut reader, vec![store(event), EngineEvent::Cleared]);
    let decoded = hear(&mut reader, vec![remove([0])]);
    assert_eq!(decoded.batch.changes.len(), 1);
}

#[test]
fn larger_blocks_are_split_and_their_removal_too() {
    let mut reader = decoder(Dialect::Vllm, 2);
    let decoded = hear(
        &mut reader,
        vec![store(stored(None, 10..12)), store(stored(Some(11), 12..13))],
    );
    let tokens: Vec<u32> = (40..52).collect();
    let mut keys = Vec::new();
    hasher().keys(&Prompt::text(&tokens, size(2)), &mut keys);
    assert_eq!(chained(&decoded.batch.changes), keys);
    let stored_labels: Vec<Label> = decoded
        .batch
        .changes
        .iter()
        .flat_map(|change| match change {
            KvChange::Stored(stored) => stored.blocks.iter().map(|block| block.label).collect(),
            _ => Vec::new(),
        })
        .collect();
    // The engine's label is that of the last part, because children name it.
    assert_eq!([1, 3, 5].map(|last| stored_labels[last].get()), [10, 11, 12]);
    let decoded = hear(&mut reader, vec![remove([12]), remove([11]), remove([10])]);
    let [KvChange::Removed(gone)] = decoded.batch.changes.as_slice() else {
        panic!("{decoded:?}");
    };
    let mut reversed = gone.labels.clone();
    reversed.reverse();
    assert_eq!(reversed, stored_labels);
}

#[test]
fn other_block_sizes_are_refused_with_both_named() {
    let mut reader = decoder(Dialect::Vllm, 16);
    for (engine, times) in [(8, 16), (24, 2), (16 * 129, 1)] {
        let event = EngineStored::plain(None, named(0..times), (0..engine * times as u32).collect(), engine);
        let decoded = hear(&mut reader, vec![store(event)]);
        assert!(decoded.batch.changes.is_empty());
        assert_eq!(skipped(&decoded), [(SkipReason::BlockSize, 1)]);
        let text = decoded.refused.unwrap().to_string();
        assert!(
            text.contains(&format!("engine has {engine} tokens per block and the router 16")),
            "{text}"
        );
    }
    // It is not forgotten with whom we speak: what was refused is not removed.
    let decoded = hear(&mut reader, vec![remove([0])]);
    assert!(decoded.batch.changes.is_empty());
    let mut none = stored(None, 0..1);
    none.block_size = 0;
    let decoded = hear(&mut reader, vec![store(none)]);
    assert_eq!(
        decoded.skipped.get(SkipReason::BadFields) + decoded.skipped.get(SkipReason::TokensDoNotFit),
        1
    );
}

#[test]
fn an_engine_with_smaller_blocks_than_before_is_believed_when_it_sends_several() {
    let mut reader = decoder(Dialect::Vllm, 2);
    hear(&mut reader, vec![store(stored(None, 0..1))]);
    let smaller = EngineStored::plain(None, named(5..7), (0..4).collect(), 2);
    let decoded = hear(&mut reader, vec![store(smaller)]);
    assert!(decoded.skipped.is_empty());
    let decoded = hear(&mut reader, vec![remove([6])]);
    assert_eq!(decoded.batch.changes, [KvChange::Removed(Removed::plain(labels([6])))]);
}

/// As vLLM tells of blocks that it copied to the host: names only.
fn offloaded(labels: impl IntoIterator<Item = u64>, block_size: u32) -> EngineEvent {
    let mut event = EngineStored::plain(None, named(labels), Vec::new(), block_size);
    event.medium = Some("CPU".to_owned());
    store(event)
}

#[test]
fn blocks_named_without_tokens_are_known_from_where_they_came() {
    for ours in [2, 4] {
        let mut reader = decoder(Dialect::Vllm, ours);
        let first = hear(
            &mut reader,
            vec![store(stored(None, 0..4)), store(stored(Some(1), 8..9))],
        );
        let parts = 4 / ours as usize;
        let KvChange::Stored(run) = &first.batch.changes[0] else {
            panic!("{first:?}");
        };
        let decoded = hear(&mut reader, vec![offloaded([1, 2, 0, 8, 99], 4)]);
        assert_eq!(skipped(&decoded), [(SkipReason::NoTokens, 1)]);
        let runs: Vec<&Stored> = decoded
            .batch
            .changes
            .iter()
            .map(|change| match change {
                KvChange::Stored(stored) => stored,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(runs.iter().all(|run| (run.tier, run.group) == HOST));
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[0].parent, Some(Label::new(0)));
        assert_eq!(runs[0].blocks, run.blocks[parts..3 * parts]);
        assert_eq!((runs[1].parent, &runs[1].blocks[..]), (None, &run.blocks[..parts]));
        assert_eq!(runs[2].parent, Some(Label::new(1)));
        // What was not known is not removed either; the rest is, in all its parts.
        let mut gone = removed(named([99, 2]));
        gone.medium = Some("CPU".to_owned());
        let decoded = hear(&mut reader, vec![EngineEvent::Removed(gone)]);
        let [KvChange::Removed(gone)] = decoded.batch.changes.as_slice() else {
            panic!("{decoded:?}");
        };
        assert_eq!((gone.tier, gone.labels.len()), (Tier::Host, parts));
    }
    // Blocks of another size than those that were seen are not guessed at.
    let mut reader = vllm();
    hear(&mut reader, vec![store(stored(None, 0..4))]);
    let decoded = hear(&mut reader, vec![offloaded([1, 3], 8)]);
    assert_eq!(skipped(&decoded), [(SkipReason::NoTokens, 1)]);
    assert!(decoded.batch.changes.is_empty());
}

#[test]
fn a_salt_is_in_the_first_block_of_a_sequence_only() {
    let keys = || Some(vec![Some(vec![ExtraKey::Text("tenant".to_owned())]), None]);
    let tokens: Vec<u32> = (0..8).collect();
    let mut event = stored(None, 0..2);
    event.extra_keys = keys();
    let decoded = hear(&mut vllm(), vec![store(event)]);
    let salt = CacheSalt::new("tenant");
    let mut expected = Vec::new();
    hasher().keys(
        &Prompt {
            salt: Some(&salt),
            ..Prompt::text(&tokens, size(4))
        },
        &mut expected,
    );
    assert_eq!(chained(&decoded.batch.changes), expected);
    assert_eq!(only_store(&decoded.batch.changes).salt, Some(salt));
    // Elsewhere text is something else: the name of a medium, without its place.
    let mut event = stored(Some(9), 0..2);
    event.extra_keys = keys();
    let decoded = hear(&mut vllm(), vec![store(event)]);
    let stored = only_store(&decoded.batch.changes);
    assert_eq!(stored.salt, None);
    assert_eq!(
        stored.blocks[0].content,
        content(&tokens[..4], None, &[(MediaId::new("tenant"), 0)])
    );
    assert_eq!(stored.blocks[1].content, content(&tokens[4..], None, &[]));
}

#[test]
fn things_that_are_not_understood_keep_blocks_apart() {
    let with = |key: Option<ExtraKey>| {
        let mut event = stored(None, 0..1);
        event.extra_keys = key.map(|key| vec![Some(vec![key])]);
        let decoded = hear(&mut vllm(), vec![store(event)]);
        assert!(decoded.skipped.is_empty());
        only_store(&decoded.batch.changes).blocks[0].content
    };
    let mut seen = vec![with(None)];
    for key in [
        ExtraKey::Bytes(vec![1; 32]),
        ExtraKey::Bytes(vec![2; 32]),
        ExtraKey::Text("a".to_owned()),
        ExtraKey::Media("a".to_owned(), 0),
        ExtraKey::Media("a".to_owned(), -1),
    ] {
        let content = with(Some(key));
        assert!(!seen.contains(&content));
        seen.push(content);
    }
    // A list that is not of the blocks makes no sense.
    let mut event = stored(None, 0..2);
    event.extra_keys = Some(vec![None]);
    let decoded = hear(&mut vllm(), vec![store(event)]);
    assert_eq!(skipped(&decoded), [(SkipReason::BadFields, 1)]);
}

#[test]
fn media_in_a_block_that_is_split_end_the_run() {
    let mut event = stored(None, 0..3);
    event.extra_keys = Some(vec![None, Some(vec![ExtraKey::Media("cat".to_owned(), 1)]), None]);
    let mut reader = decoder(Dialect::Vllm, 2);
    let decoded = hear(&mut reader, vec![store(event)]);
    assert_eq!(skipped(&decoded), [(SkipReason::MediaInSplitBlock, 1)]);
    assert_eq!(only_store(&decoded.batch.changes).blocks.len(), 2);
    let decoded = hear(&mut reader, vec![remove([2]), remove([0])]);
    assert_eq!(skipped(&decoded), [(SkipReason::RemovalOfSkipped, 1)]);
    assert_eq!(decoded.batch.changes.len(), 1);
}

#[test]
fn a_clear_may_be_of_one_tier() {
    let mut bytes = vec![0x92, 0x05, 0x91, 0x82];
    bytes.extend(b"\xa4type\xb0AllBlocksCleared\xa6medium\xa3CPU");
    let decoded = vllm().decode(Sequence(0), &bytes).unwrap();
    assert_eq!(decoded.batch.changes, [KvChange::Cleared(ClearScope::Only(Tier::Host))]);
    assert!(!decoded.batch.is_barrier());
}

/// A prompt, and how an engine tells of it.
#[derive(Clone, Debug)]
struct Told {
    tokens: Vec<u32>,
    /// Tokens in a block of ours, and blocks of ours in one of the engine.
    ours: u32,
    parts: u32,
    adapter: Option<String>,
    salt: Option<String>,
    /// Gaps before, and lengths of, media.
    media: Vec<(u32, u32)>,
    /// Blocks in each event.
    runs: Vec<usize>,
    form: VllmForm,
}

fn told() -> impl Strategy<Value = Told> {
    let name = || prop::option::of("[a-c]{1,2}");
    (
        prop::collection::vec(prop_oneof![any::<u32>(), 0..300_u32], 0..120),
        (1..6_u32, 1..4_u32),
        (name(), name()),
        prop::collection::vec((0..9_u32, 1..20_u32), 0..4),
        prop::collection::vec(1..4_usize, 1..5),
        prop_oneof![Just(VllmForm::Map), Just(VllmForm::Array(12)), Just(VllmForm::Array(9))],
    )
        .prop_map(|(tokens, (ours, parts), (adapter, salt), media, runs, form)| Told {
            tokens,
            ours,
            parts,
            adapter,
            salt,
            // Which parts media touch is not told, so they are not split.
            media: if parts == 1 { media } else { Vec::new() },
            runs,
            form,
        })
}

impl Told {
    fn media(&self) -> Vec<(String, Media)> {
        let mut at = 0;
        let all = self.media.iter().enumerate().map(|(number, &(gap, length))| {
            let start = at + gap;
            at = start + length;
            let name = format!("image {number}");
            let media = Media {
                id: MediaId::new(&name),
                start: Tokens(start),
                length: Tokens(length),
            };
            (name, media)
        });
        all.collect()
    }

    /// The extra keys of the engine's block that begins at a token, as vLLM makes them.
    fn extra_keys(&self, start: u32) -> Option<Vec<ExtraKey>> {
        let end = start + self.ours * self.parts;
        let mut keys: Vec<ExtraKey> = self.adapter.iter().map(|name| ExtraKey::Text(name.clone())).collect();
        for (name, media) in self.media() {
            if media.start.0 < end && media.start.0 + media.length.0 > start {
                keys.push(ExtraKey::Media(name, i64::from(media.start.0) - i64::from(start)));
            }
        }
        keys.extend(
            self.salt
                .iter()
                .filter(|_| start == 0)
                .map(|salt| ExtraKey::Text(salt.clone())),
        );
        (!keys.is_empty()).then_some(keys)
    }

    fn events(&self) -> Vec<EngineEvent> {
        let size = self.ours * self.parts;
        let blocks: Vec<&[u32]> = self.tokens.chunks_exact(size as usize).collect();
        let mut events = Vec::new();
        let mut first = 0;
        for &run in self.runs.iter().cycle() {
            if first >= blocks.len() {
                break;
            }
            let end = blocks.len().min(first + run);
            let parent = first
                .checked_sub(1)
                .map(|parent| EngineHash::Unsigned(1000 + parent as u64));
            let mut event = EngineStored::plain(
                parent,
                named((first..end).map(|block| 1000 + block as u64)),
                blocks[first..end].concat(),
                size,
            );
            event.lora_name.clone_from(&self.adapter);
            let keys = (first..end).map(|block| self.extra_keys(block as u32 * size));
            event.extra_keys = Some(keys.collect());
            events.push(store(event));
            first = end;
        }
        events
    }
}

proptest! {
    #[test]
    fn events_and_queries_name_blocks_alike(told in told()) {
        let mut reader = decoder(Dialect::Vllm, told.ours);
        let decoded = hear_as(&mut reader, told.form, told.events());
        prop_assert!(decoded.skipped.is_empty(), "{:?}", decoded.skipped);
        let (adapter, salt) = (told.adapter.as_deref().map(AdapterName::new), told.salt.as_deref().map(CacheSalt::new));
        let media: Vec<Media> = told.media().into_iter().map(|(_, media)| media).collect();
        // Only what fills a block of the engine is told.
        let full = told.tokens.len() - told.tokens.len() % (told.ours * told.parts) as usize;
        let mut keys = Vec::new();
        hasher().keys(&Prompt {
            tokens: &told.tokens[..full],
            block_size: size(told.ours),
            window: Window::Plain,
            adapter: adapter.as_ref(),
            salt: salt.as_ref(),
            media: &media,
        }, &mut keys);
        prop_assert_eq!(chained(&decoded.batch.changes), keys);
    }

    #[test]
    fn for_every_stored_copy_its_removal_is_heard_and_no_other(
        steps in prop::collection::vec((0..6_u64, 0..8_u8), 1..60),
        ours in prop_oneof![Just(2), Just(4)],
    ) {
        let mut reader = decoder(Dialect::Vllm, ours);
        // Copies that the engine holds of each block, and copies that were heard of each label.
        let mut held = [0_i32; 6];
        let mut heard = std::collections::HashMap::<Label, i32>::new();
        for (block, what) in steps {
            let event = if what < 3 && held[block as usize] > 0 {
                held[block as usize] -= 1;
                remove([block])
            } else {
                held[block as usize] += 1;
                let mut event = stored(None, block..block + 1);
                if what == 7 {
                    // Something that is skipped.
                    event.block_size = 5;
                }
                store(event)
            };
            for change in hear(&mut reader, vec![event]).batch.changes {
                match change {
                    KvChange::Stored(stored) => {
                        for block in stored.blocks {
                            *heard.entry(block.label).or_default() += 1;
                        }
                    }
                    KvChange::Removed(removed) => {
                        for label in removed.labels {
                            let copies = heard.entry(label).or_default();
                            *copies -= 1;
                            prop_assert!(*copies >= 0, "a removal of what was not stored");
                        }
                    }
                    KvChange::Cleared(_) => {}
                }
            }
        }
        let total: i32 = heard.values().sum();
        let parts = 4 / ours.cast_signed();
        prop_assert!(total <= held.iter().sum::<i32>() * parts);
    }
}
