//! What must hold all the time?

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use homing_domain::{BlockKey, RankId};
use homing_profile::{Millis, Time};
use homing_scheduler::{Decision, Duty, Health};
use homing_trace::Traffic;

use super::calendar::Due;
use super::calls::{Booked, CallNo, Stage};
use super::turns::Shares;
use super::world::{Care, World};

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Each request ends exactly once, and so does each booking.
    EndsOnce,
    /// What a router has booked and lets wait is what its clients know of, rank by rank; when all is over it is nothing.
    Conserved,
    /// Nothing is sent to a worker that is known to be down, to drain, to have left or to have failed before.
    RightPlace,
    /// Bookings are given up after a lease without a word, not before and not much later.
    Lease,
    /// Nobody waits beyond a deadline.
    InTime,
    /// Limits of queues are kept.
    Bounds,
    /// Who is more important goes first, and who comes anew does not overtake.
    Order,
    /// Classes and tenants get their shares.
    Shares,
    /// Nobody waits while a rank that could serve it does nothing.
    NotIdle,
    /// What a router believes of a cache is what the engine holds.
    View,
    /// Sessions that stay together stay where they were.
    Session,
    /// An answer that was continued elsewhere is the one of an undisturbed run.
    Answer,
    /// When faults have healed all requests end and all views recover.
    Recovers,
    /// Equal seeds give equal worlds.
    Deterministic,
    /// KV that is held for another engine is read once, told of once, and gone in the end.
    Staged,
    /// Nothing panics.
    NoPanic,
}

impl Check {
    /// What must hold, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::EndsOnce => "each request and each booking ends exactly once",
            Self::Conserved => "what is booked and waits is what clients know of",
            Self::RightPlace => "nothing is sent to who is known to be unable",
            Self::Lease => "a booking is given up after a lease without a word, not before",
            Self::InTime => "nobody waits beyond a deadline",
            Self::Bounds => "limits of queues are kept",
            Self::Order => "nobody goes before someone who is to go first",
            Self::Shares => "classes and tenants get their shares",
            Self::NotIdle => "nobody waits while a rank that could serve it does nothing",
            Self::View => "a view is what the engine holds",
            Self::Session => "a session stays where it was",
            Self::Answer => "an answer is the one of an undisturbed run",
            Self::Recovers => "when faults have healed all requests end and all views recover",
            Self::Deterministic => "equal seeds give equal worlds",
            Self::Staged => "staged KV is read once, told of once and gone in the end",
            Self::NoPanic => "nothing panics",
        }
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// What does not hold.
    pub check: Check,
    /// When it was seen.
    pub at: Time,
    /// What it is.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Prompts that are remembered to compare views by.
const REMEMBERED: usize = 64;
/// A router may notice a deadline so much later, because it is told of time now and then.
const SLACK: Millis = Millis(500.0);
/// Leases are looked at every second.
const LEASE_SLACK: Millis = Millis(2_000.0);
/// So often it is looked again whether somebody waits beside an idle rank, and so much later each time. Routers look every 20 ms.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Millis = Millis(50.0);

/// What is remembered for checks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) prompts: VecDeque<Arc<[BlockKey]>>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) compared: u64,
    /// For each router what went since all waited.
    pub(crate) shares: BTreeMap<u32, Shares>,
}

impl Memory {
    pub(crate) fn remember(&mut self, keys: &Arc<[BlockKey]>) {
        if self.prompts.len() == REMEMBERED {
            self.prompts.pop_front();
        }
        self.prompts.push_back(keys.clone());
    }
}

/// What clients know of one router.
#[derive(Debug, Default)]
struct Known {
    waits: usize,
    booked: usize,
    /// For each rank: without a first token, with one.
    ranks: BTreeMap<RankId, (u32, u32)>,
    /// Waiting requests of each class, and the tokens of their prompts.
    classes: BTreeMap<usize, (usize, u64)>,
    late: Option<(CallNo, Millis)>,
    silent: Option<(CallNo, Millis)>,
}

impl<I: Traffic> World<I> {
    pub(crate) fn violated(&mut self, check: Check, what: impl Into<String>) {
        let (at, what) = (self.now, what.into());
        self.log.say(at, || format!("WRONG: {what}"));
        self.memory.violations.push(Violation { check, at, what });
    }

    /// Looks at all that can be looked at while things are under way.
    pub(crate) fn check(&mut self) {
        for number in 0..self.routers.len() {
            let known = self.known(number as u32);
            self.check_books(number, &known);
            self.check_queue(number, &known);
        }
        self.check_apart();
        if self.care >= Care::Close {
            // Who was sent to one worker by others waits for that one.
            if self.setup.routers.policy != "direct" && self.setup.split.is_none() {
                self.check_idle();
            }
            self.check_views();
        }
    }

