//! Where do prompts with this beginning go? To the same rank, as long as it has no more than its share.

use homing_load::{Place, RankLoad};

use crate::chance::mix;
use crate::decision::Terms;
use crate::policy::{Costs, Policy, Scene};

/// The policy `prefix-affinity`: rendezvous hashing of the first blocks, with bounded loads. It needs no events of engines.
#[derive(Clone, Copy, Debug)]
pub struct PrefixAffinity {
    /// So many leading blocks decide.
    pub blocks: usize,
    /// No rank takes more than this many times the mean of requests. 1.25 is the factor of the paper on consistent hashing with
    /// bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016) and what HAProxy recommends as the least (`hash-balance-factor`).
    pub bound: f64,
}

impl Default for PrefixAffinity {
    fn default() -> Self {
        Self { blocks: 8, bound: 1.25 }
    }
}

impl PrefixAffinity {
    /// A prompt too short for a key goes with its session, or by chance.
    fn beginning(&self, scene: &Scene<'_>) -> u64 {
        let at = self.blocks.max(1).min(scene.ask.keys.len());
        match (at.checked_sub(1), scene.ask.session) {
            (Some(at), _) => hash_of(&scene.ask.keys[at]),
            (None, Some(session)) => hash_of(session),
            (None, None) => scene.draw.number(0),
        }
    }

    fn most(&self, scene: &Scene<'_>) -> f64 {
        let (sum, count) = scene.candidates().fold((0_u64, 0_u64), |(sum, count), (_, rank)| {
            (sum + u64::from(rank.all_requests()), count + 1)
        });
        (self.bound * (sum + 1) as f64 / count.max(1) as f64).ceil()
    }

    /// Ranks below their bound come before all others.
    fn parts(beginning: u64, most: f64, rank: &RankLoad) -> (f64, f64) {
        let identity = (u64::from(rank.rank().worker.0) << 16) | u64::from(rank.rank().dp.0);
        let order = (mix(beginning ^ mix(identity)) >> 11) as f64 / (1_u64 << 53) as f64;
        let over = if f64::from(rank.all_requests()) + 1.0 > most {
            1.0
        } else {
            0.0
        };
        (order, over)
    }
}

impl Policy for PrefixAffinity {
    fn name(&self) -> &'static str {
        "prefix-affinity"
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let (beginning, most) = (self.beginning(scene), self.most(scene));
        for (place, rank) in scene.candidates() {
            let (order, over) = Self::parts(beginning, most, rank);
            costs.set(place, order + over);
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let (order, over) = Self::parts(self.beginning(scene), self.most(scene), rank);
        terms.add("order", order);
        terms.add("over its bound", over);
    }
}

fn hash_of(of: &(impl std::hash::Hash + ?Sized)) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    of.hash(&mut hasher);
    mix(hasher.finish())
}
