//! Does everybody get a turn?

use std::collections::BTreeMap;

use homing_load::Standing;
use homing_router::Routed;
use homing_scheduler::queue::Tenant;
use homing_trace::Traffic;

use super::calls::{Call, CallNo, Stage};
use super::check::Check;
use super::world::{Care, World};

/// How a request got its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waited.
    Waited,
    /// It came just now.
    CameAnew,
}

/// What went of each class and tenant since all of them have been waiting without a break.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    taken: BTreeMap<(usize, Tenant), u64>,
}

/// How far shares may be apart, in requests: a turn is a request, and who comes anew begins where the others are.
const TURNS: f64 = 3.0;

impl<I: Traffic> World<I> {
    /// A request is let go: is it its turn?
    pub(crate) fn check_turn(&mut self, number: CallNo, goes: &Routed, turn: Turn) {
        if self.care < Care::Close || self.setup.routers.policy == "direct" {
            return;
        }
        let Some(call) = self.calls.get(&number) else { return };
        let router = call.router;
        let before = self
            .calls
            .values()
            .filter(|other| other.router == router && goes_first(other, call, goes));
        let before = before
            .filter(|other| turn == Turn::CameAnew || other.request.client.priority > call.request.client.priority);
        let first = before.map(|other| other.number).min();
        if let Some(first) = first.filter(|_| !self.holds_back(router)) {
            let how = match turn {
                Turn::Waited => "which is less important",
                Turn::CameAnew => "which came just now",
            };
            let what = format!(
                "request {} waits at router {router} behind {}, {how}",
                first.0, number.0
            );
            self.violated(Check::Order, what);
        }
        if self.care == Care::Shares && turn == Turn::Waited {
            self.check_shares(number);
        }
    }

    /// Whether a router holds requests back from ranks that look as if they were stuck: then what can begin depends on where a
    /// request would go.
    fn holds_back(&self, router: u32) -> bool {
        let state = self.routers[router as usize].router.state(self.now);
        let held = |rank: &homing_router::RankState| {
            rank.standing == Standing::Suspect || !rank.load.is_verified() && rank.load.requests() > 0
        };
        state.ranks.iter().any(held)
    }

    fn check_shares(&mut self, number: CallNo) {
        let Some(call) = self.calls.get(&number) else { return };
        let (router, tokens) = (call.router, u64::from(call.asked.0));
        let its = (call.class, call.tenant);
        let mut waits: BTreeMap<(usize, Tenant), u32> = BTreeMap::new();
        let mut alike = call.tried.is_empty();
        for other in self.calls.values().filter(|other| other.router == router) {
            if matches!(other.stage, Stage::Waits(_)) {
                *waits.entry((other.class, other.tenant)).or_default() += 1;
                alike &= other.tried.is_empty();
            }
        }
        let shares = self.memory.shares.entry(router).or_default();
        // Who failed somewhere cannot go everywhere: one goes where another, whose turn it is, would not.
        if !alike {
            shares.taken.clear();
            return;
        }
        // Who does not wait has no claim: counting begins anew when the same wait as before.
        if !shares.taken.keys().eq(waits.keys()) {
            shares.taken = waits.keys().map(|of| (*of, 0)).collect();
        }
        *shares.taken.entry(its).or_default() += tokens;
        let mut classes: BTreeMap<usize, f64> = BTreeMap::new();
        let mut wrong = None;
        for ((class, tenant), taken) in &shares.taken {
            *classes.entry(*class).or_default() += *taken as f64;
            for ((other, _), least) in shares.taken.iter().filter(|((other, _), _)| other == class) {
                if *taken as f64 - *least as f64 > TURNS * tokens as f64 {
                    wrong = Some(format!(
                        "tenant {} of class {other} has taken {taken} tokens while another who waits took {least}",
                        tenant.0
                    ));
                }
            }
        }
        let quantum = |class: usize| {
            let class = self.setup.routers.config.classes.get(class);
            class.map_or(1.0, |class| f64::from(class.quantum.max(1)))
        };
        for (class, taken) in &classes {
            for (other, least) in &classes {
                if taken / quantum(*class) - least / quantum(*other) > TURNS * tokens as f64 {
                    wrong = Some(format!(
                        "class {class} has taken {taken} tokens while class {other}, which waits, took {least}"
                    ));
                }
            }
        }
        if let Some(what) = wrong {
            self.violated(Check::Shares, what);
        }
    }
}

/// Whether one who waits is of the same class and tenant as one that goes, needs no more than that, and can be served by whoever
/// serves that: then it goes first.
fn goes_first(other: &Call, goes: &Call, routed: &Routed) -> bool {
    let waits = matches!(other.stage, Stage::Waits(_)) && other.number != goes.number;
    let alike = (other.class, other.tenant) == (goes.class, goes.tenant);
    let important = other.request.client.priority >= goes.request.client.priority;
    let anywhere = other.tried.is_empty() && goes.tried.is_empty();
    let booked = routed.decision.chosen.depths.booked as usize;
    let needs_less = other.keys.len() + booked < goes.keys.len().max(1) + usize::from(booked == 0);
    waits && alike && important && anywhere && needs_less && other.prompt.len() <= goes.prompt.len()
}
