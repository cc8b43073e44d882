//! The world: what happens when, and to whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use homing_adapters::{Act, Host as Site, JobId, Manager, ManagerConfig, Opening, Pinned};
use homing_domain::{AdapterName, BlockSize, HashSeed, KeyHasher, ModelName, RankId, WorkerId};
use homing_engine::Outcome as Step;
use homing_index::{Index, IndexConfig};
use homing_load::RankSpec;
use homing_profile::{Millis, Time, Timing, builtin};
use homing_router::{CacheView, NewRank, Router, RouterConfig};
use homing_scheduler::policy::by_name;
use homing_scheduler::{Adapters, RankFacts};

use super::calls::Call;
use super::host::Host;
use super::mix::Mix;
use super::setup::{Outcome, Placement, Setup};
use crate::Rng;

/// How often time passes for the router.
const TICK: Millis = Millis(100.0);

#[derive(Debug)]
pub(super) enum Due {
    Arrive,
    Again(usize),
    Wake(u32),
    /// A load or unload that a manager ordered is over.
    Moved {
        worker: u32,
        life: u64,
        job: JobId,
        adapter: AdapterName,
        loads: bool,
        well: bool,
    },
    /// A load of a worker's own is over.
    Loaded {
        worker: u32,
        life: u64,
        adapter: AdapterName,
        well: bool,
    },
    Tick,
    Shift,
    Lost(u32),
    Back(u32),
}

struct Entry(Time, u64, Due);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) mix: Mix,
    calendar: BinaryHeap<Reverse<Entry>>,
    number: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) router: Router,
    pub(super) manager: Option<Manager>,
    pub(super) calls: Vec<Call>,
    /// Those who wait for a load that a manager was asked for.
    pub(super) waiting: BTreeMap<(u32, AdapterName), Vec<usize>>,
    pub(super) told: BTreeMap<u32, Vec<AdapterName>>,
    pub(super) opened: BTreeMap<AdapterName, Vec<Opening>>,
    ticks: u64,
    step: Step,
    pub(super) outcome: Outcome,
}

/// Runs it until every request has an end.
pub fn run(setup: &Setup) -> Outcome {
    let mut world = World::new(setup.clone());
    world.begin();
    while let Some(Reverse(Entry(at, _, due))) = world.calendar.pop() {
        world.now = at;
        world.happens(due);
    }
    if let Some(lose) = setup.lose {
        world.outcome.back = world.has(lose.worker);
    }
    world.outcome
}

impl World {
    fn new(setup: Setup) -> Self {
        let timing = Timing::measured(builtin::load("h200-llama-3.1-8b").expect("it comes with Homing"));
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let mut config = RouterConfig::new(BlockSize::new(16).expect("it is not 0"), hasher);
        config.seed = setup.seed;
        let policy = by_name("time").expect("it exists");
        let router = Router::new(&config, policy, Index::new(IndexConfig::new(hasher)).reader());
        let manager = match setup.placement {
            Placement::None => None,
            Placement::Managed(method) => Some(Manager::new(ManagerConfig {
                method,
                expected_load: setup.load,
                at_once: setup.workers as usize,
                ..ManagerConfig::default()
            })),
        };
        Self {
            now: Time::ZERO,
            rng: Rng::new(setup.seed),
            mix: Mix::new(setup.adapters),
            calendar: BinaryHeap::new(),
            number: 0,
            hosts: (0..setup.workers)
                .map(|_| Host::new(timing.clone(), setup.slots))
                .collect(),
            router,
            manager,
            calls: Vec::new(),
            waiting: BTreeMap::new(),
            told: BTreeMap::new(),
            opened: BTreeMap::new(),
            ticks: 0,
            step: Step::default(),
            outcome: Outcome::default(),
            setup,
        }
    }

    fn begin(&mut self) {
        for worker in 0..self.setup.workers {
            self.up(worker);
        }
        if let Some(manager) = &mut self.manager {
            for name in self.mix.names() {
                let registered = manager.register(name, "/adapters".into(), Pinned::No);
                registered.expect("there is room");
            }
        }
        self.enter(Time::ZERO, Due::Arrive);
        self.enter(Time::ZERO, Due::Tick);
        if let Some(shift) = self.setup.shift {
            self.enter(Time::from_millis(shift * 1e3), Due::Shift);
        }
        if let Some(lose) = self.setup.lose {
            self.enter(Time::from_millis(lose.at * 1e3), Due::Lost(lose.worker));
            self.enter(Time::from_millis(lose.back * 1e3), Due::Back(lose.worker));
        }
    }

