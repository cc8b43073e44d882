//! The critical section: who is chosen, what is booked, what became of it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homing_domain::{BlockKey, ModelName, RankId, RequestId, Tokens};
use homing_index::{Answer, Reader};
use homing_load::{Booking, End, Heard, Load, Place, RankLoad, Ticket};
use homing_profile::{Millis, Time};
use homing_scheduler::calibration::{Calibration, Outcome};
use homing_scheduler::lengths::{Kind, Lengths};
use homing_scheduler::queue::Queue;
use homing_scheduler::{
    Ask, Bits, Decision, Draw, Fleet, Keep, Knowledge, Overlap, Phase, Policy, RankFacts, Refusal, Reuse, Room,
    Scheduler, View,
};
use rustc_hash::FxHashMap;

use crate::bugs::planted;
use crate::config::RouterConfig;
use crate::question::{Effect, Ended, Question, Routed, Turned};
use crate::trust::{self, Trust};

/// Whether cached prefixes are looked up at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookUp {
    Yes,
    /// The policy does not look at them.
    No,
}

/// The indexes, to read.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) events: Reader,
    pub(crate) guess: Reader,
    /// Ranks whose caches are guessed.
    pub(crate) guessed: AtomicUsize,
    pub(crate) look_up: LookUp,
}

impl Readers {
    /// Asks both indexes. Nothing is locked.
    pub(crate) fn look_up(&self, keys: &[BlockKey], sight: &mut Sight) {
        if self.look_up == LookUp::No {
            return;
        }
        self.events.lookup(keys, &mut sight.events.answer);
        sight.guesses = self.guessed.load(Ordering::Relaxed) > 0;
        if sight.guesses {
            self.guess.lookup(keys, &mut sight.guess.answer);
        }
    }
}

/// Room to look and decide in, so that nothing is allocated for each request.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    events: Seen,
    guess: Seen,
    /// Whether guesses were looked up.
    guesses: bool,
    overlap: Overlap,
    room: Room,
    /// Who may serve one of those who wait.
    pub(crate) sieve: Sieve,
    /// What was booked and is to be stored as a guess.
    pub(crate) booked: Vec<(RankId, Arc<[BlockKey]>)>,
}

/// What one index answered, and which places the ranks in it have.
#[derive(Debug, Default)]
struct Seen {
    answer: Answer,
    /// For each slot the rank that was last seen there, and its place. Looked up once for each rank that comes.
    places: Vec<Cell<Option<(RankId, Place)>>>,
    /// As of which change of the fleet.
    epoch: u64,
}

impl Seen {
    /// Puts the answer into an overlap. Says whether the index stood still.
    fn take(&mut self, core: &Core, overlap: &mut Overlap) -> bool {
        if self.epoch != core.epoch && !planted!(core.bug, PlacesKept) {
            self.places.clear();
            self.epoch = core.epoch;
        }
        let slots = self.answer.slots();
        if self.places.len() < slots {
            self.places.resize(slots, Cell::new(None));
        }
        let (answer, places) = (&self.answer, &self.places);
        overlap.take_answer(answer, |slot| {
            let (rank, _) = answer.rank_in(slot)?;
            let known = places.get(slot)?;
            match known.get() {
                Some((last, place)) if last == rank => Some(place),
                _ => {
                    let place = *core.places.get(&rank)?;
                    known.set(Some((rank, place)));
                    Some(place)
                }
            }
        });
        answer.is_settled()
    }
}

/// What decisions are made from.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) load: Load,
    pub(crate) fleet: Fleet,
    pub(crate) scheduler: Scheduler,
    pub(crate) places: FxHashMap<RankId, Place>,
    /// Changes with every rank that comes or goes.
    pub(crate) epoch: u64,
    pub(crate) lengths: Lengths,
    look_up: LookUp,
    quantile: f64,
    seed: u64,
    /// Choices that were carried out: each has its own chance.
    draws: u64,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) bug: Option<crate::Bug>,
}

