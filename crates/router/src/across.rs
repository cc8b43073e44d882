//! What if prefill and decode workers belong to two routers? They do where the two pools differ in their block size or in how their
//! prompts are hashed: a request has keys of its own for each.
//!
//! Both routers are locked while it is decided and booked, in an order that does not depend on who is which, so that there is one
//! critical section as there is for one router.
//!
//! It does not wait: who finds nobody to begin soon is let go none the less, because there is no queue that both share.

use homing_profile::Time;
use homing_scheduler::Decision;

use crate::apart::{Apart, Halves};
use crate::core::{Considered, Core, Sight, Space};
use crate::desk::Desk;
use crate::pair::{Part, Pools, Sides};
use crate::question::{Question, Routed, Turned};
use crate::router::Router;

/// Two routers whose workers serve requests together.
#[derive(Clone, Copy, Debug)]
pub struct Across<'r> {
    /// Who computes prompts. It keeps account of what is staged: [`Router::staged`], [`Router::moving`] and [`Router::settle`] are for it.
    pub prefill: &'r Router,
    /// Who generates, or does all of it. Its settings say how pairs are chosen.
    pub decode: &'r Router,
}

/// A request, once with the keys of each pool. They have the same id.
#[derive(Clone, Copy, Debug)]
pub struct TwoKeyed<'q> {
    /// As prefill workers hash it.
    pub prefill: &'q Question,
    /// As decode workers hash it. Its [`Question::apart`] counts.
    pub decode: &'q Question,
}

impl Across<'_> {
    /// Chooses one worker or two, and books them.
    pub fn ask(&self, now: Time, question: TwoKeyed<'_>) -> Result<Routed, Turned> {
        if self.is_one() {
            return self.decode.ask_at_once(now, question.decode);
        }
        self.with(now, question, |desks, considered, sights| {
            book(now, question, desks, considered, sights)
        })
    }

    /// What would be chosen. Changes nothing.
    pub fn consider(&self, now: Time, question: TwoKeyed<'_>) -> Result<Routed, Turned> {
        if self.is_one() {
            return self.decode.consider_apart(now, question.decode);
        }
        self.with(now, question, |desks, considered, _| {
            let cores = (&desks.0.core, &desks.1.core);
            Ok(crate::carry::unbooked(cores, question.decode, considered))
        })
    }

    /// Whether both are the same, which can be locked only once.
    fn is_one(&self) -> bool {
        std::ptr::eq(self.prefill, self.decode)
    }

    /// Decides, and goes on while nothing can change.
    fn with(
        &self,
        now: Time,
        question: TwoKeyed<'_>,
        act: impl FnOnce((&mut Desk, &mut Desk), Considered, (&mut Sight, &mut Sight)) -> Result<Routed, Turned>,
    ) -> Result<Routed, Turned> {
        let apart = question.decode.apart.as_deref().cloned().unwrap_or_default();
        self.prefill.with_sight(now, |first| {
            self.decode.with_sight(now, |second| {
                self.prefill.look_up(&question.prefill.keys, first);
                self.decode.look_up(&question.decode.keys, second);
                let (mut prefill, mut decode) = self.both();
                let (from, to) = (&prefill.core, &decode.core);
                let considered = decide(now, (question, &apart), (from, to), (first, second))?;
                act((&mut prefill, &mut decode), considered, (first, second))
            })
        })
    }

    /// Locks both, always in the same order.
    fn both(&self) -> (crate::router::Locked<'_>, crate::router::Locked<'_>) {
        if std::ptr::from_ref(self.prefill) < std::ptr::from_ref(self.decode) {
            let prefill = self.prefill.desk();
            (prefill, self.decode.desk())
        } else {
            let decode = self.decode.desk();
            (self.prefill.desk(), decode)
        }
    }
}

fn decide(
    now: Time,
    (question, apart): (TwoKeyed<'_>, &Apart),
    (prefill, decode): (&Core, &Core),
    (first, second): (&mut Sight, &mut Sight),
) -> Result<Considered, Turned> {
    let settled = prefill.look(&question.prefill.keys, first) & decode.look(&question.decode.keys, second);
    prefill.check_named(question.decode, apart)?;
    let mut asked = question.prefill.clone();
    asked.apart = Some(Box::new(apart.clone()));
    let sides = Sides::weigh(apart, |part| match part {
        Part::Whole => decode.weigh(now, &question.decode.whole(), &decode.alone, second),
        Part::Prefill => prefill.weigh(now, &asked.prefill_half(), &prefill.halves, first),
        Part::Decode => decode.weigh_decode(now, question.decode, second),
    });
    let limits = (homing_profile::Millis(f64::INFINITY), Space::Waived);
    let mut considered = Pools { prefill, decode }.decide(now, (question.decode, apart), sides, limits)?;
    considered.decision.settled = settled;
    Ok(considered)
}

fn book(
    now: Time,
    question: TwoKeyed<'_>,
    (prefill, decode): (&mut Desk, &mut Desk),
    considered: Considered,
    (first, second): (&mut Sight, &mut Sight),
) -> Result<Routed, Turned> {
    let mut considered = considered;
    let computes: Option<Decision> = considered.pair.as_mut().and_then(|plan| plan.prefill.take());
    let pairing = considered.pair.as_ref().and_then(|plan| plan.pairing);
    let mut routed = decode.carry_out(now, question.decode, considered, second)?;
    if let (Some(computes), Some(pairing)) = (computes, pairing) {
        let to = routed.decision.chosen.rank;
        match prefill.go_prefill(now, question.prefill, (computes, to), &pairing, first) {
            Ok(half) => {
                let halves = routed.halves.take();
                routed.halves = halves.map(|halves| {
                    Box::new(Halves {
                        prefill: Some(half),
                        ..*halves
                    })
                });
            }
            Err(turned) => {
                decode.take_back(now, &routed, second);
                return Err(turned);
            }
        }
    }
    Ok(routed)
}
