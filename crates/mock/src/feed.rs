//! How does the cache of a rank become known? A publisher, a ring of what was published, and a socket to ask for it again.
//!
//! **Invariant:** what a replay brings is the same bytes as were published.
//!
//! **Invariant:** the ring holds at most so many batches, and so many bytes of them, as the settings say; the oldest go first.
//!
//! **Invariant:** whoever asks for a replay and does not read it holds up nobody: not the publisher, and no other replay.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use homing_config::EventFormat;
use homing_transport::zmq::{Endpoint, Exposure, PublishConfig, Publisher, Question, Router, RouterConfig, SetupError};
use tokio::task::{AbortHandle, JoinSet};

use crate::faults::{Counted, Fate, Faults, locked};

/// The number that ends a replay.
const END: [u8; 8] = [0xff; 8];
/// How long a socket of the last life may keep its address.
const REBIND: Duration = Duration::from_secs(5);
const REBIND_PAUSE: Duration = Duration::from_millis(5);
/// Replays under way at once. Whoever asks beyond that gets no answer, and asks again.
const REPLAYS: usize = 64;
/// Messages of a replay that wait for its reader; the others wait in the ring.
const REPLAY_QUEUE: usize = 16;
/// How long a reader of a replay may read nothing.
const READER_PATIENCE: Duration = Duration::from_secs(30);

/// Where a rank tells of its cache.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) publish: Option<Endpoint>,
    pub(crate) connects: bool,
    pub(crate) replay: Option<Endpoint>,
    pub(crate) topic: Bytes,
    pub(crate) high_water: usize,
    pub(crate) ring_batches: usize,
    pub(crate) ring_bytes: u64,
    pub(crate) format: EventFormat,
}

/// The feed of one rank.
#[derive(Debug)]
pub(crate) struct Feed {
    places: Places,
    ring: Arc<Ring>,
    sockets: Mutex<Sockets>,
    counted: Counted,
}

/// What was told, for those who ask again.
#[derive(Debug)]
struct Ring {
    most: usize,
    most_bytes: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    batches: VecDeque<(u64, Bytes)>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Sockets {
    publisher: Option<Publisher>,
    replaying: Option<Replaying>,
}

/// A task that answers, which ends with this.
#[derive(Debug)]
struct Replaying {
    endpoint: Endpoint,
    task: AbortHandle,
}

impl Drop for Replaying {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Feed {
    /// Opens its sockets.
    pub(crate) async fn open(places: Places) -> Result<Self, SetupError> {
        let feed = Self {
            ring: Arc::new(Ring {
                most: places.ring_batches,
                most_bytes: places.ring_bytes,
                kept: Mutex::default(),
            }),
            places,
            sockets: Mutex::default(),
            counted: Counted::default(),
        };
        let sockets = feed.sockets(&feed.places).await?;
        *locked(&feed.sockets) = sockets;
        Ok(feed)
    }

    /// Tells of a batch.
    pub(crate) fn tell(&self, number: u64, payload: Vec<u8>, faults: &Faults) {
        let payload = Bytes::from(payload);
        self.ring.keep(number, payload.clone());
        let times = match self.counted.next(faults) {
            Fate::Lost => 0,
            Fate::Sent => 1,
            Fate::Repeated => 2,
        };
        let sockets = locked(&self.sockets);
        if let Some(publisher) = &sockets.publisher {
            for _ in 0..times {
                publisher.publish(&[&self.places.topic, &number.to_be_bytes(), &payload]);
            }
        }
    }

    /// Ends its sockets and forgets what was told, as the end of a process does.
    pub(crate) fn close(&self) {
        *locked(&self.sockets) = Sockets::default();
        *locked(&self.ring.kept) = Kept::default();
    }

    /// Opens its sockets again, where they were.
    pub(crate) async fn reopen(&self) -> Result<(), SetupError> {
        let places = Places {
            publish: self.places.publish.clone(),
            ..self.places.clone()
        };
        let until = tokio::time::Instant::now() + REBIND;
        let sockets = loop {
            match self.sockets(&places).await {
                Err(SetupError::Bind { .. }) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(REBIND_PAUSE).await;
                }
                opened => break opened?,
            }
        };
        *locked(&self.sockets) = sockets;
        Ok(())
    }

    /// Where it publishes, if it does.
    pub(crate) fn events(&self) -> Option<Endpoint> {
        let sockets = locked(&self.sockets);
        sockets.publisher.as_ref().map(|publisher| publisher.endpoint().clone())
    }

    /// Where it can be asked for a replay, if it can.
    pub(crate) fn replay(&self) -> Option<Endpoint> {
        let sockets = locked(&self.sockets);
        sockets.replaying.as_ref().map(|replaying| replaying.endpoint.clone())
    }

