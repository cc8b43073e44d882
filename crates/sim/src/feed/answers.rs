//! How are questions answered? From the ring or from the list, and as wrongly as links and sources can.

use homing_domain::{RankId, Sequence};
use homing_feed::{Ask, AskId, Coverage, Input, ListHead, Part, Recovery, Reply, What};

use super::checker::Check;
use super::events::{Event, Place, To};
use super::faults::Fault;
use super::router::Wanted;
use super::world::World;

/// What may befall an answer.
const MISHAPS: [Fault; 10] = [
    Fault::AnswerSlow,
    Fault::AnswerLost,
    Fault::AnswerHole,
    Fault::AnswerNoEnd,
    Fault::AnswerCut,
    Fault::AnswerFailed,
    Fault::AnswerRepeated,
    Fault::AnswerForeign,
    Fault::AnswerGone,
    Fault::AnswerSlow,
];

impl World {
    /// A question arrives at its source.
    pub(super) fn asked(&mut self, to: To, ask: Ask) {
        let place = Place::of(ask.rank);
        if self.workers[place.worker].setup.recovery == Recovery::LiveOnly {
            let words = "a source that cannot answer was asked".to_owned();
            self.violate(Check::Bounds, to.router, Some(ask.rank), words);
            return;
        }
        let link = self.routers[to.router].links.get(&ask.rank);
        if link.is_none_or(|link| link.cut_until_ms > self.now_ms) {
            return;
        }
        if !self.workers[place.worker].is_up() {
            self.reply(to, ask.id, ask.rank, (1, Part::Failed));
            return;
        }
        let mishap = MISHAPS[self.rng.place(MISHAPS.len())];
        let goes_wrong = self.setup.allows(mishap) && self.rng.chance(self.setup.bad_answers);
        self.respond(to, ask, goes_wrong.then_some(mishap));
    }

    fn respond(&mut self, to: To, ask: Ask, mishap: Option<Fault>) {
        let place = Place::of(ask.rank);
        let stranger = self.stranger(place);
        let mishap = mishap.filter(|mishap| *mishap != Fault::AnswerForeign || stranger.is_some());
        let about = match (mishap, stranger) {
            (Some(Fault::AnswerForeign), Some(other)) => (other, self.id(other)),
            _ => (place, ask.rank),
        };
        if let Some(mishap) = mishap {
            self.happened.count(mishap);
        }
        let mut parts = match ask.what {
            What::Replay { from } => self.replay(about.0, from),
            What::List => self.list(about.0),
        };
        if let Some(mishap) = mishap {
            self.harm(&mut parts, mishap);
        }
        let pause_ms = self.pause(parts.len() as u64, mishap);
        let mut at_ms = 1 + self.latency(mishap);
        for part in parts {
            at_ms += self.rng.between(pause_ms / 2, pause_ms);
            self.reply(to, ask.id, about.1, (at_ms, part));
        }
    }

    /// What befalls an answer that is more than slow. An end that comes is true: nothing just before it is missing,
    /// unless it carries a count.
    fn harm(&mut self, parts: &mut Vec<Part>, mishap: Fault) {
        let middle = self.rng.place(parts.len());
        match mishap {
            Fault::AnswerLost => parts.clear(),
            Fault::AnswerHole if parts.len() > 2 => drop(parts.remove(self.rng.place(parts.len() - 2))),
            Fault::AnswerNoEnd => drop(parts.pop()),
            Fault::AnswerCut => {
                let end = parts.pop();
                parts.truncate(middle);
                parts.extend(end.filter(|end| matches!(end, Part::ListEnd { .. })));
            }
            Fault::AnswerFailed => {
                parts.truncate(middle);
                parts.push(Part::Failed);
            }
            Fault::AnswerRepeated => parts.insert(middle, parts[middle].clone()),
            Fault::AnswerGone => *parts = vec![Part::Gone],
            _ => {}
        }
    }

    /// The pause between two parts. Without a mishap the whole of it does not take too long.
    fn pause(&mut self, parts: u64, mishap: Option<Fault>) -> u64 {
        let (timeout_ms, limit_ms) = (self.setup.feed.repair_timeout_ms, self.setup.feed.repair_limit_ms);
        match mishap {
            Some(Fault::AnswerSlow) => {
                self.rng
                    .pick([2, timeout_ms / 8, timeout_ms / 2, timeout_ms - 1, timeout_ms * 3])
            }
            _ => self.rng.pick([0, 1, 5, 25]).min(limit_ms / (2 * parts + 1)),
        }
    }

    /// What passes before the first part. An answer may be on its way for so long that it is not wanted any more.
    fn latency(&mut self, mishap: Option<Fault>) -> u64 {
        let timeout_ms = self.setup.feed.repair_timeout_ms;
        match mishap {
            Some(Fault::AnswerSlow) if self.rng.chance(500) => self.rng.between(timeout_ms / 2, 3 * timeout_ms),
            _ => 0,
        }
    }

    fn reply(&mut self, to: To, ask: AskId, rank: RankId, (delay_ms, part): (u64, Part)) {
        self.schedule(delay_ms, Event::Answer(to, ask, Reply { ask, rank, part }));
    }

    /// Another rank whose source answers.
    fn stranger(&mut self, place: Place) -> Option<Place> {
        let recovery = self.workers[place.worker].setup.recovery;
        let mut others = self.places();
        others.retain(|other| *other != place && self.workers[other.worker].setup.recovery == recovery);
        (!others.is_empty()).then(|| others[self.rng.place(others.len())])
    }

    fn replay(&mut self, place: Place, from: Sequence) -> Vec<Part> {
        let worker = &self.workers[place.worker];
        let stream = worker.stream(place.rank);
        if !stream.has(from) {
            self.happened.count(Fault::RingLost);
            if worker.setup.recovery == Recovery::List {
                return vec![Part::Gone];
            }
        }
        let batches = stream.from(from).into_iter().map(Part::Batch);
        batches.chain([Part::ReplayEnd]).collect()
    }

    fn list(&mut self, place: Place) -> Vec<Part> {
        let worker = &self.workers[place.worker];
        let listed = worker.list(place.rank, &self.blocks);
        let (Some(agent), Some((items, is_all))) = (&worker.ranks[place.rank].agent, listed) else {
            return vec![Part::Failed];
        };
        if agent.coverage == Coverage::Warming {
            self.happened.count(Fault::ListWarming);
        }
        if !is_all {
            self.happened.count(Fault::ListTruncated);
        }
        let head = ListHead {
            identity: worker.identity(),
            position: agent.stream.newest(),
            coverage: agent.coverage,
            truncated: !is_all,
        };
        let count = items.len() as u64;
        let mut parts = vec![Part::ListHead(head)];
        let chunk = 1 + self.rng.place(8);
        parts.extend(items.chunks(chunk).map(|items| Part::ListItems(items.to_vec())));
        parts.push(Part::ListEnd { items: count });
        parts
    }

    /// A part of an answer arrives, unless whoever brings it has heard that it is not wanted.
    pub(super) fn answer(&mut self, to: To, ask: AskId, reply: Reply) {
        let router = &self.routers[to.router];
        if router
            .links
            .get(&reply.rank)
            .is_some_and(|link| link.cut_until_ms > self.now_ms)
        {
            return;
        }
        match router.asks.get(&ask) {
            Some(Wanted::Yes) => {}
            Some(Wanted::ButComes) => self.happened.count(Fault::AnswerLate),
            Some(Wanted::NotAnyMore) | None => return,
        }
        self.tell(to.router, Input::Reply(reply));
    }
}
