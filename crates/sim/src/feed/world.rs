//! What happens next? The loop of the simulation: events in the order of virtual time.
//!
//! First there is chaos, then calm with engines at work, then silence. Then every view must be right. Then everything is
//! cleared once, and every view must be complete. Then everybody leaves, and nothing may remain.

use std::collections::BTreeMap;

use homing_domain::{KvBatch, RankId};
use homing_feed::{Bug, Command, Input, Recovery};

use super::blocks::Blocks;
use super::checker::{Check, Violation};
use super::engine::{Lives, Surroundings, Worker};
use super::events::{Event, Place, To, WorkerClear};
use super::faults::{Fault, Faults, Happened};
use super::log::{Log, Trace};
use super::router::{Message, Router, Wanted};
use super::setup::Setup;
use homing_trace::rng::Rng;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Makes the world.
    pub seed: u64,
    /// A mistake that the feeds make on purpose.
    pub bug: Option<Bug>,
    /// Whether the log is kept in words.
    pub trace: Trace,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first thing that was wrong; the run ended there.
    pub violation: Option<Violation>,
    /// Stands for all that happened.
    pub digest: u64,
    /// What went wrong on purpose.
    pub happened: Happened,
    /// Inputs that feeds were given.
    pub inputs: u64,
    /// Contents of views that were compared with the truth.
    pub compared: u64,
    /// Virtual time.
    pub end_ms: u64,
    /// The log in words, if it was asked for.
    pub lines: Vec<String>,
}

/// The whole of it.
#[derive(Debug)]
pub struct World {
    pub(super) setup: Setup,
    pub(super) now_ms: u64,
    pub(super) rng: Rng,
    pub(super) blocks: Blocks,
    pub(super) workers: Vec<Worker>,
    pub(super) routers: Vec<Router>,
    pub(super) lives: Lives,
    pub(super) happened: Happened,
    pub(super) log: Log,
    pub(super) violation: Option<Violation>,
    pub(super) inputs: u64,
    pub(super) compared: u64,
    pub(super) worker_clears: Vec<WorkerClear>,
    queue: BTreeMap<(u64, u64), Event>,
    serial: u64,
    /// Whether engines still do something.
    pub(super) is_working: bool,
    /// Whether there are no faults any more.
    is_calm: bool,
}

/// Runs one seed.
pub fn run(run: Run) -> Outcome {
    let mut world = World::new(run);
    world.live();
    Outcome {
        violation: world.violation.map(|violation| Violation {
            seed: run.seed,
            bug: run.bug,
            ..violation
        }),
        digest: world.log.digest(),
        happened: world.happened,
        inputs: world.inputs,
        compared: world.compared,
        end_ms: world.now_ms,
        lines: world.log.into_lines(),
    }
}

impl World {
    fn new(run: Run) -> Self {
        let mut rng = Rng::new(run.seed);
        let setup = Setup::draw(&mut rng, run.bug);
        let (blocks, mut lives) = (Blocks::new(), Lives::default());
        let workers = setup
            .workers
            .iter()
            .map(|worker| Worker::new(worker.clone(), &mut lives));
        let workers: Vec<Worker> = workers.collect();
        let routers = (0..setup.routers).map(|_| Router::new(lives.fresh(), &setup, blocks.hasher));
        let routers = routers.collect();
        Self {
            setup,
            now_ms: 0,
            rng,
            blocks,
            workers,
            routers,
            lives,
            happened: Happened::default(),
            log: Log::new(run.trace),
            violation: None,
            inputs: 0,
            compared: 0,
            worker_clears: Vec::new(),
            queue: BTreeMap::new(),
            serial: 0,
            is_working: true,
            is_calm: false,
        }
    }

    fn live(&mut self) {
        let setup = format!("{:?}", self.setup);
        self.log.note(&[], || setup);
        self.begin();
        let calm_ms = self.setup.chaos_ms;
        self.run_until(calm_ms);
        self.calm();
        let settling_ms = self.setup.settling_ms();
        self.run_until(calm_ms + settling_ms);
        self.is_working = false;
        let quiet_ms = settling_ms / 4 + self.setup.lag_ms();
        self.run_until(calm_ms + settling_ms + quiet_ms);
        self.check_settled(Check::Converged);
        self.clear_everything();
        self.is_working = true;
        self.run_until(self.now_ms + 200);
        self.is_working = false;
        self.run_until(self.now_ms + quiet_ms);
        self.check_settled(Check::ExactAfterClear);
        self.check_nothing_is_left();
    }

