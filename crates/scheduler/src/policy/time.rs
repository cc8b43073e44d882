//! Which rank is predicted to cost the least time, for this request and for those it meets?

use std::cell::Cell;

use homing_load::lanes::{self, WIDTH};
use homing_load::{LaneWeights, Lanes, Place};

use crate::decision::Terms;
use crate::policy::predict::{Own, Prediction, predict};
use crate::policy::{Costs, Policy, Scene, pick_with, pick_within};

/// The policy `time`: `wait + prefill + k * work + onboard + w * decode + room`, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct PredictedTime {
    /// For how many steps it counts that those which decode become slower. Fewer than an answer takes, because its end is far
    /// and others end before it.
    pub decode_weight: f64,
    /// What a prefill costs those who wait behind it, at full utilisation.
    pub most_for_others: f64,
    /// How much of what a rank is faster or slower than others is left out of account, in times of utilisation: whoever takes a fast rank
    /// of a busy fleet takes it from somebody else. More than 1, because ranks that only decode are at work as well.
    pub fair: f64,
    /// The longest prompts, as a share of all that is computed. What they take beyond the shortest of them counts at the rank's own speed
    /// nevertheless: they are few, and would feel a slow rank the most.
    pub long: f64,
    /// How much it weighs that a prompt takes room from others, the more the fuller a rank is: in times of its work, where all that is
    /// computed was computed before.
    pub room: f64,
    /// By which share predicted times to the first token are off: where others decide too, candidates that are no further from the best
    /// are as good.
    pub error: f64,
    /// Gateways that decide with equal views; the more, the wider the choice. One that decides alone sees each booking at once.
    pub gateways: u32,
}

impl Default for PredictedTime {
    fn default() -> Self {
        Self {
            decode_weight: 8.0,
            most_for_others: 4.0,
            fair: 20.0,
            long: 0.13,
            room: 2.0,
            error: 0.05,
            gateways: 1,
        }
    }
}

impl PredictedTime {
    /// What this prefill costs those who come behind it, in times of itself: as utilisation grows, a queue's length does.
    fn for_others(&self, scene: &Scene<'_>) -> f64 {
        let share = scene.utilisation;
        if share < 1.0 {
            (share / (1.0 - share)).min(self.most_for_others)
        } else {
            self.most_for_others
        }
    }

    /// What it costs others if the whole cache of a rank is in use: as much as the request has, if that is kept because it comes again, and
    /// if what gives way to it would have come again.
    fn for_room(&self, scene: &Scene<'_>) -> f64 {
        let again = scene.load.computed_again();
        self.room * again * again * f64::from(scene.memo.nothing_held(scene).work)
    }

