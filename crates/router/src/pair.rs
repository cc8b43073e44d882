//! One worker or two, and which? The question is looked up once; each part of it is weighed by the policy of its pool, and all of it is
//! decided and booked in one critical section.
//!
//! Prefill and decode workers may belong to two routers, if their blocks differ: then each side is weighed by its own.

use std::borrow::Cow;

use homing_disagg::choose::{Named, Prefiller, Scene};
use homing_disagg::{
    Alone, ChooseSettings, Decoder, Enforce, Judge, Need, PairChoice, Pairing, Refused, Side, Way, Whole, Why, choose,
    choose_decode,
};
use homing_domain::{Blocks, Role, Tokens};
use homing_load::RankLoad;
use homing_profile::{Millis, Time};
use homing_scheduler::fleet::Excluded;
use homing_scheduler::{Among, Bits, Busy, Candidate, Decision, Draw, Phase, Refusal, View, Weighed};

use crate::apart::{Apart, Naming};
use crate::core::{Considered, Core, Sight, Space};
use crate::question::{Question, Turned};

/// Where labels decide who can be a pair, so many of each side are looked at.
const MOST_BY_LABEL: usize = 1_024;

/// The other half of what was decided, where two could serve a request.
#[derive(Debug)]
pub(crate) struct PairPlan {
    pub(crate) why: Why,
    pub(crate) pairing: Option<Pairing>,
    pub(crate) prefill: Option<Decision>,
}

/// A part of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Prefill,
    Decode,
}

/// What was weighed for each part; an error says why there is nobody.
pub(crate) struct Sides {
    prefill: Result<Weighed, Refusal>,
    decode: Result<Weighed, Refusal>,
    whole: Result<Weighed, Refusal>,
}

impl Sides {
    /// Weighs the parts that may be needed.
    pub(crate) fn weigh(apart: &Apart, mut weigh: impl FnMut(Part) -> Result<Weighed, Refusal>) -> Self {
        let nobody = || Err(Refusal::NobodyEligible(Excluded::default()));
        let (alone, staged) = match apart.need {
            Need::Request(alone) => (alone, false),
            Need::DecodeFor { .. } => (Alone::Never, true),
        };
        let may_alone = alone != Alone::Never && apart.prefill.is_none();
        let whole = if may_alone { weigh(Part::Whole) } else { nobody() };
        if alone == Alone::Only && whole.is_ok() {
            return Self {
                prefill: nobody(),
                decode: nobody(),
                whole,
            };
        }
        let prefill = if staged { nobody() } else { weigh(Part::Prefill) };
        let decode = if staged || prefill.is_ok() {
            weigh(Part::Decode)
        } else {
            nobody()
        };
        Self { prefill, decode, whole }
    }
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
        let sides = Sides::weigh(apart, |part| match part {
            Part::Whole => self.weigh(now, &question.whole(), &self.alone, sight),
            Part::Prefill => self.weigh(now, &question.prefill_half(), &self.halves, sight),
            Part::Decode => self.weigh_decode(now, question, sight),
        });
        let pools = Pools {
            prefill: self,
            decode: self,
        };
        pools
            .decide(now, (question, apart), sides, (within, space))
            .map(|mut considered| {
                considered.decision.settled = settled;
                considered
            })
    }

    /// Whoever has to name workers has named them. To be asked of whom the prefill workers belong to.
    pub(crate) fn check_named(&self, question: &Question, apart: &Apart) -> Result<(), Refused> {
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

    /// What a decode worker holds counts for the transfer only: its policy is asked without, and people are told.
    pub(crate) fn weigh_decode(&self, now: Time, question: &Question, sight: &mut Sight) -> Result<Weighed, Refusal> {
        let mut weighed = self.weigh(now, &question.decode_half(), &self.halves, sight)?;
        let decision = &mut weighed.decision;
        for of in std::iter::once(&mut decision.chosen).chain(&mut decision.others) {
            of.depths = *sight.overlap().depths(of.place);
        }
        Ok(weighed)
    }

    pub(crate) fn weigh(&self, now: Time, part: &Question, only: &Bits, sight: &mut Sight) -> Result<Weighed, Refusal> {
        let (view, room) = sight.view(now, self);
        let by_label = |rule: &homing_disagg::Topology| rule.enforce == Enforce::Required;
        let settings = &self.apart.choose;
        let most = if settings.topology.iter().any(by_label) {
            MOST_BY_LABEL
        } else {
            settings.keep
        };
        // Where there are no pairs, decisions are as ever.
        let busy = if self.halves.is_empty() {
            Busy::Lately
        } else {
            Busy::AtPresent
        };
        let draw = self.draw();
        let scheduler = self.scheduler(part.phase);
        let among = Among { only, most, busy };
        self.with_ask(part, |ask| scheduler.weigh(&view, ask, draw, room, among))
    }

    pub(crate) fn prompt_blocks(&self, prompt: Tokens) -> Blocks {
        Blocks(prompt.0.div_ceil(self.load.config().block_size.get()))
    }

    fn draw(&self) -> Draw {
        Draw(self.seed.wrapping_add(self.draws))
    }
}