    fn begin(&mut self) {
        for place in self.places() {
            let pause = self.rng.below(100);
            self.schedule(pause, Event::Act(place));
            self.schedule(pause, Event::Heartbeat(place));
        }
        for router in 0..self.routers.len() {
            let to = self.to(router);
            self.introduce(to);
            self.schedule(self.setup.tick_ms, Event::Tick(router));
        }
        self.schedule(self.setup.monkey_ms, Event::Monkey);
        self.schedule(self.setup.tick_ms, Event::Check);
    }

    /// A router hears of every rank.
    pub(super) fn introduce(&mut self, to: To) {
        for place in self.places() {
            let delay = self.rng.below(300);
            self.schedule(delay, Event::Return(to, place));
        }
    }

    /// No more faults; what is under way goes on.
    fn calm(&mut self) {
        self.log.note(&[self.now_ms], || "no more faults".to_owned());
        self.is_calm = true;
        self.setup.faults = Faults::NONE;
        (self.setup.loss, self.setup.repeats, self.setup.overflow) = (0, 0, 0);
        self.setup.bad_answers = 0;
        for link in self.routers.iter_mut().flat_map(|router| router.links.values_mut()) {
            (link.silent_until_ms, link.cut_until_ms) = (0, 0);
        }
        for worker in &mut self.workers {
            // Who can be asked need not speak to be repaired.
            let can_be_asked = worker.setup.recovery != Recovery::LiveOnly;
            for rank in &mut worker.ranks {
                let is_idle = can_be_asked && self.rng.chance(300);
                rank.idle_until_ms = if is_idle { u64::MAX } else { 0 };
            }
        }
    }

    fn clear_everything(&mut self) {
        for place in self.places() {
            self.workers[place.worker].ranks[place.rank].idle_until_ms = 0;
            self.clear(place);
            // Batches of siblings do not share a moment with a clear of all of them.
            self.now_ms += 1;
        }
    }

