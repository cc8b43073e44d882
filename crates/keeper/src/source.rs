//! Where do a rank's batches come from? What a source must be able to do, and what it speaks into.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use homing_domain::{Digest, KvBatch, KvChange, RankId, Sequence};
use homing_feed::{Ask, AskId, Identity, Input, Part, Reply};
use homing_wire::DecoderConfig;

use crate::flow::{LaneQueue, PacedSender, Room};
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

/// What a source speaks into while it listens. Everything waits for room, so that a source that is faster than the index is not
/// read meanwhile.
#[derive(Debug)]
pub struct Ear {
    rank: RankId,
    sender: PacedSender,
    trouble: Trouble,
}

impl Ear {
    pub(crate) fn new(rank: RankId, sender: PacedSender, trouble: Trouble) -> Self {
        Self { rank, sender, trouble }
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
        self.tell(Input::Disconnected(self.rank)).await;
    }

    /// Something is wrong that does not end the subscription.
    pub fn complain(&self, words: impl fmt::Display) {
        let words = words.to_string();
        tracing::warn!(rank = %self.rank, "{words}");
        self.trouble.set(Some(words));
    }

    /// A batch came, as the engine wrote it.
    pub async fn heard(&mut self, sequence: Sequence, payload: Bytes) {
        let (rank, bytes) = (self.rank, payload.len());
        let parcel = |room| Parcel::Live {
            rank,
            sequence,
            payload,
            room,
        };
        self.sender.send_batch(bytes, parcel).await;
    }

    /// A batch came that an agent has decoded.
    pub async fn heard_decoded(&mut self, batch: KvBatch) {
        let (rank, bytes) = (self.rank, decoded_bytes(&batch));
        let input = Input::Heard { rank, batch };
        let parcel = |room| Parcel::Input { rank, input, room };
        self.sender.send_batch(bytes, parcel).await;
    }

    /// An engine that is polled answered.
    pub async fn polled(&mut self, json: Bytes) {
        let (rank, queue) = (self.rank, self.sender.queue());
        let room = queue.room(json.len()).await;
        let _ = queue.send(Parcel::Polled { rank, json, room }).await;
    }

    /// The source says how far it is.
    pub async fn heartbeat(&mut self, identity: Identity, newest: Option<(Sequence, Digest)>) {
        let rank = self.rank;
        self.tell(Input::Heartbeat { rank, identity, newest }).await;
    }

    async fn tell(&mut self, input: Input) {
        let (rank, room) = (self.rank, Room::default());
        // If the lane is gone, so are we soon.
        let _ = self.sender.queue().send(Parcel::Input { rank, input, room }).await;
    }
}

fn decoded_bytes(batch: &KvBatch) -> usize {
    let bytes = |change: &KvChange| match change {
        KvChange::Stored(stored) => size_of_val(&*stored.blocks),
        KvChange::Removed(removed) => size_of_val(&*removed.labels),
        KvChange::Cleared(_) => 0,
    };
    size_of::<KvBatch>() + batch.changes.iter().map(bytes).sum::<usize>()
}

/// What a source answers into.
#[derive(Debug)]
pub struct Voice {
    rank: RankId,
    ask: AskId,
    lane: LaneQueue,
}

impl Voice {
    pub(crate) fn new(ask: Ask, lane: LaneQueue) -> Self {
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
            room: self.lane.room(payload.len()).await,
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
        let (rank, room) = (self.rank, Room::default());
        let _ = self.lane.send(Parcel::Input { rank, input, room }).await;
    }
}
