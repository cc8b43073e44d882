//! How is what was decided for two workers booked, and given back?
//!
//! **Invariant:** the decode place is booked before the prompt; where the prompt cannot be booked, the decode place is given back.

use homing_disagg::{Holding, Pairing};
use homing_domain::RankId;
use homing_load::End;
use homing_profile::Time;
use homing_scheduler::{Decision, Keep};

use crate::apart::{Halves, PrefillHalf, prefill_id};
use crate::core::{Considered, Core, Sight};
use crate::desk::Desk;
use crate::question::{Ended, Question, Routed, Turned};

impl Desk {
    /// Carries out what was decided, for one worker or two.
    pub(crate) fn carry_out(
        &mut self,
        now: Time,
        question: &Question,
        considered: Considered,
        sight: &mut Sight,
    ) -> Result<Routed, Turned> {
        let Some(plan) = considered.pair else {
            return self.go(now, question, considered.decision, sight);
        };
        let mut halves = Halves {
            why: plan.why,
            prefill: None,
            pairing: plan.pairing,
        };
        let Some(pairing) = plan.pairing else {
            let mut routed = self.go(now, &question.whole(), considered.decision, sight)?;
            routed.halves = Some(Box::new(halves));
            return Ok(routed);
        };
        let mut decode = self.go(now, &question.decode_half(), considered.decision, sight)?;
        if let Some(prefill) = plan.prefill {
            let to = decode.decision.chosen.rank;
            match self.go_prefill(now, question, (prefill, to), &pairing, sight) {
                Ok(prefill) => halves.prefill = Some(prefill),
                Err(turned) => {
                    self.take_back(now, &decode, sight);
                    return Err(turned);
                }
            }
        }
        decode.halves = Some(Box::new(halves));
        Ok(decode)
    }

    pub(crate) fn go_prefill(
        &mut self,
        now: Time,
        question: &Question,
        (decision, to): (Decision, RankId),
        pairing: &Pairing,
        sight: &mut Sight,
    ) -> Result<PrefillHalf, Turned> {
        let routed = self.go(now, &question.prefill_half(), decision, sight)?;
        let chosen = &routed.decision.chosen;
        let holding = Holding {
            from: chosen.rank,
            to,
            blocks: self.core.prompt_blocks(question.prompt),
            bytes: pairing.bytes,
        };
        let traits = self.core.traits_of(chosen.place).clone();
        let hold = match question.overrides.keep {
            Keep::Booked => Some(self.core.staging.hold(&holding)),
            Keep::Unbooked => None,
        };
        Ok(PrefillHalf {
            id: prefill_id(&question.id),
            decision: routed.decision,
            cached: routed.cached,
            ticket: routed.ticket,
            hold,
            protocol: traits.protocol,
            endpoint: traits.endpoint,
        })
    }

    /// A place is given back because the other half cannot be booked.
    pub(crate) fn take_back(&mut self, now: Time, routed: &Routed, sight: &mut Sight) {
        if let Some(ticket) = routed.ticket {
            let ended = Ended {
                end: End::Cancelled,
                generated: None,
                cached: None,
            };
            self.done(now, ticket, &ended);
            sight.booked.pop();
        }
    }
}

/// What would be chosen, as if it were, for whoever only asks.
pub(crate) fn unbooked((prefill, decode): (&Core, &Core), question: &Question, considered: Considered) -> Routed {
    let cached = |core: &Core, of: &Decision| core.spared(question.prompt, of.chosen.depths.anywhere());
    let halves = considered.pair.map(|plan| {
        let prefill = plan.prefill.map(|decision| {
            let traits = prefill.traits_of(decision.chosen.place).clone();
            PrefillHalf {
                id: prefill_id(&question.id),
                cached: cached(prefill, &decision),
                decision,
                ticket: None,
                hold: None,
                protocol: traits.protocol,
                endpoint: traits.endpoint,
            }
        });
        Box::new(Halves {
            why: plan.why,
            prefill,
            pairing: plan.pairing,
        })
    });
    Routed {
        cached: cached(decode, &considered.decision),
        decision: considered.decision,
        ticket: None,
        halves,
    }
}
