//! On how many workers should each adapter be?
//!
//! An adapter that has a share of all the work needs that share of the workers that are at work, and some more, so that a worker that has
//! it is free when a request comes. Where all slots together do not suffice, whole replicas are given first; then everybody who is
//! asked for gets one, most wanted first; and what is left goes to the largest remainders.
//!
//! **Invariant:** the counts of all together are not more than the slots, and none is more than the workers.
//!
//! **Invariant:** a count rises at once and falls only after it should have been less for several rounds, unless the room is gone.

use std::collections::BTreeMap;

use homing_domain::AdapterName;

/// How much more is asked for an adapter that nobody has than for one that somebody has, before it takes its slot.
const INCUMBENT: f64 = 1.5;

/// What is known of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Which.
    pub adapter: AdapterName,
    /// What is asked for it, in tokens per second.
    pub tokens: f64,
    /// Whether it stays whatever is asked for it.
    pub pinned: bool,
    /// Whether some worker has it.
    pub resident: bool,
}

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Workers.
    pub workers: u32,
    /// Slots of all of them.
    pub slots: u32,
    /// The share of the workers that is at work, from 0 to 1.
    pub busy: f64,
    /// What is asked for the model without an adapter, in tokens per second.
    pub base: f64,
    /// How much more than its share of the workers an adapter gets.
    pub headroom: f64,
}

/// How many each should have at this moment, in the order of the wishes.
pub fn counts(wishes: &[Wish], fleet: &Fleet) -> Vec<u32> {
    let mut counts = vec![0_u32; wishes.len()];
    if fleet.workers == 0 || fleet.slots == 0 {
        return counts;
    }
    let all = fleet.base + wishes.iter().map(|wish| wish.tokens).sum::<f64>();
    let at_work = f64::from(fleet.workers) * fleet.busy.clamp(0.0, 1.0) * fleet.headroom;
    let ideal = |wish: &Wish| {
        let share = if all > 0.0 { wish.tokens / all } else { 0.0 };
        (share * at_work).min(f64::from(fleet.workers))
    };
    let ideals: Vec<f64> = wishes.iter().map(ideal).collect();
    let generous: Vec<u32> = ideals.iter().map(|ideal| (ideal.ceil() as u32).max(1)).collect();
    if generous.iter().map(|count| u64::from(*count)).sum::<u64>() <= u64::from(fleet.slots) {
        return generous;
    }
    let mut left = fleet.slots;
    let mut give = |at: usize, most: u32, counts: &mut [u32]| {
        let given = most.min(left);
        counts[at] += given;
        left -= given;
    };
    let mut by_demand: Vec<usize> = (0..wishes.len()).collect();
    by_demand.sort_by(|a, b| before(&wishes[*a], &wishes[*b]));
    for at in &by_demand {
        let least = u32::from(wishes[*at].pinned);
        give(*at, (ideals[*at].floor() as u32).max(least), &mut counts);
    }
    for at in &by_demand {
        if counts[*at] == 0 {
            give(*at, 1, &mut counts);
        }
    }
    let mut by_remainder: Vec<usize> = (0..wishes.len())
        .filter(|at| counts[*at] < generous[*at] && ideals[*at] >= 1.0)
        .collect();
    by_remainder.sort_by(|a, b| {
        let remainder = |at: usize| ideals[at] - ideals[at].floor();
        let larger = remainder(*b).total_cmp(&remainder(*a));
        larger.then_with(|| before(&wishes[*a], &wishes[*b]))
    });
    for at in by_remainder {
        give(at, 1, &mut counts);
    }
    counts
}

/// Pinned first; then who is wanted more, where who is there counts more than who would have to be loaded; then by name.
fn before(one: &Wish, other: &Wish) -> std::cmp::Ordering {
    let weight = |wish: &Wish| {
        if wish.resident {
            wish.tokens * INCUMBENT
        } else {
            wish.tokens
        }
    };
    other
        .pinned
        .cmp(&one.pinned)
        .then_with(|| weight(other).total_cmp(&weight(one)))
        .then_with(|| other.resident.cmp(&one.resident))
        .then_with(|| one.adapter.cmp(&other.adapter))
}

/// Counts that do not fall at once.
#[derive(Clone, Debug, Default)]
pub struct Steady {
    held: BTreeMap<AdapterName, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    count: u32,
    /// Rounds in a row in which it should have been less.
    less: u32,
    /// The greatest of what it should have been in these.
    most: u32,
}

impl Steady {
    /// One round: what each should have becomes what it gets. Nobody falls before `rounds` rounds in a row.
    pub fn round(&mut self, wishes: &[Wish], fleet: &Fleet, rounds: u32) -> Vec<u32> {
        let target = counts(wishes, fleet);
        let mut new: Vec<u32> = Vec::with_capacity(wishes.len());
        let mut kept = BTreeMap::new();
        for (wish, target) in wishes.iter().zip(&target) {
            let held = self.held.get(&wish.adapter).copied();
            let next = held.map_or(Held::at(*target), |held| held.toward(*target, rounds));
            new.push(next.count.min(fleet.workers));
            kept.insert(wish.adapter.clone(), next);
        }
        self.held = kept;
        trim(&mut new, &target, wishes, fleet.slots);
        for (wish, count) in wishes.iter().zip(&new) {
            if let Some(held) = self.held.get_mut(&wish.adapter) {
                held.count = *count;
            }
        }
        new
    }
}

impl Held {
    fn at(count: u32) -> Self {
        Self {
            count,
            less: 0,
            most: 0,
        }
    }

    fn toward(self, target: u32, rounds: u32) -> Self {
        if target >= self.count {
            return Self::at(target);
        }
        let (less, most) = (self.less + 1, self.most.max(target));
        if less >= rounds {
            return Self::at(most);
        }
        Self {
            count: self.count,
            less,
            most,
        }
    }
}

/// What is held back from falling must not take more slots than there are: then it falls, from who is wanted least.
fn trim(new: &mut [u32], target: &[u32], wishes: &[Wish], slots: u32) {
    let mut over = new.iter().map(|count| u64::from(*count)).sum::<u64>();
    let mut by_demand: Vec<usize> = (0..wishes.len()).collect();
    by_demand.sort_by(|a, b| before(&wishes[*b], &wishes[*a]));
    while over > u64::from(slots) {
        let mut fell = false;
        for at in &by_demand {
            if over > u64::from(slots) && new[*at] > target[*at] {
                new[*at] -= 1;
                over -= 1;
                fell = true;
            }
        }
        if !fell {
            return;
        }
    }
}
