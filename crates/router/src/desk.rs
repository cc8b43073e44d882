//! The critical section: who is chosen, what is booked, what became of it.

use std::collections::VecDeque;
use std::sync::Arc;

use homing_disagg::{Staging, Traits};
use homing_domain::{RankId, RequestId, Tokens};
use homing_load::{Booking, End, Heard, Load, Place, RankLoad, Ticket};
use homing_profile::{Millis, Time};
use homing_scheduler::calibration::{Calibration, Outcome};
use homing_scheduler::lengths::{Kind, Lengths};
use homing_scheduler::queue::Queue;
use homing_scheduler::{Ask, Bits, Decision, Fleet, Keep, Knowledge, Phase, Reuse, Scheduler};
use rustc_hash::FxHashMap;

use crate::apart::Policies;
use crate::bugs::planted;
use crate::config::RouterConfig;
use crate::core::{Core, LookUp, Sight, kind};
use crate::question::{Effect, Ended, Question, Routed, Turned};
use crate::trust::{self, Trust};

/// A request that was booked.
#[derive(Clone, Copy, Debug)]
struct Live {
    place: Place,
    booked: Time,
    /// Of which requests its length is one; none if it has none.
    kind: Option<Kind>,
    predicted_first_token: Millis,
    predicted_cached: Tokens,
    knowledge: Knowledge,
    first_token: Option<Millis>,
    generated: Tokens,
}

/// All that is behind the lock.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) core: Core,
    pub(crate) queue: Queue,
    /// The questions of those who wait.
    pub(crate) parked: FxHashMap<RequestId, Question>,
    live: FxHashMap<Ticket, Live>,
    pub(crate) calibration: Calibration,
    trust: Trust,
    /// To be done outside. Bounded by what is booked and what waits: each is told of once.
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) start_within: Millis,
    pub(crate) most_wait: Millis,
    /// Whether some who wait were not tried since something changed.
    pub(crate) untried: bool,
    pub(crate) ticked: Time,
}

impl Desk {
    pub(crate) fn new(config: &RouterConfig, policies: Policies) -> Self {
        let look_up = if policies.use_overlap() {
            LookUp::Yes
        } else {
            LookUp::No
        };
        Self {
            core: Core {
                load: Load::new(config.load.clone()),
                fleet: Fleet::default(),
                scheduler: Scheduler::new(policies.whole),
                prefill: policies.prefill.map(Scheduler::new),
                decode: policies.decode.map(Scheduler::new),
                apart: config.apart.clone(),
                traits: FxHashMap::default(),
                default_traits: Traits::by_result(),
                halves: Bits::default(),
                alone: Bits::default(),
                staging: Staging::new(config.apart.staging),
                places: FxHashMap::default(),
                epoch: 1,
                lengths: Lengths::new(config.first_output),
                look_up,
                quantile: config.output_quantile,
                seed: config.seed,
                draws: 0,
                #[cfg(any(test, feature = "testing"))]
                bug: config.bug,
            },
            queue: queue(config),
            parked: FxHashMap::default(),
            live: FxHashMap::default(),
            calibration: Calibration::default(),
            trust: Trust::default(),
            effects: VecDeque::new(),
            start_within: config.start_within,
            most_wait: config.most_wait,
            untried: false,
            ticked: Time::ZERO,
        }
    }

    /// Carries a decision out: books it, and lets the policy remember it.
    pub(crate) fn go(
        &mut self,
        now: Time,
        question: &Question,
        decision: Decision,
        sight: &mut Sight,
    ) -> Result<Routed, Turned> {
        let chosen = decision.chosen;
        if let Some(adapter) = &question.adapter
            && let Some(ready) = self.core.fleet.opening(Some(adapter), chosen.place)
        {
            // Nothing is booked for as long as nothing can be computed: the rank is free for others meanwhile.
            self.core.fleet.begin_load(adapter, chosen.rank.worker, now);
            return Err(Turned::Loads {
                adapter: adapter.clone(),
                rank: chosen.rank,
                wait: ready.wait(now),
            });
        }
        let spared = self.core.spared(question.prompt, chosen.depths.spared());
        let cached = self.core.spared(question.prompt, chosen.depths.anywhere());
        let ticket = match question.overrides.keep {
            Keep::Booked => {
                let second = decision.others.first().map(|other| other.place);
                let second = second.filter(|_| planted!(self.core.bug, BookedOnRunnerUp));
                Some(self.book(now, question, second.unwrap_or(chosen.place), spared)?)
            }
            Keep::Unbooked => None,
        };
        if question.wanted.pinned.is_none() {
            let core = &mut self.core;
            core.draws += 1;
            // The ask cannot be built by `with_ask`, which would borrow the scheduler.
            let ask = Ask {
                model: &question.model,
                phase: question.phase,
                prompt: question.prompt,
                keys: &question.keys,
                expected_output: Tokens(0),
                adapter: question.adapter.as_ref(),
                session: question.session.as_deref(),
                wanted: &question.wanted,
                overrides: question.overrides,
            };
            core.scheduler_mut(question.phase).commit(&ask, chosen.place, now);
        }
        if let Some(ticket) = ticket {
            let live = Live {
                place: chosen.place,
                booked: now,
                kind: Some(kind(question)).filter(|_| question.phase != Phase::Prefill),
                predicted_first_token: chosen.first_token,
                predicted_cached: cached,
                knowledge: chosen.knowledge,
                first_token: None,
                generated: Tokens(0),
            };
            self.live.insert(ticket, live);
            sight.booked.push((chosen.rank, question.keys.clone()));
        }
        Ok(Routed {
            decision,
            cached,
            ticket,
            halves: None,
        })
    }

