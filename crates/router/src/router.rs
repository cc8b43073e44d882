//! The verbs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use homing_disagg::{Fate, Hold, Staged, Traits};
use homing_domain::{AdapterName, BlockKey, RankId, RequestId, Tokens, WorkerId};
use homing_feed::RankStatus;
use homing_index::{IndexError, Reader};
use homing_load::{Heard, LoadError, Place, Potential, Report, Ticket};
use homing_profile::{Millis, Time};
use homing_scheduler::{Bits, Decision, Depths, Knowledge, Policy, RankFacts, Ready, Refusal};

use crate::apart::Policies;
use crate::carry;
use crate::config::RouterConfig;
use crate::core::{LookUp, Readers, Sight, Space};
use crate::desk::Desk;
use crate::guess::{CacheView, Guess};
use crate::question::{Effect, Elsewhere, Ended, NewRank, Question, Routed, Turned, Verdict};
use crate::state::State;

/// How often leases and what was learnt are looked at.
const SWEEP: Millis = Millis(1_000.0);

/// Why something about a rank was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// There is no room for it, or it is there already.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no room for it in the index of guesses.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// There is no such rank.
    #[error("there is no rank {0}")]
    NoSuchRank(RankId),
}

/// The critical section.
pub(crate) type Locked<'a> = MutexGuard<'a, Desk>;

/// Routes the requests of one model at one block size. To be shared between threads.
#[derive(Debug)]
pub struct Router {
    desk: Mutex<Desk>,
    guess: Mutex<Guess>,
    readers: Readers,
    /// Room to decide in, one for each thread that is at it.
    sights: Mutex<Vec<Sight>>,
}

impl Router {
    /// A router without ranks. `events` reads the index that events are applied to.
    pub fn new(config: &RouterConfig, policy: Box<dyn Policy>, events: Reader) -> Self {
        Self::with_policies(config, Policies::one(policy), events)
    }

    /// The same with policies of their own for parts of requests.
    pub fn with_policies(config: &RouterConfig, policies: Policies, events: Reader) -> Self {
        let look_up = if policies.use_overlap() {
            LookUp::Yes
        } else {
            LookUp::No
        };
        let guess = Guess::new(config.hasher, config.approximate, config.load.max_ranks);
        Self {
            readers: Readers {
                events,
                guess: guess.reader(),
                guessed: AtomicUsize::new(0),
                look_up,
            },
            desk: Mutex::new(Desk::new(config, policies)),
            guess: Mutex::new(guess),
            sights: Mutex::default(),
        }
    }

    /// Whether the policy looks at cached prefixes. If not, there is no use in listening to events.
    pub fn uses_overlap(&self) -> bool {
        self.readers.look_up == LookUp::Yes
    }

    /// A request wants to go somewhere.
    pub fn ask(&self, now: Time, question: Question) -> Verdict {
        self.ask_noting(now, question, || ())
    }

    /// The same; `looked_up` is called between looking into the index and deciding, for who measures both.
    pub fn ask_noting(&self, now: Time, question: Question, looked_up: impl FnOnce()) -> Verdict {
        self.with_sight(now, |sight| {
            self.readers.look_up(&question.keys, sight);
            looked_up();
            self.desk().ask(now, question, &self.readers, sight)
        })
    }