/// Who computes prompts, and who generates: mostly the same router's.
pub(crate) struct Pools<'c> {
    pub(crate) prefill: &'c Core,
    pub(crate) decode: &'c Core,
}

impl Pools<'_> {
    /// Decides between those who were weighed. The question is that of the decode side.
    pub(crate) fn decide(
        &self,
        now: Time,
        (question, apart): (&Question, &Apart),
        sides: Sides,
        limits: (Millis, Space),
    ) -> Result<Considered, Turned> {
        let choice = self.choose_from(now, (question, apart), &sides);
        let choice = choice.map_err(|refused| self.explain(question, apart, refused, &sides))?;
        let can_start = self.can_start(now, &choice, (question, apart), &sides, limits);
        let plan = |prefill, pairing| PairPlan {
            why: choice.why,
            pairing,
            prefill,
        };
        let (decision, pair) = match choice.way {
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
        Ok(Considered {
            decision,
            pair: Some(Box::new(pair)),
            can_start,
        })
    }

    fn choose_from(
        &self,
        now: Time,
        (question, apart): (&Question, &Apart),
        sides: &Sides,
    ) -> Result<PairChoice, Refused> {
        let halves = [
            self.prefill.scheduler(Phase::Prefill),
            self.decode.scheduler(Phase::Decode),
        ];
        let whole = self.decode.scheduler(Phase::Alone);
        // Only times can be added up; costs of other policies say who is first, and times whether.
        let mut all = halves.into_iter().chain([whole]);
        let in_time = all.all(|scheduler| scheduler.policy().unit() == "ms");
        let prefills: Vec<Prefiller<'_>> = match apart.need {
            Need::Request(_) => {
                let all = sides.prefill.iter().flat_map(Weighed::all);
                all.filter_map(|of| self.prefill.prefiller(question, of, in_time))
                    .collect()
            }
            Need::DecodeFor { prefill, .. } => self.prefill.staged_on(prefill).into_iter().collect(),
        };
        let all = sides.decode.iter().flat_map(Weighed::all);
        let decodes: Vec<Decoder<'_>> = all
            .filter_map(|of| self.decode.decoder((now, question), of, in_time, &self.prefill.staging))
            .collect();
        let all = sides.whole.iter().flat_map(Weighed::all);
        let wholes: Vec<Whole> = all.filter_map(|of| self.decode.whole(question, of, in_time)).collect();
        let kind = decodes.first().and_then(|first| self.decode.places.get(&first.rank));
        let kind = kind
            .and_then(|place| self.decode.load.rank(*place))
            .map_or(0, RankLoad::kind);
        let timing = self.decode.load.timings().get(kind);
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
            draw: self.decode.draw(),
        };
        let mut settings = Cow::Borrowed(&self.decode.apart.choose);
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
                if self.prefill.has_prefill_workers(question) && matches!(apart.need, Need::Request(_)) =>
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
        let blocks = self.decode.blocks_at_end(question);
        let computes = |core: &Core, of: &Candidate| {
            let rank = core.load.rank(of.place);
            rank.is_some_and(|rank| rank.prompts_ahead(now).0 <= within.0)
        };
        let has_room = |of: &Candidate| {
            let rank = self.decode.load.rank(of.place);
            rank.is_some_and(|rank| space.wait(rank, blocks) <= within.0)
        };
        let any = |side: &Result<Weighed, Refusal>, able: &dyn Fn(&Candidate) -> bool| {
            side.iter().flat_map(Weighed::all).any(|(of, _)| able(of))
        };
        match choice.way {
            Way::Whole(_) => any(&sides.whole, &|of| computes(self.decode, of) && has_room(of)),
            Way::Pair(_) => any(&sides.prefill, &|of| computes(self.prefill, of)) && any(&sides.decode, &has_room),
        }
    }
}

/// The decision for one of those who were weighed.
fn named(side: Result<Weighed, Refusal>, at: usize) -> Result<Decision, Refusal> {
    side.map(|weighed| weighed.decision(at, 3))
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
