//! Which rank is predicted to cost the least time, for this request and for those it meets?

use homing_load::Place;
use homing_load::lanes::WIDTH;

use crate::decision::Terms;
use crate::policy::predict::{Prediction, predict};
use crate::policy::{Costs, Policy, Scene, pick_with, pick_within};

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

    fn weights(&self, scene: &Scene<'_>) -> Weights {
        Weights {
            prefill: 1.0 + self.for_others(scene),
            decode: scene.ask.overrides.decode_weight.unwrap_or(self.decode_weight),
        }
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
        let weights = self.weights(scene);
        weigh_all(scene, &weights, costs);
        // What is booked and awaited has a time of its own on each rank: few, and one by one.
        for place in scene.overlap.awaited() {
            if let Some(rank) = scene.load.rank(*place).filter(|_| scene.eligible.has(*place)) {
                costs.set(*place, weights.cost(&predict(scene, *place, rank)));
            }
        }
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        if let Some(temperature) = scene.ask.overrides.temperature {
            return pick_with(scene, costs, temperature);
        }
        let wider = 1.0 + f64::from(self.gateways.max(1)).ln();
        pick_within(scene, costs, costs.least() * (1.0 + self.error * wider))
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let (of, weights) = (predict(scene, place, rank), self.weights(scene));
        terms.add("queue", of.queue);
        terms.add("space", of.space);
        terms.add("sibling", of.sibling);
        terms.add("prefill", of.prefill);
        terms.add("others", (weights.prefill - 1.0) * of.prefill);
        terms.add("onboard", of.onboard);
        terms.add("decode", weights.decode * of.decode);
    }
}

/// What the parts of a prediction weigh in one decision.
struct Weights {
    prefill: f64,
    decode: f64,
}

impl Weights {
    fn cost(&self, of: &Prediction) -> f64 {
        of.wait() + self.prefill * of.prefill + of.onboard + self.decode * of.decode
    }
}

/// The cost of every rank on which nothing is awaited, several at a time.
fn weigh_all(scene: &Scene<'_>, weights: &Weights, costs: &mut Costs) {
    let (now, context) = (scene.load.since(scene.now), scene.ask.prompt.0 as f32);
    let (prefill, decode) = (weights.prefill as f32, weights.decode as f32);
    let kinds = scene.load.timings().len();
    let known = scene.memo.all(scene);
    let Some(first) = known.first().map(|own| [own.get(); WIDTH]) else {
        return;
    };
    for ((at, lanes), costs) in scene.load.lanes().iter().enumerate().zip(costs.rows()) {
        let eligible = scene.eligible.eight(at);
        let row = scene.overlap.row(at);
        let own = if kinds == 1 && row == [0; WIDTH] {
            first
        } else {
            let kind = lanes.kinds();
            std::array::from_fn(|lane| known[usize::from(row[lane]) * kinds + kind[lane] as usize].get())
        };
        let wait = lanes.wait(now, &own.map(|own| own.blocks));
        let (factor, decoding) = (lanes.factors(), lanes.decode(context));
        let cost: [f32; WIDTH] = std::array::from_fn(|lane| {
            wait[lane] + prefill * own[lane].prefill * factor[lane] + own[lane].onboard + decode * decoding[lane]
        });
        *costs = cost.map(f64::from);
        if eligible != u8::MAX {
            for (lane, cost) in costs.iter_mut().enumerate() {
                if eligible >> lane & 1 == 0 {
                    *cost = f64::INFINITY;
                }
            }
        }
    }
}
