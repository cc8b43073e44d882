//! Is enough of the prompt cached somewhere, and is the fleet in balance? If so there, otherwise where least is to be done.

use homing_load::{Place, RankLoad};

use crate::decision::Terms;
use crate::policy::{Costs, Policy, Scene};

/// The policy `cache-threshold`. Defaults are those of `CacheAwareConfig::default` in `policies/mod.rs` of smg 1.13 and of SGLang's
/// model gateway, from which it comes. (Their command lines begin with 0.3, 64 and 1.5 instead.)
#[derive(Clone, Copy, Debug)]
pub struct CacheThreshold {
    /// The best match counts if it covers more than this share of the prompt.
    pub cache: f64,
    /// The fleet is out of balance if the most loaded has this many requests more than the least loaded,
    pub balance_absolute: u32,
    /// and this many times as many.
    pub balance_relative: f64,
}

impl Default for CacheThreshold {
    fn default() -> Self {
        Self {
            cache: 0.5,
            balance_absolute: 32,
            balance_relative: 1.1,
        }
    }
}

/// What the choice goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Load,
    Match,
}

impl CacheThreshold {
    fn by(&self, scene: &Scene<'_>) -> By {
        let (mut least, mut most, mut best) = (u32::MAX, 0, 0);
        for (place, rank) in scene.candidates() {
            least = least.min(rank.all_requests());
            most = most.max(rank.all_requests());
            best = best.max(scene.overlap.depths(place).device());
        }
        let apart = most.saturating_sub(least) > self.balance_absolute;
        let share = f64::from(best) / f64::from(scene.prompt_blocks().max(1));
        if apart && f64::from(most) > f64::from(least) * self.balance_relative || share <= self.cache {
            By::Load
        } else {
            By::Match
        }
    }

    /// What is missing counts first if the match decides; requests decide among equals.
    fn parts(scene: &Scene<'_>, by: By, place: Place, rank: &RankLoad) -> (f64, f64) {
        let missing = scene
            .prompt_blocks()
            .saturating_sub(scene.overlap.depths(place).device());
        let requests = f64::from(rank.all_requests());
        match by {
            By::Load => (0.0, requests),
            By::Match => (f64::from(missing), requests / (1.0 + requests)),
        }
    }
}

impl Policy for CacheThreshold {
    fn name(&self) -> &'static str {
        "cache-threshold"
    }

    fn uses_overlap(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let by = self.by(scene);
        for (place, rank) in scene.candidates() {
            let (missing, requests) = Self::parts(scene, by, place, rank);
            costs.set(place, missing + requests);
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let (missing, requests) = Self::parts(scene, self.by(scene), place, rank);
        terms.add("missing blocks", missing);
        terms.add("load", requests);
    }
}
