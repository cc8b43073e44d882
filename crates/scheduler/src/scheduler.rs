//! Filter, predict, choose: how do they come together?

use homing_load::{Load, Place, RankLoad, Standing};
use homing_profile::{Millis, Time};

use crate::ask::{Ask, CacheUse};
use crate::bits::Bits;
use crate::chance::Draw;
use crate::decision::{Candidate, Decision, Refusal, Terms};
use crate::fleet::{Excluded, Fleet, Health, Reason};
use crate::overlap::Overlap;
use crate::policy::predict::{Memo, OnboardRates, Prediction, predict};
use crate::policy::{Costs, Policy, Scene};

/// What is known when a decision is made.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The moment.
    pub now: Time,
    /// Who exists.
    pub fleet: &'a Fleet,
    /// What they do.
    pub load: &'a Load,
    /// What of the prompt lies where.
    pub overlap: &'a Overlap,
}

/// Room to decide in, so that nothing is allocated for each rank. Any may be used for any decision.
#[derive(Debug, Default)]
pub struct Room {
    eligible: Bits,
    held: Bits,
    costs: Costs,
    nothing: Overlap,
    best: Vec<Place>,
    memo: Memo,
    places: usize,
    /// How busy those were lately who could serve.
    busy: f64,
}

impl Room {
    /// Who was eligible for the last decision, and not held back.
    pub fn eligible(&self) -> &Bits {
        &self.eligible
    }
}

/// Who is weighed, and how many of them are named.
#[derive(Clone, Copy, Debug)]
pub struct Among<'a> {
    /// Nobody else.
    pub only: &'a Bits,
    /// At most so many, and one at least.
    pub most: usize,
    /// How busy those are taken to be.
    pub busy: Busy,
}

/// How busy ranks are taken to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// As all ranks have been lately.
    Lately,
    /// As those who may serve are at present: a pool of its own is not less busy because others have nothing to compute.
    AtPresent,
}

/// Candidates with what is predicted of them.
#[derive(Clone, Debug)]
pub struct Weighed {
    /// The policy's own decision, which names the others.
    pub decision: Decision,
    /// What is predicted of the chosen one, and of each of the others.
    pub predictions: Vec<Prediction>,
}

impl Weighed {
    /// All of them: first whom the policy picked, then by their costs.
    pub fn all(&self) -> impl Iterator<Item = (&Candidate, &Prediction)> {
        let all = std::iter::once(&self.decision.chosen).chain(&self.decision.others);
        all.zip(&self.predictions)
    }

    /// The decision for one of them, with so many of the next best.
    pub fn decision(mut self, at: usize, others: usize) -> Decision {
        if let Some(at) = at.checked_sub(1)
            && let Some(other) = self.decision.others.get_mut(at)
        {
            std::mem::swap(&mut self.decision.chosen, other);
        }
        self.decision
            .others
            .sort_by(|one, other| one.cost.total_cmp(&other.cost));
        self.decision.others.truncate(others);
        self.decision
    }
}

/// What a decision names.
struct Naming {
    chosen: Place,
    excluded: Excluded,
    others: usize,
}

/// One policy, and what holds for every policy.
#[derive(Debug)]
pub struct Scheduler {
    policy: Box<dyn Policy>,
    /// How many of the next best a decision names.
    pub name_others: usize,
    /// Bookings that a rank may have before it gave its first token, while others can take more.
    pub unverified_bookings: u32,
    /// How fast KV comes from lower tiers, for the predictions of all policies.
    pub onboard: OnboardRates,
}

