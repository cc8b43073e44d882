//! What decisions are made from: what the indexes answered, who exists and what they do; and the decision itself, which changes
//! nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homing_disagg::{Staging, Traits};
use homing_domain::{BlockKey, Blocks, ModelName, RankId, Tokens};
use homing_index::{Answer, Reader};
use homing_load::{Load, Place, RankLoad};
use homing_profile::{Millis, Time};
use homing_scheduler::lengths::{Kind, Lengths};
use homing_scheduler::{Ask, Bits, Decision, Draw, Fleet, Overlap, Phase, RankFacts, Refusal, Room, Scheduler, View};
use rustc_hash::FxHashMap;

use crate::apart::ApartConfig;
use crate::bugs::planted;
use crate::pair::PairPlan;
use crate::question::{Question, Turned};

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

impl Sight {
    /// What of the prompt lies where, as it was looked up last.
    pub(crate) fn overlap(&self) -> &Overlap {
        &self.overlap
    }

    pub(crate) fn parts(&mut self) -> (&Overlap, &mut Room) {
        (&self.overlap, &mut self.room)
    }
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
    /// For requests that one worker serves, and for parts without a policy of their own.
    pub(crate) scheduler: Scheduler,
    pub(crate) prefill: Option<Scheduler>,
    pub(crate) decode: Option<Scheduler>,
    /// How pairs are chosen.
    pub(crate) apart: ApartConfig,
    /// What is known of how ranks hand KV over, and what holds of the others.
    pub(crate) traits: FxHashMap<Place, Traits>,
    pub(crate) default_traits: Traits,
    /// Who takes part in hand-overs, and who serves whole requests.
    pub(crate) halves: Bits,
    pub(crate) alone: Bits,
    /// What is staged.
    pub(crate) staging: Staging,
    pub(crate) places: FxHashMap<RankId, Place>,
    /// Changes with every rank that comes or goes.
    pub(crate) epoch: u64,
    pub(crate) lengths: Lengths,
    pub(crate) look_up: LookUp,
    pub(crate) quantile: f64,
    pub(crate) seed: u64,
    /// Choices that were carried out: each has its own chance.
    pub(crate) draws: u64,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) bug: Option<crate::Bug>,
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
    pub(crate) fn wait(self, rank: &RankLoad, blocks: u64) -> f64 {
        match self {
            Self::Counts => rank.space_wait(blocks).0,
            Self::Waived => 0.0,
        }
    }
}

/// What was decided for a request, and whether it can begin there.
#[derive(Debug)]
pub(crate) struct Considered {
    /// For all of it, or for its output.
    pub(crate) decision: Decision,
    /// The rest, where two could serve it.
    pub(crate) pair: Option<Box<PairPlan>>,
    pub(crate) can_start: bool,
}

impl Considered {
    /// The decision about who computes the prompt.
    pub(crate) fn computes(&self) -> &Decision {
        let prefill = self.pair.as_ref().and_then(|pair| pair.prefill.as_ref());
        prefill.unwrap_or(&self.decision)
    }
}

impl Core {
    /// What of the prompt lies where, from what the indexes answered and from what is booked.
    pub(crate) fn look(&self, keys: &[BlockKey], sight: &mut Sight) -> bool {
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
        self.look(keys, sight);
        &sight.overlap
    }

    pub(crate) fn with_ask<R>(&self, question: &Question, act: impl FnOnce(&Ask<'_>) -> R) -> R {
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

    pub(crate) fn expected_output(&self, question: &Question) -> Tokens {
        let expected = self.lengths.expected(kind(question), Tokens(0), self.quantile);
        expected.min(question.most_output)
    }

    /// Decides from what the indexes answered just now. Changes nothing.
    pub(crate) fn consider(
        &self,
        now: Time,
        question: &Question,
        (within, space): (Millis, Space),
        sight: &mut Sight,
    ) -> Result<Considered, Refusal> {
        let settled = self.look(&question.keys, sight);
        let view = View {
            now,
            fleet: &self.fleet,
            load: &self.load,
            overlap: &sight.overlap,
        };
        let draw = Draw(self.seed.wrapping_add(self.draws));
        let scheduler = self.scheduler(question.phase);
        let mut decision = self.with_ask(question, |ask| scheduler.decide(&view, ask, draw, &mut sight.room))?;
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
        let loads = self.fleet.opening(question.adapter.as_ref(), chosen.place).is_some();
        // What has to be loaded first waits elsewhere, and nobody behind it.
        let can_start = loads
            || starts(chosen.place, chosen.depths.booked)
            || sight.room.eligible().places().any(|place| starts(place, 0));
        Ok(Considered {
            decision,
            pair: None,
            can_start,
        })
    }

    /// Decides for any question. Changes nothing.
    pub(crate) fn consider_any(
        &self,
        now: Time,
        question: &Question,
        limits: (Millis, Space),
        sight: &mut Sight,
    ) -> Result<Considered, Turned> {
        match question.apart.as_deref() {
            Some(apart) => self.consider_apart(now, (question, apart), limits, sight),
            None => Ok(self.consider(now, question, limits, sight)?),
        }
    }

    /// Whose policy decides about a part of requests.
    pub(crate) fn scheduler(&self, phase: Phase) -> &Scheduler {
        let own = match phase {
            Phase::Whole | Phase::Alone => None,
            Phase::Prefill => self.prefill.as_ref(),
            Phase::Decode => self.decode.as_ref(),
        };
        own.unwrap_or(&self.scheduler)
    }

    /// The same, to tell it what was carried out.
    pub(crate) fn scheduler_mut(&mut self, phase: Phase) -> &mut Scheduler {
        let own = match phase {
            Phase::Whole | Phase::Alone => None,
            Phase::Prefill => self.prefill.as_mut(),
            Phase::Decode => self.decode.as_mut(),
        };
        own.unwrap_or(&mut self.scheduler)
    }

    /// All of them.
    pub(crate) fn schedulers_mut(&mut self) -> impl Iterator<Item = &mut Scheduler> {
        let halves = self.prefill.iter_mut().chain(&mut self.decode);
        std::iter::once(&mut self.scheduler).chain(halves)
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
        self.note_parts(place);
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
        if question.apart.is_some() {
            // Who may serve which part of it is looked at when it is decided.
            let mut starts = self
                .load
                .places()
                .map(|(_, rank)| rank.prompts_ahead(now).0 <= within.0);
            return if starts.any(|starts| starts) {
                Outlook::Perhaps
            } else {
                Outlook::Waits
            };
        }
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

    pub(crate) fn blocks_at_end(&self, question: &Question) -> u64 {
        let output = question.overrides.expected_output;
        let output = output.unwrap_or_else(|| self.expected_output(question));
        let tokens = u64::from(question.prompt.0) + u64::from(output.0);
        tokens.div_ceil(u64::from(self.load.config().block_size.get()))
    }

    /// Tokens of a prompt that so many leading blocks spare.
    pub(crate) fn spared(&self, prompt: Tokens, blocks: u32) -> Tokens {
        self.load.config().block_size.reused(prompt, Blocks(blocks))
    }
}

/// Requests whose outputs are alike.
pub(crate) fn kind(question: &Question) -> Kind {
    Kind(u64::from(question.tenant.0))
}
