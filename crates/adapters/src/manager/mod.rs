//! What is to be loaded and unloaded, where and when?
//!
//! The manager is told who is there, what engines say they have, what is asked for and what came of its commands. In rounds it makes a
//! plan, and it works towards it with a bounded number of commands at a time. Who carries them out says how each ended;
//! what is not heard of within its time has failed.
//!
//! - a load that failed is remembered: it is tried again after a while, which doubles, and after a few tries left alone for long;
//! - what a plan does not want somewhere stays there until its slot is needed;
//! - a request that waits for an adapter goes before plans ([`Manager::want`]).
//!
//! **Invariant:** an adapter that a request uses is not unloaded, nor one that is pinned and planned there: whoever uses it says so
//! first ([`Manager::enter`]), and is told if it is on its way out.
//!
//! **Invariant:** per worker there is one command at a time, and at most [`ManagerConfig::at_once`] in all.
//!
//! **Invariant:** a worker is never told to load more than it has slots.

mod act;
mod heard;
mod standing;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use homing_domain::{AdapterName, Tokens, WorkerId};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

use crate::demand::Demand;
use crate::placement::replicas::Steady;
use crate::placement::{Plan, Site};
use crate::residency::{Residency, SlotsHeard};

pub use standing::{Opening, Standing, When};
pub use types::{Act, Command, Counts, Entered, Failure, Host, JobId, ManagerConfig, Pinned, RegisterError};

#[derive(Clone, Debug, Default)]
struct Entry {
    /// From where it is loaded. Of some it is only known that an engine has them.
    source: Option<Arc<str>>,
    pinned: Pinned,
    /// Who told us of it, and whether it stays known.
    origin: Origin,
}

/// From whom we know of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// Somebody registered it.
    Registered,
    /// An engine has it.
    #[default]
    Listed,
    /// It is not to be served any more, and forgotten when it is nowhere.
    Leaving,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    requests: u32,
    last: Time,
}

#[derive(Clone, Debug)]
struct Job {
    worker: WorkerId,
    adapter: AdapterName,
    kind: Kind,
    since: Time,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Unload,
}

type Pair = (WorkerId, AdapterName);

/// An adapter that requests wait for on a worker.
#[derive(Clone, Debug, PartialEq)]
struct Waited {
    worker: WorkerId,
    adapter: AdapterName,
    /// Nobody waits longer than until then.
    until: Time,
}

/// All that is known, and what is under way.
#[derive(Clone, Debug)]
pub struct Manager {
    config: ManagerConfig,
    residency: Residency,
    demand: Demand,
    catalogue: BTreeMap<AdapterName, Entry>,
    hosts: BTreeMap<WorkerId, Host>,
    used: FxHashMap<Pair, Use>,
    /// One for each worker at most.
    jobs: BTreeMap<JobId, Job>,
    failures: BTreeMap<Pair, Failure>,
    /// Unloads that failed are not tried before this. Whether the adapter is still there is not known before its worker lists it, so
    /// that no request is sent there meanwhile.
    stuck: BTreeMap<Pair, Time>,
    /// Pairs that requests wait for, the oldest first.
    wanted: VecDeque<Waited>,
    /// Adapters that take no new requests on a worker, because others wait for their slot and nobody there is idle.
    giving_way: BTreeMap<WorkerId, AdapterName>,
    /// What was loaded for requests that wait stays until then, so that they find it.
    fresh: BTreeMap<Pair, Time>,
    /// When a pair last changed by a command of ours, or was found missing: what a worker was asked before that is old. Kept until the
    /// worker answers a question that is newer.
    changed: BTreeMap<Pair, Time>,
    plan: Plan,
    steady: Steady,
    commands: VecDeque<Command>,
    next_job: u64,
    next_round: Time,
    load_time: Millis,
    counts: Counts,
}

impl Manager {
    /// A manager who knows nobody.
    pub fn new(config: ManagerConfig) -> Self {
        Self {
            residency: Residency::default(),
            demand: Demand::new(config.demand),
            catalogue: BTreeMap::new(),
            hosts: BTreeMap::new(),
            used: FxHashMap::default(),
            jobs: BTreeMap::new(),
            failures: BTreeMap::new(),
            stuck: BTreeMap::new(),
            wanted: VecDeque::new(),
            giving_way: BTreeMap::new(),
            fresh: BTreeMap::new(),
            changed: BTreeMap::new(),
            plan: Plan::new(),
            steady: Steady::default(),
            commands: VecDeque::new(),
            next_job: 0,
            next_round: Time::ZERO,
            load_time: config.expected_load,
            counts: Counts::default(),
            config,
        }
    }

    /// A worker is there, or says something else of itself.
    pub fn worker_up(&mut self, host: Host) -> SlotsHeard {
        let heard = self.residency.worker_up(host.worker, host.ranks, host.slots);
        self.hosts.insert(host.worker, host);
        // A plan without it, or with it as it was, is none.
        self.next_round = Time::ZERO;
        heard
    }

    /// A worker left, and all that it had and did.
    pub fn worker_gone(&mut self, worker: WorkerId) -> BTreeSet<AdapterName> {
        self.hosts.remove(&worker);
        self.jobs.retain(|_, job| job.worker != worker);
        self.commands.retain(|command| command.worker != worker);
        self.failures.retain(|(of, _), _| *of != worker);
        self.stuck.retain(|(of, _), _| *of != worker);
        self.giving_way.remove(&worker);
        self.fresh.retain(|(of, _), _| *of != worker);
        self.changed.retain(|(of, _), _| *of != worker);
        self.used.retain(|(of, _), _| *of != worker);
        self.wanted.retain(|wanted| wanted.worker != worker);
        for places in self.plan.values_mut() {
            places.remove(&worker);
        }
        self.next_round = Time::ZERO;
        self.residency.worker_gone(worker)
    }

