//! The adapters of one router: who has them, who uses them, who is told to load them.
//!
//! The manager is behind a lock that is held for microseconds: while a request enters or leaves, and while something is looked at for
//! one adapter. What the router is told follows from it, one teller at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homing_adapters::{Command, Entered, Host, Manager, ManagerConfig, Method, Opening, SlotsHeard, Standing, When};
use homing_config::{AdapterMethod, AdapterMode, Config};
use homing_discovery::{Facts, ScopedClients};
use homing_domain::{AdapterName, RankId, Tokens, WorkerId};
use homing_profile::{Millis, Time};
use homing_router::Question;
use homing_scheduler::{Adapters, Ready};
use homing_telemetry::{AdapterMove, Metrics};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::engine::{self, Place};
use super::orders::Registered;
use crate::lane::Lane;
use crate::worker::Worker;

/// How often everything that the router knows is looked at, and not only what changed.
const WHOLE: Millis = Millis(1_000.0);

/// What a shelf is made of.
#[derive(Clone, Debug)]
pub(crate) struct ShelfConfig {
    pub(crate) mode: AdapterMode,
    /// Slots of a rank whose engine does not say it.
    pub(crate) slots: u32,
    pub(crate) manager: ManagerConfig,
    /// How engines are spoken to.
    pub(crate) clients: ScopedClients,
    /// Where commands are carried out, whoever gave them.
    pub(crate) runtime: Handle,
    pub(crate) metrics: Arc<Metrics>,
}

impl ShelfConfig {
    /// As the operator asked for it.
    pub(crate) fn new(config: &Config, clients: ScopedClients, runtime: Handle, metrics: Arc<Metrics>) -> Self {
        let limits = &config.adapters;
        let millis = |time: std::time::Duration| Millis(time.as_secs_f64() * 1e3);
        let mut manager = ManagerConfig {
            method: match limits.method {
                AdapterMethod::Rendezvous => Method::Rendezvous,
                AdapterMethod::MinCost => Method::MinCost,
            },
            round: millis(limits.round),
            headroom: limits.headroom,
            down_rounds: limits.down_rounds,
            at_once: limits.at_once as usize,
            load_within: millis(limits.load_timeout),
            unload_within: millis(limits.unload_timeout),
            expected_load: millis(limits.expected_load),
            tries: limits.tries,
            backoff: millis(limits.backoff),
            backoff_most: millis(limits.backoff_most),
            ..ManagerConfig::default()
        };
        manager.demand.window = millis(limits.window);
        Self {
            mode: config.serve.adapters,
            slots: limits.slots,
            manager,
            clients,
            runtime,
            metrics,
        }
    }
}

/// The adapters of one router.
#[derive(Debug)]
pub(crate) struct Shelf {
    config: ShelfConfig,
    /// Written by whoever tells of something, for microseconds.
    inner: Mutex<Inner>,
    /// What the router was told last. Held by whoever tells it.
    told: Mutex<Told>,
    /// Counts changes, for those who wait for a load.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    manager: Manager,
    /// Where workers are told to load and unload.
    places: BTreeMap<WorkerId, Place>,
}

#[derive(Debug, Default)]
struct Told {
    workers: BTreeMap<WorkerId, Adapters>,
    openings: BTreeMap<AdapterName, Vec<Opening>>,
    whole: Option<Time>,
}

/// A request that uses an adapter on a worker, which keeps it there.
#[derive(Debug)]
pub(crate) struct Inside {
    lane: Arc<Lane>,
    worker: WorkerId,
    adapter: AdapterName,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let now = self.lane.now();
        self.lane.shelf.inner().manager.leave(now, self.worker, &self.adapter);
    }
}

/// How all adapters of a router stand.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) adapters: Vec<Standing>,
    pub(crate) manager: Manager,
}

impl Shelf {
    pub(crate) fn new(config: ShelfConfig) -> Self {
        Self {
            inner: Mutex::new(Inner {
                manager: Manager::new(config.manager),
                places: BTreeMap::new(),
            }),
            told: Mutex::default(),
            changes: watch::Sender::new(0),
            config,
        }
    }

