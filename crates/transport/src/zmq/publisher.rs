//! How do we publish, as an engine does?
//!
//! A PUB that binds or connects. Who subscribes to the beginning of a message's first frame gets it, if there is room in its
//! queue: a subscriber that reads too slowly loses messages and nobody waits for it, as with libzmq.
//!
//! **Invariant:** [`Publisher::publish`] never waits.
//!
//! **Invariant:** a subscription that was answered for (by a pong behind it) is in force for everything published afterwards.
//!
//! Cost: a message is encoded once; each subscriber's queue holds at most [`PublishConfig::high_water`] references to messages.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::config::{Backoff, Exposure, Limits, Patience};
use super::endpoint::{Endpoint, Host};
use super::error::{ConnectionError, SetupError};
use super::peers::accept;
use super::protocol::{self, Command, Incoming, TOPIC_BYTES};
use super::stream::{Listener, Stream, dial};
use super::talk::{Parts, Talk};

/// Subscriptions of one peer; one more ends the conversation.
const SUBSCRIPTIONS: usize = 256;
const PARTS: Parts = Parts {
    ours: "PUB",
    theirs: &["SUB", "XSUB"],
    wanted: "a SUB socket",
};
/// A subscriber has little to say to us.
const LIMITS: Limits = Limits {
    message_bytes: TOPIC_BYTES as u32 + 1,
    message_frames: 1,
    peers: 0,
};

/// How a publisher treats its subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishConfig {
    /// Messages that wait for one subscriber. What comes beyond that is lost to it. At least 1.
    pub high_water: usize,
    /// Subscribers at once. One more is hung up on.
    pub peers: usize,
    /// How long each step towards a connection may take.
    pub patience: Patience,
    /// How long to wait before connecting again.
    pub backoff: Backoff,
}