    /// Somebody tells of an adapter: from where it is loaded, and whether it stays. What was said before holds no more, and
    /// neither do failures.
    pub fn register(&mut self, adapter: &AdapterName, source: Arc<str>, pinned: Pinned) -> Result<(), RegisterError> {
        let most = self.config.most;
        if self.catalogue.len() >= most && !self.catalogue.contains_key(adapter) {
            return Err(RegisterError::Full(most));
        }
        let entry = Entry {
            source: Some(source),
            pinned,
            origin: Origin::Registered,
        };
        self.catalogue.insert(adapter.clone(), entry);
        self.failures.retain(|(_, of), _| of != adapter);
        self.next_round = Time::ZERO;
        Ok(())
    }

    /// An adapter is not to be served any more: it is unloaded wherever it is, as soon as nobody uses it. Returns whether it was
    /// known.
    pub fn unregister(&mut self, adapter: &AdapterName) -> bool {
        let resident = self.residency.holders(adapter).next().is_some();
        let known = self.catalogue.remove(adapter).is_some();
        self.failures.retain(|(_, of), _| of != adapter);
        self.wanted.retain(|wanted| wanted.adapter != *adapter);
        self.plan.remove(adapter);
        if resident {
            let leaving = Entry {
                origin: Origin::Leaving,
                ..Entry::default()
            };
            self.catalogue.insert(adapter.clone(), leaving);
        }
        known || resident
    }

    /// A request for an adapter came, or for the model without one.
    pub fn asked(&mut self, now: Time, adapter: Option<&AdapterName>, tokens: Tokens) {
        self.demand.asked(now, adapter, tokens);
    }

    /// A request is about to be sent to a worker. If it finds the adapter, it must [`Manager::leave`].
    pub fn enter(&mut self, now: Time, worker: WorkerId, adapter: &AdapterName) -> Entered {
        if self.is_leaving(worker, adapter) || !self.residency.on_some_of(worker, adapter) {
            return Entered::Absent;
        }
        let used = self.used.entry((worker, adapter.clone())).or_default();
        used.requests += 1;
        used.last = used.last.max(now);
        Entered::Ready
    }

    /// A request that had entered is over.
    pub fn leave(&mut self, now: Time, worker: WorkerId, adapter: &AdapterName) {
        if let Some(used) = self.used.get_mut(&(worker, adapter.clone())) {
            used.requests = used.requests.saturating_sub(1);
            used.last = used.last.max(now);
        }
    }

    /// A request waits for an adapter on a worker.
    pub fn want(&mut self, now: Time, worker: WorkerId, adapter: &AdapterName) {
        if !self.hosts.contains_key(&worker) {
            return;
        }
        if self.residency.on_all_of(worker, adapter) {
            // Whoever gives way to others and is asked for itself stays.
            if self.giving_way.get(&worker) == Some(adapter) {
                self.giving_way.remove(&worker);
            }
            if !self.is_leaving(worker, adapter) {
                return;
            }
        }
        let until = now + self.config.load_within;
        let room = self.wanted.len() < self.config.most;
        let is_it = |wanted: &&mut Waited| wanted.worker == worker && wanted.adapter == *adapter;
        match self.wanted.iter_mut().find(is_it) {
            Some(wanted) => wanted.until = until,
            None if room => self.wanted.push_back(Waited {
                worker,
                adapter: adapter.clone(),
                until,
            }),
            None => return,
        }
        self.act(now);
    }

    fn is_wanted(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        let is_it = |wanted: &Waited| wanted.worker == worker && wanted.adapter == *adapter;
        self.wanted.iter().any(is_it)
    }

    fn not_wanted(&mut self, worker: WorkerId, adapter: &AdapterName) {
        self.wanted
            .retain(|wanted| wanted.worker != worker || wanted.adapter != *adapter);
    }

    /// Time passed. `busy` is the share of the workers that is at work.
    pub fn tick(&mut self, now: Time, busy: f64) {
        self.time_out(now);
        self.wanted.retain(|wanted| wanted.until > now);
        self.fresh.retain(|_, until| *until > now);
        let wanted = &self.wanted;
        self.giving_way
            .retain(|worker, _| wanted.iter().any(|wanted| wanted.worker == *worker));
        if now >= self.next_round {
            self.next_round = now + self.config.round;
            self.demand.round(now);
            self.replan(now, busy);
        }
        self.act(now);
    }

    /// The next thing to be done by a worker.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// What is where.
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// What is asked for.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Where everything should be.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How long a load takes, as seen so far.
    pub fn load_time(&self) -> Millis {
        self.load_time
    }

    /// What happened since the beginning.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a command is not over yet.
    pub fn is_under_way(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// The adapters that are known by name.
    pub fn names(&self) -> impl Iterator<Item = &AdapterName> {
        self.catalogue.keys()
    }

    /// Why an adapter was not loaded on a worker lately.
    pub fn failure(&self, worker: WorkerId, adapter: &AdapterName) -> Option<&Failure> {
        self.failures.get(&(worker, adapter.clone()))
    }

    fn sites(&self) -> Vec<Site> {
        let site = |host: &Host| Site {
            worker: host.worker,
            name: host.name.clone(),
            slots: host.slots,
        };
        self.hosts.values().map(site).collect()
    }
}
