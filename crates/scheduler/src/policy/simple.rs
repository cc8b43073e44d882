//! What do policies choose by that know nothing of prompts?

use homing_load::Place;
use homing_profile::Time;

use crate::ask::Ask;
use crate::decision::Terms;
use crate::policy::{Costs, Policy, Scene};

/// The policy `least-loaded`: the fewest requests.
#[derive(Clone, Copy, Debug)]
pub struct LeastLoaded;

impl Policy for LeastLoaded {
    fn name(&self) -> &'static str {
        "least-loaded"
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        for (place, rank) in scene.candidates() {
            costs.set(place, f64::from(rank.all_requests()));
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        requests(scene, place, terms);
    }
}

/// The policy `p2c`: of two drawn at random, the one with fewer requests.
#[derive(Clone, Copy, Debug)]
pub struct TwoChoices;

impl Policy for TwoChoices {
    fn name(&self) -> &'static str {
        "p2c"
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        LeastLoaded.cost(scene, costs);
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        let all = scene.eligible.count();
        let drawn = |of: u64, all: u32| ((u128::from(scene.draw.number(of)) * u128::from(all)) >> 64) as u32;
        let first = drawn(0, all);
        // One of the others: those from the first on move up by one.
        let second = drawn(1, all.saturating_sub(1));
        let second = second + u32::from(second >= first);
        let (first, second) = (scene.eligible.nth(first)?, scene.eligible.nth(second));
        match second {
            Some(second) if costs.get(second) < costs.get(first) => Some(second),
            _ => Some(first),
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        requests(scene, place, terms);
    }
}

/// The policy `random`: each with the same chance.
#[derive(Clone, Copy, Debug)]
pub struct Random;

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        for place in scene.eligible.places() {
            costs.set(place, 0.0);
        }
    }

    fn terms(&self, _scene: &Scene<'_>, _place: Place, terms: &mut Terms) {
        terms.add("drawn", 0.0);
    }
}

/// The policy `round-robin`: the next after the one that was chosen last.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    next: u32,
}

impl RoundRobin {
    fn distance(self, scene: &Scene<'_>, place: Place) -> f64 {
        let places = scene.load.ranks().len().max(1) as u32;
        let next = self.next % places;
        f64::from((place.0 + places - next) % places)
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn unit(&self) -> &'static str {
        "places"
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        for place in scene.eligible.places() {
            costs.set(place, self.distance(scene, place));
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        terms.add("distance", self.distance(scene, place));
    }

    fn committed(&mut self, _ask: &Ask<'_>, chosen: Place, _now: Time) {
        self.next = chosen.0.wrapping_add(1);
    }
}

/// The policy `direct`: the worker that the request names, and no other.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl Policy for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn needs_pin(&self) -> bool {
        true
    }

    /// A worker can have several ranks: among those the least loaded is taken.
    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        LeastLoaded.cost(scene, costs);
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        requests(scene, place, terms);
    }
}

fn requests(scene: &Scene<'_>, place: Place, terms: &mut Terms) {
    let rank = scene.load.rank(place);
    terms.add("requests", rank.map_or(0.0, |rank| f64::from(rank.all_requests())));
}
