//! Who comes, who goes, and who is told of it?
//!
//! One task owns the fleet. It hears from discovery who exists and from watchers what they are and how they do, and tells routers,
//! keepers and the table that requests read. A worker takes no request before it has said what it is.
//!
//! **Invariant:** a worker is in its router, its keeper and the table, or in none of them.
//!
//! **Invariant:** a worker that left takes no new request, and what it has may end: only then is it forgotten, or when the time for
//! that is over.

mod enlist;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use homing_config::{AddressRules, AddressScope, Config};
use homing_discovery::{Change, Facts, News, Notice, Outward, Watcher, Watchers, Worker as Found};
use homing_domain::{AdapterName, RankId, WorkerId};
use homing_keeper::{Lanes, RegisteredAccess, Sources, Subject};
use homing_load::Report;
use homing_profile::{Time, Timing};
use homing_telemetry::Metrics;
use homing_tls::Trust;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::adapters::{Catalogue, Entries, Order, ShelfConfig};
use crate::checkup::Checkup;
use crate::clock::Clock;
use crate::lane::Lane;
use crate::table::Table;
use crate::tokens::Prompters;
use crate::worker::Worker;

/// How often routers are told that time passes while nobody waits, and while somebody does.
const TICK: Duration = Duration::from_millis(100);
const QUICK_TICK: Duration = Duration::from_millis(20);
/// Doubts that wait to be looked at.
const DOUBTS: usize = 256;

/// What the steward works with.
#[derive(Debug)]
pub(crate) struct Steward {
    config: Arc<Config>,
    timing: Timing,
    clock: Clock,
    table: Arc<ArcSwap<Table>>,
    metrics: Arc<Metrics>,
    /// Which addresses workers may have that registered themselves.
    rules: Arc<AddressRules>,
    sources: Sources,
    decoders: Lanes,
    prompters: Arc<Prompters>,
    watchers: Watchers,
    trust: Trust,
    checkup: Option<Checkup>,
    /// How the adapters of a router are kept.
    shelves: ShelfConfig,
    /// Adapters that operators told us of, and those that they want to be gone.
    pub(crate) registered: Entries,
    /// Where the former are kept over a restart, if they are.
    pub(crate) catalogue: Option<Catalogue>,
    pub(crate) withdrawn: BTreeSet<AdapterName>,
    orders: mpsc::Receiver<Order>,
    lanes: BTreeMap<Subject, Arc<Lane>>,
    /// All that were told of, whether they answer or not.
    known: BTreeMap<WorkerId, Known>,
    leaving: Vec<Leaving>,
    doubts: (mpsc::Sender<RankId>, mpsc::Receiver<RankId>),
}

#[derive(Debug)]
struct Known {
    found: Found,
    /// Watches it as long as it is known.
    _watcher: Watcher,
    worker: Option<Arc<Worker>>,
    /// What it said last, and when it was asked. It differs from what its worker is made of by adapters only.
    listed: Option<(Time, Arc<Facts>)>,
}

#[derive(Debug)]
struct Leaving {
    worker: Arc<Worker>,
    since: Instant,
}

/// Why the steward cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StewardError {
    /// Threads cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(#[from] std::io::Error),
    /// Sources of events cannot be made.
    #[error(transparent)]
    Sources(#[from] homing_keeper::ClientError),
}

/// What was worked out before.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) config: Arc<Config>,
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) prompters: Arc<Prompters>,
    pub(crate) watchers: Watchers,
    pub(crate) trust: Trust,
    /// How workers are asked what they are.
    pub(crate) spoken: Outward,
    /// What operators order about adapters.
    pub(crate) orders: mpsc::Receiver<Order>,
    /// What they ordered before this start, and where it is kept.
    pub(crate) catalogue: Option<(Catalogue, Entries)>,
}

/// How the events of workers are reached that registered themselves. The key of engines is not sent there.
fn registered_access(spoken: &Outward) -> RegisteredAccess {
    let clients = Outward {
        key: None,
        ..spoken.clone()
    }
    .clients();
    RegisteredAccess {
        rules: spoken.rules.clone(),
        remote_client: clients.of(AddressScope::Registered).clone(),
        local_client: clients.of(AddressScope::RegisteredLocally).clone(),
    }
}

