//! Which rank is predicted to cost the least time, for this request and for those it meets?

use homing_load::Place;

use crate::decision::Terms;
use crate::policy::predict::{blocks_at_end, predict};
use crate::policy::{Costs, Policy, Scene, bounds, pick_with, pick_within};

/// The policy `time`: `wait + (1 + k) * prefill + onboard + w * decode`, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct PredictedTime {
    /// Weight of what the request does to the sequences that decode.
    pub decode_weight: f64,
    /// The greatest `k`: what a prefill costs those who come after it, at full utilisation.
    pub most_for_others: f64,
    /// Candidates whose cost is within this share of the least are as good as the best.
    pub error: f64,
    /// Gateways that decide with equal views; the more, the wider the choice.
    pub gateways: u32,
}

impl Default for PredictedTime {
    fn default() -> Self {
        Self {
            decode_weight: 1.0,
            most_for_others: 4.0,
            error: 0.05,
            gateways: 1,
        }
    }
}

impl PredictedTime {
    /// What this prefill costs everyone else, in times of itself: as utilisation grows, a queue's length does.
    fn for_others(&self, scene: &Scene<'_>) -> f64 {
        let share = scene.load.utilisation(scene.now).clamp(0.0, 1.0);
        if share >= 1.0 {
            return self.most_for_others;
        }
        (share / (1.0 - share)).min(self.most_for_others)
    }

    fn decode_weight(&self, scene: &Scene<'_>) -> f64 {
        scene.ask.overrides.decode_weight.unwrap_or(self.decode_weight)
    }
}

impl Policy for PredictedTime {
    fn name(&self) -> &'static str {
        "time"
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn uses_overlap(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let blocks = blocks_at_end(scene);
        let (others, decode) = (self.for_others(scene), self.decode_weight(scene));
        for (place, rank) in scene.candidates() {
            let of = predict(scene, place, rank, blocks);
            costs.set(
                place,
                of.wait() + (1.0 + others) * of.prefill + of.onboard + decode * of.decode,
            );
        }
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        if let Some(temperature) = scene.ask.overrides.temperature {
            return pick_with(scene, costs, temperature);
        }
        let (least, _) = bounds(scene, costs)?;
        let wider = 1.0 + f64::from(self.gateways.max(1)).ln();
        pick_within(scene, costs, least * (1.0 + self.error * wider))
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let of = predict(scene, place, rank, blocks_at_end(scene));
        terms.add("queue", of.queue);
        terms.add("space", of.space);
        terms.add("sibling", of.sibling);
        terms.add("prefill", of.prefill);
        terms.add("others", self.for_others(scene) * of.prefill);
        terms.add("onboard", of.onboard);
        terms.add("decode", self.decode_weight(scene) * of.decode);
    }
}