    pub(super) fn enter(&mut self, at: Time, due: Due) {
        self.number += 1;
        self.calendar.push(Reverse(Entry(at, self.number, due)));
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Arrive => self.arrive(),
            Due::Again(call) => self.ask(call),
            Due::Wake(worker) => {
                self.hosts[worker as usize].wakes = None;
                self.work(worker);
            }
            Due::Moved {
                worker,
                life,
                job,
                adapter,
                loads,
                well,
            } => {
                if self.hosts[worker as usize].life == life {
                    self.moved(worker, job, &adapter, (loads, well));
                }
            }
            Due::Loaded {
                worker,
                life,
                adapter,
                well,
            } => {
                if self.hosts[worker as usize].life == life {
                    self.loaded(worker, &adapter, well);
                }
            }
            Due::Tick => self.tick(),
            Due::Shift => {
                self.mix.shift();
                if self.comes() {
                    let shift = self.setup.shift.unwrap_or(1e9);
                    self.enter(self.now + Millis(shift * 1e3), Due::Shift);
                }
            }
            Due::Lost(worker) => self.lost(worker),
            Due::Back(worker) => {
                self.hosts[worker as usize].up = true;
                self.up(worker);
            }
        }
        self.effects();
    }

    /// Whether requests still come.
    pub(super) fn comes(&self) -> bool {
        self.now.millis() < self.setup.seconds * 1e3
    }

    /// An engine does what is due.
    pub(super) fn work(&mut self, worker: u32) {
        let mut step = std::mem::take(&mut self.step);
        while self.hosts[worker as usize].engine.poll(self.now, &mut step) {
            for output in &step.tokens {
                self.first_token(output.request.0 as usize);
            }
            for finished in &step.finished {
                self.finished(worker, finished.request.0 as usize);
            }
        }
        self.step = step;
        let host = &mut self.hosts[worker as usize];
        if let Some(next) = host.engine.wake_at()
            && host.wakes.is_none_or(|wakes| next < wakes)
        {
            host.wakes = Some(next);
            self.enter(next, Due::Wake(worker));
        }
    }

    fn tick(&mut self) {
        self.router.tick(self.now);
        let busy = self.router.utilisation(self.now);
        self.ticks += 1;
        if let Some(manager) = &mut self.manager {
            manager.tick(self.now, busy);
            self.manage(None);
            if self.ticks.is_multiple_of(10) {
                self.tell_all();
            }
        }
        let over = self.calls.iter().rev().all(|call| call.over);
        if self.comes() || !over {
            self.enter(self.now + TICK, Due::Tick);
        }
    }

    fn up(&mut self, worker: u32) {
        let rank = RankId::new(worker, 0);
        let timing = Timing::measured(builtin::load("h200-llama-3.1-8b").expect("it comes with Homing"));
        let adapters = if self.manager.is_some() {
            Adapters::None
        } else {
            Adapters::Any
        };
        let new = NewRank {
            spec: RankSpec {
                capacity: Some(16_384),
                max_sequences: Some(256),
                ..RankSpec::new(rank, timing)
            },
            facts: RankFacts {
                adapters,
                ..RankFacts::new(rank, model())
            },
            view: CacheView::Nothing,
        };
        self.router.rank_up(self.now, new).expect("there is room");
        self.told.remove(&worker);
        if let Some(manager) = &mut self.manager {
            manager.worker_up(Site {
                worker: WorkerId(worker),
                name: format!("http://worker-{worker}:8000").into(),
                ranks: 1,
                slots: self.setup.slots,
            });
        }
    }

    /// A worker is lost: its requests begin anew elsewhere.
    fn lost(&mut self, worker: u32) {
        self.outcome.lost = self.has(worker);
        self.hosts[worker as usize].lose();
        self.router.rank_gone(self.now, RankId::new(worker, 0));
        if let Some(manager) = &mut self.manager {
            manager.worker_gone(WorkerId(worker));
        }
        let gone: Vec<usize> = (0..self.calls.len())
            .filter(|number| {
                let call = &self.calls[*number];
                !call.over && call.ticket.is_some() && call.worker == worker
            })
            .collect();
        for number in gone {
            self.calls[number].ticket = None;
            self.enter(self.now, Due::Again(number));
        }
        self.release(worker);
    }

    fn has(&self, worker: u32) -> BTreeSet<AdapterName> {
        match &self.manager {
            Some(manager) => manager.residency().on_worker(WorkerId(worker)),
            None => self.hosts[worker as usize].held.keys().cloned().collect(),
        }
    }

    /// How long a load takes this time, and whether it goes well.
    pub(super) fn draw_load(&mut self) -> (Millis, bool) {
        let takes = Millis(self.setup.load.0 * (0.5 + self.rng.share()));
        let failing = self.setup.failing;
        (takes, !self.rng.chance(failing))
    }

    pub(super) fn note_load(&mut self, worker: u32, adapter: &AdapterName) {
        let at = self.now.millis() / 1e3;
        self.outcome.loads.push((at, worker, adapter.clone()));
    }

    /// What a command of a manager leads to.
    pub(super) fn carry_out(&mut self, worker: u32, job: JobId, adapter: AdapterName, act: &Act) {
        let (loads, (takes, well)) = match act {
            Act::Load { .. } => (true, self.draw_load()),
            Act::Unload => (false, (Millis(2.0), true)),
        };
        let life = self.hosts[worker as usize].life;
        let due = Due::Moved {
            worker,
            life,
            job,
            adapter,
            loads,
            well,
        };
        self.enter(self.now + takes, due);
    }
}

pub(super) fn model() -> ModelName {
    ModelName::from("m")
}