    fn known(&self, router: u32) -> Known {
        let mut known = Known::default();
        let longest = |worst: &mut Option<(CallNo, Millis)>, call, by: f64| {
            if by > 0.0 && worst.is_none_or(|(_, most)| by > most.0) {
                *worst = Some((call, Millis(by)));
            }
        };
        let (lease, most_wait) = (
            self.setup.routers.config.load.lease,
            self.setup.routers.config.most_wait,
        );
        for call in self.calls.values().filter(|call| call.router == router) {
            match &call.stage {
                Stage::Waits(since) => {
                    known.waits += 1;
                    let split = self.splits.get(&call.number);
                    let prompt = split.map_or(&call.prompt, |split| &split.prompt);
                    let (requests, tokens) = known.classes.entry(call.class).or_default();
                    (*requests, *tokens) = (*requests + 1, *tokens + prompt.len() as u64);
                    let latest = *since + most_wait;
                    let latest = call
                        .deadline
                        .map_or(latest, |deadline| deadline.max(*since).min(latest));
                    longest(&mut known.late, call.number, self.now.since(latest).0 - SLACK.0);
                }
                Stage::Goes(going) if going.booked == Booked::Yes => {
                    known.booked += 1;
                    let (pending, decoding) = known.ranks.entry(going.rank).or_default();
                    *(if going.heard_first { decoding } else { pending }) += 1;
                    let silence = self.now.since(going.heard).0 - lease.0 - LEASE_SLACK.0;
                    longest(&mut known.silent, call.number, silence);
                }
                Stage::Goes(_) | Stage::Asks(_) => (),
            }
        }
        for split in self.splits.values().filter(|split| split.router == router) {
            let seats = split.turns.values().flat_map(|booked| [booked.prefill, booked.decode]);
            for seat in seats.flatten() {
                known.booked += 1;
                known.ranks.entry(seat.rank).or_default().0 += 1;
            }
        }
        known
    }

    fn check_books(&mut self, number: usize, known: &Known) {
        let state = self.routers[number].router.state(self.now);
        if state.waiting != known.waits {
            let what = format!(
                "router {number} has {} that wait, its clients know of {}",
                state.waiting, known.waits
            );
            self.violated(Check::Conserved, what);
        }
        let tokens: u64 = known.classes.values().map(|(_, tokens)| tokens).sum();
        if state.waiting_tokens != tokens {
            let what = format!(
                "prompts of {} tokens wait at router {number}, its clients know of {tokens}",
                state.waiting_tokens
            );
            self.violated(Check::Conserved, what);
        }
        if state.booked != known.booked {
            let what = format!(
                "router {number} has {} booked, its clients know of {}",
                state.booked, known.booked
            );
            self.violated(Check::Conserved, what);
        }
        for rank in &state.ranks {
            let (load, of) = (&rank.load, rank.facts.rank);
            let (pending, decoding) = known.ranks.get(&of).copied().unwrap_or_default();
            let both = load.pending() + load.decoding() == pending + decoding;
            if (load.pending(), load.decoding()) != (pending, decoding) && !(both && self.setup.split.is_some()) {
                let what = format!(
                    "router {number} has {} and {} booked on {of}, without and with a first token; it should be {pending} and {decoding}",
                    load.pending(),
                    load.decoding()
                );
                self.violated(Check::Conserved, what);
            }
            if load.pending() == 0 && load.pending_tokens() > 0 {
                let what = format!(
                    "router {number} has {} tokens to compute on {of}, of nobody",
                    load.pending_tokens()
                );
                self.violated(Check::Conserved, what);
            }
        }
        if let Some((call, by)) = known.silent {
            let what = format!(
                "nothing was heard of request {} for {} ms more than a lease",
                call.0, by.0
            );
            self.violated(Check::Lease, what);
        }
    }

    fn check_queue(&mut self, number: usize, known: &Known) {
        let config = &self.setup.routers.config;
        let mut wrong = Vec::new();
        if known.waits > config.total.requests {
            wrong.push(format!("{} wait at router {number}, more than it allows", known.waits));
        }
        let mut total = 0;
        for (class, &(waits, tokens)) in &known.classes {
            total += tokens;
            let limits = config.classes.get(*class).map(|class| class.limits);
            let (requests, most) = limits.map_or((0, 0), |limits| (limits.requests, limits.tokens));
            if waits > requests {
                wrong.push(format!(
                    "{waits} of class {class} wait at router {number}, not {requests}"
                ));
            }
            if tokens > most {
                wrong.push(format!(
                    "{tokens} tokens of class {class} wait at router {number}, not {most}"
                ));
            }
        }
        if total > config.total.tokens {
            wrong.push(format!("{total} tokens wait at router {number}, more than it allows"));
        }
        for what in wrong {
            self.violated(Check::Bounds, what);
        }
        if let Some((call, by)) = known.late {
            let what = format!(
                "request {} waits at router {number} {} ms longer than it may",
                call.0,
                by.0 + SLACK.0
            );
            self.violated(Check::InTime, what);
        }
    }

