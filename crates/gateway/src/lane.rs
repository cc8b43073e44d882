//! The requests of one model at one block size: where they wait, where they go, and what the router is told of them.
//!
//! The router is a state machine that books what it decides; here are those who wait for its decisions. A [`Booked`] is a booking in
//! somebody's hands: however that somebody ends, the booking ends with it.
//!
//! **Invariant:** every booking that the router made is ended exactly once, because whoever was to have it holds a [`Booked`], and
//! dropping one ends it.
//!
//! **Invariant:** after every word to the router its effects are carried out, so that nobody waits for an effect that nobody looks at.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use homing_disagg::{Changed, Fate, Hold, Pool, PoolPhase, Require, Staged};
use homing_domain::{AdapterName, RankId, RequestId, Role, Tokens, WorkerId};
use homing_keeper::{Keeper, Standing, Subject};
use homing_load::{End, Ticket};
use homing_profile::{Millis, Time};
use homing_router::{Effect, Elsewhere, Ended, NewRank, Question, Routed, Router, RouterError, Turned, Verdict};
use homing_scheduler::queue::Refused;
use homing_scheduler::{Decision, RankFacts, Ready, Refusal};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot, watch};

use crate::adapters::{Inside, Shelf};
use crate::clock::Clock;

type Told = Result<Booked, Turned>;

/// The router of one model at one block size, the index that it reads, and who waits for it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) subject: Subject,
    pub(crate) router: Router,
    pub(crate) keeper: Keeper,
    /// Its adapters.
    pub(crate) shelf: Shelf,
    clock: Clock,
    waiting: Mutex<FxHashMap<RequestId, oneshot::Sender<Told>>>,
    /// What was last said of the views.
    standing: Mutex<Arc<Standing>>,
    /// Ranks whose views are to be made anew. Bounded: a doubt that does not fit comes again.
    doubts: mpsc::Sender<RankId>,
    /// Its workers by what they do, and what is said when that changes.
    pool: Mutex<Pool>,
    phase: watch::Sender<PoolPhase>,
    /// Whether there was ever a worker for a part of requests only.
    parts: AtomicBool,
    /// How long KV stays that nobody fetches.
    lease: Millis,
}

impl Lane {
    pub(crate) fn new(
        subject: Subject,
        router: Router,
        keeper: Keeper,
        shelf: Shelf,
        (clock, doubts, lease): (Clock, mpsc::Sender<RankId>, Millis),
    ) -> Self {
        Self {
            subject,
            router,
            keeper,
            shelf,
            clock,
            waiting: Mutex::default(),
            standing: Mutex::default(),
            doubts,
            pool: Mutex::default(),
            phase: watch::Sender::new(PoolPhase::NotYet),
            parts: AtomicBool::new(false),
            lease,
        }
    }

    /// A worker is there with this role.
    pub(crate) fn worker_up(&self, worker: WorkerId, role: Role) {
        if role != Role::Both {
            self.parts.store(true, Relaxed);
        }
        let changed = self.pool().up(worker, role);
        self.changed(changed);
    }

    /// A worker is not there any more.
    pub(crate) fn worker_down(&self, worker: WorkerId) {
        let changed = self.pool().down(worker);
        self.changed(changed);
    }

    fn changed(&self, changed: Changed) {
        if let Changed::To(phase) = changed {
            tracing::info!(model = %self.subject.model, phase = phase.name(), "its prefill workers are");
            self.phase.send_replace(phase);
        }
    }

    /// What became of the prefill workers, and whoever waits for a change of that.
    pub(crate) fn phase(&self) -> watch::Receiver<PoolPhase> {
        self.phase.subscribe()
    }

    /// Whether prompts and answers can be computed by different workers, or have to.
    pub(crate) fn divides(&self, require: Require) -> bool {
        require == Require::Yes || self.parts.load(Relaxed)
    }

