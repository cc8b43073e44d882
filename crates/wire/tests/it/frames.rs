//! Is what we pass on read as it was written, and is it noticed if it is not whole or not for us?
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::hasher;
use homing_domain::{
    AdapterName, BlockKey, CacheGroup, CacheSalt, ClearScope, ContentHash, Digest, HashSeed, KeyHasher, KvBatch,
    KvChange, Label, Listed, ListedParent, Removed, Sequence, Stored, StoredBlock, Tier,
};
use homing_wire::frame::{
    self, Frame, FrameError, FrameReader, FrameWriter, Heartbeat, MAX_FRAME, Position, SnapshotEnd, SnapshotHeader,
    SnapshotPart, SnapshotReader, SnapshotWriter,
};
use proptest::prelude::*;

fn tier() -> impl Strategy<Value = Tier> {
    prop::sample::select(Tier::ALL.to_vec())
}

fn group() -> impl Strategy<Value = CacheGroup> {
    any::<u8>().prop_map(CacheGroup)
}

fn blocks(most: usize) -> impl Strategy<Value = Vec<StoredBlock>> {
    let block = (any::<u64>(), any::<u64>()).prop_map(|(label, content)| StoredBlock {
        label: Label::new(label),
        content: ContentHash(content),
    });
    prop::collection::vec(block, 0..most)
}

fn change() -> impl Strategy<Value = KvChange> {
    let stored = (
        prop::option::of(any::<u64>().prop_map(Label::new)),
        blocks(20),
        tier(),
        group(),
        prop::option::of("\\PC{0,9}".prop_map(AdapterName::new)),
        prop::option::of("\\PC{0,9}".prop_map(CacheSalt::new)),
    )
        .prop_map(|(parent, blocks, tier, group, adapter, salt)| {
            KvChange::Stored(Stored {
                parent,
                blocks,
                tier,
                group,
                adapter,
                salt,
            })
        });
    let labels = prop::collection::vec(any::<u64>().prop_map(Label::new), 0..20);
    let removed =
        (labels, tier(), group()).prop_map(|(labels, tier, group)| KvChange::Removed(Removed { labels, tier, group }));
    let cleared = prop_oneof![Just(ClearScope::AllTiers), tier().prop_map(ClearScope::Only)];
    prop_oneof![stored, removed, cleared.prop_map(KvChange::Cleared)]
}

fn batch() -> impl Strategy<Value = KvBatch> {
    (
        any::<u64>(),
        any::<u64>(),
        prop::option::of(any::<u64>()),
        prop::collection::vec(change(), 0..6),
    )
        .prop_map(|(sequence, digest, sent_ms, changes)| KvBatch {
            sequence: Sequence(sequence),
            digest: Digest(digest),
            sent_ms,
            changes,
        })
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let position = (any::<u64>(), any::<u64>()).prop_map(|(sequence, digest)| Position {
        sequence: Sequence(sequence),
        digest: Digest(digest),
    });
    (prop::option::of(position), any::<u64>(), any::<u64>()).prop_map(|(position, incarnation, epoch)| Heartbeat {
        position,
        incarnation,
        epoch,
    })
}

fn header() -> impl Strategy<Value = SnapshotHeader> {
    (
        heartbeat(),
        any::<bool>(),
        any::<bool>(),
        prop::option::of(any::<u64>()),
    )
        .prop_map(|(at, complete, truncated, items)| SnapshotHeader {
            at,
            complete,
            truncated,
            items,
        })
}

fn item() -> impl Strategy<Value = Listed> {
    let parent = prop_oneof![
        Just(ListedParent::Root),
        any::<u64>().prop_map(|label| ListedParent::Label(Label::new(label))),
        any::<u64>().prop_map(|key| ListedParent::Key(BlockKey(key))),
    ];
    (parent, tier(), group(), any::<u32>(), blocks(50)).prop_map(|(parent, tier, group, copies, blocks)| Listed {
        parent,
        tier,
        group,
        copies,
        blocks,
    })
}

/// All frames of a stream that comes in pieces of `piece` bytes.
fn read(stream: &[u8], piece: usize) -> Result<Vec<Frame>, FrameError> {
    let mut reader = FrameReader::new(&hasher(), MAX_FRAME);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        reader.push(piece);
        while let Some(frame) = reader.next_frame()? {
            frames.push(frame);
        }
    }
    assert_eq!(reader.pending(), 0);
    Ok(frames)
}

fn list(header: &SnapshotHeader, items: &[Listed]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::new(&hasher(), header, &mut out).unwrap();
    for item in items {
        writer.item(item, &mut out).unwrap();
    }
    let end = writer.finish(&mut out).unwrap();
    assert_eq!(end.items, items.len() as u64);
    out
}

