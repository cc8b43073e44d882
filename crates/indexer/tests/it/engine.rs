//! An engine without a model: a real libzmq publisher, with the cache that it tells of.

use std::fmt::Write as _;

use homing_transport::testing::Publisher;
use homing_wire::encode::EngineEvent;

use crate::cache::{Cache, message};

/// A publisher and its cache.
#[derive(Debug)]
pub struct Engine {
    pub publisher: Publisher,
    pub cache: Cache,
    pub events: String,
    pub replay: Option<String>,
}

/// Whether it has a replay socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    Yes,
    No,
}

impl Engine {
    /// Starts one that binds to any ports.
    pub fn start(replay: Replay) -> Self {
        let mut publisher = Publisher::start();
        let events = publisher.tell("bind tcp://127.0.0.1:0");
        let replay = (replay == Replay::Yes).then(|| publisher.tell("replay tcp://127.0.0.1:0 topic"));
        Self {
            publisher,
            cache: Cache::new(0),
            events,
            replay,
        }
    }

    /// Starts one that connects to whoever listens to it.
    pub fn connecting(events: &str) -> Self {
        let mut publisher = Publisher::start();
        publisher.tell(&format!("connect {events}"));
        Self {
            publisher,
            cache: Cache::new(0),
            events: format!("bind:{events}"),
            replay: None,
        }
    }

    /// Kills the process and starts another at the same addresses, with an empty cache. What it does before anybody can
    /// connect to it is `before`.
    pub fn restart(&mut self, before: impl FnOnce(&mut Self)) {
        let killed = std::mem::replace(&mut self.publisher, Publisher::start());
        killed.kill();
        self.cache = Cache::new(1_000_000);
        before(self);
        if let Some(replay) = self.replay.clone() {
            self.publisher.tell(&format!("replay {replay} topic"));
        }
        let events = self.events.clone();
        self.publisher.tell(&format!("bind {events}"));
    }

    /// The worker, as the command line names it.
    pub fn worker(&self) -> String {
        let mut worker = format!(
            "http://127.0.0.1:8000,model=tiny,block-size={},events={}",
            crate::cache::BLOCK,
            self.events
        );
        if let Some(replay) = &self.replay {
            write!(worker, ",replay={replay}").expect("a text takes everything");
        }
        worker
    }

    /// Does something to the cache and tells of it. Gives the number of the batch.
    pub fn publish(&mut self, act: impl FnOnce(&mut Cache) -> EngineEvent) -> u64 {
        let event = act(&mut self.cache);
        self.send("send", &message(vec![event]))
    }

    /// Does something to the cache, and what tells of it is lost.
    pub fn lose(&mut self, act: impl FnOnce(&mut Cache) -> EngineEvent) -> u64 {
        let event = act(&mut self.cache);
        self.send("lose", &message(vec![event]))
    }

    /// Publishes or loses these bytes.
    pub fn send(&mut self, how: &str, payload: &[u8]) -> u64 {
        let mut command = format!("{how} ");
        for byte in payload {
            write!(command, "{byte:02x}").expect("a text takes everything");
        }
        let next: u64 = self.publisher.tell(&command).parse().expect("a number");
        next - 1
    }
}
