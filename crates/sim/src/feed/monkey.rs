//! What goes wrong next? One act of the monkey after the other.

use homing_domain::RankId;
use homing_feed::{Coverage, Input, Recovery};

use super::engine::Worker;
use super::events::{Event, Place, Speed, To};
use super::faults::Fault;
use super::router::Router;
use super::world::World;

impl World {
    pub(super) fn monkey(&mut self) {
        let pause = 1 + self.rng.below(2 * self.setup.monkey_ms);
        self.schedule(pause, Event::Monkey);
        let places = self.places();
        let place = places[self.rng.place(places.len())];
        let router = self.rng.place(self.routers.len());
        let fault = Fault::ALL[self.rng.place(Fault::ALL.len())];
        if !self.setup.allows(fault) {
            return;
        }
        match fault {
            Fault::Silence | Fault::Partition => self.silence(router, place, fault),
            Fault::Disconnect => self.break_link(router, place),
            Fault::EngineRestart | Fault::EnginePasses | Fault::EngineSameNumber => {
                self.restart_engine(place.worker, fault);
            }
            Fault::AgentRestart | Fault::AgentForgets => self.restart_agent(place.worker, fault),
            Fault::RouterRestart => self.restart_router(router),
            Fault::WorkerLeaves => self.part(router, place.worker, None),
            Fault::RankLeaves => self.part(router, place.worker, Some(place)),
            Fault::DiscoveredAgain => {
                self.happened.count(fault);
                let source = self.workers[place.worker].source();
                self.schedule(0, Event::Discover(self.to(router), place, source));
            }
            Fault::DiscoveredLate => {
                let source = self.workers[place.worker].source();
                let delay = self.rng.between(100, 600);
                self.schedule(delay, Event::Discover(self.to(router), place, source));
                // Whatever discovery told late, it tells what is right in the end.
                self.schedule_truth(self.to(router), place, delay + 50);
            }
            Fault::Doubt => {
                let rank = self.id(place);
                if self.routers[router].links.contains_key(&rank) {
                    self.happened.count(fault);
                    self.tell(router, Input::Doubted(rank));
                }
            }
            Fault::Idle => {
                self.happened.count(fault);
                let until_ms = self.now_ms + self.rng.between(100, 2_000);
                self.workers[place.worker].ranks[place.rank].idle_until_ms = until_ms;
            }
            Fault::ClearAll | Fault::ClearWorker if self.workers[place.worker].said_ms < self.now_ms => {
                self.clear(place);
            }
            // The others happen to messages and answers.
            _ => {}
        }
    }

    fn silence(&mut self, router: usize, place: Place, fault: Fault) {
        let rank = self.id(place);
        let until_ms = self.now_ms + self.rng.between(20, 1_500);
        if let Some(link) = self.routers[router].links.get_mut(&rank) {
            self.happened.count(fault);
            link.silent_until_ms = until_ms;
            if fault == Fault::Partition {
                link.cut_until_ms = until_ms;
            }
        }
    }

    fn break_link(&mut self, router: usize, place: Place) {
        let rank = self.id(place);
        let link = self.routers[router].links.get(&rank);
        if let Some(subscription) = link.and_then(|link| link.subscription) {
            self.happened.count(Fault::Disconnect);
            let delay = self.rng.below(20);
            self.schedule(delay, Event::Disconnect(self.to(router), place, subscription.id));
        }
    }

    fn restart_engine(&mut self, worker: usize, fault: Fault) {
        if !self.workers[worker].engine_up {
            return;
        }
        // An engine needs a while to come to a high number; the short time that it gets here is not enough for all.
        let next = self.workers[worker].ranks.iter().map(|rank| rank.stream.next).max();
        let reachable = next.filter(|next| *next < 300);
        let speed = match (fault, reachable) {
            (Fault::EnginePasses, Some(next)) => Speed::At(next + self.rng.between(1, 4)),
            (Fault::EngineSameNumber, Some(_)) => Speed::At(self.workers[worker].ranks[0].stream.next),
            _ => Speed::Usual,
        };
        self.happened.count(match speed {
            Speed::Usual => Fault::EngineRestart,
            Speed::At(_) => fault,
        });
        let now_ms = self.now_ms;
        self.log
            .note(&[10, now_ms], || format!("{now_ms:>6} engine {worker} dies"));
        self.workers[worker].die(now_ms);
        self.strand(worker);
        let delay = self.rng.pick([1, 10, 200, 900]);
        self.schedule(delay, Event::EngineUp(worker, speed));
    }

