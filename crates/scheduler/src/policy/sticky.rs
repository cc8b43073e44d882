//! Where did this session go before? There again, unless that rank is gone or overloaded; then where `time` says.
//!
//! **Invariant:** the table has at most [`MOST_SESSIONS`] entries; beyond that the half that was used the longest ago goes.

use homing_domain::RankId;
use homing_load::{Place, Standing};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

use crate::ask::Ask;
use crate::decision::Terms;
use crate::fleet::Fleet;
use crate::policy::{Costs, Policy, PredictedTime, Scene};

/// Sessions that are remembered.
pub const MOST_SESSIONS: usize = 65_536;

/// The policy `sticky`.
#[derive(Debug)]
pub struct Sticky {
    /// A session that was not used for so long is forgotten.
    pub idle: Millis,
    /// A rank with more than this to compute is overloaded.
    pub most_backlog: Millis,
    fallback: PredictedTime,
    sessions: FxHashMap<Box<str>, Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    place: Place,
    used: Time,
}

impl Default for Sticky {
    fn default() -> Self {
        Self {
            idle: Millis(3_600_000.0),
            most_backlog: Millis(2_000.0),
            fallback: PredictedTime::default(),
            sessions: FxHashMap::default(),
        }
    }
}

impl Sticky {
    /// The session's rank, if it can take the request.
    fn bound(&self, scene: &Scene<'_>) -> Option<Place> {
        let bound = self.sessions.get(scene.ask.session?)?;
        let rank = scene.load.rank(bound.place)?;
        let fresh = scene.now.since(bound.used).0 <= self.idle.0;
        let able = rank.backlog(scene.now).0 <= self.most_backlog.0 && rank.standing(scene.now) == Standing::Well;
        (fresh && able && scene.eligible.has(bound.place)).then_some(bound.place)
    }

    /// Where a session is.
    pub fn rank_of(&self, session: &str, fleet: &Fleet) -> Option<RankId> {
        let bound = self.sessions.get(session)?;
        fleet.facts(bound.place).map(|facts| facts.rank)
    }
}

impl Policy for Sticky {
    fn name(&self) -> &'static str {
        "sticky"
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn uses_overlap(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        self.fallback.cost(scene, costs);
        if let Some(place) = self.bound(scene) {
            costs.set(place, 0.0);
        }
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        self.bound(scene).or_else(|| self.fallback.pick(scene, costs))
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        if self.bound(scene) == Some(place) {
            terms.add("its session is here", 0.0);
        } else {
            self.fallback.terms(scene, place, terms);
        }
    }

    fn committed(&mut self, ask: &Ask<'_>, chosen: Place, now: Time) {
        let Some(session) = ask.session else { return };
        if self.sessions.len() >= MOST_SESSIONS && !self.sessions.contains_key(session) {
            let mut used: Vec<Time> = self.sessions.values().map(|bound| bound.used).collect();
            let middle = used.len() / 2;
            let (_, median, _) = used.select_nth_unstable(middle);
            let median = *median;
            self.sessions.retain(|_, bound| bound.used > median);
        }
        let bound = Bound {
            place: chosen,
            used: now,
        };
        self.sessions.insert(session.into(), bound);
    }

    fn rank_gone(&mut self, place: Place) {
        self.sessions.retain(|_, bound| bound.place != place);
    }
}