/// A request that was booked.
#[derive(Clone, Copy, Debug)]
struct Live {
    place: Place,
    booked: Time,
    kind: Kind,
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

/// Who may serve a request, and what came of looking at others before it.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    eligible: Bits,
    /// What was found for requests without wishes of this model that need so many blocks or more. It becomes no better by
    /// letting others go.
    known: Option<(ModelName, u64, Outlook)>,
}

impl Sieve {
    /// Something changed.
    pub(crate) fn renew(&mut self) {
        self.known = None;
    }
}

/// Whether a request that waits could begin, as far as can be said without looking anything up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Some rank that may serve it begins soon, whatever of its prompt is there.
    Starts,
    /// It does if enough of its prompt is in use there already.
    Perhaps,
    /// None does.
    Waits,
}

/// Whether a request waits for room in caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// It does.
    Counts,
    /// It has waited long enough: it goes to an engine, which keeps room free for the first of those that wait there.
    Waived,
}

impl Space {
    fn wait(self, rank: &RankLoad, blocks: u64) -> f64 {
        match self {
            Self::Counts => rank.space_wait(blocks).0,
            Self::Waived => 0.0,
        }
    }
}

/// What was decided for a request, and whether it can begin there.
#[derive(Debug)]
pub(crate) struct Considered {
    pub(crate) decision: Decision,
    pub(crate) can_start: bool,
}

impl Core {
    /// What of the prompt lies where, from what the indexes answered and from what is booked.
    fn overlap(&self, keys: &[BlockKey], sight: &mut Sight) -> bool {
        sight.overlap.clear();
        if self.look_up == LookUp::No {
            return true;
        }
        let mut settled = sight.events.take(self, &mut sight.overlap);
        if sight.guesses {
            settled &= sight.guess.take(self, &mut sight.overlap);
        }
        sight.overlap.take_booked(&self.load, keys);
        settled
    }