    pub(super) fn engine_up(&mut self, worker: usize, speed: Speed) {
        let now_ms = self.now_ms;
        self.log.note(&[11, now_ms], || {
            format!("{now_ms:>6} engine {worker} starts: {speed:?}")
        });
        // What agents and links of the old life were, they are not any more.
        self.strand(worker);
        self.workers[worker].start(&mut self.lives, &mut self.rng);
        if let Speed::At(number) = speed {
            for rank in 0..self.workers[worker].ranks.len() {
                let place = Place { worker, rank };
                while self.workers[worker].ranks[rank].stream.next < number {
                    self.say(place, Worker::act);
                }
            }
        }
        self.tell_discovery(worker);
    }

    fn restart_agent(&mut self, worker: usize, fault: Fault) {
        let is_list = self.workers[worker].setup.recovery == Recovery::List;
        if !is_list || !self.workers[worker].agent_up {
            return;
        }
        self.happened.count(fault);
        let now_ms = self.now_ms;
        self.log
            .note(&[12, now_ms], || format!("{now_ms:>6} agent {worker} dies"));
        self.workers[worker].agent_up = false;
        self.strand(worker);
        let coverage = match fault {
            Fault::AgentForgets => Coverage::Warming,
            _ => Coverage::Complete,
        };
        let delay = self.rng.pick([1, 50, 400]);
        self.schedule(delay, Event::AgentUp(worker, coverage));
    }

    pub(super) fn agent_up(&mut self, worker: usize, coverage: Coverage) {
        let now_ms = self.now_ms;
        self.log.note(&[13, now_ms], || {
            format!("{now_ms:>6} agent {worker} starts: {coverage:?}")
        });
        self.workers[worker].agent_up = true;
        self.workers[worker].agent_life += 1;
        self.workers[worker].listen(&mut self.lives, coverage);
        self.tell_discovery(worker);
    }

    /// Discovery notices a new life, and tells every router in its own time.
    fn tell_discovery(&mut self, worker: usize) {
        for router in 0..self.routers.len() {
            for rank in 0..self.workers[worker].ranks.len() {
                let delay = self.rng.pick([1, 20, 300]);
                self.schedule_truth(self.to(router), Place { worker, rank }, delay);
            }
        }
    }

    /// Discovery tells what is right then, if the router still knows the rank.
    fn schedule_truth(&mut self, to: To, place: Place, delay_ms: u64) {
        self.schedule(delay_ms, Event::Recheck(to, place));
    }

    pub(super) fn recheck(&mut self, to: To, place: Place) {
        let rank = self.id(place);
        if self.routers[to.router].links.contains_key(&rank) {
            let source = self.workers[place.worker].source();
            self.discover(to, place, source);
        }
    }

    fn restart_router(&mut self, router: usize) {
        self.happened.count(Fault::RouterRestart);
        let (now_ms, life) = (self.now_ms, self.lives.fresh());
        self.log
            .note(&[14, now_ms], || format!("{now_ms:>6} router {router} restarts"));
        self.routers[router] = Router::new(life, &self.setup, self.blocks.hasher);
        let to = self.to(router);
        self.introduce(to);
    }

    /// A router hears that a worker, or a rank of it, is gone, and later that it is back.
    fn part(&mut self, router: usize, worker: usize, place: Option<Place>) {
        let ids: Vec<RankId> = match place {
            Some(place) => vec![self.id(place)],
            None => self.workers[worker].setup.ranks.clone(),
        };
        if !ids.iter().all(|id| self.routers[router].links.contains_key(id)) {
            return;
        }
        self.happened.count(if place.is_some() {
            Fault::RankLeaves
        } else {
            Fault::WorkerLeaves
        });
        for id in &ids {
            self.forget_rank(router, *id);
        }
        let input = match place {
            Some(_) => Input::Left(ids[0]),
            None => Input::WorkerLeft(ids[0].worker),
        };
        self.tell(router, input);
        for id in ids {
            let delay = self.rng.pick([1, 100, 800]);
            let (to, place) = (self.to(router), Place::of(id));
            self.schedule(delay, Event::Return(to, place));
        }
    }

    /// What is known of a rank outside the feed goes with it.
    pub(super) fn forget_rank(&mut self, router: usize, rank: RankId) {
        let router = &mut self.routers[router];
        router.links.remove(&rank);
        router.followed.remove(&rank);
        router.repairing_since_ms.remove(&rank);
    }
}