    pub(crate) fn manages(&self) -> bool {
        self.config.mode == AdapterMode::Manage
    }

    /// How everything stands, for operators: a copy.
    pub(crate) fn shown(&self, now: Time) -> Shown {
        let manager = self.inner().manager.clone();
        let adapters = manager.names().filter_map(|name| manager.standing(now, name)).collect();
        Shown { adapters, manager }
    }

    /// What is where, for metrics: adapters that are known, those on ranks, slots.
    pub(crate) fn numbers(&self) -> (usize, u64, u64) {
        let inner = self.inner();
        let residency = inner.manager.residency();
        (
            inner.manager.names().count(),
            residency.all_loaded(),
            residency.all_slots(),
        )
    }

    /// Whether some worker has an adapter.
    pub(crate) fn has(&self, adapter: &AdapterName) -> bool {
        self.inner().manager.residency().holders(adapter).next().is_some()
    }

    /// Told whenever something changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether a request finds its adapter on a worker, and whether it is to wait for it there.
    pub(super) fn finds(&self, worker: WorkerId, adapter: &AdapterName) -> (Entered, bool) {
        let inner = self.inner();
        (
            inner.manager.finds(worker, adapter),
            inner.manager.is_coming(worker, adapter),
        )
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// A worker takes requests from now on. It was asked at `asked` what it is.
    pub(crate) fn adapters_came(self: &Arc<Self>, worker: &Worker, asked: Time) {
        let slots = worker.facts.adapter_slots.unwrap_or(self.shelf.config.slots);
        let host = Host {
            worker: worker.id,
            name: worker.name.clone(),
            ranks: worker.spec.ranks,
            slots,
        };
        let place = Place {
            url: worker.spec.url.clone(),
            dialect: worker.spec.dialect,
            scope: worker.spec.scope,
        };
        let heard = {
            let mut inner = self.shelf.inner();
            inner.places.insert(worker.id, place);
            inner.manager.worker_up(host)
        };
        if let SlotsHeard::Changed { from, to } = heard {
            tracing::warn!(worker = %worker.name, from, to, "has another number of slots for adapters than before");
        }
        self.adapters_listed(asked, worker.id, &worker.facts);
    }

    /// A worker says which adapters it has; it was asked at `asked`.
    pub(crate) fn adapters_listed(self: &Arc<Self>, asked: Time, worker: WorkerId, facts: &Facts) {
        let listed: Vec<(AdapterName, Option<Arc<str>>)> = facts
            .adapters()
            .map(|model| {
                (
                    AdapterName::new(model.name.as_str()),
                    model.root.as_deref().map(Into::into),
                )
            })
            .collect();
        self.shelf.inner().manager.listed(asked, worker, &listed);
        self.adapters_changed(None);
    }

    /// A worker says which adapters requests use there.
    pub(crate) fn adapters_active(&self, worker: WorkerId, active: &BTreeSet<String>) {
        let active: BTreeSet<AdapterName> = active.iter().map(|name| AdapterName::new(name.as_str())).collect();
        let mut inner = self.shelf.inner();
        let ranks: Vec<RankId> = inner.manager.residency().ranks_of(worker).collect();
        // It is not said on which rank.
        for rank in ranks {
            inner.manager.active(rank, active.clone());
        }
    }

    /// A worker takes no requests any more.
    pub(crate) fn adapters_gone(self: &Arc<Self>, worker: WorkerId) {
        {
            let mut inner = self.shelf.inner();
            inner.places.remove(&worker);
            inner.manager.worker_gone(worker);
        }
        self.shelf
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .workers
            .remove(&worker);
        self.adapters_changed(None);
    }

    /// Somebody tells of an adapter.
    pub(crate) fn adapter_registered(self: &Arc<Self>, name: &AdapterName, of: &Registered) {
        let pinned = of.pinned;
        let registered = self.shelf.inner().manager.register(name, of.source.clone(), pinned);
        if let Err(error) = registered {
            tracing::warn!(adapter = %name, %error, "is not known");
        }
        self.adapters_tick();
    }

    /// An adapter is not to be served any more. Returns whether it was known.
    pub(crate) fn adapter_unregistered(self: &Arc<Self>, name: &AdapterName) -> bool {
        let known = self.shelf.inner().manager.unregister(name);
        self.adapters_changed(Some(name));
        self.adapters_tick();
        known
    }

    /// A request came.
    pub(crate) fn adapter_asked(&self, question: &Question) {
        if self.shelf.manages() {
            let tokens = Tokens(question.prompt.0.saturating_add(question.most_output.0.min(1_024)));
            let mut inner = self.shelf.inner();
            inner.manager.asked(self.now(), question.adapter.as_ref(), tokens);
        }
    }

    /// A request waits for its adapter on a worker.
    pub(crate) fn adapter_wanted(self: &Arc<Self>, worker: WorkerId, adapter: &AdapterName) {
        if self.shelf.manages() {
            self.shelf.inner().manager.want(self.now(), worker, adapter);
            self.adapters_changed(Some(adapter));
        }
    }

    /// The router is told what holds of an adapter now.
    pub(crate) fn adapter_looked_at(self: &Arc<Self>, adapter: &AdapterName) {
        self.tell_router(Some(adapter));
    }

    /// A request is about to be sent to a worker: its adapter stays there until what is returned is dropped. An error: it is not there, or on
    /// its way out, which the router knows now.
    pub(crate) fn adapter_enter(
        self: &Arc<Self>,
        worker: WorkerId,
        adapter: Option<&AdapterName>,
    ) -> Result<Option<Inside>, Absent> {
        let (Some(adapter), true) = (adapter, self.shelf.manages()) else {
            return Ok(None);
        };
        let entered = self.shelf.inner().manager.enter(self.now(), worker, adapter);
        if entered == Entered::Absent {
            self.adapters_changed(Some(adapter));
            return Err(Absent);
        }
        Ok(Some(Inside {
            lane: self.clone(),
            worker,
            adapter: adapter.clone(),
        }))
    }

    /// A worker that was sent a request at `sent` says that it does not have its adapter. Returns whether that is for us to mend: where any
    /// worker is sent any adapter it is not.
    pub(crate) fn adapter_lacked(self: &Arc<Self>, sent: Time, worker: WorkerId, adapter: &AdapterName) -> bool {
        if self.shelf.config.mode == AdapterMode::Observe {
            return false;
        }
        self.shelf.inner().manager.lacks(self.now(), sent, worker, adapter);
        self.adapters_changed(Some(adapter));
        true
    }

    /// Time passed.
    pub(crate) fn adapters_tick(self: &Arc<Self>) {
        if !self.shelf.manages() {
            return;
        }
        let now = self.now();
        let busy = self.router.utilisation(now);
        self.shelf.inner().manager.tick(now, busy);
        self.adapters_changed(None);
    }

    /// Tells the router what changed, carries out what the manager wants done, and wakes those who wait. With a name, only what
    /// concerns that adapter is looked at beyond who has what.
    fn adapters_changed(self: &Arc<Self>, only: Option<&AdapterName>) {
        self.tell_router(only);
        let commands: Vec<(Command, Option<Place>)> = {
            let mut inner = self.shelf.inner();
            let commands: Vec<Command> = std::iter::from_fn(|| inner.manager.next_command()).collect();
            let place = |command: &Command| inner.places.get(&command.worker).cloned();
            let places: Vec<Option<Place>> = commands.iter().map(place).collect();
            commands.into_iter().zip(places).collect()
        };
        for (command, place) in commands {
            // What is unloaded takes no more requests before it goes.
            self.tell_router(Some(&command.adapter));
            let lane = self.clone();
            self.shelf.config.runtime.spawn(lane.carry_out(command, place));
        }
        self.shelf.changes.send_modify(|count| *count += 1);
    }

    async fn carry_out(self: Arc<Self>, command: Command, place: Option<Place>) {
        let began = std::time::Instant::now();
        let done = match &place {
            Some(place) => engine::tell(self.shelf.config.clients.of(place.scope), place, &command).await,
            None => Err("it is gone".to_owned()),
        };
        let loads = matches!(command.act, homing_adapters::Act::Load { .. });
        let metrics = &self.shelf.config.metrics.gateway;
        let outcome = match (loads, done.is_ok()) {
            (true, true) => AdapterMove::Loaded,
            (true, false) => AdapterMove::LoadFailed,
            (false, true) => AdapterMove::Unloaded,
            (false, false) => AdapterMove::UnloadFailed,
        };
        metrics.adapter_moves.of(outcome).add(1);
        if outcome == AdapterMove::Loaded {
            metrics.adapter_load.observe(began.elapsed());
        }
        let (adapter, took_ms) = (&command.adapter, began.elapsed().as_millis());
        let worker = place.as_ref().map(|place| place.url.to_string()).unwrap_or_default();
        match &done {
            Ok(()) => tracing::info!(%adapter, worker, took_ms, loads, "an adapter was moved"),
            Err(why) => tracing::warn!(%adapter, worker, took_ms, loads, why, "an adapter could not be moved"),
        }
        let now = self.now();
        self.shelf
            .inner()
            .manager
            .done(now, command.job, done.as_ref().copied().map_err(String::as_str));
        self.adapters_changed(Some(&command.adapter));
    }

    /// Tells the router who has which adapters, and where a request may go that finds nobody.
    fn tell_router(self: &Arc<Self>, only: Option<&AdapterName>) {
        let held = &self.shelf;
        let mut told = held.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let serving: BTreeMap<WorkerId, Adapters> = {
            let inner = held.inner();
            let workers = inner.places.keys();
            workers
                .map(|worker| (*worker, held.served(&inner.manager, *worker)))
                .collect()
        };
        let mut moved: BTreeSet<AdapterName> = BTreeSet::new();
        for (worker, adapters) in serving {
            if told.workers.get(&worker) != Some(&adapters) {
                let before = told.workers.insert(worker, adapters.clone());
                let (before, after) = (names_of(before.as_ref()), names_of(Some(&adapters)));
                moved.extend(before.symmetric_difference(&after).cloned());
                self.worker_changed(worker, |facts| facts.adapters = adapters.clone());
            }
        }
        if !held.manages() {
            return;
        }
        let whole = only.is_none() && told.whole.is_none_or(|last| now.since(last).0 >= WHOLE.0);
        if whole {
            told.whole = Some(now);
            moved.extend(held.inner().manager.names().cloned());
            moved.extend(told.openings.keys().cloned());
        }
        moved.extend(only.cloned());
        for name in moved {
            let openings = held.inner().manager.openings(now, &name);
            if told.openings.get(&name).map_or(&[][..], Vec::as_slice) == openings.as_slice() {
                continue;
            }
            let ready: Vec<(WorkerId, Ready)> = openings.iter().map(ready).collect();
            self.open(&name, &ready);
            if openings.is_empty() {
                told.openings.remove(&name);
            } else {
                told.openings.insert(name, openings);
            }
        }
    }
}

impl Shelf {
    /// What a worker serves, as the router is told.
    fn served(&self, manager: &Manager, worker: WorkerId) -> Adapters {
        if self.config.mode == AdapterMode::Observe {
            return Adapters::Any;
        }
        let names = manager.served_by(worker);
        if names.is_empty() {
            Adapters::None
        } else {
            Adapters::Only(names)
        }
    }
}

/// The adapter is not there, or not for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absent;

fn names_of(adapters: Option<&Adapters>) -> BTreeSet<AdapterName> {
    match adapters {
        Some(Adapters::Only(names)) => names.iter().cloned().collect(),
        _ => BTreeSet::new(),
    }
}

fn ready(opening: &Opening) -> (WorkerId, Ready) {
    let ready = match opening.when {
        When::Loading(then) => Ready::At(then),
        When::Asked(wait) => Ready::After(wait),
    };
    (opening.worker, ready)
}