    /// Whether the model can be served.
    pub(crate) fn is_ready(&self, require: Require) -> bool {
        self.pool().is_ready(require)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Where a request goes; ready when it may go there. Dropping the future gives up.
    pub(crate) async fn route(self: &Arc<Self>, question: Question) -> Told {
        let Some(adapter) = question.adapter.clone().filter(|_| self.shelf.manages()) else {
            return self.route_once(question).await;
        };
        let mut answer = self.route_once(question.clone()).await;
        if let Err(Turned::Nowhere(_)) = &answer {
            // What the router knows of an adapter may be older than what is so.
            self.adapter_looked_at(&adapter);
            answer = self.route_once(question).await;
        }
        if let Err(Turned::Loads { adapter, rank, .. }) = &answer {
            self.adapter_wanted(rank.worker, adapter);
        }
        answer
    }

    async fn route_once(self: &Arc<Self>, question: Question) -> Told {
        let id = question.id.clone();
        let (tell, told) = oneshot::channel();
        // Before the question, because somebody else may carry out the answer.
        self.waiting().insert(id.clone(), tell);
        let mut seat = Seat {
            lane: self,
            id: &id,
            waits: true,
        };
        let began = Instant::now();
        let mut looked = began;
        let verdict = self
            .router
            .ask_noting(self.clock.at(began), question, || looked = Instant::now());
        let took = Deciding {
            lookup: looked - began,
            decide: looked.elapsed(),
        };
        let answer = match verdict {
            Verdict::Go(routed) => Some(Ok(Booked::new(self, *routed))),
            Verdict::Turned(why) => Some(Err(why)),
            Verdict::Wait => None,
        };
        self.settle();
        let answer = match answer {
            Some(answer) => answer,
            // Nobody drops a sender unsent but another request of the same id that took its place.
            None => match told.await {
                Ok(answer) => answer,
                Err(_) => Err(Turned::Full(Refused::Known(id.clone()))),
            },
        };
        seat.leave();
        answer.map(|mut booked| {
            booked.took = took;
            booked
        })
    }

    /// What would be decided. Changes nothing.
    pub(crate) fn consider(&self, question: &Question) -> Result<Decision, Refusal> {
        self.router.consider(self.now(), question)
    }

    /// Books what was decided elsewhere, by a decision that says the same.
    pub(crate) fn book(self: &Arc<Self>, choice: &Elsewhere, decision: Decision) -> Result<Booked, Turned> {
        let ticket = self.router.book(self.now(), choice)?;
        self.settle();
        let routed = Routed {
            decision,
            cached: choice.cached,
            ticket: Some(ticket),
            halves: None,
        };
        Ok(Booked::new(self, routed))
    }

    /// A rank came.
    pub(crate) fn rank_up(self: &Arc<Self>, new: NewRank) -> Result<(), RouterError> {
        let result = self.router.rank_up(self.now(), new);
        // What the feed says of it was passed over until now.
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.settle();
        result
    }

    /// Something is known of a worker that was not.
    pub(crate) fn worker_changed(self: &Arc<Self>, worker: WorkerId, change: impl FnMut(&mut RankFacts)) {
        self.router.worker_changed(self.now(), worker, change);
        self.settle();
    }

    /// Which workers may be chosen for an adapter that they do not have.
    pub(crate) fn open(self: &Arc<Self>, adapter: &AdapterName, openings: &[(WorkerId, Ready)]) {
        self.router.set_openings(self.now(), adapter, openings);
        self.settle();
    }

    /// A rank went.
    pub(crate) fn rank_gone(self: &Arc<Self>, rank: RankId) -> usize {
        let booked = self.router.rank_gone(self.now(), rank);
        self.settle();
        booked
    }

    /// Time passed.
    pub(crate) fn tick(self: &Arc<Self>) {
        let standing = self.keeper.standing();
        let mut known = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&known, &standing) {
            self.router.views(&standing.ranks);
            *known = standing;
        }
        drop(known);
        self.router.tick(self.now());
        self.settle();
    }

    /// Carries out what the router wants done.
    fn settle(self: &Arc<Self>) {
        while let Some(effect) = self.router.next_effect() {
            match effect {
                Effect::Go { id, routed } => self.tell(&id, Ok(Booked::new(self, *routed))),
                Effect::Turned { id, why } => self.tell(&id, Err(why)),
                Effect::Lapsed { id, rank } => {
                    tracing::warn!(request = %id, worker = rank.worker.0, "nothing was heard of a request for too long");
                }
                Effect::Doubted(rank) => {
                    tracing::warn!(
                        worker = rank.worker.0,
                        rank = rank.dp.0,
                        "keeps having less cached than its view says"
                    );
                    let _ = self.doubts.try_send(rank);
                }
            }
        }
    }

    fn tell(&self, id: &RequestId, told: Told) {
        let waiting = self.waiting().remove(id);
        // Whoever does not wait any more drops the booking, and so ends it.
        if let Some(waiting) = waiting {
            drop(waiting.send(told));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, FxHashMap<RequestId, oneshot::Sender<Told>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those who wait. Whoever goes away gives it back.
struct Seat<'a> {
    lane: &'a Arc<Lane>,
    id: &'a RequestId,
    waits: bool,
}

impl Seat<'_> {
    fn leave(&mut self) {
        self.waits = false;
        self.lane.waiting().remove(self.id);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.lane.waiting().remove(self.id);
            self.lane.router.cancel(self.id);
            self.lane.settle();
        }
    }
}