impl Steward {
    pub(crate) fn new(begin: Begin) -> Result<Self, StewardError> {
        let Begin {
            config,
            timing,
            clock,
            table,
            metrics,
            prompters,
            watchers,
            trust,
            spoken,
            orders,
            catalogue,
        } = begin;
        let (catalogue, registered) = catalogue.unzip();
        let checkup = Checkup::new(&config, prompters.clone(), &spoken);
        let shelves = ShelfConfig::new(&config, spoken.clients(), Handle::current(), metrics.clone());
        Ok(Self {
            shelves,
            registered: registered.unwrap_or_default(),
            catalogue,
            withdrawn: BTreeSet::new(),
            orders,
            sources: Sources::new(&config, &metrics)?.with_registered(registered_access(&spoken)),
            rules: spoken.rules.clone(),
            decoders: Lanes::start(homing_keeper::lanes_config(&config), &metrics)?,
            config,
            timing,
            clock,
            table,
            metrics,
            prompters,
            watchers,
            trust,
            checkup,
            lanes: BTreeMap::new(),
            known: BTreeMap::new(),
            leaving: Vec::new(),
            doubts: mpsc::channel(DOUBTS),
        })
    }

    /// Does its work until both channels are closed.
    pub(crate) async fn run(mut self, mut changes: mpsc::Receiver<Change>, mut notices: mpsc::Receiver<Notice>) {
        let mut next = tokio::time::Instant::now();
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Some(change) => self.change(change).await,
                    None => break,
                },
                Some(notice) = notices.recv() => self.notice(notice).await,
                Some(order) = self.orders.recv() => self.order(order).await,
                Some(rank) = self.doubts.1.recv() => self.doubt(rank).await,
                () = tokio::time::sleep_until(next) => {
                    let waiting = self.tick().await;
                    next = tokio::time::Instant::now() + if waiting { QUICK_TICK } else { TICK };
                }
            }
        }
    }

    async fn change(&mut self, change: Change) {
        match change {
            Change::Came(found) => {
                tracing::info!(worker = %found.spec.url, origin = %found.origin, "is told of");
                let watcher = self.watchers.watch_scoped(found.id, &found.spec.url, found.spec.scope);
                let known = Known {
                    found,
                    _watcher: watcher,
                    worker: None,
                    listed: None,
                };
                self.known.insert(known.found.id, known);
            }
            Change::Changed(found) => {
                let Some(known) = self.known.get_mut(&found.id) else {
                    return;
                };
                known.found = found;
                let listed = known.listed.take();
                if let Some(worker) = known.worker.take() {
                    let id = worker.id;
                    self.forget(&worker).await;
                    if let Some((asked, facts)) = listed {
                        self.enlist(id, facts, asked).await;
                    }
                }
            }
            Change::Left(id) => {
                if let Some(worker) = self.known.remove(&id).and_then(|known| known.worker) {
                    tracing::info!(worker = %worker.name, in_flight = worker.in_flight(), "leaves");
                    worker.set_draining(true);
                    let since = Instant::now();
                    self.leaving.push(Leaving { worker, since });
                }
            }
        }
    }

    async fn notice(&mut self, notice: Notice) {
        let Some(known) = self.known.get(&notice.worker) else {
            return;
        };
        match notice.news {
            News::Facts(facts) => match known.worker.clone() {
                None => self.enlist(notice.worker, facts, notice.at).await,
                Some(worker) if worker.facts.is_same_worker(&facts) => {
                    worker.lane.adapters_listed(notice.at, worker.id, &facts);
                    let known = self.known.get_mut(&notice.worker);
                    let before = known.and_then(|known| known.listed.replace((notice.at, facts.clone())));
                    if before.is_none_or(|(_, before)| before != facts) {
                        self.publish();
                    }
                }
                Some(worker) => {
                    tracing::info!(worker = %worker.name, "says something else of itself now");
                    self.forget(&worker).await;
                    self.enlist(notice.worker, facts, notice.at).await;
                }
            },
            News::NoFacts(why) => {
                tracing::warn!(worker = %known.found.spec.url, why, "does not say what it is: it takes no requests until it does");
            }
            News::Ping(ping) => {
                if let Some(worker) = &known.worker {
                    worker.ping(self.clock.now(), ping);
                }
            }
            News::Active(active) => {
                if let Some(worker) = &known.worker {
                    worker.lane.adapters_active(worker.id, &active);
                }
            }
            News::Load(loads) => {
                let Some(worker) = &known.worker else { return };
                for load in loads {
                    let rank = RankId {
                        worker: worker.id,
                        dp: load.dp,
                    };
                    let report = Report {
                        at: notice.at,
                        used_blocks: worker.our_blocks(load.report.used_blocks),
                        ..load.report
                    };
                    if let Err(error) = worker.lane.router.report(self.clock.now(), rank, report) {
                        tracing::debug!(worker = %worker.name, %error, "its load is not used");
                    }
                }
            }
        }
    }

    /// The view of a rank keeps being wrong.
    async fn doubt(&self, rank: RankId) {
        let worker = self.known.get(&rank.worker).and_then(|known| known.worker.as_ref());
        let Some(worker) = worker else { return };
        self.metrics.gateway.doubted_views.add(1);
        if let Err(error) = worker.lane.keeper.doubt(rank).await {
            tracing::warn!(worker = %worker.name, %error, "its view cannot be made anew");
        }
    }

    /// Whether anybody waits.
    async fn tick(&mut self) -> bool {
        let (mut waiting, mut staged) = (0, 0);
        for lane in self.lanes.values() {
            lane.tick();
            lane.adapters_tick();
            waiting += lane.router.waiting();
            staged += lane.router.staged_blocks();
        }
        self.metrics.gateway.waiting_requests.set(waiting as u64);
        self.metrics.gateway.staged_blocks.set(staged);
        self.count_adapters();
        self.forget_withdrawn();
        let now = self.clock.now();
        for worker in self.workers() {
            worker.refresh(now);
        }
        let limit = self.config.serve.times.drain;
        let over = |leaving: &Leaving| leaving.worker.in_flight() == 0 || leaving.since.elapsed() > limit;
        let (gone, still): (Vec<Leaving>, Vec<Leaving>) = std::mem::take(&mut self.leaving).into_iter().partition(over);
        self.leaving = still;
        for leaving in gone {
            tracing::info!(worker = %leaving.worker.name, in_flight = leaving.worker.in_flight(), "is forgotten");
            self.forget(&leaving.worker).await;
        }
        waiting > 0
    }

    fn workers(&self) -> impl Iterator<Item = Arc<Worker>> {
        let leaving = self.leaving.iter().map(|leaving| leaving.worker.clone());
        let known = self.known.values().filter_map(|known| known.worker.clone());
        known.chain(leaving)
    }

    /// The lanes of a model.
    pub(crate) fn lanes_of(&self, model: &str) -> Vec<Arc<Lane>> {
        let lanes = self.lanes.values().filter(|lane| lane.subject.model.as_str() == model);
        lanes.cloned().collect()
    }

    /// All lanes.
    pub(crate) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.values().cloned().collect()
    }

    /// The names of models that somebody serves.
    pub(crate) fn models(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.lanes.keys().map(|subject| subject.model.to_string()).collect();
        names.into_iter().collect()
    }

    /// Adapters that were taken away and are nowhere any more need not be remembered.
    fn forget_withdrawn(&mut self) {
        if self.withdrawn.is_empty() {
            return;
        }
        let listed = |name: &AdapterName| {
            self.known.values().any(|known| {
                let listed = known.listed.as_ref();
                listed.is_some_and(|(_, facts)| facts.adapters().any(|adapter| adapter.name == name.as_str()))
            })
        };
        let gone = |name: &AdapterName| !listed(name) && !self.lanes.values().any(|lane| lane.shelf.has(name));
        let gone: Vec<AdapterName> = self.withdrawn.iter().filter(|name| gone(name)).cloned().collect();
        for name in gone {
            self.withdrawn.remove(&name);
        }
    }

    fn count_adapters(&self) {
        let numbers = self.lanes.values().map(|lane| lane.shelf.numbers());
        let (known, resident, slots) = numbers.fold((0, 0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1, sum.2 + of.2));
        let metrics = &self.metrics.gateway;
        metrics.known_adapters.set(known as u64);
        metrics.resident_adapters.set(resident);
        metrics.adapter_slots.set(slots);
    }

    /// The table that requests read is made anew.
    pub(crate) fn publish(&self) {
        let known = self.known.values().filter_map(|known| {
            let worker = known.worker.clone()?;
            let listed = known.listed.as_ref().map(|(_, facts)| facts.clone());
            let facts = listed.unwrap_or_else(|| worker.facts.clone());
            Some((worker, facts))
        });
        let leaving = self
            .leaving
            .iter()
            .map(|leaving| (leaving.worker.clone(), leaving.worker.facts.clone()));
        let registered = self.registered.iter().map(|(name, of)| (name.as_str(), &*of.model));
        let table = Table::of(known.chain(leaving))
            .without_adapters(self.withdrawn.iter().map(AdapterName::as_str))
            .with_adapters(registered);
        self.metrics.gateway.known_workers.set(table.workers.len() as u64);
        self.table.store(Arc::new(table));
    }
}
