//! One worker or two, and which? The question is looked up once; each part of it is weighed by the policy of its pool, and all of it is
//! decided and booked in one critical section.
//!
//! **Invariant:** the decode place is booked before the prompt; where the prompt cannot be booked, the decode place is given back.

use std::borrow::Cow;

use homing_disagg::choose::{Named, Prefiller, Scene};
use homing_disagg::{
    Alone, ChooseSettings, Decoder, Enforce, Holding, Judge, Need, PairChoice, Pairing, Refused, Side, Way, Whole, Why,
    choose, choose_decode,
};
use homing_domain::{Blocks, RankId, Role, Tokens};
use homing_load::{End, RankLoad};
use homing_profile::{Millis, Time};
use homing_scheduler::{Among, Bits, Candidate, Decision, Draw, Keep, Phase, Refusal, View, Weighed};

use crate::apart::{Apart, Halves, Naming, PrefillHalf, prefill_id};
use crate::core::{Considered, Core, Sight, Space};
use crate::desk::Desk;
use crate::question::{Ended, Question, Routed, Turned};

/// Where labels decide who can be a pair, so many of each side are looked at.
const MOST_BY_LABEL: usize = 1_024;

/// The other half of what was decided, where two could serve a request.
#[derive(Debug)]
pub(crate) struct PairPlan {
    why: Why,
    pairing: Option<Pairing>,
    pub(crate) prefill: Option<Decision>,
}

/// The parts of a question.
struct Parts<'q> {
    prefill: Cow<'q, Question>,
    decode: Question,
    whole: Question,
}

/// What was weighed for each part; an error says why there is nobody.
struct Sides {
    prefill: Result<Weighed, Refusal>,
    decode: Result<Weighed, Refusal>,
    whole: Result<Weighed, Refusal>,
}

impl Core {
    /// Decides for a question that two workers may serve. Changes nothing.
    pub(crate) fn consider_apart(
        &self,
        now: Time,
        (question, apart): (&Question, &Apart),
        (within, space): (Millis, Space),
        sight: &mut Sight,
    ) -> Result<Considered, Turned> {
        let settled = self.look(&question.keys, sight);
        self.check_named(question, apart)?;
        let parts = Parts {
            prefill: Cow::Owned(question.prefill_half()),
            decode: question.decode_half(),
            whole: question.whole(),
        };
        let mut sides = self.weigh_sides(now, &parts, apart, sight);
        show_depths(&mut sides, sight);
        let choice = self.choose_from(now, (question, apart), &sides);
        let choice = choice.map_err(|refused| self.explain(question, apart, refused, &sides))?;
        let can_start = self.can_start(now, &choice, (question, apart), &sides, (within, space));
        let plan = |prefill, pairing| PairPlan {
            why: choice.why,
            pairing,
            prefill,
        };
        let (mut decision, pair) = match choice.way {
            Way::Whole(at) => (named(sides.whole, at)?, plan(None, None)),
            Way::Pair(pairing) => {
                let mut decode = named(sides.decode, pairing.decode)?;
                decode.chosen.first_token = pairing.first_token;
                let prefill = match apart.need {
                    Need::Request(_) => Some(named(sides.prefill, pairing.prefill)?),
                    Need::DecodeFor { .. } => None,
                };
                (decode, plan(prefill, Some(pairing)))
            }
        };
        decision.settled = settled;
        Ok(Considered {
            decision,
            pair: Some(Box::new(pair)),
            can_start,
        })
    }

    /// Whoever has to name workers has named them.
    fn check_named(&self, question: &Question, apart: &Apart) -> Result<(), Refused> {
        if apart.naming == Naming::Chosen {
            return Ok(());
        }
        if question.wanted.pinned.is_none() {
            return Err(Refused::NotNamed(Side::Decode));
        }
        let needs_prefill = match apart.need {
            Need::Request(Alone::Never) => true,
            Need::Request(Alone::Allowed) => self.has_prefill_workers(question),
            Need::Request(Alone::Only) | Need::DecodeFor { .. } => false,
        };
        if needs_prefill && apart.prefill.is_none() {
            return Err(Refused::NotNamed(Side::Prefill));
        }
        Ok(())
    }

    fn has_prefill_workers(&self, question: &Question) -> bool {
        let facts = self.load.places().filter_map(|(place, _)| self.fleet.facts(place));
        facts
            .into_iter()
            .any(|facts| facts.role == Role::Prefill && facts.model == question.model)
    }