    /// What of the prompt lies where, from what the indexes answered just now.
    pub(crate) fn depths<'a>(&self, keys: &[BlockKey], sight: &'a mut Sight) -> &'a Overlap {
        self.overlap(keys, sight);
        &sight.overlap
    }

    fn with_ask<R>(&self, question: &Question, act: impl FnOnce(&Ask<'_>) -> R) -> R {
        act(&Ask {
            model: &question.model,
            phase: question.phase,
            prompt: question.prompt,
            keys: &question.keys,
            expected_output: self.expected_output(question),
            adapter: question.adapter.as_ref(),
            session: question.session.as_deref(),
            wanted: &question.wanted,
            overrides: question.overrides,
        })
    }

    fn expected_output(&self, question: &Question) -> Tokens {
        self.lengths.expected(kind(question), Tokens(0), self.quantile)
    }

    /// Decides from what the indexes answered just now. Changes nothing.
    pub(crate) fn consider(
        &self,
        now: Time,
        question: &Question,
        (within, space): (Millis, Space),
        sight: &mut Sight,
    ) -> Result<Considered, Refusal> {
        let settled = self.overlap(&question.keys, sight);
        let view = View {
            now,
            fleet: &self.fleet,
            load: &self.load,
            overlap: &sight.overlap,
        };
        let draw = Draw(self.seed.wrapping_add(self.draws));
        let mut decision = self.with_ask(question, |ask| self.scheduler.decide(&view, ask, draw, &mut sight.room))?;
        decision.settled = settled;
        let blocks = self.blocks_at_end(question);
        let starts = |place: Place, booked: u32| {
            let rank = self.load.rank(place);
            rank.is_some_and(|rank| {
                let blocks = blocks.saturating_sub(u64::from(booked));
                rank.prompts_ahead(now).0.max(space.wait(rank, blocks)) <= within.0
            })
        };
        let chosen = &decision.chosen;
        let can_start =
            starts(chosen.place, chosen.depths.booked) || sight.room.eligible().places().any(|place| starts(place, 0));
        Ok(Considered { decision, can_start })
    }

    /// What is known of the rank at a place changes; who it is does not.
    pub(crate) fn change(&mut self, place: Place, change: impl FnOnce(&mut RankFacts)) {
        let Some(mut facts) = self.fleet.facts(place).cloned() else {
            return;
        };
        let rank = facts.rank;
        change(&mut facts);
        facts.rank = rank;
        if planted!(self.bug, DrainIgnored) {
            facts.duty = homing_scheduler::Duty::Serving;
        }
        self.fleet.set(place, facts);
    }

    /// Whether a request could begin. Costs much less than to decide where.
    pub(crate) fn outlook(
        &self,
        now: Time,
        question: &Question,
        (within, space): (Millis, Space),
        sieve: &mut Sieve,
    ) -> Outlook {
        let blocks = self.blocks_at_end(question);
        let plain = space == Space::Counts
            && question.phase == Phase::Whole
            && question.adapter.is_none()
            && question.wanted.is_anybody();
        let known = sieve.known.as_ref().filter(|_| plain);
        if let Some((_, _, outlook)) = known.filter(|(model, least, _)| *model == question.model && *least <= blocks) {
            return *outlook;
        }
        self.with_ask(question, |ask| self.fleet.filter(ask, &mut sieve.eligible));
        let mut outlook = Outlook::Waits;
        for rank in sieve.eligible.places().filter_map(|place| self.load.rank(place)) {
            let starts = |blocks| rank.prompts_ahead(now).0.max(space.wait(rank, blocks)) <= within.0;
            if starts(blocks) {
                return Outlook::Starts;
            }
            if outlook == Outlook::Waits && starts(0) {
                outlook = Outlook::Perhaps;
            }
        }
        if plain && outlook != Outlook::Starts {
            let least = if outlook == Outlook::Waits { 0 } else { blocks };
            sieve.known = Some((question.model.clone(), least, outlook));
        }
        outlook
    }

    fn blocks_at_end(&self, question: &Question) -> u64 {
        let output = question.overrides.expected_output;
        let output = output.unwrap_or_else(|| self.expected_output(question));
        let tokens = u64::from(question.prompt.0) + u64::from(output.0);
        tokens.div_ceil(u64::from(self.load.config().block_size.get()))
    }

    /// Tokens of a prompt that so many leading blocks spare: one is always computed.
    pub(crate) fn spared(&self, prompt: Tokens, blocks: u32) -> Tokens {
        let tokens = blocks.saturating_mul(self.load.config().block_size.get());
        Tokens(tokens.min(prompt.0.saturating_sub(1)))
    }
}

impl Desk {
    pub(crate) fn new(config: &RouterConfig, policy: Box<dyn Policy>) -> Self {
        let look_up = if policy.uses_overlap() { LookUp::Yes } else { LookUp::No };
        Self {
            core: Core {
                load: Load::new(config.load.clone()),
                fleet: Fleet::default(),
                scheduler: Scheduler::new(policy),
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
            core.scheduler.commit(&ask, chosen.place, now);
        }
        if let Some(ticket) = ticket {
            let live = Live {
                place: chosen.place,
                booked: now,
                kind: kind(question),
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
            kind: kind(question),
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
        let heard = self.core.load.end(ticket, ended.end, now);
        if let Some(live) = self.live.remove(&ticket) {
            self.learn(&live, ended);
        }
        heard
    }

    fn learn(&mut self, live: &Live, ended: &Ended) {
        if ended.end == End::Finished {
            let generated = ended.generated.unwrap_or(live.generated);
            self.core.lengths.saw(live.kind, generated);
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
        if !planted!(self.core.bug, SessionsKept) {
            self.core.scheduler.rank_gone(place);
        }
        self.calibration.forget(place);
        self.trust.forget(place);
        released.len()
    }

    /// Bookings of which nothing was heard for too long are given up.
    pub(crate) fn lapse(&mut self, now: Time) {
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

fn kind(question: &Question) -> Kind {
    Kind(u64::from(question.tenant.0))
}
