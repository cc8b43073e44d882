//! One worker as requests meet it: where it is, whether it is well, and how often it was what we said it would be.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use homing_config::{AddressRules, Scheme, WorkerSpec};
use homing_discovery::{Admission, Facts, FoundBy, Health, Outcome, Pass, Ping, Room, StallState, State, Turn};
use homing_doctor::Finding;
use homing_domain::{RankId, WorkerId};
use homing_profile::Time;
use homing_scheduler::{Duty, Health as Serves};
use homing_tls::Trust;
use hyper::header::HeaderValue;

use crate::lane::Lane;
use crate::progress::WorkerProgress;
use crate::response_id::WorkerTag;
use crate::truth::Truth;
use homing_platform::{Address, ConnectRules};

/// A worker that takes requests.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    /// Its address, as answers and logs name it.
    pub(crate) name: Arc<str>,
    /// Its address, as ids of responses name it.
    pub(crate) tag: WorkerTag,
    pub(crate) spec: WorkerSpec,
    /// What it says of itself.
    pub(crate) facts: Arc<Facts>,
    /// What was learnt of it, and what does not fit, in words.
    pub(crate) remarks: Vec<String>,
    /// Its models and adapters.
    pub(crate) lane: Arc<Lane>,
    pub(crate) address: Address,
    pub(crate) host: HeaderValue,
    /// What was found to be wrong with how it is set up; nothing before it was looked at.
    pub(crate) findings: OnceLock<Vec<Finding>>,
    /// How well its cache was predicted.
    pub(crate) truth: Truth,
    /// Whether its engine makes progress.
    pub(crate) progress: WorkerProgress,
    health: Mutex<Health>,
    draining: AtomicBool,
    /// What the router knows.
    serves: AtomicBool,
    in_flight: AtomicU32,
    served: AtomicU64,
    failed: AtomicU64,
}

/// What a worker is made of.
#[derive(Debug)]
pub(crate) struct Enlisted {
    pub(crate) id: WorkerId,
    pub(crate) spec: WorkerSpec,
    pub(crate) facts: Arc<Facts>,
    pub(crate) remarks: Vec<String>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) health: Health,
    pub(crate) progress: WorkerProgress,
    /// Who must vouch for it, if it is spoken to with TLS.
    pub(crate) trust: Trust,
    /// Which addresses it may have, if it registered itself.
    pub(crate) rules: Arc<AddressRules>,
}

impl Worker {
    pub(crate) fn new(enlisted: Enlisted) -> Self {
        let Enlisted {
            id,
            spec,
            facts,
            remarks,
            lane,
            health,
            progress,
            trust,
            rules,
        } = enlisted;
        let trust = (spec.url.scheme() == Scheme::Https).then_some(trust);
        let (host, port) = (spec.url.host().to_owned(), spec.url.port());
        let shown = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let name = spec.url.to_string();
        Self {
            id,
            tag: WorkerTag::of(&name),
            name: name.into(),
            facts,
            remarks,
            lane,
            // A host has no character that a header may not have.
            host: HeaderValue::from_str(&shown).unwrap_or(HeaderValue::from_static("worker")),
            address: Address {
                host,
                port,
                trust,
                rules: spec
                    .scope
                    .loopback_use()
                    .map(|loopback| ConnectRules { rules, loopback }),
            },
            spec,
            findings: OnceLock::new(),
            truth: Truth::default(),
            progress,
            health: Mutex::new(health),
            draining: AtomicBool::new(false),
            serves: AtomicBool::new(true),
            in_flight: AtomicU32::new(0),
            served: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Blocks of the engine as blocks of our size: an engine's may be a multiple of ours.
    pub(crate) fn our_blocks(&self, blocks: u32) -> u32 {
        let ours = self.spec.block_size.get();
        let theirs = self.facts.block_size.map_or(ours, homing_domain::BlockSize::get);
        let tokens = u64::from(blocks) * u64::from(theirs);
        u32::try_from(tokens / u64::from(ours)).unwrap_or(u32::MAX)
    }

    /// Its ranks.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = RankId> + use<> {
        let id = self.id;
        (0..self.spec.ranks).map(move |dp| RankId::new(id.0, dp))
    }

    /// Whether a request may be sent there now.
    pub(crate) fn admit(&self, now: Time) -> Admission {
        let admission = self.health().admit(now);
        // While one request is tried, others need not come to be turned away.
        if admission != Admission::Yes(Pass::Ordinary) {
            self.refresh(now);
        }
        admission
    }

    /// Tells the router whether it would be let in, if that is not what it knows: who was left out may be tried again when time has
    /// passed, and nobody but a clock says so.
    pub(crate) fn refresh(&self, now: Time) {
        let serves = self.health().would_admit(now);
        if self.serves.swap(serves, Relaxed) != serves {
            self.tell_router();
        }
    }

    /// Tells the router which of its ranks may be chosen.
    pub(crate) fn tell_router(&self) {
        let serves = self.serves.load(Relaxed);
        self.lane.worker_changed(self.id, |facts| {
            facts.health = if serves {
                self.progress.serves(facts.rank.dp)
            } else {
                Serves::Down
            };
        });
    }

    /// What became of a request.
    pub(crate) fn outcome(&self, now: Time, pass: Pass, outcome: Outcome, room: Room) {
        match outcome {
            Outcome::Served => self.served.fetch_add(1, Relaxed),
            Outcome::Unknown => 0,
            _ => self.failed.fetch_add(1, Relaxed),
        };
        let turn = self.health().request(now, pass, outcome, room);
        self.turned(now, turn);
    }

    /// What an active question led to.
    pub(crate) fn ping(&self, now: Time, ping: Ping) {
        let turn = self.health().ping(now, ping);
        self.turned(now, turn);
    }

    pub(crate) fn state(&self) -> State {
        self.health().state()
    }

    /// Whether it is left out.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state(), State::Down { .. })
    }

    /// Whether it does not even say that it lives.
    pub(crate) fn is_silent(&self) -> bool {
        let found_by = FoundBy::Pings;
        matches!(self.state(), State::Down { found_by: by, .. } if by == found_by)
    }

    /// Whether it serves nothing until it is tried again: a request that insists on it is refused.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state(), State::Down { .. } | State::HalfOpen { .. })
    }

    /// Whether one of its ranks is ejected because it makes no progress.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.progress.worst(), StallState::Ejected { .. })
    }

    /// Takes no new requests from now on, or does again.
    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Relaxed);
        let duty = if draining { Duty::Draining } else { Duty::Serving };
        self.lane.worker_changed(self.id, |facts| facts.duty = duty);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Requests that it answered, and that failed there.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.served.load(Relaxed), self.failed.load(Relaxed))
    }

    /// One more request is there.
    pub(crate) fn enter(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// One less.
    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    fn turned(&self, now: Time, turn: Option<Turn>) {
        if let Some(turn) = turn {
            let (from, to, why) = (turn.from, turn.to, turn.why);
            // What waits here leaves at once.
            self.progress.set_down(match to {
                State::Down { found_by, .. } => Some(found_by),
                State::Up | State::Suspect | State::HalfOpen { .. } => None,
            });
            if matches!(to, State::Down { .. }) {
                tracing::warn!(worker = %self.name, why, "is left out");
            } else {
                tracing::info!(worker = %self.name, ?from, ?to, why, "is another now");
            }
        }
        self.refresh(now);
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