    fn weigh_sides(&self, now: Time, parts: &Parts<'_>, apart: &Apart, sight: &mut Sight) -> Sides {
        let nobody = || Err(Refusal::NobodyEligible(homing_scheduler::fleet::Excluded::default()));
        let (alone, staged) = match apart.need {
            Need::Request(alone) => (alone, false),
            Need::DecodeFor { .. } => (Alone::Never, true),
        };
        let may_alone = alone != Alone::Never && apart.prefill.is_none();
        let whole = if may_alone {
            self.weigh(now, &parts.whole, &self.alone, sight)
        } else {
            nobody()
        };
        if alone == Alone::Only && whole.is_ok() {
            return Sides {
                prefill: nobody(),
                decode: nobody(),
                whole,
            };
        }
        let prefill = if staged {
            nobody()
        } else {
            self.weigh(now, &parts.prefill, &self.halves, sight)
        };
        let decode = if staged || prefill.is_ok() {
            self.weigh(now, &parts.decode, &self.halves, sight)
        } else {
            nobody()
        };
        Sides { prefill, decode, whole }
    }

    fn weigh(&self, now: Time, part: &Question, only: &Bits, sight: &mut Sight) -> Result<Weighed, Refusal> {
        let (view, room) = sight.view(now, self);
        let by_label = |rule: &homing_disagg::Topology| rule.enforce == Enforce::Required;
        let settings = &self.apart.choose;
        let most = if settings.topology.iter().any(by_label) {
            MOST_BY_LABEL
        } else {
            settings.keep
        };
        let busy = self.busy_share(only, part.phase);
        let draw = self.draw();
        let scheduler = self.scheduler(part.phase);
        let among = Among { only, most, busy };
        self.with_ask(part, |ask| scheduler.weigh(&view, ask, draw, room, among))
    }

    /// The share of a pool's ranks that have prompts to compute: ranks that only decode do not make a prefill pool less busy.
    fn busy_share(&self, only: &Bits, phase: Phase) -> f64 {
        let (mut ranks, mut busy) = (0_u32, 0_u32);
        for (place, rank) in self.load.places().filter(|(place, _)| only.has(*place)) {
            let role = self.fleet.facts(place).map(|facts| facts.role);
            let counts = role.is_some_and(|role| match phase {
                Phase::Prefill => role.prefills(),
                Phase::Whole | Phase::Decode | Phase::Alone => role.decodes(),
            });
            if counts {
                ranks += 1;
                busy += u32::from(rank.pending_tokens() > 0);
            }
        }
        f64::from(busy) / f64::from(ranks.max(1))
    }

