//! Where do a rank's batches come from? What a source must be able to do, and what it speaks into.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use homing_domain::{Digest, KvBatch, RankId, Sequence};
use homing_feed::{Ask, AskId, Identity, Input, Part, Reply};
use homing_wire::DecoderConfig;
use tokio::sync::mpsc;

use crate::lane::Parcel;

/// Something that runs until it is done or dropped.
pub type Speech = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Listens to one rank, and answers questions about it.
pub trait Source: Send + Sync + fmt::Debug + 'static {
    /// What the feed is to know of it, and how what it says is decoded.
    fn joining(&self) -> Joining;

    /// Subscribes and tells what happens, for ever. Dropped when the rank leaves.
    fn listen(self: Arc<Self>, ear: Ear) -> Speech;

    /// Answers one question. Dropped when the answer is not wanted any more.
    fn answer(self: Arc<Self>, ask: Ask, voice: Voice) -> Speech;
}

/// What must be known of a source before it is listened to.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    /// For the feed.
    pub source: homing_feed::Source,
    /// For the lane; `None` where batches come decoded.
    pub decoder: Option<DecoderConfig>,
}

/// The last thing that is wrong with a rank's source, in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(crate) fn set(&self, words: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a source speaks into while it listens.
#[derive(Debug)]
pub struct Ear {
    rank: RankId,
    lane: mpsc::Sender<Parcel>,
    trouble: Trouble,
    /// Set when something was dropped because the lane was full, until the feed was told.
    overflow: Option<Overflow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Overflow {
    highest: Option<Sequence>,
}

impl Ear {
    pub(crate) fn new(rank: RankId, lane: mpsc::Sender<Parcel>, trouble: Trouble) -> Self {
        Self {
            rank,
            lane,
            trouble,
            overflow: None,
        }
    }

    /// The rank that is listened to.
    pub fn rank(&self) -> RankId {
        self.rank
    }

    /// The source turned out to be this one.
    pub async fn discovered(&mut self, source: homing_feed::Source) {
        let rank = self.rank;
        self.tell(Input::Discovered { rank, source }).await;
    }

    /// The subscription stands.
    pub async fn connected(&mut self) {
        self.trouble.set(None);
        self.tell(Input::Connected(self.rank)).await;
    }

    /// The subscription is gone, or could not be made.
    pub async fn disconnected(&mut self, why: impl fmt::Display) {
        self.trouble.set(Some(why.to_string()));
        // Whatever was dropped before, the next subscription begins with a question.
        self.overflow = None;
        self.tell(Input::Disconnected(self.rank)).await;
    }

    /// Something is wrong that does not end the subscription.
    pub fn complain(&self, words: impl fmt::Display) {
        let words = words.to_string();
        tracing::warn!(rank = %self.rank, "{words}");
        self.trouble.set(Some(words));
    }

    /// A batch came, as the engine wrote it. Dropped if the lane is full.
    pub fn heard(&mut self, sequence: Sequence, payload: Bytes) {
        let rank = self.rank;
        self.offer(
            sequence,
            Parcel::Live {
                rank,
                sequence,
                payload,
            },
        );
    }

    /// A batch came that an agent has decoded. Dropped if the lane is full.
    pub fn heard_decoded(&mut self, batch: KvBatch) {
        let rank = self.rank;
        self.offer(
            batch.sequence,
            Parcel::Input {
                rank,
                input: Input::Heard { rank, batch },
            },
        );
    }

    /// An engine that is polled answered. Waits for room: what was handed out once is not handed out again.
    pub async fn polled(&mut self, json: Bytes) {
        let rank = self.rank;
        let _ = self.lane.send(Parcel::Polled { rank, json }).await;
    }

    /// The source says how far it is.
    pub async fn heartbeat(&mut self, identity: Identity, newest: Option<(Sequence, Digest)>) {
        let rank = self.rank;
        self.tell(Input::Heartbeat { rank, identity, newest }).await;
    }

    /// Waits until the feed can be told that something was dropped; for ever if nothing was.
    /// To be polled while waiting for what comes next, so that it is told even if nothing does.
    pub async fn flushed(&mut self) {
        let Some(Overflow { highest }) = self.overflow else {
            return std::future::pending().await;
        };
        if let Ok(room) = self.lane.reserve().await {
            let rank = self.rank;
            let input = Input::Overflowed { rank, highest };
            room.send(Parcel::Input { rank, input });
        }
        self.overflow = None;
    }

    async fn tell(&mut self, input: Input) {
        if self.overflow.is_some() {
            self.flushed().await;
        }
        // If the lane is gone, so are we soon.
        let rank = self.rank;
        let _ = self.lane.send(Parcel::Input { rank, input }).await;
    }

    fn offer(&mut self, sequence: Sequence, parcel: Parcel) {
        if let Some(Overflow { highest }) = self.overflow {
            let rank = self.rank;
            let input = Input::Overflowed { rank, highest };
            let told = self.lane.try_send(Parcel::Input { rank, input });
            self.overflow = told.is_err().then_some(Overflow { highest });
        }
        if self.overflow.is_some() || self.lane.try_send(parcel).is_err() {
            let overflow = self.overflow.get_or_insert_default();
            overflow.highest = overflow.highest.max(Some(sequence));
        }
    }
}

/// What a source answers into.
#[derive(Debug)]
pub struct Voice {
    rank: RankId,
    ask: AskId,
    lane: mpsc::Sender<Parcel>,
}

impl Voice {
    pub(crate) fn new(ask: Ask, lane: mpsc::Sender<Parcel>) -> Self {
        Self {
            rank: ask.rank,
            ask: ask.id,
            lane,
        }
    }

    /// A batch of a replay, as the engine wrote it.
    pub async fn replayed(&self, sequence: Sequence, payload: Bytes) {
        let parcel = Parcel::Replayed {
            rank: self.rank,
            ask: self.ask,
            sequence,
            payload,
        };
        let _ = self.lane.send(parcel).await;
    }

    /// A part of the answer.
    pub async fn say(&self, part: Part) {
        self.say_of(self.rank, part).await;
    }

    /// A part of the answer, of the rank that it says it is about.
    pub async fn say_of(&self, rank: RankId, part: Part) {
        let input = Input::Reply(Reply {
            ask: self.ask,
            rank,
            part,
        });
        let rank = self.rank;
        let _ = self.lane.send(Parcel::Input { rank, input }).await;
    }
}