/// A booking in somebody's hands.
#[derive(Debug)]
pub(crate) struct Booked {
    lane: Arc<Lane>,
    pub(crate) routed: Routed,
    /// What is booked for its prompt, if another worker computes it. Taken by whoever sees to that.
    pub(crate) half: Option<Half>,
    first: bool,
    told: u32,
    /// Keeps its adapter where it is.
    pub(crate) inside: Option<Inside>,
    /// What it took to decide, when it was asked for.
    pub(crate) took: Deciding,
}

/// How long it took to decide about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deciding {
    /// To look into the index.
    pub(crate) lookup: Duration,
    /// To decide, or to find that it has to wait.
    pub(crate) decide: Duration,
}

impl Booked {
    fn new(lane: &Arc<Lane>, mut routed: Routed) -> Self {
        let prefill = routed.halves.as_mut().and_then(|halves| halves.prefill.as_mut());
        let half = prefill.map(|prefill| Half {
            lane: lane.clone(),
            ticket: prefill.ticket.take(),
            hold: prefill.hold.take(),
            decision: Arc::new(prefill.decision.clone()),
            cached: prefill.cached,
            told: None,
            staged: false,
        });
        Self {
            lane: lane.clone(),
            routed,
            half,
            first: false,
            told: 0,
            inside: None,
            took: Deciding::default(),
        }
    }

    pub(crate) fn rank(&self) -> RankId {
        self.routed.decision.chosen.rank
    }

    /// Why one worker serves it or two, as JSON, where there was a choice.
    pub(crate) fn why(&self) -> Option<Arc<str>> {
        let halves = self.routed.halves.as_ref()?;
        Some(halves.why.to_json().into())
    }

    /// Tokens that are predicted to come from the cache.
    pub(crate) fn cached(&self) -> Tokens {
        self.routed.cached
    }

    /// So many tokens came so far.
    pub(crate) fn output(&mut self, generated: u32) {
        let Some(ticket) = self.routed.ticket else { return };
        if !self.first && generated > 0 {
            self.first = true;
            self.lane.router.prefill_done(self.lane.now(), ticket);
            self.lane.settle();
        }
        // A block's worth at a time: the router counts in blocks.
        let block = self.lane.subject.block_size.get();
        if generated / block > self.told / block {
            self.told = generated;
            self.lane.router.output(self.lane.now(), ticket, Tokens(generated));
        }
    }

    /// It ended. `cached` is what the engine says came from its cache.
    pub(crate) fn end(mut self, end: End, generated: u32, cached: Option<Tokens>) {
        if let Some(ticket) = self.routed.ticket.take() {
            let ended = Ended {
                end,
                generated: Some(Tokens(generated)),
                cached,
            };
            self.close(ticket, &ended);
        }
    }

    fn close(&self, ticket: Ticket, ended: &Ended) {
        self.lane.router.done(self.lane.now(), ticket, ended);
        self.lane.settle();
    }
}

/// What is booked for a prompt that another worker computes, and the room for its KV. However whoever holds it ends, both end with it.
#[derive(Debug)]
pub(crate) struct Half {
    lane: Arc<Lane>,
    ticket: Option<Ticket>,
    hold: Option<Hold>,
    pub(crate) decision: Arc<Decision>,
    /// Tokens that are predicted to come from the cache.
    pub(crate) cached: Tokens,
    /// What the engine says came from its cache.
    pub(crate) told: Option<Tokens>,
    staged: bool,
}

impl Half {
    /// So much waits to be fetched.
    pub(crate) fn staged(&mut self, staged: &Staged) {
        self.staged = true;
        if let Some(hold) = self.hold {
            self.lane.router.staged(hold, staged);
        }
    }

    /// A decode worker is on its way to fetch it.
    pub(crate) fn moving(&self, to: RankId) {
        if let Some(hold) = self.hold {
            self.lane.router.moving(hold, to);
        }
    }

    /// What became of the KV.
    pub(crate) fn settle(&mut self, fate: Fate) {
        if let Some(hold) = self.hold.take() {
            self.lane.router.settle(self.lane.now(), hold, fate);
            self.lane.settle();
        }
    }

    /// The prompt was computed, or not.
    pub(crate) fn end(&mut self, end: End) {
        let Some(ticket) = self.ticket.take() else { return };
        let now = self.lane.now();
        if end == End::Finished {
            self.lane.router.prefill_done(now, ticket);
        }
        let ended = Ended {
            end,
            generated: Some(Tokens(0)),
            cached: self.told,
        };
        self.lane.router.done(now, ticket, &ended);
        self.lane.settle();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.end(End::Cancelled);
        let fate = if self.staged {
            Fate::Lapses(self.lane.now() + self.lane.lease)
        } else {
            Fate::NotStaged
        };
        self.settle(fate);
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        if let Some(ticket) = self.routed.ticket.take() {
            let ended = Ended {
                end: End::Cancelled,
                generated: None,
                cached: None,
            };
            self.close(ticket, &ended);
        }
    }
}
