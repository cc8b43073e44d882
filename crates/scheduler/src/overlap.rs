//! What of the prompt lies where? What the index answered, and what is booked and will be cached when it has been computed.
//!
//! Many ranks hold the same: each rank points to one of few *combinations* of depths, so that what follows from a combination
//! is worked out once and not for each rank.

use homing_domain::{BlockKey, Tier};
use homing_index::Answer;
use homing_load::{Load, Place};
use homing_profile::Time;

/// How many leading blocks a rank holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// On tiers up to each one.
    pub tiers: [u32; Tier::COUNT],
    /// Booked there, computed or not.
    pub booked: u32,
}

impl Depths {
    /// On the device.
    pub fn device(&self) -> u32 {
        self.tiers[0]
    }

    /// On any tier of the rank.
    pub fn anywhere(&self) -> u32 {
        self.tiers[Tier::COUNT - 1]
    }

    /// Beyond what nearer tiers hold.
    pub fn only_on(&self, tier: Tier) -> u32 {
        let before = tier.index().checked_sub(1).map_or(0, |nearer| self.tiers[nearer]);
        self.tiers[tier.index()].saturating_sub(before)
    }

    /// Whether some of it is booked and not known to be held.
    pub fn awaits(&self) -> bool {
        self.booked > self.anywhere()
    }

    /// What will not have to be computed: held anywhere, or booked.
    pub fn spared(&self) -> u32 {
        self.anywhere().max(self.booked)
    }
}

/// The answer for one prompt, by place; and the room to make the next one without allocating.
#[derive(Debug)]
pub struct Overlap {
    combinations: Vec<Depths>,
    of: Vec<u16>,
    ready: Vec<Time>,
    touched: Vec<u32>,
    /// Places where something is booked that is not known to be cached; one may be in it twice.
    awaited: Vec<Place>,
    settled: bool,
}

impl Default for Overlap {
    fn default() -> Self {
        Self {
            combinations: vec![Depths::default()],
            of: Vec::new(),
            ready: Vec::new(),
            touched: Vec::new(),
            awaited: Vec::new(),
            settled: true,
        }
    }
}

impl Overlap {
    /// Forgets everything: nobody holds anything.
    pub fn clear(&mut self) {
        for place in self.touched.drain(..) {
            self.of[place as usize] = 0;
            self.ready[place as usize] = Time::ZERO;
        }
        self.awaited.clear();
        self.combinations.truncate(1);
        self.settled = true;
    }

    /// Takes what the index answered. `place_of` says which rank is in a slot of it.
    pub fn take_answer(&mut self, answer: &Answer, place_of: impl Fn(usize) -> Option<Place>) {
        self.settled = answer.is_settled();
        let device: usize = answer.levels(Tier::Device).count();
        for tier in Tier::ALL {
            // Where nothing lies below the device, the index gives the same levels for all tiers.
            let same = tier != Tier::Device
                && answer.levels(tier).count() == device
                && answer
                    .levels(tier)
                    .zip(answer.levels(Tier::Device))
                    .all(|(one, other)| std::ptr::eq(one.words(), other.words()));
            if same {
                continue;
            }
            for level in answer.levels(tier) {
                let depth = level.depth().0;
                let places = level.slots().filter_map(&place_of);
                self.refine(places, |depths| {
                    for outer in &mut depths.tiers[tier.index()..] {
                        *outer = depth.max(*outer);
                    }
                });
            }
        }
    }

    /// Takes what is booked of the prompt. To be called after the index was heard: what it knows of is not waited for.
    pub fn take_booked(&mut self, load: &Load, keys: &[BlockKey]) {
        let (mut depth, mut last) = (0, None);
        load.booked_blocks(keys, |place, blocks, ready| {
            if blocks != depth {
                (depth, last) = (blocks, None);
            }
            let of = self.refine_one(place, &mut last, &|depths| depths.booked = blocks);
            self.ready[place.index()] = ready;
            if self.combinations[usize::from(of)].awaits() {
                self.awaited.push(place);
            }
        });
    }

    /// Says what a rank holds. For policies' tests and for callers without an index.
    pub fn set(&mut self, place: Place, depths: Depths) {
        self.refine(std::iter::once(place), |old| *old = depths);
        if depths.awaits() {
            self.awaited.push(place);
        }
    }

    /// What a rank holds.
    #[inline]
    pub fn depths(&self, place: Place) -> &Depths {
        &self.combinations[self.combination(place)]
    }

    /// The number of the rank's combination.
    #[inline]
    pub fn combination(&self, place: Place) -> usize {
        self.of.get(place.index()).map_or(0, |of| usize::from(*of))
    }

    /// All combinations; some may be of no rank.
    pub fn combinations(&self) -> &[Depths] {
        &self.combinations
    }

    /// When what is booked on the rank will have been computed.
    #[inline]
    pub fn ready(&self, place: Place) -> Time {
        self.ready.get(place.index()).copied().unwrap_or(Time::ZERO)
    }

    /// Places where some of the prompt is booked and not known to be cached.
    pub(crate) fn awaited(&self) -> &[Place] {
        &self.awaited
    }

    /// The combinations of the places from `first` on; where it ends, nobody holds anything.
    #[inline]
    pub(crate) fn from(&self, first: usize) -> &[u16] {
        self.of.get(first..).unwrap_or(&[])
    }

    /// Whether the index stood still while it was asked.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Changes what some ranks hold, all in the same way.
    fn refine(&mut self, places: impl Iterator<Item = Place>, change: impl Fn(&mut Depths)) {
        let mut last = None;
        for place in places {
            self.refine_one(place, &mut last, &change);
        }
    }

    /// Changes what one rank holds and returns the number of its new combination. `last` is what became of the last one.
    #[inline]
    fn refine_one(&mut self, place: Place, last: &mut Option<(u16, u16)>, change: &impl Fn(&mut Depths)) -> u16 {
        let at = place.index();
        if at >= self.of.len() {
            self.of.resize(at + 1, 0);
            self.ready.resize(at + 1, Time::ZERO);
        }
        let old = self.of[at];
        let new = match *last {
            Some((from, to)) if from == old => to,
            _ => self.changed(old, change),
        };
        *last = Some((old, new));
        if old == 0 && new != 0 {
            self.touched.push(at as u32);
        }
        self.of[at] = new;
        new
    }

    fn changed(&mut self, old: u16, change: &impl Fn(&mut Depths)) -> u16 {
        let mut depths = self.combinations[usize::from(old)];
        change(&mut depths);
        if let Some(known) = self.combinations.iter().rposition(|known| *known == depths) {
            return known as u16;
        }
        // Beyond what fits, ranks keep what was known of them before: too little, never too much.
        let Ok(new) = u16::try_from(self.combinations.len()) else {
            return old;
        };
        self.combinations.push(depths);
        new
    }
}