impl Default for PublishConfig {
    /// 1,000 messages as libzmq has it, and 256 subscribers.
    fn default() -> Self {
        Self {
            high_water: 1_000,
            peers: 256,
            patience: Patience::default(),
            backoff: Backoff::default(),
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Subscribers that will get it.
    pub queued: usize,
    /// Subscribers that lost it, because they read too slowly.
    pub lost: usize,
}

/// A PUB. Its conversations end when it is dropped.
#[derive(Debug)]
pub struct Publisher {
    endpoint: Endpoint,
    audience: Arc<Audience>,
    task: AbortHandle,
}

/// Everybody who shook hands.
#[derive(Debug, Default)]
struct Audience(Mutex<Vec<Arc<Seat>>>);

/// A subscriber.
#[derive(Debug)]
struct Seat {
    topics: Mutex<Vec<Bytes>>,
    queue: mpsc::Sender<Bytes>,
}

impl Publisher {
    /// Binds. Must be called within a runtime, as [`Publisher::connect`] must.
    pub async fn bind(endpoint: &Endpoint, exposure: Exposure, config: PublishConfig) -> Result<Self, SetupError> {
        let listener = Listener::bind(endpoint, exposure).await?;
        let bound = listener.endpoint().map_err(|error| SetupError::Bind {
            endpoint: endpoint.clone(),
            error,
        })?;
        let audience = Arc::new(Audience::default());
        let hosting = audience.clone();
        let accepting = accept(listener, config.peers, move |stream| {
            let audience = hosting.clone();
            async move { drop(audience.entertain(stream, config).await) }
        });
        Ok(Self::new(bound, audience, accepting))
    }

    /// Connects, and again whenever the connection ends: a subscriber that binds is there or will be.
    pub fn connect(endpoint: Endpoint, config: PublishConfig) -> Result<Self, SetupError> {
        let destination = match &endpoint {
            Endpoint::Tcp { host, port } => *host != Host::Any && *port != 0,
            Endpoint::Ipc(_) => true,
        };
        if !destination {
            return Err(SetupError::NoDestination(endpoint));
        }
        let audience = Arc::new(Audience::default());
        let (hosting, there) = (audience.clone(), endpoint.clone());
        let connecting = async move {
            let mut failures = 0_u32;
            loop {
                if let Ok(stream) = dial(there.clone(), config.patience.dial, None).await {
                    failures = 0;
                    drop(hosting.entertain(stream, config).await);
                }
                failures = failures.saturating_add(1);
                sleep(config.backoff.wait(failures, fastrand::f64())).await;
            }
        };
        Ok(Self::new(endpoint, audience, connecting))
    }

    fn new(endpoint: Endpoint, audience: Arc<Audience>, task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            endpoint,
            audience,
            task: tokio::spawn(task).abort_handle(),
        }
    }

    /// Where it is, with the port that the system chose if it was left to it; or where it connects to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Puts a message into the queue of everybody who subscribed to it.
    pub fn publish(&self, frames: &[&[u8]]) -> Published {
        let topic = frames.first().copied().unwrap_or_default();
        let mut message: Option<Bytes> = None;
        let mut published = Published::default();
        for seat in locked(&self.audience.0).iter() {
            if !locked(&seat.topics).iter().any(|wanted| topic.starts_with(wanted)) {
                continue;
            }
            let message = message.get_or_insert_with(|| {
                let mut bytes = Vec::new();
                protocol::message(&mut bytes, frames);
                bytes.into()
            });
            match seat.queue.try_send(message.clone()) {
                Ok(()) => published.queued += 1,
                Err(_) => published.lost += 1,
            }
        }
        published
    }

    /// How many peers have subscribed to something.
    pub fn subscribers(&self) -> usize {
        let seats = locked(&self.audience.0);
        seats.iter().filter(|seat| !locked(&seat.topics).is_empty()).count()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Audience {
    /// Talks to one subscriber until either has enough.
    async fn entertain(&self, stream: Stream, config: PublishConfig) -> Result<(), ConnectionError> {
        let mut talk = Talk::begin(stream, PARTS, LIMITS, config.patience).await?;
        let (queue, mut messages) = mpsc::channel(config.high_water.max(1));
        let seat = Arc::new(Seat {
            topics: Mutex::default(),
            queue,
        });
        let _seated = Seated::take(self, seat.clone());
        loop {
            tokio::select! {
                heard = talk.hear() => seat.obey(heard?, &mut talk).await?,
                Some(message) = messages.recv() => talk.say(&message).await?,
            }
        }
    }
}

impl Seat {
    async fn obey(&self, incoming: Incoming, talk: &mut Talk) -> Result<(), ConnectionError> {
        match incoming {
            Incoming::Command(Command::Ping(context)) => talk.pong(&context).await,
            Incoming::Command(Command::Subscribe(topic)) => self.subscribe(topic),
            Incoming::Command(Command::Cancel(topic)) => {
                self.cancel(&topic);
                Ok(())
            }
            Incoming::Command(_) => Ok(()),
            // ZMTP 3.0 subscribes with messages.
            Incoming::Message(message) => match message.frame_bytes(0) {
                Some(frame) if frame.first() == Some(&1) => self.subscribe(frame.slice(1..)),
                Some(frame) if frame.first() == Some(&0) => {
                    self.cancel(&frame[1..]);
                    Ok(())
                }
                _ => Ok(()),
            },
        }
    }

    fn subscribe(&self, topic: Bytes) -> Result<(), ConnectionError> {
        let mut topics = locked(&self.topics);
        if topics.len() >= SUBSCRIPTIONS {
            return Err(ConnectionError::TooManySubscriptions { limit: SUBSCRIPTIONS });
        }
        topics.push(topic);
        Ok(())
    }

    fn cancel(&self, topic: &[u8]) {
        let mut topics = locked(&self.topics);
        if let Some(place) = topics.iter().position(|one| one == topic) {
            topics.swap_remove(place);
        }
    }
}

/// A seat that is given up when its conversation ends, however it does.
struct Seated<'a> {
    audience: &'a Audience,
    seat: Arc<Seat>,
}

impl<'a> Seated<'a> {
    fn take(audience: &'a Audience, seat: Arc<Seat>) -> Self {
        locked(&audience.0).push(seat.clone());
        Self { audience, seat }
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        locked(&self.audience.0).retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

/// What is behind these locks is never left half changed.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
