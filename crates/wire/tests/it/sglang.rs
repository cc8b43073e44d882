//! Is SGLang understood?
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::{chained, decoder, hasher, message, named, only_store, removed, size};
use homing_domain::{CacheSalt, KvChange, Label, Prompt, Removed, Sequence, Tier, Window};
use homing_wire::encode::{self, EngineEvent, EngineHash, EngineStored, EngineTokens, SglangForm};
use homing_wire::{Decoded, Decoder, Dialect, SkipReason};
use proptest::prelude::*;

const FORMS: [SglangForm; 2] = [SglangForm::Array, SglangForm::Map];

fn sglang() -> Decoder {
    decoder(Dialect::Sglang, 4)
}

fn hear(reader: &mut Decoder, form: SglangForm, events: Vec<EngineEvent>) -> Decoded {
    reader
        .decode(Sequence(7), &encode::sglang(&message(events), form))
        .unwrap()
}

fn pages(parent: Option<i64>, pages: std::ops::Range<u64>, tokens: u32) -> EngineStored {
    let hashes = pages.map(|page| EngineHash::Signed(-page.cast_signed() - 1)).collect();
    EngineStored::plain(parent.map(EngineHash::Signed), hashes, (0..tokens).collect(), 4)
}

#[test]
fn lists_and_maps_say_the_same() {
    for form in FORMS {
        let mut event = pages(None, 0..2, 8);
        event.medium = Some("CPU_PINNED".to_owned());
        event.cache_salt = Some("tenant".to_owned());
        let mut gone = removed(vec![EngineHash::Signed(-1)]);
        gone.medium = Some("DISK".to_owned());
        let decoded = hear(
            &mut sglang(),
            form,
            vec![
                EngineEvent::Stored(event),
                EngineEvent::Removed(gone),
                EngineEvent::Cleared,
            ],
        );
        assert!(decoded.skipped.is_empty());
        let [KvChange::Stored(stored), KvChange::Removed(gone), KvChange::Cleared(_)] =
            decoded.batch.changes.as_slice()
        else {
            panic!("{decoded:?}");
        };
        assert_eq!(stored.tier, Tier::Host);
        assert_eq!(stored.salt, Some(CacheSalt::new("tenant")));
        assert_eq!(stored.blocks[1].label, Label::from_signed(-2));
        assert_eq!(
            (gone.tier, gone.labels.as_slice()),
            (Tier::Disk, &[Label::from_signed(-1)][..])
        );
    }
}

#[test]
fn a_salt_marks_the_first_page_of_a_sequence() {
    let tokens: Vec<u32> = (0..8).collect();
    let salt = CacheSalt::new("tenant");
    for form in FORMS {
        let mut first = pages(None, 0..1, 4);
        let mut second = pages(Some(-1), 1..2, 8);
        second.tokens = EngineTokens::Plain(tokens[4..].to_vec());
        for event in [&mut first, &mut second] {
            event.cache_salt = Some("tenant".to_owned());
        }
        let decoded = hear(
            &mut sglang(),
            form,
            vec![EngineEvent::Stored(first), EngineEvent::Stored(second)],
        );
        let mut keys = Vec::new();
        hasher().keys(
            &Prompt {
                salt: Some(&salt),
                ..Prompt::text(&tokens, size(4))
            },
            &mut keys,
        );
        assert_eq!(chained(&decoded.batch.changes), keys);
    }
}

#[test]
fn a_short_last_page_is_left_out_and_so_is_its_removal() {
    for form in FORMS {
        let mut reader = sglang();
        // Joined with full ones, then by itself.
        let decoded = hear(&mut reader, form, vec![EngineEvent::Stored(pages(None, 0..3, 10))]);
        assert_eq!(
            decoded.skipped.iter().collect::<Vec<_>>(),
            [(SkipReason::PartialBlock, 1)]
        );
        assert_eq!(only_store(&decoded.batch.changes).blocks.len(), 2);
        let mut alone = pages(Some(-2), 5..6, 3);
        alone.block_size = 3;
        let decoded = hear(&mut reader, form, vec![EngineEvent::Stored(alone)]);
        assert_eq!(
            decoded.skipped.iter().collect::<Vec<_>>(),
            [(SkipReason::PartialBlock, 1)]
        );
        // The size of the short one is given for all.
        let mut joined = pages(Some(-2), 7..9, 6);
        joined.block_size = 2;
        let decoded = hear(&mut reader, form, vec![EngineEvent::Stored(joined)]);
        assert_eq!(only_store(&decoded.batch.changes).blocks.len(), 1);
        let gone = [-3, -6, -9, -1].map(EngineHash::Signed).to_vec();
        let decoded = hear(&mut reader, form, vec![EngineEvent::Removed(removed(gone))]);
        let expected = Removed::plain(vec![Label::from_signed(-1)]);
        assert_eq!(decoded.batch.changes, [KvChange::Removed(expected)]);
        // One token where a page has four.
        let alone = pages(None, 11..12, 1);
        let decoded = hear(&mut sglang(), form, vec![EngineEvent::Stored(alone)]);
        assert_eq!(decoded.skipped.get(SkipReason::PartialBlock), 1);
    }
}

#[test]
fn pairs_that_do_not_follow_each_other_are_refused() {
    // [5, [["BlockStored", [1], nil, [[1, 2], [3, 4]], 2]]]
    let mut bytes = b"\x92\x05\x91\x95\xabBlockStored\x91\x01\xc0\x92\x92\x01\x02\x92\x03\x04\x02".to_vec();
    let decoded = decoder(Dialect::Sglang, 2).decode(Sequence(0), &bytes).unwrap();
    assert_eq!(decoded.skipped.get(SkipReason::BadFields), 1);
    let place = bytes.iter().rposition(|&byte| byte == 3).unwrap();
    bytes[place] = 2;
    let decoded = decoder(Dialect::Sglang, 2).decode(Sequence(0), &bytes).unwrap();
    assert!(decoded.skipped.is_empty());
}

proptest! {
    #[test]
    fn events_and_queries_name_blocks_alike(
        tokens in prop::collection::vec(any::<u32>(), 1..80),
        ours in 1..5_u32,
        parts in 1..4_u32,
        pairs: bool,
        form in prop::sample::select(FORMS.to_vec()),
    ) {
        let page = (ours * parts) as usize;
        let ahead = usize::from(pairs);
        let full = (tokens.len() - ahead) / page;
        prop_assume!(full > 0);
        // The first page by itself, the others after it.
        let mut events = Vec::new();
        for (first, end) in [(0, 1), (1, full)] {
            if first == end {
                continue;
            }
            let covered = tokens[first * page..end * page + ahead].to_vec();
            let mut event = EngineStored::plain(
                (first > 0).then(|| EngineHash::Unsigned(first as u64 - 1)),
                named(first as u64..end as u64),
                Vec::new(),
                page as u32,
            );
            event.tokens = if pairs { EngineTokens::Pairs(covered) } else { EngineTokens::Plain(covered) };
            events.push(EngineEvent::Stored(event));
        }
        let decoded = hear(&mut decoder(Dialect::Sglang, ours), form, events);
        prop_assert!(decoded.skipped.is_empty(), "{:?}", decoded.skipped);
        let mut keys = Vec::new();
        hasher().keys(&Prompt {
            window: if pairs { Window::OneTokenAhead } else { Window::Plain },
            ..Prompt::text(&tokens[..full * page + ahead], size(ours))
        }, &mut keys);
        prop_assert_eq!(chained(&decoded.batch.changes), keys);
    }
}