    /// What was settled about it.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Fixes ports that were left to the system, so that they are the same in the next life.
    pub(crate) fn settle(&mut self) {
        let (events, replay) = (self.events(), self.replay());
        self.places.publish = events;
        self.places.replay = replay;
    }

    async fn sockets(&self, places: &Places) -> Result<Sockets, SetupError> {
        let config = PublishConfig {
            high_water: places.high_water,
            ..PublishConfig::default()
        };
        let replaying = match &places.replay {
            None => None,
            Some(endpoint) => {
                let config = RouterConfig {
                    high_water: REPLAY_QUEUE,
                    ..RouterConfig::default()
                };
                let router = Router::bind(endpoint, Exposure::Network, config).await?;
                Some(self.replaying(router))
            }
        };
        let publisher = match &places.publish {
            None => None,
            Some(endpoint) if places.connects => Some(Publisher::connect(endpoint.clone(), config)?),
            Some(endpoint) => Some(Publisher::bind(endpoint, Exposure::Network, config).await?),
        };
        Ok(Sockets { publisher, replaying })
    }

    fn replaying(&self, mut router: Router) -> Replaying {
        let (ring, topic, format) = (self.ring.clone(), self.places.topic.clone(), self.places.format);
        let endpoint = router.endpoint().clone();
        let task = tokio::spawn(async move {
            // Ended with this task.
            let mut replays = JoinSet::new();
            while let Some(question) = router.next().await {
                while replays.try_join_next().is_some() {}
                if replays.len() < REPLAYS {
                    let (ring, topic) = (ring.clone(), topic.clone());
                    replays.spawn(async move { replay(&ring, &topic, format, question).await });
                }
            }
        });
        Replaying {
            endpoint,
            task: task.abort_handle(),
        }
    }
}

impl Ring {
    fn keep(&self, number: u64, payload: Bytes) {
        let mut kept = locked(&self.kept);
        if self.most == 0 {
            return;
        }
        kept.bytes += payload.len() as u64;
        kept.batches.push_back((number, payload));
        while kept.batches.len() > self.most || kept.bytes > self.most_bytes {
            let Some((_, oldest)) = kept.batches.pop_front() else {
                return;
            };
            kept.bytes -= oldest.len() as u64;
        }
    }

    fn from(&self, start: u64) -> Vec<(u64, Bytes)> {
        let kept = locked(&self.kept);
        let wanted = kept.batches.iter().filter(|(number, _)| *number >= start);
        wanted.cloned().collect()
    }
}

/// Answers as engines do: what is asked in another form is not answered at all.
async fn replay(ring: &Ring, topic: &[u8], format: EventFormat, question: Question) {
    let (message, reply) = (&question.message, &question.reply);
    let (2, Some(&[]), Some(start)) = (message.frame_count(), message.frame(0), message.frame(1)) else {
        return;
    };
    // A number of whatever length; what does not fit is beyond everything.
    let start = start
        .iter()
        .try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? + u64::from(*byte)));
    for (number, payload) in ring.from(start.unwrap_or(u64::MAX)) {
        let number = number.to_be_bytes();
        let sent = match format {
            EventFormat::Map => patient(reply.send(&[b"", topic, &number, &payload])).await,
            EventFormat::Array => patient(reply.send(&[b"", &number, &payload])).await,
        };
        if !sent {
            return;
        }
    }
    match format {
        EventFormat::Map => patient(reply.send(&[b"", b"", &END, b""])).await,
        EventFormat::Array => patient(reply.send(&[b"", &END, b""])).await,
    };
}

/// Whether a message was taken; not if it takes too long.
async fn patient(sent: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(READER_PATIENCE, sent).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_newest() {
        let ring = |most, most_bytes| Ring {
            most,
            most_bytes,
            kept: Mutex::default(),
        };
        let kept = ring(2, 100);
        for number in 0..5 {
            kept.keep(number, Bytes::new());
        }
        let numbers = |start| kept.from(start).iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(0), [3, 4]);
        assert_eq!(numbers(4), [4]);
        assert_eq!(numbers(5), [0_u64; 0]);
        let none = ring(0, 100);
        none.keep(0, Bytes::new());
        assert!(none.from(0).is_empty());
        let short = ring(100, 10);
        for number in 0..6 {
            short.keep(number, Bytes::from_static(b"four"));
        }
        assert_eq!(short.from(0).len(), 2);
        short.keep(6, Bytes::from_static(b"longer than all of it"));
        assert!(short.from(0).is_empty());
    }
}