    pub(super) fn run_until(&mut self, end_ms: u64) {
        while self.violation.is_none()
            && let Some(first) = self.queue.first_entry()
            && first.key().0 <= end_ms
        {
            let ((at_ms, _), event) = first.remove_entry();
            self.now_ms = self.now_ms.max(at_ms);
            self.happen(event);
        }
        self.now_ms = self.now_ms.max(end_ms);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(place) => self.act(place),
            Event::Heartbeat(place) => self.heartbeat(place),
            Event::Monkey => self.monkey(),
            Event::Tick(router) => {
                self.tell(router, Input::Tick);
                self.routers[router].feed.maintain(64);
                self.schedule(self.setup.tick_ms, Event::Tick(router));
            }
            Event::Check => {
                self.check_views();
                let pause = if self.is_calm { 10 } else { 3 };
                self.schedule(self.setup.tick_ms * pause, Event::Check);
            }
            Event::Discover(to, place, source) if self.is_there(to) => self.discover(to, place, source),
            Event::Recheck(to, place) if self.is_there(to) => self.recheck(to, place),
            Event::Return(to, place) if self.is_there(to) => {
                let source = self.workers[place.worker].source();
                self.discover(to, place, source);
            }
            Event::Connect(to, place) if self.is_there(to) => self.connect(to, place),
            Event::Disconnect(to, place, subscription) if self.is_there(to) => {
                self.disconnect(to, place, subscription);
            }
            Event::Deliver(to, place, subscription, message) if self.is_there(to) => {
                self.deliver(to, place, subscription, message);
            }
            Event::Asked(to, ask) if self.is_there(to) => self.asked(to, ask),
            Event::Answer(to, ask, reply) if self.is_there(to) => self.answer(to, ask, reply),
            Event::EngineUp(worker, speed) => self.engine_up(worker, speed),
            Event::AgentUp(worker, coverage) => self.agent_up(worker, coverage),
            // Meant for a router that is no more.
            _ => {}
        }
    }

    fn act(&mut self, place: Place) {
        let pause = self.workers[place.worker].setup.pause_ms;
        let pause = 1 + self.rng.below(2 * pause);
        self.schedule(pause, Event::Act(place));
        let worker = &self.workers[place.worker];
        if !self.is_working || !worker.engine_up || worker.ranks[place.rank].idle_until_ms > self.now_ms {
            return;
        }
        // A batch in the very moment of a clear could be before or after it.
        let is_clearing = |clear: &WorkerClear| clear.place.worker == place.worker && clear.at_ms == self.now_ms;
        if !self.worker_clears.iter().any(is_clearing) {
            self.say(place, Worker::act);
        }
    }

    /// All tiers are cleared.
    pub(super) fn clear(&mut self, place: Place) {
        if !self.workers[place.worker].engine_up {
            return;
        }
        self.say(place, Worker::clear);
    }

    pub(super) fn say(&mut self, place: Place, what: fn(&mut Worker, usize, &mut Surroundings<'_>) -> Option<KvBatch>) {
        let mut near = Surroundings {
            now_ms: self.now_ms,
            rng: &mut self.rng,
            blocks: &mut self.blocks,
            happened: &mut self.happened,
        };
        let said = what(&mut self.workers[place.worker], place.rank, &mut near);
        if let Some(batch) = said {
            self.note_clear(place, &batch);
            self.publish(place, &Message::Batch(batch));
        }
    }

    fn note_clear(&mut self, place: Place, batch: &KvBatch) {
        if !batch.is_barrier() {
            return;
        }
        let worker = &self.workers[place.worker];
        if worker.setup.reach == homing_feed::ClearReach::Worker {
            self.happened.count(Fault::ClearWorker);
            self.worker_clears.push(WorkerClear {
                place,
                at_ms: self.now_ms,
                life: worker.stream(place.rank).life,
                sequence: batch.sequence,
            });
        } else {
            self.happened.count(Fault::ClearAll);
        }
    }

    /// A feed is told something; what it asks for is done.
    pub(super) fn tell(&mut self, router: usize, input: Input) {
        self.inputs += 1;
        self.log_input(router, &input);
        if let Err(refused) = self.routers[router].feed.step(self.now_ms, input) {
            self.violate(Check::Bounds, router, None, format!("a rank was refused: {refused}"));
        }
        let mut commands = 0;
        while let Some(command) = self.routers[router].feed.next_command() {
            commands += 1;
            self.obey(router, command);
        }
        self.check_step(router, commands);
    }

    fn obey(&mut self, router: usize, command: Command) {
        let now_ms = self.now_ms;
        let log =
            |numbers: &[u64], log: &mut Log| log.note(numbers, || format!("{now_ms:>6} r{router}   -> {command:?}"));
        match command {
            Command::Ask(ask) => {
                log(&[1, now_ms, ask.id.0], &mut self.log);
                self.routers[router].asks.insert(ask.id, Wanted::Yes);
                let delay = 1 + self.rng.below(5);
                self.schedule(delay, Event::Asked(self.to(router), ask));
            }
            Command::Cancel(id) => {
                log(&[2, now_ms, id.0], &mut self.log);
                let still_comes = self.setup.allows(Fault::AnswerLate) && self.rng.chance(900);
                let wanted = if still_comes {
                    Wanted::ButComes
                } else {
                    Wanted::NotAnyMore
                };
                self.routers[router].asks.insert(id, wanted);
            }
        }
    }

    pub(super) fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.serial += 1;
        self.queue.insert((self.now_ms + delay_ms, self.serial), event);
    }

    pub(super) fn to(&self, router: usize) -> To {
        To {
            router,
            life: self.routers[router].life,
        }
    }

    fn is_there(&self, to: To) -> bool {
        self.routers[to.router].life == to.life
    }

    pub(super) fn places(&self) -> Vec<Place> {
        let of_worker =
            |(worker, ranks): (usize, &Worker)| (0..ranks.ranks.len()).map(move |rank| Place { worker, rank });
        self.workers.iter().enumerate().flat_map(of_worker).collect()
    }

    pub(super) fn id(&self, place: Place) -> RankId {
        self.workers[place.worker].setup.ranks[place.rank]
    }
}