/// A list that comes in pieces of `piece` bytes.
fn read_list(stream: &[u8], piece: usize) -> Result<(SnapshotHeader, Vec<Listed>, SnapshotEnd), FrameError> {
    let mut reader = SnapshotReader::new(&hasher());
    let (mut header, mut items) = (None, Vec::new());
    for piece in stream.chunks(piece) {
        reader.push(piece);
        while let Some(part) = reader.next_part()? {
            match part {
                SnapshotPart::Header(read) => header = Some(read),
                SnapshotPart::Items(more) => items.extend(more),
                SnapshotPart::End(_) => {}
            }
        }
    }
    let end = reader.finish()?;
    Ok((header.unwrap(), items, end))
}

proptest! {
    #[test]
    fn frames_are_read_as_written_in_pieces_of_any_length(
        batches in prop::collection::vec(batch(), 0..4),
        beat in heartbeat(),
        piece in 1..40_usize,
    ) {
        let writer = FrameWriter::new(&hasher());
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for batch in batches {
            let start = stream.len();
            writer.batch(&batch, &mut stream).unwrap();
            prop_assert_eq!(frame::decode(&hasher(), &stream[start..]), Ok(Frame::Batch(batch.clone())));
            expected.push(Frame::Batch(batch));
        }
        writer.end_of_replay(&beat, &mut stream).unwrap();
        writer.heartbeat(&beat, &mut stream).unwrap();
        expected.extend([Frame::EndOfReplay(beat), Frame::Heartbeat(beat)]);
        prop_assert_eq!(read(&stream, piece), Ok(expected));
    }

    #[test]
    fn lists_are_read_as_written(header in header(), items in prop::collection::vec(item(), 0..8), piece in 1..500_usize) {
        let stream = list(&header, &items);
        let blocks = items.iter().map(|item| item.blocks.len() as u64).sum();
        let end = SnapshotEnd { items: items.len() as u64, blocks };
        prop_assert_eq!(read_list(&stream, piece), Ok((header, items, end)));
    }

    #[test]
    fn a_list_that_is_cut_off_anywhere_is_noticed(items in prop::collection::vec(item(), 1..4), cut: prop::sample::Index) {
        let stream = list(&HEADER, &items);
        let cut = cut.index(stream.len());
        let read = read_list(&stream[..cut], 64);
        prop_assert!(matches!(read, Err(FrameError::CutOff { .. })), "{:?}", read);
    }
}

const BEAT: Heartbeat = Heartbeat {
    position: None,
    incarnation: 1,
    epoch: 2,
};
const HEADER: SnapshotHeader = SnapshotHeader {
    at: BEAT,
    complete: true,
    truncated: false,
    items: None,
};