impl Scheduler {
    /// A scheduler with a policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            name_others: 3,
            unverified_bookings: 8,
            onboard: OnboardRates::default(),
        }
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// Says where the request should go. Nothing changes by it.
    pub fn decide(&self, view: &View<'_>, ask: &Ask<'_>, draw: Draw, room: &mut Room) -> Result<Decision, Refusal> {
        if self.policy.needs_pin() && ask.wanted.pinned.is_none() {
            return Err(Refusal::NoWorkerNamed);
        }
        let mut excluded = view.fleet.filter(ask, &mut room.eligible);
        if room.eligible.is_empty() {
            return Err(nobody(ask, excluded));
        }
        if !self.policy.weighs_loads() {
            Self::drop_openings(view, ask, room, &mut excluded);
        }
        room.places = view.load.ranks().len().max(view.fleet.places());
        room.busy = view.load.utilisation(view.now);
        let mut chosen = self.choose(view, ask, draw, room)?;
        if self.why_held(view, chosen).is_some() && self.hold_back(view, room, &mut excluded) {
            chosen = self.choose(view, ask, draw, room)?;
        }
        let named = Naming {
            chosen,
            excluded,
            others: self.name_others,
        };
        Ok(self.describe(view, ask, draw, room, named))
    }

    /// A choice was carried out: policies with a memory remember it. Not to be called for questions, dry runs and requests that
    /// were pinned.
    pub fn commit(&mut self, ask: &Ask<'_>, chosen: Place, now: Time) {
        self.policy.committed(ask, chosen, now);
    }

    /// The rank at a place is gone: policies with a memory forget it.
    pub fn rank_gone(&mut self, place: Place) {
        self.policy.rank_gone(place);
    }

    /// Takes out who would have to load the adapter first, if anybody is left then.
    fn drop_openings(view: &View<'_>, ask: &Ask<'_>, room: &mut Room, excluded: &mut Excluded) {
        room.held.reset();
        view.fleet
            .openings(ask.adapter)
            .filter(|place| room.eligible.has(*place))
            .for_each(|place| room.held.set(place));
        let held = room.held.count();
        if held > 0 && held < room.eligible.count() {
            room.eligible.drop_all(&room.held);
            excluded.add(Reason::NoAdapter, held);
        }
    }

    fn choose(&self, view: &View<'_>, ask: &Ask<'_>, draw: Draw, room: &mut Room) -> Result<Place, Refusal> {
        let overlap = match ask.overrides.cache {
            CacheUse::Counts => view.overlap,
            CacheUse::Ignored => &room.nothing,
        };
        room.memo.reset(view.load, overlap);
        room.costs.reset(room.places);
        let (scene, costs) = self.scene(view, ask, draw, room);
        self.policy.cost(&scene, costs);
        if !ask.wanted.preferred.is_empty() && ask.wanted.pinned.is_none() {
            for place in scene.eligible.places() {
                costs.set(place, costs.get(place) * preference(view.fleet, ask, place));
            }
        }
        costs.survey();
        let chosen = self
            .policy
            .pick(&scene, costs)
            .filter(|place| scene.eligible.has(*place));
        chosen.ok_or(Refusal::PolicyChoseNobody(self.policy.name()))
    }

    /// Why a rank should get nothing while there are others.
    fn why_held(&self, view: &View<'_>, place: Place) -> Option<Reason> {
        let rank: &RankLoad = view.load.rank(place)?;
        let looks_stalled = view
            .fleet
            .facts(place)
            .is_some_and(|facts| facts.health == Health::Suspected);
        if looks_stalled || rank.standing(view.now) == Standing::Suspect {
            return Some(Reason::Suspect);
        }
        let unverified = !rank.is_verified() && rank.requests() >= self.unverified_bookings;
        unverified.then_some(Reason::Unverified)
    }

    /// Takes out all who should get nothing, if anybody is left then.
    fn hold_back(&self, view: &View<'_>, room: &mut Room, excluded: &mut Excluded) -> bool {
        room.held.reset();
        let mut without = *excluded;
        for place in room.eligible.places() {
            if let Some(reason) = self.why_held(view, place) {
                room.held.set(place);
                without.add(reason, 1);
            }
        }
        if room.held.count() == room.eligible.count() {
            return false;
        }
        room.eligible.drop_all(&room.held);
        *excluded = without;
        true
    }

    fn describe(
        &self,
        view: &View<'_>,
        ask: &Ask<'_>,
        draw: Draw,
        room: &mut Room,
        Naming {
            chosen,
            excluded,
            others,
        }: Naming,
    ) -> Decision {
        let mut best = std::mem::take(&mut room.best);
        let (scene, costs) = self.scene(view, ask, draw, room);
        costs.next_best(chosen, others, &mut best);
        let candidate = |place: Place| {
            let mut terms = Terms::default();
            self.policy.terms(&scene, place, &mut terms);
            let facts = view.fleet.facts(place);
            let rank = facts.map(|facts| facts.rank);
            Candidate {
                place,
                rank: rank.unwrap_or(homing_domain::RankId::new(0, 0)),
                cost: costs.get(place),
                terms,
                depths: *scene.overlap.depths(place),
                knowledge: facts.map(|facts| facts.knowledge).unwrap_or_default(),
                first_token: first_token(&scene, place),
            }
        };
        let decision = Decision {
            policy: self.policy.name(),
            unit: self.policy.unit(),
            chosen: candidate(chosen),
            others: best.iter().map(|place| candidate(*place)).collect(),
            eligible: scene.eligible.count(),
            excluded,
            settled: view.overlap.is_settled(),
        };
        room.best = best;
        decision
    }

    /// The best of those who may serve the request and are among these: first whom the policy picks, then the others by their costs, as
    /// many as are asked for. For decisions that weigh several parts of a request against each other. Nothing changes by it.
    pub fn weigh(
        &self,
        view: &View<'_>,
        ask: &Ask<'_>,
        draw: Draw,
        room: &mut Room,
        among: Among<'_>,
    ) -> Result<Weighed, Refusal> {
        let mut excluded = view.fleet.filter(ask, &mut room.eligible);
        excluded.add(Reason::OtherRole, room.eligible.keep(Some(among.only)));
        room.busy = match among.busy {
            Busy::Lately => view.load.utilisation(view.now),
            Busy::AtPresent => busy_share(view.load, &room.eligible),
        };
        if room.eligible.is_empty() {
            return Err(nobody(ask, excluded));
        }
        room.places = view.load.ranks().len().max(view.fleet.places());
        let mut chosen = self.choose(view, ask, draw, room)?;
        if self.why_held(view, chosen).is_some() && self.hold_back(view, room, &mut excluded) {
            chosen = self.choose(view, ask, draw, room)?;
        }
        let named = Naming {
            chosen,
            excluded,
            others: among.most.saturating_sub(1),
        };
        let decision = self.describe(view, ask, draw, room, named);
        let (scene, _) = self.scene(view, ask, draw, room);
        let all = std::iter::once(&decision.chosen).chain(&decision.others);
        let predictions = all.map(|of| view.load.rank(of.place).map(|rank| predict(&scene, of.place, rank)));
        let predictions = predictions.map(Option::unwrap_or_default).collect();
        Ok(Weighed { decision, predictions })
    }

    fn scene<'a>(
        &'a self,
        view: &View<'a>,
        ask: &'a Ask<'a>,
        draw: Draw,
        room: &'a mut Room,
    ) -> (Scene<'a>, &'a mut Costs) {
        let overlap = match ask.overrides.cache {
            CacheUse::Counts => view.overlap,
            CacheUse::Ignored => &room.nothing,
        };
        let scene = Scene {
            now: view.now,
            ask,
            fleet: view.fleet,
            load: view.load,
            overlap,
            eligible: &room.eligible,
            draw,
            utilisation: room.busy.clamp(0.0, 1.0),
            onboard: &self.onboard,
            memo: &room.memo,
        };
        (scene, &mut room.costs)
    }
}

/// The share of some ranks that have prompts to compute.
fn busy_share(load: &Load, of: &Bits) -> f64 {
    let ranks = load.ranks();
    let busy = |place: &Place| ranks.get(place.index()).is_some_and(|rank| rank.pending_tokens() > 0);
    of.places().filter(busy).count() as f64 / f64::from(of.count().max(1))
}

/// Why there is nobody.
fn nobody(ask: &Ask<'_>, excluded: Excluded) -> Refusal {
    match ask.wanted.pinned {
        Some(pin) => Refusal::PinnedWorker {
            worker: pin.worker,
            excluded,
        },
        None => Refusal::NobodyEligible(excluded),
    }
}

/// Until the first token there, whatever the policy weighs.
fn first_token(scene: &Scene<'_>, place: Place) -> Millis {
    let rank = scene.load.rank(place);
    rank.map_or(Millis::ZERO, |rank| predict(scene, place, rank).first_token())
}

/// What preferred labels make of a cost: between a third and three times of it, as in Dynamo.
fn preference(fleet: &Fleet, ask: &Ask<'_>, place: Place) -> f64 {
    (-fleet.preference(place, &ask.wanted.preferred).tanh()).exp()
}