    /// Books a choice that was made elsewhere.
    pub fn book(&self, now: Time, choice: &Elsewhere) -> Result<Ticket, Turned> {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let place = desk.core.places.get(&choice.rank).copied();
            let place = place.ok_or(Turned::NoSuchRank(choice.rank))?;
            let ticket = desk.book_elsewhere(now, &choice.question, place, choice.cached)?;
            sight.booked.push((choice.rank, choice.question.keys.clone()));
            Ok(ticket)
        })
    }

    /// The first token of a request came.
    pub fn prefill_done(&self, now: Time, ticket: Ticket) -> Heard {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let heard = desk.prefill_done(now, ticket);
            if heard == Heard::News {
                desk.admit(now, &self.readers, sight);
            }
            heard
        })
    }

    /// A request has generated so many tokens in all.
    pub fn output(&self, now: Time, ticket: Ticket, generated: Tokens) -> Heard {
        self.desk().output(now, ticket, generated)
    }

    /// A request is still alive; nothing else is known of it.
    pub fn touch(&self, now: Time, ticket: Ticket) -> Heard {
        self.desk().core.load.touch(ticket, now)
    }

    /// A request that was booked ended.
    pub fn done(&self, now: Time, ticket: Ticket, ended: &Ended) -> Heard {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let heard = desk.done(now, ticket, ended);
            if heard == Heard::News {
                desk.admit(now, &self.readers, sight);
            }
            heard
        })
    }

    /// Nobody waits any more for a request that was not let go yet. Returns whether it waited.
    pub fn cancel(&self, id: &RequestId) -> bool {
        let mut desk = self.desk();
        desk.parked.remove(id);
        desk.queue.cancel(id).is_some()
    }

    /// A rank came.
    pub fn rank_up(&self, now: Time, new: NewRank) -> Result<(), RouterError> {
        let rank = new.facts.rank;
        let mut facts = new.facts;
        facts.knowledge = match new.view {
            CacheView::Events => Knowledge::Stale,
            CacheView::Guess => Knowledge::Guess,
            CacheView::Nothing => Knowledge::Nothing,
        };
        let is_new = !self.desk().core.places.contains_key(&rank);
        if new.view == CacheView::Guess && is_new {
            let mut guess = self.guess();
            guess.add(rank)?;
            self.readers.guessed.store(guess.len(), Ordering::Relaxed);
        }
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let place = desk.core.load.add_rank(new.spec, now)?;
            desk.core.places.insert(rank, place);
            desk.core.epoch += 1;
            desk.core.fleet.set(place, facts);
            desk.core.note_parts(place);
            desk.admit(now, &self.readers, sight);
            Ok(())
        })
    }

    /// What is known of a rank changed: whether it answers, drains, which adapters it serves. What concerns a whole worker is for
    /// [`Router::worker_changed`].
    pub fn rank_changed(
        &self,
        now: Time,
        rank: RankId,
        change: impl FnOnce(&mut RankFacts),
    ) -> Result<(), RouterError> {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let place = desk.core.places.get(&rank).copied();
            let place = place.ok_or(RouterError::NoSuchRank(rank))?;
            desk.core.change(place, change);
            desk.admit(now, &self.readers, sight);
            Ok(())
        })
    }

    /// What is known of a worker changed: all of its ranks are told of it before anybody who waits goes to one of them.
    pub fn worker_changed(&self, now: Time, worker: WorkerId, mut change: impl FnMut(&mut RankFacts)) {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let places = desk.core.fleet.worker(worker).map(Bits::places);
            let places: Vec<Place> = places.into_iter().flatten().collect();
            for place in places {
                desk.core.change(place, &mut change);
            }
            desk.admit(now, &self.readers, sight);
        });
    }

    /// Which workers may be chosen for an adapter although they do not have it, instead of what was said before: whoever is sent there is
    /// told that it has to be loaded first.
    pub fn set_openings(&self, now: Time, adapter: &AdapterName, openings: &[(WorkerId, Ready)]) {
        self.with_sight(now, |sight| {
            let mut desk = self.desk();
            let places = |worker: WorkerId| desk.core.fleet.worker(worker).into_iter().flat_map(Bits::places);
            let ready: Vec<(Place, Ready)> = openings
                .iter()
                .flat_map(|(worker, ready)| places(*worker).map(|place| (place, *ready)))
                .collect();
            desk.core.fleet.set_openings(adapter, ready);
            desk.admit(now, &self.readers, sight);
        });
    }

    /// A rank went, and what was booked there with it. Returns how many bookings that were.
    pub fn rank_gone(&self, now: Time, rank: RankId) -> usize {
        let mut guess = self.guess();
        guess.drop_rank(rank);
        self.readers.guessed.store(guess.len(), Ordering::Relaxed);
        drop(guess);
        self.desk().rank_gone(now, rank)
    }

    /// The engine of a rank whose cache is guessed lives anew: it holds nothing.
    pub fn rank_emptied(&self, rank: RankId) -> Result<(), RouterError> {
        Ok(self.guess().renew(rank)?)
    }

    /// An engine said how it is.
    pub fn report(&self, now: Time, rank: RankId, report: Report) -> Result<(), RouterError> {
        let mut desk = self.desk();
        let place = desk.core.places.get(&rank).copied();
        let place = place.ok_or(RouterError::NoSuchRank(rank))?;
        Ok(desk.core.load.report(place, report, now)?)
    }

    /// How good the views are that the feed keeps. Ranks that are not here are passed over.
    pub fn views<'a>(&self, statuses: impl IntoIterator<Item = &'a RankStatus>) {
        let mut desk = self.desk();
        for status in statuses {
            if let Some(place) = desk.core.places.get(&status.rank).copied() {
                desk.core.fleet.set_knowledge(place, knowledge(status));
            }
        }
    }

    /// Time passed. To be called a few times per second, and more often while requests wait.
    pub fn tick(&self, now: Time) {
        let sweep = self.with_sight(now, |sight| {
            let mut desk = self.desk();
            desk.expire(now);
            let sweep = now.since(desk.ticked).0 >= SWEEP.0;
            if sweep {
                desk.ticked = now;
                desk.lapse(now);
            }
            desk.admit(now, &self.readers, sight);
            sweep
        });
        if sweep {
            self.guess().tick(now);
        }
    }

    /// The next thing to be done outside.
    pub fn next_effect(&self) -> Option<Effect> {
        self.desk().effects.pop_front()
    }

    /// The share of ranks that were busy lately, from 0 to 1.
    pub fn utilisation(&self, now: Time) -> f64 {
        self.desk().core.load.utilisation(now)
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.desk().queue.len()
    }

    /// What would be decided for a request. Changes nothing.
    pub fn consider(&self, now: Time, question: &Question) -> Result<Decision, Refusal> {
        self.with_sight(now, |sight| {
            self.readers.look_up(&question.keys, sight);
            let desk = self.desk();
            let considered = desk
                .core
                .consider(now, question, (desk.start_within, Space::Counts), sight)?;
            Ok(considered.decision)
        })
    }

    /// What would be decided for a request that two workers may serve ([`Question::apart`]), with both decisions and the reasons. Changes
    /// nothing: nothing in it is booked.
    pub fn consider_apart(&self, now: Time, question: &Question) -> Result<Routed, Turned> {
        self.with_sight(now, |sight| {
            self.readers.look_up(&question.keys, sight);
            let desk = self.desk();
            let limits = (desk.start_within, Space::Counts);
            let considered = desk.core.consider_any(now, question, limits, sight)?;
            Ok(carry::unbooked((&desk.core, &desk.core), question, considered))
        })
    }

    /// Chooses and books without waiting for anything.
    pub(crate) fn ask_at_once(&self, now: Time, question: &Question) -> Result<Routed, Turned> {
        self.with_sight(now, |sight| {
            self.readers.look_up(&question.keys, sight);
            let mut desk = self.desk();
            let limits = (desk.start_within, Space::Waived);
            let considered = desk.core.consider_any(now, question, limits, sight)?;
            desk.carry_out(now, question, considered, sight)
        })
    }

    /// How a rank hands KV over.
    pub fn set_traits(&self, rank: RankId, traits: Traits) -> Result<(), RouterError> {
        let mut desk = self.desk();
        let place = desk.core.places.get(&rank).copied();
        let place = place.ok_or(RouterError::NoSuchRank(rank))?;
        desk.core.traits.insert(place, traits);
        desk.core.note_parts(place);
        Ok(())
    }

    /// Blocks that wait on prefill workers to be fetched, or will.
    pub fn staged_blocks(&self) -> u64 {
        self.desk().core.staging.blocks()
    }

    /// The prompt of a pair was computed, and so much waits to be fetched.
    pub fn staged(&self, hold: Hold, staged: &Staged) {
        self.desk().core.staging.staged(hold, staged);
    }

    /// A decode worker is on its way to fetch it.
    pub fn moving(&self, hold: Hold, to: RankId) {
        self.desk().core.staging.moving(hold, to);
    }

    /// What became of it. What lapses counts until then.
    pub fn settle(&self, now: Time, hold: Hold, fate: Fate) {
        let mut desk = self.desk();
        desk.core.staging.settle(hold, fate);
        desk.core.staging.tick(now);
    }

    /// What each rank would have if it took a prompt. Changes nothing.
    pub fn potential_loads(&self, now: Time, keys: &[BlockKey], prompt: Tokens) -> Vec<(RankId, Potential)> {
        self.with_sight(now, |sight| {
            self.readers.look_up(keys, sight);
            let desk = self.desk();
            let overlap = desk.core.depths(keys, sight);
            let size = u64::from(desk.core.load.config().block_size.get());
            let potential = |(place, rank): (_, &homing_load::RankLoad)| {
                let spared = overlap.depths(place).spared();
                let tokens = Tokens(prompt.0 - desk.core.spared(prompt, spared).0);
                let booked = overlap.depths(place).booked;
                let blocks = u64::from(prompt.0).div_ceil(size).saturating_sub(u64::from(booked));
                (rank.rank(), rank.potential(now, tokens, blocks))
            };
            desk.core.load.places().map(potential).collect()
        })
    }

    /// How many leading blocks of these a rank holds, and how many are booked there.
    pub fn overlap(&self, keys: &[BlockKey], rank: RankId) -> Option<Depths> {
        self.with_sight(Time::ZERO, |sight| {
            self.readers.look_up(keys, sight);
            let desk = self.desk();
            let place = *desk.core.places.get(&rank)?;
            Some(*desk.core.depths(keys, sight).depths(place))
        })
    }

    /// All that is known, for people.
    pub fn state(&self, now: Time) -> State {
        State::of(&self.desk(), now)
    }

    /// Lends room to decide in, and afterwards stores as guesses what was booked, without a lock on the desk.
    pub(crate) fn with_sight<R>(&self, now: Time, act: impl FnOnce(&mut Sight) -> R) -> R {
        let mut sight = lock(&self.sights).pop().unwrap_or_default();
        let result = act(&mut sight);
        if !sight.booked.is_empty() {
            if self.uses_overlap() {
                let mut guess = self.guess();
                for (rank, keys) in sight.booked.drain(..) {
                    guess.routed(rank, &keys, now);
                }
            }
            sight.booked.clear();
        }
        lock(&self.sights).push(sight);
        result
    }

    /// Asks the indexes.
    pub(crate) fn look_up(&self, keys: &[BlockKey], sight: &mut Sight) {
        self.readers.look_up(keys, sight);
    }

    pub(crate) fn desk(&self) -> Locked<'_> {
        lock(&self.desk)
    }

    fn guess(&self) -> MutexGuard<'_, Guess> {
        lock(&self.guess)
    }
}

/// A thread that panicked under the lock left whole values behind: nothing is half done between two statements that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn knowledge(status: &RankStatus) -> Knowledge {
    match status.state {
        homing_feed::State::Live => Knowledge::Exact,
        homing_feed::State::Warming => Knowledge::Warming,
        homing_feed::State::Repairing => Knowledge::Repairing,
        homing_feed::State::Stale { .. } => Knowledge::Stale,
    }
}