    fn weights(&self, scene: &Scene<'_>) -> Weights {
        let long = scene.load.long_from(self.long);
        Weights {
            own: (1.0 - self.fair * scene.utilisation).clamp(0.0, 1.0),
            long: long.map_or(f64::INFINITY, |long| long.0),
            others: self.for_others(scene),
            room: self.for_room(scene),
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

    fn weighs_loads(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let weights = self.weights(scene);
        weigh_all(scene, &weights, costs);
        // What is booked and awaited has a time of its own on each rank, and so has an adapter that is loaded: few, and one by one.
        let awaited = scene.overlap.awaited().iter().copied();
        for place in awaited.chain(scene.fleet.openings(scene.ask.adapter)) {
            if let Some(rank) = scene.load.rank(place).filter(|_| scene.eligible.has(place)) {
                costs.set(place, weights.cost(&predict(scene, place, rank)));
            }
        }
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        if let Some(temperature) = scene.ask.overrides.temperature {
            return pick_with(scene, costs, temperature);
        }
        let best = pick_within(scene, costs, costs.least())?;
        let of = predict(scene, best, scene.load.rank(best)?);
        // Gateways that see the same would all choose the same.
        let width = self.error * f64::from(self.gateways.max(1)).ln();
        pick_within(scene, costs, costs.least() + of.first_token().0 * width)
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let (of, weights) = (predict(scene, place, rank), self.weights(scene));
        terms.add("queue", of.queue);
        terms.add("space", of.space);
        terms.add("sibling", of.sibling);
        if of.load > 0.0 {
            terms.add("load", of.load);
        }
        terms.add("prefill", weights.prefill(&of));
        terms.add("others", weights.others * of.work);
        terms.add("onboard", of.onboard);
        terms.add("decode", weights.decode * of.decode);
        if weights.room > 0.0 {
            terms.add("room", weights.room * of.usage);
        }
    }
}

/// What the parts of a prediction weigh in one decision.
struct Weights {
    /// How much of a prompt counts on the rank itself, and the rest on a typical one.
    own: f64,
    /// From which time by the profile on a prompt is long, in milliseconds.
    long: f64,
    /// The prompt on a typical rank once more, for those who come later.
    others: f64,
    decode: f64,
    /// What a cache costs that is in use as a whole.
    room: f64,
}

impl Weights {
    /// How much of a prompt that takes so long by the profile counts on the rank itself.
    #[inline]
    fn share(&self, prefill: f64) -> f64 {
        if prefill > self.long {
            self.own.max(1.0 - self.long / prefill)
        } else {
            self.own
        }
    }

    /// What counts of the prompt itself.
    fn prefill(&self, of: &Prediction) -> f64 {
        let own = self.share(of.by_profile);
        own * of.prefill + (1.0 - own) * of.work
    }

    fn cost(&self, of: &Prediction) -> f64 {
        of.wait()
            + self.prefill(of)
            + self.others * of.work
            + of.onboard
            + self.decode * of.decode
            + self.room * of.usage
    }
}

/// The cost of every rank on which nothing is awaited, several at a time.
fn weigh_all(scene: &Scene<'_>, weights: &Weights, costs: &mut Costs) {
    let now = scene.load.since(scene.now);
    let lane_weights = LaneWeights {
        decode: weights.decode as f32,
        context: scene.ask.prompt.0 as f32,
        room: weights.room as f32,
    };
    let known = scene.memo.all(scene);
    let mut own = OwnRows {
        rows: lanes::Own::default(),
        told_apart: true,
        weights,
    };
    let mut cost = [0.0; WIDTH];
    for ((at, lanes), costs) in scene.load.lanes().iter().enumerate().zip(costs.rows()) {
        let eligible = scene.eligible.word(at);
        if eligible == 0 {
            continue;
        }
        own.fill(scene, known, lanes, at * WIDTH);
        lanes.cost(now, &own.rows, &lane_weights, &mut cost);
        for (wide, cost) in costs.iter_mut().zip(&cost) {
            *wide = f64::from(*cost);
        }
        for excluded in bits_of(!eligible) {
            costs[excluded] = f64::INFINITY;
        }
    }
}

/// What some ranks beside each other compute and load themselves.
struct OwnRows<'a> {
    rows: lanes::Own,
    /// Some lanes are not as those of a rank that holds nothing.
    told_apart: bool,
    weights: &'a Weights,
}

impl OwnRows<'_> {
    /// Most ranks hold nothing of most prompts: only where someone holds something each is looked at.
    #[inline]
    fn fill(&mut self, scene: &Scene<'_>, known: &[Cell<Own>], lanes: &Lanes, first: usize) {
        let kinds = scene.load.timings().len();
        if self.told_apart {
            self.all_alike(known);
        }
        let held = scene.overlap.from(first);
        let held = &held[..held.len().min(WIDTH)];
        let (parts, rest) = held.as_chunks::<8>();
        for (part, of) in parts.iter().enumerate() {
            if *of != [0; 8] || kinds > 1 {
                self.tell_apart(part * 8, of, known, kinds, lanes);
            }
        }
        self.tell_apart(parts.len() * 8, rest, known, kinds, lanes);
        if kinds > 1 {
            for lane in held.len()..WIDTH {
                self.set(lane, 0, known, kinds, lanes);
            }
        }
    }

    /// As if nobody held anything, and all were of the first kind.
    fn all_alike(&mut self, known: &[Cell<Own>]) {
        let nothing = known.first().map_or(Own::UNKNOWN, Cell::get);
        let (prefill, fixed) = self.parts(nothing);
        self.rows.prefill = [prefill; WIDTH];
        self.rows.fixed = [fixed; WIDTH];
        self.rows.blocks = [nothing.blocks; WIDTH];
        self.told_apart = false;
    }

    fn tell_apart(&mut self, first: usize, of: &[u16], known: &[Cell<Own>], kinds: usize, lanes: &Lanes) {
        for (lane, of) in of.iter().enumerate() {
            self.set(first + lane, usize::from(*of), known, kinds, lanes);
        }
    }

    /// What depends on how fast a rank is, and what does not.
    #[inline]
    fn parts(&self, own: Own) -> (f32, f32) {
        let share = self.weights.share(f64::from(own.prefill)) as f32;
        let work = 1.0 - share + self.weights.others as f32;
        (share * own.prefill, own.onboard + work * own.work)
    }

    #[inline]
    fn set(&mut self, lane: usize, combination: usize, known: &[Cell<Own>], kinds: usize, lanes: &Lanes) {
        let own = known[combination * kinds + lanes.kinds()[lane] as usize].get();
        (self.rows.prefill[lane], self.rows.fixed[lane]) = self.parts(own);
        self.rows.blocks[lane] = own.blocks;
        self.told_apart = true;
    }
}

/// The numbers of the bits that are set.
fn bits_of(word: u64) -> impl Iterator<Item = usize> {
    let mut left = word;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros() as usize;
        left &= left.checked_sub(1)?;
        Some(bit)
    })
}
