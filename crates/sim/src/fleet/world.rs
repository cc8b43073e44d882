//! The loop: one thing after the other, each at its moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homing_domain::{AdapterName, WorkerId};
use homing_engine::Outcome as Step;
use homing_profile::{Millis, Time};
use homing_scheduler::Decision;
use homing_scheduler::policy::PolicyError;
use homing_scheduler::queue::Tenant;
use homing_trace::{Agenda, AgendaError, Conversations, Traffic, UnknownSession};
use rustc_hash::FxHashMap;

use super::calendar::{Calendar, Due};
use super::calls::{Call, CallNo};
use super::check::{Memory, Violation};
use super::record::{Record, mixed};
use super::routers::Node;
use super::setup::FleetSetup;
use super::split::{Moves, Split, SplitCounts};
use super::workers::Worker;
use crate::Rng;

/// How often all is looked at.
const CHECK: Millis = Millis(1_000.0);
/// After the last request and the last fault, how long routers have to recover their views.
const AFTERWARDS: Millis = Millis(120_000.0);
/// Without an end for so long after the last arrival, something hangs.
const PATIENCE: Millis = Millis(3_600_000.0);
/// Requests of sessions that wait for earlier ones, and sessions that may go on.
const SESSIONS: usize = 1 << 20;

/// Why a world cannot be, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The engines cannot be.
    #[error("the engines cannot be so: {0}")]
    Engine(#[from] homing_engine::ConfigError),
    /// The traffic has an error.
    #[error(transparent)]
    Traffic(#[from] AgendaError),
    /// The traffic goes on with a session that never was.
    #[error(transparent)]
    Session(#[from] UnknownSession),
    /// The traffic cannot be.
    #[error(transparent)]
    Workload(#[from] homing_trace::generate::WorkloadError),
    /// A link cannot be so.
    #[error(transparent)]
    Link(#[from] super::link::LinkError),
    /// A router has no room.
    #[error("a router has no room for a rank: {0}")]
    Room(String),
}

/// What became of a world.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that came.
    pub requests: u64,
    /// Steps of all engines.
    pub steps: u64,
    /// Times that a running request lost its blocks.
    pub preemptions: u64,
    /// A hash of all records: equal for equal worlds.
    pub hash: u64,
    /// When it ended.
    pub ended: Time,
    /// What must not be and was. Empty if all is well.
    pub violations: Vec<Violation>,
    /// Faults that began, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Requests that were let go again after they had failed.
    pub retried: u64,
    /// Requests that waited in a router.
    pub waited: u64,
    /// How often a router doubted one of its views.
    pub doubted: u64,
    /// Views that are wrong in the end, because something was misread and nobody has doubted it yet.
    pub misled: u64,
    /// Requests by how they ended: answered, failed, given up.
    pub ended_as: [u64; 3],
    /// How often what a router believed was compared with what an engine held.
    pub compared: u64,
    /// What happened where two workers could serve a request.
    pub split: SplitCounts,
    /// Blocks that engines held for others in the end.
    pub staged_blocks_left: u64,
    /// The last things that happened before the first violation, if they were asked for.
    pub log: Vec<String>,
}

/// What is told of each request that is over: what became of it, and the last decision about it.
pub type Observer<'a> = dyn FnMut(&Record, Option<&Decision>) + 'a;

/// Whether decisions are kept until their request is over, to be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decisions {
    /// They are.
    Kept,
    /// They are not.
    #[default]
    Dropped,
}

/// How closely is looked at what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Care {
    /// At what costs little.
    #[default]
    Usual,
    /// At everything.
    Close,
    /// At everything; and as all requests are alike and go anywhere, at whether classes and tenants get their shares.
    Shares,
}

/// A fleet under traffic.
#[derive(Debug)]
pub struct World<I> {
    pub(crate) setup: FleetSetup,
    pub(crate) now: Time,
    pub(crate) calendar: Calendar,
    pub(crate) agenda: Agenda<I>,
    pub(crate) conversations: Conversations,
    pub(crate) workers: Vec<Worker>,
    pub(crate) routers: Vec<Node>,
    pub(crate) calls: FxHashMap<CallNo, Call>,
    /// Requests that two workers may serve, until nothing of them is left.
    pub(crate) splits: BTreeMap<CallNo, Split>,
    pub(crate) moves: Moves,
    /// Of a thousand answers of prefill workers so many are lost.
    pub(crate) lost_answers: u32,
    pub(crate) decided: BTreeMap<CallNo, Decision>,
    pub(crate) decisions: Decisions,
    /// Where requests must go at first, by their number.
    pub(crate) assigned: Arc<[u32]>,
    pub(crate) rng: Rng,
    pub(crate) memory: Memory,
    pub(crate) log: super::log::Log,
    pub(crate) impatience: u32,
    pub(crate) slow_clients: u32,
    pub(crate) late_words: u32,
    /// Faults that have begun and not ended.
    pub(crate) active: Vec<usize>,
    /// Adapters that were asked for, and tenants by their numbers.
    pub(crate) adapters: BTreeSet<AdapterName>,
    pub(crate) tenants: BTreeMap<Arc<str>, Tenant>,
    pub(crate) care: Care,
    pub(crate) subscriptions: u64,
    pub(crate) outcome: Outcome,
    /// Room for a step of an engine.
    pub(crate) step: Step,
    pub(crate) tokens: Vec<u32>,
    pub(crate) over: Vec<(Record, CallNo)>,
    /// When the last fault ends.
    healed: Time,
    last_arrival: Time,
}

impl<I: Traffic> World<I> {
    /// A world before anything happened.
    pub fn new(setup: FleetSetup, traffic: I) -> Result<Self, WorldError> {
        let mut workers = Vec::new();
        for number in 0..setup.workers.count {
            workers.push(Worker::new(WorkerId(number), setup.worker(number), setup.workers.ring)?);
        }
        let mut world = Self {
            now: Time::ZERO,
            calendar: Calendar::default(),
            agenda: Agenda::new(traffic, SESSIONS),
            conversations: Conversations::new(SESSIONS),
            workers,
            routers: Vec::new(),
            calls: FxHashMap::default(),
            splits: BTreeMap::new(),
            moves: match &setup.split {
                Some(split) => Moves::new(split, setup.workers.count)?,
                None => Moves::default(),
            },
            lost_answers: 0,
            decided: BTreeMap::new(),
            decisions: Decisions::Dropped,
            assigned: Arc::default(),
            rng: Rng::new(setup.seed),
            memory: Memory::default(),
            log: super::log::Log::default(),
            impatience: 0,
            slow_clients: 0,
            late_words: 0,
            active: Vec::new(),
            adapters: BTreeSet::new(),
            tenants: BTreeMap::new(),
            care: Care::Usual,
            subscriptions: 0,
            outcome: Outcome::default(),
            step: Step::default(),
            tokens: Vec::new(),
            over: Vec::new(),
            healed: Time::ZERO,
            last_arrival: Time::ZERO,
            setup,
        };
        for number in 0..world.setup.routers.count {
            let node = world.start_router(number, 0)?;
            world.routers.push(node);
        }
        for fault in 0..world.setup.faults.len() {
            let of = world.setup.faults[fault];
            let ends = of.at + of.lasts;
            world.healed = world.healed.max(ends);
            world.calendar.enter(of.at, Due::Fault { fault, ends: false });
            world.calendar.enter(ends, Due::Fault { fault, ends: true });
        }
        world.calendar.enter(Time::ZERO + CHECK, Due::Check);
        Ok(world)
    }

    /// Keeps the last things that happen, to be printed when something is wrong.
    #[must_use]
    pub fn with_log(mut self) -> Self {
        self.log = super::log::Log::kept();
        self
    }

    /// Looks at everything that can be looked at, whatever it costs.
    #[must_use]
    pub fn with_care(mut self, care: Care) -> Self {
        self.care = care;
        self
    }

    /// Keeps decisions, to be shown to the observer.
    #[must_use]
    pub fn with_decisions(mut self) -> Self {
        self.decisions = Decisions::Kept;
        self
    }

    /// Names the workers that requests must go to at first, in the order of arrival; those beyond the list are free to go anywhere.
    #[must_use]
    pub fn with_assignment(mut self, workers: Arc<[u32]>) -> Self {
        self.assigned = workers;
        self
    }

    /// Runs to the end: until all requests are over, all faults are healed, and there was time to recover.
    pub fn run(mut self, observe: &mut Observer<'_>) -> Result<Outcome, WorldError> {
        let mut done_at: Option<Time> = None;
        loop {
            let arrival = self.agenda.due()?;
            let next = self.calendar.next_at();
            if let Some(at) = arrival.filter(|at| next.is_none_or(|next| *at <= next)) {
                self.now = self.now.max(at);
                self.last_arrival = self.now;
                self.arrive()?;
            } else {
                let Some((at, due)) = self.calendar.take() else { break };
                self.now = self.now.max(at);
                self.outcome.hash = mixed(self.outcome.hash, at.0);
                self.happen(due)?;
            }
            while let Some((record, call)) = self.over.pop() {
                observe(&record, self.decided.remove(&call).as_ref());
            }
            if !self.memory.violations.is_empty() {
                break;
            }
            let idle = self.calls.is_empty() && self.agenda.due()?.is_none() && self.is_apart_over();
            if !idle || self.now < self.healed {
                done_at = None;
                let hangs = self.now.since(self.last_arrival.max(self.healed)).0 > PATIENCE.0;
                if hangs && self.agenda.due()?.is_none() {
                    break;
                }
            } else if self.now.since(*done_at.get_or_insert(self.now)).0 >= self.afterwards().0 {
                break;
            }
        }
        if self.memory.violations.is_empty() {
            self.check_end();
        }
        let mut outcome = self.outcome;
        outcome.ended = self.now;
        outcome.violations = self.memory.violations;
        outcome.compared = self.memory.compared;
        outcome.log = self.log.take();
        Ok(outcome)
    }

    /// Without faults there is nothing to recover from but what is under way.
    fn afterwards(&self) -> Millis {
        if self.setup.faults.is_empty() {
            Millis(self.setup.links.event_lag.0 * 2.0 + 1_000.0)
        } else {
            AFTERWARDS
        }
    }

    fn happen(&mut self, due: Due) -> Result<(), WorldError> {
        match due {
            Due::Wake { worker } => {
                if self.workers[worker as usize].wakes == Some(self.now) {
                    self.workers[worker as usize].wakes = None;
                    self.poke(worker);
                }
            }
            Due::Dispatched { call, attempt } => self.dispatched(call, attempt),
            Due::Progress { call, attempt, tokens } => self.progress(call, attempt, tokens),
            Due::Finished { call, attempt, cached } => self.finished(call, attempt, cached),
            Due::Broken { call, attempt } => self.broken(call, attempt),
            Due::GivenUp { call } => self.given_up(call),
            Due::Batch {
                router,
                life,
                rank,
                subscription,
                batch,
            } => self.heard((router, life), rank, subscription, &batch),
            Due::Asked { router, life, ask } => self.asked((router, life), ask),
            Due::Answered {
                router,
                life,
                ask,
                rank,
                batches,
            } => self.answered((router, life), ask, rank, batches),
            Due::Subscribed {
                router,
                life,
                rank,
                subscription,
            } => self.subscribed((router, life), rank, subscription),
            Due::Unsubscribed {
                router,
                life,
                rank,
                subscription,
            } => self.unsubscribed((router, life), rank, subscription),
            Due::Discovers { router, life, worker } => self.discovers((router, life), worker)?,
            Due::Touch { call, attempt } => self.touch(call, attempt),
            Due::LateWord { router, life, ticket } => self.late_word((router, life), ticket),
            Due::Poll { router, life } => self.poll((router, life)),
            Due::Tick { router, life } => self.tick((router, life)),
            Due::Fault { fault, ends } => self.fault(fault, ends)?,
            Due::LookAgain {
                router,
                call,
                rank,
                looks,
            } => self.look_again((router, call, rank), looks),
            Due::LegArrives { call, leg } => self.leg_arrives(call, leg),
            Due::LegMeets { call, leg } => self.leg_meets(call, leg),
            Due::LegWord { call, leg, word } => self.leg_word(call, leg, word),
            Due::HandoffTick { call } => self.handoff_tick(call),
            Due::TouchAll { call } => self.touch_all(call),
            Due::LinkWakes { worker } => self.link_wakes(worker),
            Due::Poke { worker } => self.poke(worker),
            Due::WorkerGone { worker } => self.worker_gone(worker),
            Due::Check => {
                self.check();
                self.calendar.enter(self.now + CHECK, Due::Check);
            }
        }
        Ok(())
    }
}
