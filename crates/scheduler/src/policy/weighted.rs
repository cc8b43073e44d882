//! Which rank has the best sum of scores, each from 0 to 1?

use homing_load::{Place, RankLoad};

use crate::decision::Terms;
use crate::policy::{Costs, Policy, Scene};

/// The policy `weighted`: prefix, queue and cache usage. Default weights are those of `default-plugins.yaml` in the chart
/// `inferencepool` of the Gateway API inference extension, which llm-d's guides take over: `prefix-cache-scorer` 3, `queue-scorer` 2,
/// `kv-cache-utilization-scorer` 2.
#[derive(Clone, Copy, Debug)]
pub struct Weighted {
    /// The share of the prompt that is cached.
    pub prefix: f64,
    /// How few wait, from the rank with most (0) to the one with least (1).
    pub queue: f64,
    /// The share of the cache that is free.
    pub usage: f64,
}

impl Default for Weighted {
    fn default() -> Self {
        Self {
            prefix: 3.0,
            queue: 2.0,
            usage: 2.0,
        }
    }
}

impl Weighted {
    fn queues(scene: &Scene<'_>) -> (u32, u32) {
        let queues = scene.candidates().map(|(_, rank)| rank.pending());
        queues.fold((u32::MAX, 0), |(least, most), queue| {
            (least.min(queue), most.max(queue))
        })
    }

    /// What each rank lacks of the best score, part by part, so that less is better.
    fn parts(&self, scene: &Scene<'_>, queues: (u32, u32), place: Place, rank: &RankLoad) -> [f64; 3] {
        let held = f64::from(scene.overlap.depths(place).anywhere());
        let prefix = (held / f64::from(scene.prompt_blocks().max(1))).min(1.0);
        let (least, most) = queues;
        let queue = if most == least {
            1.0
        } else {
            f64::from(most - rank.pending()) / f64::from(most - least)
        };
        [
            self.prefix * (1.0 - prefix),
            self.queue * (1.0 - queue),
            self.usage * rank.usage(),
        ]
    }
}

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn uses_overlap(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let queues = Self::queues(scene);
        for (place, rank) in scene.candidates() {
            costs.set(place, self.parts(scene, queues, place, rank).iter().sum());
        }
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let parts = self.parts(scene, Self::queues(scene), place, rank);
        for (name, part) in ["prefix", "queue", "usage"].into_iter().zip(parts) {
            terms.add(name, part);
        }
    }
}
