//! How does what engines say reach the feeds? Over subscriptions that lose, repeat and delay, and die unnoticed.
//!
//! What transport promises holds here as well: a subscription is to one life of a stream, nothing of the next
//! subscription comes before the end of the last was told, and nothing of the last comes after that.

use homing_domain::Sequence;
use homing_feed::{Identity, Input, Recovery, Source};

use super::events::{Event, Place, To};
use super::faults::Fault;
use super::router::{Link, Message, Subscription};
use super::world::World;

impl World {
    /// A source says something to all who listen.
    pub(super) fn publish(&mut self, place: Place, message: &Message) {
        let (rank, life) = (self.id(place), self.workers[place.worker].stream(place.rank).life);
        for router in 0..self.routers.len() {
            let Some(link) = self.routers[router].links.get(&rank) else {
                continue;
            };
            let Some(subscription) = link.subscription.filter(|subscription| subscription.life == life) else {
                continue;
            };
            if link.silent_until_ms > self.now_ms {
                continue;
            }
            if self.setup.allows(Fault::Loss) && self.rng.chance(self.setup.loss) {
                self.happened.count(Fault::Loss);
                continue;
            }
            if self.setup.allows(Fault::Repeat) && self.rng.chance(self.setup.repeats) {
                self.happened.count(Fault::Repeat);
                let delay = self.delay(router, place);
                self.schedule(
                    delay,
                    Event::Deliver(self.to(router), place, subscription.id, message.clone()),
                );
            }
            let delay = self.delay(router, place);
            self.schedule(
                delay,
                Event::Deliver(self.to(router), place, subscription.id, message.clone()),
            );
        }
    }

    /// How long something is under way; where nothing overtakes, not less than what went before.
    fn delay(&mut self, router: usize, place: Place) -> u64 {
        let (rank, now_ms) = (self.id(place), self.now_ms);
        let delay = self.rng.between(1, self.setup.delay_ms);
        let overtakes = self.setup.allows(Fault::Reorder);
        let Some(link) = self.routers[router].links.get_mut(&rank) else {
            return delay;
        };
        let due_ms = now_ms + delay;
        if due_ms < link.last_due_ms && overtakes {
            self.happened.count(Fault::Reorder);
            return delay;
        }
        link.last_due_ms = link.last_due_ms.max(due_ms);
        link.last_due_ms - now_ms
    }

    pub(super) fn heartbeat(&mut self, place: Place) {
        let pause = self.rng.between(50, 250);
        self.schedule(pause, Event::Heartbeat(place));
        let worker = &self.workers[place.worker];
        if worker.setup.recovery == Recovery::List && worker.is_up() {
            let (identity, newest) = (worker.identity(), worker.stream(place.rank).newest());
            self.publish(place, &Message::Heartbeat { identity, newest });
        }
    }

    pub(super) fn discover(&mut self, to: To, place: Place, source: Source) {
        let rank = self.id(place);
        if source.identity != self.workers[place.worker].identity() {
            self.happened.count(Fault::DiscoveredLate);
        }
        let is_new = !self.routers[to.router].links.contains_key(&rank);
        let known = self.routers[to.router].feed.status(self.now_ms, rank);
        self.note_identity(to.router, place, source.identity);
        self.tell(to.router, Input::Discovered { rank, source });
        if known.is_some_and(|known| known.identity.engine != source.identity.engine) {
            self.check_void(to.router, rank);
        }
        if is_new {
            self.routers[to.router].links.insert(rank, Link::default());
            let delay = self.rng.below(50);
            self.schedule(delay, Event::Connect(to, place));
        }
    }

