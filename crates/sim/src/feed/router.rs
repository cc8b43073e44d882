//! Who listens? A router with one feed, its links to the ranks and its open questions.

use std::collections::BTreeMap;

use homing_domain::{Digest, KvBatch, RankId, Sequence};
use homing_feed::{AskId, Feed, Identity};
use homing_index::{Index, IndexConfig, Reader};

use super::setup::Setup;

/// A router in one of its lives.
#[derive(Debug)]
pub struct Router {
    /// Which life of it.
    pub life: u64,
    /// What is tested.
    pub feed: Feed,
    /// Looks into the feed's index.
    pub reader: Reader,
    /// Its links to the ranks that it knows.
    pub links: BTreeMap<RankId, Link>,
    /// Questions that were asked, and whether their answers are still wanted.
    pub asks: BTreeMap<AskId, Wanted>,
    /// The position of each view, as the notices tell it.
    pub followed: BTreeMap<RankId, Option<(Sequence, Digest)>>,
    /// Since when each rank is under repair.
    pub repairing_since_ms: BTreeMap<RankId, u64>,
}

/// Whether an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is.
    Yes,
    /// It was, and whoever brings it has heard that it is not any more.
    NotAnyMore,
    /// It was; it will be brought all the same.
    ButComes,
}

/// A link to one rank.
#[derive(Debug, Default)]
pub struct Link {
    /// The subscription, if there is one.
    pub subscription: Option<Subscription>,
    /// Until then nothing comes.
    pub silent_until_ms: u64,
    /// Until then questions and answers are lost as well.
    pub cut_until_ms: u64,
    /// When what comes in order came last.
    pub last_due_ms: u64,
}

/// A subscription to one life of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    /// Its name.
    pub id: u64,
    /// Which life of which stream.
    pub life: u64,
    /// The highest number that the feed was told of over it.
    pub told: Option<Sequence>,
}

/// What comes over a link.
#[derive(Clone, Debug)]
pub enum Message {
    /// A batch.
    Batch(KvBatch),
    /// How far the source is.
    Heartbeat {
        /// Which life of it.
        identity: Identity,
        /// Its newest batch.
        newest: Option<(Sequence, Digest)>,
    },
}

impl Router {
    /// A router that knows nobody.
    pub fn new(life: u64, setup: &Setup, hasher: homing_domain::KeyHasher) -> Self {
        let config = IndexConfig {
            max_ranks: setup.ranks(),
            ..IndexConfig::new(hasher)
        };
        let feed = Feed::new(setup.feed, Index::new(config)).with_notices();
        Self {
            life,
            reader: feed.reader(),
            feed,
            links: BTreeMap::new(),
            asks: BTreeMap::new(),
            followed: BTreeMap::new(),
            repairing_since_ms: BTreeMap::new(),
        }
    }

    /// The feed need not have read what it was told of.
    pub fn give_up_told(&mut self, rank: RankId) {
        let link = self.links.get_mut(&rank);
        if let Some(subscription) = link.and_then(|link| link.subscription.as_mut()) {
            subscription.told = None;
        }
    }
}