    /// Somebody waits: is there room for it?
    pub(crate) fn check_room(&mut self, number: CallNo) {
        if self.care < Care::Close {
            return;
        }
        if let Some(router) = self.calls.get(&number).map(|call| call.router) {
            let known = self.known(router);
            self.check_queue(router as usize, &known);
        }
    }

    /// A request is about to be sent: can it be?
    pub(crate) fn check_dispatch(&mut self, number: CallNo, decision: &Decision) {
        let rank = decision.chosen.rank;
        let worker = rank.worker;
        let Some(call) = self.calls.get(&number) else { return };
        let (router, session) = (call.router, call.request.session);
        let node = &mut self.routers[router as usize];
        let wrong = [
            (node.believed_down.contains(&worker.0), "to be down"),
            (node.drained.contains(&worker.0), "to drain"),
            (!node.knows.contains(&worker.0), "to have left"),
            (call.tried.contains(&worker), "to have failed before"),
        ];
        let wrong = wrong.into_iter().find(|(is_so, _)| *is_so).map(|(_, how)| how);
        let came = node.came.get(&rank).copied().unwrap_or(0);
        let mut strayed = false;
        if let Some(session) = session.filter(|_| decision.policy == "sticky") {
            let stays = decision
                .chosen
                .terms
                .parts()
                .iter()
                .any(|(name, _)| name.contains("session"));
            strayed = stays && node.sessions.get(&session) != Some(&(rank, came));
            node.sessions.insert(session, (rank, came));
        }
        if let Some(how) = wrong {
            let what = format!(
                "router {router} sends request {} to {rank}, which it knows {how}",
                number.0
            );
            self.violated(Check::RightPlace, what);
        }
        if strayed {
            let what = format!(
                "router {router} says that the session of request {} is on {rank}, where it was not",
                number.0
            );
            self.violated(Check::Session, what);
        }
    }

    /// Nobody waits while a rank that could serve it does nothing. That a rank is free may have been heard just now, so it is
    /// looked at again a little later.
    fn check_idle(&mut self) {
        for router in 0..self.routers.len() as u32 {
            if let Some((call, rank)) = self.starved(router) {
                let due = Due::LookAgain {
                    router,
                    call,
                    rank,
                    looks: LOOKS,
                };
                self.calendar.enter(self.now + BETWEEN_LOOKS, due);
            }
        }
    }

    pub(crate) fn look_again(&mut self, (router, call, rank): (u32, CallNo, RankId), looks: u32) {
        let idle = self.idle(router);
        let waits = self
            .calls
            .get(&call)
            .filter(|call| matches!(call.stage, Stage::Waits(_)));
        let could = |call: &super::calls::Call| call.router == router && !call.tried.contains(&rank.worker);
        if !idle.contains(&rank) || !waits.is_some_and(could) {
            return;
        }
        if looks == 0 {
            let what = format!("request {} waits at router {router}, and {rank} does nothing", call.0);
            return self.violated(Check::NotIdle, what);
        }
        let due = Due::LookAgain {
            router,
            call,
            rank,
            looks: looks - 1,
        };
        self.calendar.enter(self.now + BETWEEN_LOOKS, due);
    }

    /// Ranks that a router takes to be able and without anything to do.
    fn idle(&self, router: u32) -> Vec<RankId> {
        let state = self.routers[router as usize].router.state(self.now);
        let able = |rank: &&homing_router::RankState| {
            let facts = &rank.facts;
            facts.health == Health::Up && facts.duty == Duty::Serving && rank.load.all_requests() == 0
        };
        state.ranks.iter().filter(able).map(|rank| rank.facts.rank).collect()
    }

    /// The first who waits and could be served by such a rank.
    fn starved(&self, router: u32) -> Option<(CallNo, RankId)> {
        if self.routers[router as usize].router.waiting() == 0 {
            return None;
        }
        let idle = self.idle(router);
        let waits = self.calls.values().filter(|call| call.router == router);
        let waits = waits.filter(|call| matches!(call.stage, Stage::Waits(_)));
        let starved = waits.filter_map(|call| {
            let free = idle.iter().find(|rank| !call.tried.contains(&rank.worker))?;
            Some((call.number, *free))
        });
        starved.min()
    }

    /// Looks at what must hold when everything is over.
    pub(crate) fn check_end(&mut self) {
        if !self.calls.is_empty() {
            let first = self.calls.keys().min().map_or(0, |call| call.0);
            let what = format!("{} requests never ended, the first is {first}", self.calls.len());
            self.violated(Check::Recovers, what);
        }
        for number in 0..self.routers.len() {
            let router = &self.routers[number].router;
            if !router.state(self.now).at_rest {
                let what = format!("router {number} is not at rest after the last request");
                self.violated(Check::Conserved, what);
            }
        }
        self.check_views_at_end();
        self.check_apart_at_end();
        let live: usize = self.workers.iter().map(|worker| worker.engine.live()).sum();
        if live > 0 {
            self.violated(Check::Recovers, format!("{live} requests are left in engines"));
        }
    }
}
