//! What does each rank cost, and which is picked? Whoever may not be chosen costs infinitely much, so that nothing but costs has
//! to be looked at; and the least cost of some places beside each other is kept, so that most places need not be.

use homing_load::Place;
use homing_load::lanes::WIDTH;

use crate::chance::Draw;
use crate::policy::Scene;

/// Places beside each other whose least cost is kept.
const BESIDE: usize = 32;

/// The cost of each rank, by place.
#[derive(Debug, Default)]
pub struct Costs {
    by_place: Vec<f64>,
    least: Vec<f64>,
    overall: f64,
}

impl Costs {
    /// Says what a rank costs.
    #[inline]
    pub fn set(&mut self, place: Place, cost: f64) {
        self.by_place[place.index()] = cost;
    }

    /// What a rank costs: infinitely much if it did not pass the filter.
    #[inline]
    pub fn get(&self, place: Place) -> f64 {
        self.by_place[place.index()]
    }

    /// The least cost of all. It means something when all costs were given.
    #[inline]
    pub fn least(&self) -> f64 {
        self.overall
    }

    /// Nobody may be chosen so far.
    pub(crate) fn reset(&mut self, places: usize) {
        self.by_place.clear();
        self.by_place.resize(places.next_multiple_of(WIDTH), f64::INFINITY);
    }

    /// Some places beside each other.
    #[inline]
    pub(crate) fn rows(&mut self) -> impl Iterator<Item = &mut [f64; WIDTH]> {
        let (rows, _) = self.by_place.as_chunks_mut::<WIDTH>();
        rows.iter_mut()
    }

    /// Notes what is least. To be called when all costs were given.
    pub(crate) fn survey(&mut self) {
        let (groups, _) = self.by_place.as_chunks::<BESIDE>();
        self.least.clear();
        self.least.extend(groups.iter().map(least_of));
        self.overall = self.least.iter().copied().fold(f64::INFINITY, lesser);
    }

    /// Groups of places in which someone costs at most so much, with the first place of each.
    fn groups(&self, most: f64) -> impl Iterator<Item = (usize, &[f64; BESIDE])> {
        let (groups, _) = self.by_place.as_chunks::<BESIDE>();
        let found = groups.iter().zip(&self.least).enumerate();
        found
            .filter(move |(_, (_, least))| **least <= most)
            .map(|(at, (group, _))| (at * BESIDE, group))
    }

    /// One of those that cost at most so much, each with the same chance.
    fn draw_within(&self, most: f64, draw: Draw) -> Option<Place> {
        if most == f64::INFINITY {
            return None;
        }
        let count: usize = self.groups(most).map(|(_, group)| count_within(group, most)).sum();
        let mut left = ((u128::from(draw.number(0)) * count as u128) >> 64) as usize;
        for (first, group) in self.groups(most) {
            let here = count_within(group, most);
            if left < here {
                let mut near = group.iter().enumerate().filter(|(_, cost)| **cost <= most);
                return near.nth(left).map(|(at, _)| Place((first + at) as u32));
            }
            left -= here;
        }
        None
    }

    /// The `most` of least cost besides the chosen one, best first, and by place among equals.
    pub(crate) fn next_best(&self, chosen: Place, most: usize, best: &mut Vec<Place>) {
        best.clear();
        if most == 0 {
            return;
        }
        let mut worst = f64::MAX;
        let (groups, _) = self.by_place.as_chunks::<BESIDE>();
        for (at, (group, least)) in groups.iter().zip(&self.least).enumerate() {
            if *least >= worst {
                continue;
            }
            for (lane, cost) in group.iter().enumerate() {
                let place = Place((at * BESIDE + lane) as u32);
                if *cost >= worst || cost.is_nan() || place == chosen {
                    continue;
                }
                let before = best.partition_point(|other| self.get(*other) <= *cost);
                best.truncate(most - 1);
                best.insert(before, place);
                if best.len() == most {
                    worst = best.last().map_or(worst, |last| self.get(*last));
                }
            }
        }
    }
}

/// Picks by temperature: at 0 one of the least cost, each with the same chance; above it with a chance that falls with the
/// distance to the least, the more the lower the temperature.
pub fn pick_with(scene: &Scene<'_>, costs: &Costs, temperature: f64) -> Option<Place> {
    if temperature <= 0.0 {
        return pick_within(scene, costs, costs.least());
    }
    let (least, most) = bounds(scene, costs)?;
    let spread = (most - least) * temperature;
    if spread <= 0.0 || !spread.is_finite() {
        return pick_within(scene, costs, least);
    }
    let weight = |place: Place| (-(costs.get(place) - least) / spread).exp();
    let total: f64 = scene.eligible.places().map(weight).sum();
    let mut left = scene.draw.share(0) * total;
    let mut drawn = None;
    for place in scene.eligible.places() {
        drawn = Some(place);
        left -= weight(place);
        if left < 0.0 {
            break;
        }
    }
    drawn
}

/// Picks one of those that cost at most so much, each with the same chance.
pub fn pick_within(scene: &Scene<'_>, costs: &Costs, most: f64) -> Option<Place> {
    costs.draw_within(most, scene.draw)
}

/// The least and the greatest cost of those who passed the filter.
pub fn bounds(scene: &Scene<'_>, costs: &Costs) -> Option<(f64, f64)> {
    let each = scene.eligible.places().map(|place| costs.get(place));
    each.fold(None, |bounds, cost| {
        let (least, most) = bounds.unwrap_or((cost, cost));
        Some((lesser(least, cost), if cost > most { cost } else { most }))
    })
}

#[inline]
fn lesser(one: f64, other: f64) -> f64 {
    if other < one { other } else { one }
}

/// The least of some, found side by side.
#[inline]
fn least_of(group: &[f64; BESIDE]) -> f64 {
    let (parts, _) = group.as_chunks::<8>();
    let mut least = [f64::INFINITY; 8];
    for part in parts {
        least = std::array::from_fn(|at| lesser(least[at], part[at]));
    }
    least.into_iter().fold(f64::INFINITY, lesser)
}

#[inline]
fn count_within(group: &[f64; BESIDE], most: f64) -> usize {
    group.iter().map(|cost| usize::from(*cost <= most)).sum()
}