/// A chain of blocks with random-looking hashes.
fn long_item(length: u64) -> Listed {
    let mix = |n: u64| {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    Listed {
        parent: ListedParent::Root,
        tier: Tier::Device,
        group: CacheGroup(0),
        copies: 1,
        blocks: (0..length)
            .map(|n| StoredBlock {
                label: Label::new(mix(2 * n)),
                content: ContentHash(mix(2 * n + 1)),
            })
            .collect(),
    }
}

#[test]
fn a_long_item_comes_in_pieces_that_follow_each_other() {
    let item = long_item(100_000);
    let stream = list(&HEADER, std::slice::from_ref(&item));
    let (_, pieces, end) = read_list(&stream, 10_000).unwrap();
    assert_eq!((end.items, end.blocks), (1, 100_000));
    assert!(pieces.len() > 1);
    let mut parent = ListedParent::Root;
    let mut blocks = Vec::new();
    for piece in pieces {
        assert_eq!(piece.parent, parent);
        parent = ListedParent::Label(piece.blocks.last().unwrap().label);
        blocks.extend(piece.blocks);
    }
    assert_eq!(blocks, item.blocks);
    // Hashes do not compress; nearly nothing is added to them.
    assert!(stream.len() < 100_000 * 16 + 2_000, "{} bytes", stream.len());
}

#[test]
fn a_list_is_written_and_read_with_little_at_hand() {
    let item = long_item(1_000);
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::new(&hasher(), &HEADER, &mut out).unwrap();
    let mut reader = SnapshotReader::new(&hasher());
    let mut blocks = 0;
    for _ in 0..500 {
        writer.item(&item, &mut out).unwrap();
        assert!(out.len() <= frame::MAX_CHUNK);
        reader.push(&out);
        out.clear();
        while let Some(part) = reader.next_part().unwrap() {
            if let SnapshotPart::Items(items) = part {
                blocks += items.iter().map(|item| item.blocks.len()).sum::<usize>();
            }
        }
    }
    writer.finish(&mut out).unwrap();
    assert!(blocks >= 480_000, "{blocks}");
}

#[test]
fn what_is_not_for_us_is_refused() {
    let other = KeyHasher::new(HashSeed::new(9));
    let batch = KvBatch {
        sequence: Sequence(1),
        digest: Digest(2),
        sent_ms: None,
        changes: vec![],
    };
    let mut theirs = Vec::new();
    FrameWriter::new(&other).batch(&batch, &mut theirs).unwrap();
    let seeds = FrameError::Seed {
        theirs: other.seed_id(),
        ours: hasher().seed_id(),
    };
    assert_eq!(frame::decode(&hasher(), &theirs), Err(seeds.clone()));
    assert!(seeds.to_string().contains(&format!("{:016x}", other.seed_id())));
    theirs.clear();
    FrameWriter::new(&other).heartbeat(&BEAT, &mut theirs).unwrap();
    assert_eq!(read(&theirs, 7), Err(seeds.clone()));
    theirs.clear();
    SnapshotWriter::new(&other, &HEADER, &mut theirs).unwrap();
    assert_eq!(read_list(&theirs, 7), Err(seeds));

    let mut ours = Vec::new();
    FrameWriter::new(&hasher()).heartbeat(&BEAT, &mut ours).unwrap();
    let mut newer = ours.clone();
    newer[4] = 2;
    assert_eq!(read(&newer, 5), Err(FrameError::Version { theirs: 2 }));
    assert_eq!(
        read(&newer, 5).unwrap_err().to_string(),
        "a frame of version 2; this is version 1"
    );
    let mut unknown = ours.clone();
    unknown[5] = 99;
    assert!(matches!(read(&unknown, 5), Err(FrameError::Malformed { .. })));
    let mut longer = ours.clone();
    longer.push(0);
    assert!(frame::decode(&hasher(), &longer).is_err());
    assert!(frame::decode(&hasher(), &ours[..ours.len() - 1]).is_err());
}

#[test]
fn a_frame_beyond_the_limit_is_refused_before_it_comes() {
    let mut reader = FrameReader::new(&hasher(), 100);
    reader.push(&101_u32.to_le_bytes());
    let long = FrameError::TooLong {
        length: 101,
        limit: 100,
    };
    assert_eq!(reader.next_frame(), Err(long.clone()));
    // The stream is of no more use, and holds nothing.
    reader.push(&[0; 1000]);
    assert_eq!(reader.next_frame(), Err(long));
    assert_eq!(reader.pending(), 0);
}

#[test]
fn an_empty_frame_is_refused_for_what_it_is_not_for_what_follows_it() {
    let stream = [&[0; 4][..], &[9, 9, 9]].concat();
    for piece in [1, 5, 7] {
        assert!(
            matches!(read(&stream, piece), Err(FrameError::Malformed { .. })),
            "{piece}"
        );
    }
}

#[test]
fn an_item_goes_on_within_its_list_only() {
    let stream = list(&HEADER, &[long_item(40_000)]);
    let mut frames = Vec::new();
    let mut rest = stream.as_slice();
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let (frame, after) = rest.split_at(4 + u32::from_le_bytes(*length) as usize);
        frames.push(frame);
        rest = after;
    }
    // Header, several chunks, end. A second list that begins with the second chunk of the first makes no sense.
    assert!(frames.len() > 3);
    let again = [&stream, frames[0], frames[2]].concat();
    assert!(matches!(read(&again, 1000), Err(FrameError::Malformed { .. })));
}

#[test]
fn a_list_with_other_counts_than_its_end_says_is_refused() {
    let items = [long_item(3), long_item(2)];
    let header_only = list(&HEADER, &[]);
    let full = list(&HEADER, &items);
    let end = 4 + 2 + 16;
    // The items of one, the end of another.
    let mut mixed = full[..full.len() - end].to_vec();
    mixed.extend(&header_only[header_only.len() - end..]);
    assert_eq!(
        read_list(&mixed, 10),
        Err(FrameError::Counts {
            expected: SnapshotEnd { items: 0, blocks: 0 },
            got: SnapshotEnd { items: 2, blocks: 5 },
        })
    );
    // Items before the header, and something after the end.
    assert!(read_list(&full[header_only.len() - end..], 10).is_err());
    let twice = [full.clone(), full].concat();
    assert!(matches!(read_list(&twice, 10), Err(FrameError::Malformed { .. })));
}
