//! What is in an entry? One thing that was done to a feed, with its time; numbers are written in seven bits a byte, the
//! lowest first, except for those that are hashes.

use homing_feed::Input;

/// What a feed was told, as it is read back.
#[derive(Debug)]
pub(super) enum Done {
    Input(Input),
    Maintain(u32),
    /// Nothing more was recorded, and nothing is missing.
    End,
}

pub(super) const END: u8 = 0;
pub(super) const TICK: u8 = 1;
pub(super) const MAINTAIN: u8 = 2;
pub(super) const DISCOVERED: u8 = 3;
pub(super) const LEFT: u8 = 4;
pub(super) const WORKER_LEFT: u8 = 5;
pub(super) const CONNECTED: u8 = 6;
pub(super) const DISCONNECTED: u8 = 7;
pub(super) const HEARD: u8 = 8;
pub(super) const HEARTBEAT: u8 = 9;
pub(super) const OVERFLOWED: u8 = 10;
pub(super) const REPLY_BATCH: u8 = 11;
pub(super) const REPLAY_END: u8 = 12;
pub(super) const LIST_HEAD: u8 = 13;
pub(super) const LIST_ITEMS: u8 = 14;
pub(super) const LIST_END: u8 = 15;
pub(super) const GONE: u8 = 16;
pub(super) const FAILED: u8 = 17;
pub(super) const DOUBTED: u8 = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::{
        BlockKey, CacheGroup, ContentHash, Digest, HashSeed, KeyHasher, KvBatch, KvChange, Label, Listed, ListedParent,
        RankId, Removed, Sequence, Stored, StoredBlock, Tier,
    };
    use homing_feed::{AskId, ClearReach, Coverage, Identity, ListHead, Part, Recovery, Reply, Source};
    use homing_index::Copies;
    use homing_keeper::Told;
    use homing_wire::frame::FrameWriter;
    use proptest::prelude::*;

    use crate::record::parts::Parts;
    use crate::record::put::{put, put_number};

    fn hasher() -> KeyHasher {
        KeyHasher::new(HashSeed::PUBLIC)
    }

    fn written(told: Told<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        put(told, FrameWriter::new(&hasher()), &mut out).unwrap();
        out
    }

    fn inputs() -> Vec<Input> {
        let rank = RankId::new(70_000, 300);
        let identity = Identity {
            engine: u64::MAX,
            agent: 1,
        };
        let position = Some((Sequence(u64::MAX), Digest(5)));
        let block = |number| StoredBlock {
            label: Label::new(number),
            content: ContentHash(!number),
        };
        let batch = KvBatch {
            sequence: Sequence(1 << 40),
            digest: Digest(7),
            sent_ms: Some(1_700_000_000_000),
            changes: vec![
                KvChange::Stored(Stored::plain(Some(Label::new(1)), vec![block(2), block(3)])),
                KvChange::Removed(Removed::plain(vec![Label::new(9)])),
            ],
        };
        let source = |recovery, clear_reach, copies| Source {
            identity,
            recovery,
            clear_reach,
            copies,
        };
        let item = |parent| Listed {
            parent,
            tier: Tier::Disk,
            group: CacheGroup(255),
            copies: 3,
            blocks: vec![block(4), block(5)],
        };
        let items = [
            ListedParent::Root,
            ListedParent::Label(Label::new(6)),
            ListedParent::Key(BlockKey(7)),
        ];
        let head = |coverage, position, truncated| {
            Part::ListHead(ListHead {
                identity,
                position,
                coverage,
                truncated,
            })
        };
        let parts = [
            Part::Batch(batch.clone()),
            Part::ReplayEnd,
            head(Coverage::Complete, position, true),
            head(Coverage::Warming, None, false),
            Part::ListItems(items.map(item).to_vec()),
            Part::ListItems(vec![]),
            Part::ListEnd { items: u64::MAX },
            Part::Gone,
            Part::Failed,
        ];
        let sources = [
            source(Recovery::LiveOnly, ClearReach::Rank, Copies::Counted),
            source(Recovery::Replay, ClearReach::Worker, Copies::Set),
            source(Recovery::List, ClearReach::Rank, Copies::Set),
        ];
        let mut inputs = vec![
            Input::Tick,
            Input::Left(rank),
            Input::WorkerLeft(rank.worker),
            Input::Connected(rank),
            Input::Disconnected(rank),
            Input::Doubted(rank),
            Input::Heard { rank, batch },
        ];
        inputs.extend([None, position].map(|newest| Input::Heartbeat { rank, identity, newest }));
        inputs.extend([None, Some(Sequence(0))].map(|highest| Input::Overflowed { rank, highest }));
        inputs.extend(sources.map(|source| Input::Discovered { rank, source }));
        inputs.extend(parts.map(|part| {
            let ask = AskId(1 << 63);
            Input::Reply(Reply { ask, rank, part })
        }));
        inputs
    }

    #[test]
    fn what_is_written_is_read_back() {
        for input in inputs() {
            let bytes = written(Told::Input(&input));
            match Parts::new(&bytes).done(&hasher()) {
                Ok(Done::Input(read)) => assert_eq!(format!("{read:?}"), format!("{input:?}")),
                other => panic!("{input:?} became {other:?}"),
            }
            // Every byte counts: what is cut is noticed, and what is too long as well.
            assert!(
                Parts::new(&bytes[..bytes.len() - 1]).done(&hasher()).is_err(),
                "{input:?}"
            );
            assert!(
                Parts::new(&[&bytes[..], &[0]].concat()).done(&hasher()).is_err(),
                "{input:?}"
            );
        }
        let bytes = written(Told::Maintain(5000));
        assert!(matches!(Parts::new(&bytes).done(&hasher()), Ok(Done::Maintain(5000))));
    }

    proptest! {
        #[test]
        fn numbers_are_read_back(number: u64) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            prop_assert_eq!(Parts::new(&out).number(), Ok(number));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), tag in 0..20_u8) {
            let _ = Parts::new(&bytes).done(&hasher());
            let tagged = [&[tag][..], &bytes].concat();
            let _ = Parts::new(&tagged).done(&hasher());
        }
    }
}
