//! A view that is wrong although nothing that was heard says so: whoever relied on it doubts it, and it is right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homing_domain::{ContentHash, Digest, HashSeed, KeyHasher, KvBatch, KvChange, Label, RankId, Sequence};
use homing_domain::{Stored, StoredBlock};
use homing_feed::{Ask, ClearReach, FeedConfig, Identity, Notice, Part, Recovery, What};
use homing_index::{Copies, IndexConfig};
use homing_keeper::{Ear, Hooks, Joining, Keeper, KeeperConfig, Lanes, LanesConfig, Source, Speech, Voice};
use homing_telemetry::Metrics;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

const RANK: RankId = RankId::new(3, 0);

const LANES: LanesConfig = LanesConfig {
    threads: 1,
    bound: 64,
    bytes: 1 << 20,
};

/// The first batch of a life, with so many blocks in it.
fn batch(blocks: u64) -> KvBatch {
    let block = |number| StoredBlock {
        label: Label::new(number),
        content: ContentHash(number),
    };
    KvBatch {
        sequence: Sequence(0),
        digest: Digest(7),
        sent_ms: None,
        changes: vec![KvChange::Stored(Stored::plain(None, (0..blocks).map(block).collect()))],
    }
}

/// Holds two blocks, and is misread at first: as if there were five.
#[derive(Debug, Default)]
struct Misread {
    asked: AtomicUsize,
}

impl Source for Misread {
    fn joining(&self) -> Joining {
        Joining {
            source: homing_feed::Source {
                identity: Identity::default(),
                recovery: Recovery::Replay,
                clear_reach: ClearReach::Rank,
                copies: Copies::Counted,
            },
            decoder: None,
        }
    }

    fn listen(self: Arc<Self>, mut ear: Ear) -> Speech {
        Box::pin(async move {
            ear.connected().await;
            std::future::pending::<()>().await;
        })
    }

    fn answer(self: Arc<Self>, ask: Ask, voice: Voice) -> Speech {
        Box::pin(async move {
            assert_eq!(ask.what, What::Replay { from: Sequence(0) });
            let blocks = if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
                5
            } else {
                2
            };
            voice.say(Part::Batch(batch(blocks))).await;
            voice.say(Part::ReplayEnd).await;
        })
    }
}

#[tokio::test]
async fn a_view_that_is_wrong_is_right_again_when_it_was_doubted() {
    let metrics = Arc::new(Metrics::default());
    let lanes = Lanes::start(LANES, &metrics).unwrap();
    let (happened, mut notices) = mpsc::unbounded_channel();
    let notice = move |notice: Notice, _: &homing_feed::Feed| {
        let _ = happened.send(notice);
    };
    let config = KeeperConfig {
        // Nothing but the doubt makes it ask.
        feed: FeedConfig {
            verify_within_ms: 3_600_000,
            ..FeedConfig::default()
        },
        index: IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)),
        hooks: Hooks {
            notice: Some(Box::new(notice)),
            ..Hooks::default()
        },
    };
    let keeper = Keeper::start(config, &lanes, Handle::current(), metrics).unwrap();
    let mut replaced = async || {
        while !matches!(notices.recv().await.expect("the writer runs"), Notice::Replaced(RANK)) {}
    };
    let held = async || {
        let snapshot = keeper.list(RANK).await.unwrap().expect("it joined");
        snapshot
            .listing
            .items
            .iter()
            .map(|item| item.blocks.len())
            .sum::<usize>()
    };
    keeper.join(RANK, Arc::new(Misread::default())).await.unwrap();
    replaced().await;
    assert_eq!(held().await, 5);
    keeper.doubt(RANK).await.unwrap();
    replaced().await;
    assert_eq!(held().await, 2);
    let counters = keeper.view().await.unwrap().ranks[0].status.counters;
    assert_eq!((counters.doubts, counters.drifts, counters.resets), (1, 1, 0));
}