    /// Books a choice that was made elsewhere. Nothing was predicted of it, so nothing is learnt of predictions from it.
    pub(crate) fn book_elsewhere(
        &mut self,
        now: Time,
        question: &Question,
        place: Place,
        cached: Tokens,
    ) -> Result<Ticket, Turned> {
        let ticket = self.book(now, question, place, cached)?;
        let live = Live {
            place,
            booked: now,
            kind: Some(kind(question)).filter(|_| question.phase != Phase::Prefill),
            predicted_first_token: Millis::ZERO,
            predicted_cached: cached,
            knowledge: Knowledge::Nothing,
            first_token: None,
            generated: Tokens(0),
        };
        self.live.insert(ticket, live);
        Ok(ticket)
    }

    fn book(&mut self, now: Time, question: &Question, place: Place, cached: Tokens) -> Result<Ticket, Turned> {
        let output = question.overrides.expected_output;
        let booking = Booking {
            id: question.id.clone(),
            place,
            prompt: question.prompt,
            cached,
            keys: match question.overrides.reuse {
                Reuse::Assumed => question.keys.clone(),
                Reuse::None => Arc::from([]),
            },
            expected_output: output.unwrap_or_else(|| self.core.expected_output(question)),
            adapter: question.adapter.clone(),
            work: question.overrides.work,
        };
        Ok(self.core.load.book(booking, now)?)
    }

    pub(crate) fn prefill_done(&mut self, now: Time, ticket: Ticket) -> Heard {
        self.note_first_token(now, ticket);
        self.core.load.prefill_done(ticket, now)
    }

    pub(crate) fn output(&mut self, now: Time, ticket: Ticket, generated: Tokens) -> Heard {
        if generated.0 > 0 {
            self.note_first_token(now, ticket);
        }
        if let Some(live) = self.live.get_mut(&ticket) {
            live.generated = live.generated.max(generated);
        }
        self.core.load.output(ticket, generated, now)
    }

    fn note_first_token(&mut self, now: Time, ticket: Ticket) {
        if let Some(live) = self.live.get_mut(&ticket) {
            live.first_token.get_or_insert(now.since(live.booked));
        }
    }

    pub(crate) fn done(&mut self, now: Time, ticket: Ticket, ended: &Ended) -> Heard {
        let only_prompt = self.live.get(&ticket).is_some_and(|live| live.kind.is_none());
        if only_prompt && ended.end == End::Finished {
            // A prompt alone ends with its first token, whether that was said or not.
            self.prefill_done(now, ticket);
        }
        let heard = self.core.load.end(ticket, ended.end, now);
        if let Some(live) = self.live.remove(&ticket) {
            self.learn(&live, ended);
        }
        heard
    }

    fn learn(&mut self, live: &Live, ended: &Ended) {
        if let (End::Finished, Some(kind)) = (ended.end, live.kind) {
            let generated = ended.generated.unwrap_or(live.generated);
            self.core.lengths.saw(kind, generated);
        }
        // Of what was booked elsewhere nothing was predicted.
        if live.predicted_first_token == Millis::ZERO {
            return;
        }
        let Some(first_token) = live.first_token else { return };
        let outcome = Outcome {
            predicted_first_token: live.predicted_first_token,
            first_token,
            predicted_cached: live.predicted_cached,
            cached: ended.cached,
        };
        self.calibration.saw(live.place, &outcome);
        let (Some(cached), Knowledge::Exact) = (ended.cached, live.knowledge) else {
            return;
        };
        let less = cached < live.predicted_cached;
        if self.trust.saw(live.place, less) == trust::Verdict::Doubted {
            let rank = self.core.load.rank(live.place).map(RankLoad::rank);
            self.effects.extend(rank.map(Effect::Doubted));
        }
    }

    /// Whether nothing is booked or waits.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.live.is_empty() && self.parked.is_empty() && self.queue.is_empty()
    }

    /// The rank is gone, and what was booked there with it.
    pub(crate) fn rank_gone(&mut self, now: Time, rank: RankId) -> usize {
        let Some(place) = self.core.places.remove(&rank) else {
            return 0;
        };
        self.core.epoch += 1;
        let released = self.core.load.remove_rank(place, now);
        for (_, ticket) in &released {
            self.live.remove(ticket);
        }
        self.core.fleet.remove(place);
        self.core.traits.remove(&place);
        self.core.note_parts(place);
        self.core.staging.rank_gone(rank);
        if !planted!(self.core.bug, SessionsKept) {
            for scheduler in self.core.schedulers_mut() {
                scheduler.rank_gone(place);
            }
        }
        self.calibration.forget(place);
        self.trust.forget(place);
        released.len()
    }

    /// Bookings of which nothing was heard for too long are given up.
    pub(crate) fn lapse(&mut self, now: Time) {
        self.core.staging.tick(now);
        for (id, ticket) in self.core.load.tick(now) {
            let place = self.live.remove(&ticket).map(|live| live.place);
            let rank = place.and_then(|place| self.core.load.rank(place));
            if let Some(rank) = rank {
                let rank = rank.rank();
                self.effects.push_back(Effect::Lapsed { id, rank });
            }
        }
    }
}

fn queue(config: &RouterConfig) -> Queue {
    let queue = Queue::new(config.classes.clone(), config.total);
    #[cfg(any(test, feature = "testing"))]
    let queue = {
        let mut queue = queue;
        queue.bug = config.queue_bug;
        queue
    };
    queue
}