    pub(super) fn connect(&mut self, to: To, place: Place) {
        let rank = self.id(place);
        let worker = &self.workers[place.worker];
        let life = worker.stream(place.rank).life;
        if worker.stream(place.rank).newest().is_some() {
            self.happened.count(Fault::LateSubscription);
        }
        let is_up = worker.is_up();
        let id = self.lives.fresh();
        let Some(link) = self.routers[to.router].links.get_mut(&rank) else {
            return;
        };
        if link.subscription.is_some() {
            return;
        }
        if !is_up || link.cut_until_ms > self.now_ms {
            self.schedule(20, Event::Connect(to, place));
            return;
        }
        link.subscription = Some(Subscription { id, life, told: None });
        self.tell(to.router, Input::Connected(rank));
    }

    pub(super) fn disconnect(&mut self, to: To, place: Place, subscription: u64) {
        let rank = self.id(place);
        let Some(link) = self.routers[to.router].links.get_mut(&rank) else {
            return;
        };
        if link.subscription.is_none_or(|present| present.id != subscription) {
            return;
        }
        link.subscription = None;
        self.tell(to.router, Input::Disconnected(rank));
        let delay = self.rng.between(1, 100);
        self.schedule(delay, Event::Connect(to, place));
    }

    pub(super) fn deliver(&mut self, to: To, place: Place, subscription: u64, message: Message) {
        let rank = self.id(place);
        let link = self.routers[to.router].links.get(&rank);
        let present = link.and_then(|link| link.subscription);
        if present.is_none_or(|present| present.id != subscription) {
            return;
        }
        match message {
            Message::Batch(batch) if self.setup.allows(Fault::Overflow) && self.rng.chance(self.setup.overflow) => {
                let is_unread = self.setup.allows(Fault::OverflowUnread) && self.rng.chance(300);
                let highest = (!is_unread).then_some(batch.sequence);
                self.happened.count(if is_unread {
                    Fault::OverflowUnread
                } else {
                    Fault::Overflow
                });
                self.note_told(to.router, place, highest);
                self.tell(to.router, Input::Overflowed { rank, highest });
            }
            Message::Batch(batch) => {
                self.note_told(to.router, place, Some(batch.sequence));
                let is_enough = self.is_enough(to.router, place, &batch);
                let sequence = batch.sequence;
                self.tell(to.router, Input::Heard { rank, batch });
                if is_enough {
                    self.check_clear(to.router, place, sequence);
                }
            }
            Message::Heartbeat { identity, newest } => {
                self.note_identity(to.router, place, identity);
                self.note_told(to.router, place, newest.map(|(sequence, _)| sequence));
                self.tell(to.router, Input::Heartbeat { rank, identity, newest });
            }
        }
    }

    /// A feed that is told of another life may forget the numbers of what it heard: it cannot know of which life they are.
    fn note_identity(&mut self, router: usize, place: Place, identity: Identity) {
        let rank = self.id(place);
        let status = self.routers[router].feed.status(self.now_ms, rank);
        if status.is_some_and(|status| status.identity != identity) {
            self.routers[router].give_up_told(rank);
        }
    }

    /// From now on the feed knows that there is a batch with this number.
    fn note_told(&mut self, router: usize, place: Place, sequence: Option<Sequence>) {
        let rank = self.id(place);
        let link = self.routers[router].links.get_mut(&rank);
        if let Some(subscription) = link.and_then(|link| link.subscription.as_mut()) {
            subscription.told = subscription.told.max(sequence);
        }
    }

    /// Subscriptions to a life that is over are dead. Sooner or later that is noticed.
    pub(super) fn strand(&mut self, worker: usize) {
        for rank in 0..self.workers[worker].ranks.len() {
            let place = Place { worker, rank };
            for router in 0..self.routers.len() {
                let id = self.id(place);
                let link = self.routers[router].links.get(&id);
                let Some(subscription) = link.and_then(|link| link.subscription) else {
                    continue;
                };
                let is_long = self.setup.allows(Fault::HalfOpen) && self.rng.chance(400);
                let delay = if is_long {
                    self.rng.between(300, 1_000)
                } else {
                    self.rng.between(1, 30)
                };
                if is_long {
                    self.happened.count(Fault::HalfOpen);
                }
                self.schedule(delay, Event::Disconnect(self.to(router), place, subscription.id));
            }
        }
    }
}