    fn choose_from(
        &self,
        now: Time,
        (question, apart): (&Question, &Apart),
        sides: &Sides,
    ) -> Result<PairChoice, Refused> {
        let schedulers = [Phase::Alone, Phase::Prefill, Phase::Decode].map(|phase| self.scheduler(phase));
        // Only times can be added up; costs of other policies say who is first, and times whether.
        let in_time = schedulers.iter().all(|scheduler| scheduler.policy().unit() == "ms");
        let prefills: Vec<Prefiller<'_>> = match apart.need {
            Need::Request(_) => {
                let all = sides.prefill.iter().flat_map(Weighed::all);
                all.filter_map(|of| self.prefiller(question, of, in_time)).collect()
            }
            Need::DecodeFor { prefill, .. } => self.staged_on(prefill).into_iter().collect(),
        };
        let all = sides.decode.iter().flat_map(Weighed::all);
        let decodes: Vec<Decoder<'_>> = all.filter_map(|of| self.decoder(now, question, of, in_time)).collect();
        let all = sides.whole.iter().flat_map(Weighed::all);
        let wholes: Vec<Whole> = all.filter_map(|of| self.whole(question, of, in_time)).collect();
        let kind = decodes.first().and_then(|first| self.places.get(&first.rank));
        let kind = kind.and_then(|place| self.load.rank(*place)).map_or(0, RankLoad::kind);
        let timing = self.load.timings().get(kind);
        let scene = Scene {
            model: &question.model,
            prompt: question.prompt,
            bytes_per_token: timing.map_or(0, homing_profile::Timing::kv_bytes_per_token),
            prefills: &prefills,
            decodes: &decodes,
            wholes: &wholes,
            alone: match apart.need {
                Need::Request(alone) => alone,
                Need::DecodeFor { .. } => Alone::Never,
            },
            named: if apart.prefill.is_some() {
                Named::Prefill
            } else {
                Named::NoPrefill
            },
            temperature: question.overrides.temperature.unwrap_or(0.0),
            draw: self.draw(),
        };
        let mut settings = Cow::Borrowed(&self.apart.choose);
        if !in_time && settings.judge == Judge::Together {
            settings = Cow::Owned(ChooseSettings {
                judge: Judge::OneAfterTheOther,
                ..settings.into_owned()
            });
        }
        match apart.need {
            Need::Request(_) => choose(&settings, &scene),
            Need::DecodeFor { .. } => choose_decode(&settings, &scene),
        }
    }

    /// Why there is nobody, as exactly as it is known.
    fn explain(&self, question: &Question, apart: &Apart, refused: Refused, sides: &Sides) -> Turned {
        if let (Err(refusal), Need::Request(Alone::Allowed | Alone::Only), None) =
            (&sides.whole, apart.need, apart.prefill)
            && matches!(refused, Refused::NoPrefillWorker(_))
        {
            return Turned::Nowhere(refusal.clone());
        }
        let nobody = |side, refusal: &Refusal| {
            Turned::Apart(Refused::Nobody {
                side,
                refusal: refusal.clone(),
            })
        };
        match (&refused, &sides.prefill, &sides.decode) {
            (Refused::NoPrefillWorker(_), Err(refusal), _)
                if self.has_prefill_workers(question) && matches!(apart.need, Need::Request(_)) =>
            {
                nobody(Side::Prefill, refusal)
            }
            (Refused::NoPair { pairs: 0, .. }, _, Err(refusal)) => nobody(Side::Decode, refusal),
            _ => Turned::Apart(refused),
        }
    }

    /// Whether somebody could begin with each part soon.
    fn can_start(
        &self,
        now: Time,
        choice: &PairChoice,
        (question, apart): (&Question, &Apart),
        sides: &Sides,
        (within, space): (Millis, Space),
    ) -> bool {
        // What is staged lapses if it waits.
        if matches!(apart.need, Need::DecodeFor { .. }) {
            return true;
        }
        let blocks = self.blocks_at_end(question);
        let rank = |of: &Candidate| self.load.rank(of.place);
        let computes = |of: &Candidate| rank(of).is_some_and(|rank| rank.prompts_ahead(now).0 <= within.0);
        let has_room = |of: &Candidate| rank(of).is_some_and(|rank| space.wait(rank, blocks) <= within.0);
        let any = |side: &Result<Weighed, Refusal>, able: &dyn Fn(&Candidate) -> bool| {
            side.iter().flat_map(Weighed::all).any(|(of, _)| able(of))
        };
        match choice.way {
            Way::Whole(_) => any(&sides.whole, &|of| computes(of) && has_room(of)),
            Way::Pair(_) => any(&sides.prefill, &computes) && any(&sides.decode, &has_room),
        }
    }

    pub(crate) fn prompt_blocks(&self, prompt: Tokens) -> Blocks {
        Blocks(prompt.0.div_ceil(self.load.config().block_size.get()))
    }

    fn draw(&self) -> Draw {
        Draw(self.seed.wrapping_add(self.draws))
    }
}

/// What a decode worker holds counts for the transfer only: its policy was asked without, and people are told.
fn show_depths(sides: &mut Sides, sight: &Sight) {
    if let Ok(decode) = &mut sides.decode {
        let decision = &mut decode.decision;
        for of in std::iter::once(&mut decision.chosen).chain(&mut decision.others) {
            of.depths = *sight.overlap().depths(of.place);
        }
    }
}

/// The decision for one of those who were weighed.
fn named(side: Result<Weighed, Refusal>, at: usize) -> Result<Decision, Refusal> {
    side.map(|weighed| weighed.decision(at, 3))
}

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

    fn go_prefill(
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
    fn take_back(&mut self, now: Time, routed: &Routed, sight: &mut Sight) {
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
pub(crate) fn unbooked(core: &Core, question: &Question, considered: Considered) -> Routed {
    let cached = |decision: &Decision| core.spared(question.prompt, decision.chosen.depths.anywhere());
    let halves = considered.pair.map(|plan| {
        let prefill = plan.prefill.map(|decision| {
            let traits = core.traits_of(decision.chosen.place).clone();
            PrefillHalf {
                id: prefill_id(&question.id),
                cached: cached(&decision),
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
        cached: cached(&considered.decision),
        decision: considered.decision,
        ticket: None,
        halves,
    }
}

impl Sight {
    fn view<'a>(&'a mut self, now: Time, core: &'a Core) -> (View<'a>, &'a mut homing_scheduler::Room) {
        let (overlap, room) = self.parts();
        let view = View {
            now,
            fleet: &core.fleet,
            load: &core.load,
            overlap,
        };
        (view, room)
    }
}
