//! Is there a better assignment of requests to workers than a policy found? A local search: no bound, only the best that was found.
//!
//! Starts with what a policy did, moves a few requests at a time, preferring those that fared worst and those that were on the same
//! worker just before them, and keeps what is no worse.

use std::cmp::Ordering;

use crate::Rng;

/// What an assignment is worth: first more requests within the objectives, then less of the worst latency, then of the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Requests within the objectives.
    pub good: u64,
    /// Milliseconds to the first token for one of a hundred.
    pub ttft_p99: f64,
    /// Milliseconds to the first token on average.
    pub ttft_mean: f64,
}

impl Worth {
    /// Less is better.
    pub fn compare(&self, other: &Self) -> Ordering {
        let p99 = self.ttft_p99.total_cmp(&other.ttft_p99);
        let mean = self.ttft_mean.total_cmp(&other.ttft_mean);
        other.good.cmp(&self.good).then(p99).then(mean)
    }
}

/// What came of an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The worker of each request, in the order of arrival.
    pub workers: Vec<u32>,
    /// What it was worth.
    pub worth: Worth,
    /// Milliseconds to the first token of each request; what failed took forever.
    pub ttft: Vec<f32>,
}

/// So many requests before one are looked at for those that were in its way.
const NEAR: usize = 32;

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    rng: Rng,
    fleet: u32,
    best: Found,
    /// Requests, the slowest first.
    slowest: Vec<u32>,
}

impl Search {
    /// A search that begins with what a policy found.
    pub fn new(seed: u64, fleet: u32, first: Found) -> Self {
        let slowest = slowest(&first);
        Self {
            rng: Rng::new(seed),
            fleet: fleet.max(1),
            best: first,
            slowest,
        }
    }

    /// An assignment to try: the best with a few requests moved.
    pub fn next_try(&mut self) -> Vec<u32> {
        let mut workers = self.best.workers.clone();
        if workers.is_empty() || self.fleet < 2 {
            return workers;
        }
        let moves = 1 << self.rng.below(4);
        for _ in 0..moves {
            let request = self.pick(workers.len());
            let other = self.rng.below(u64::from(self.fleet) - 1) as u32;
            // Any worker but its own.
            workers[request] = if other >= workers[request] { other + 1 } else { other };
        }
        workers
    }

    /// Says what an assignment was worth. Whether it is the best now.
    pub fn tell(&mut self, found: Found) -> bool {
        let better = found.worth.compare(&self.best.worth);
        if better != Ordering::Greater && found.workers.len() == self.best.workers.len() {
            self.slowest = slowest(&found);
            self.best = found;
        }
        better == Ordering::Less
    }

    /// The best so far.
    pub fn best(&self) -> &Found {
        &self.best
    }

    fn pick(&mut self, requests: usize) -> usize {
        if self.rng.chance(300) || self.slowest.is_empty() {
            return self.rng.place(requests);
        }
        let worst = self.slowest.len().div_ceil(10);
        let slow = self.slowest[self.rng.place(worst)] as usize % requests;
        if self.rng.chance(500) {
            return slow;
        }
        // One that stood in its way: on its worker, not long before it.
        let worker = self.best.workers[slow];
        let before = slow.saturating_sub(NEAR)..slow;
        let near: Vec<usize> = before.filter(|other| self.best.workers[*other] == worker).collect();
        if near.is_empty() {
            slow
        } else {
            near[self.rng.place(near.len())]
        }
    }
}

fn slowest(found: &Found) -> Vec<u32> {
    let mut order: Vec<u32> = (0..found.ttft.len() as u32).collect();
    order.sort_by(|one, other| {
        found.ttft[*other as usize]
            .total_cmp(&found.ttft[*one as usize])
            .then(one.cmp(other))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs at once on workers, each done in order: the times are sums.
    fn served(sizes: &[u32], workers: &[u32], fleet: u32) -> Found {
        let mut busy = vec![0_u32; fleet as usize];
        let ttft: Vec<f32> = sizes
            .iter()
            .zip(workers)
            .map(|(size, worker)| {
                busy[*worker as usize] += size;
                busy[*worker as usize] as f32
            })
            .collect();
        let most = ttft.iter().copied().fold(0.0, f32::max);
        Found {
            workers: workers.to_vec(),
            worth: Worth {
                good: 0,
                ttft_p99: f64::from(most),
                ttft_mean: ttft.iter().map(|time| f64::from(*time)).sum::<f64>() / ttft.len() as f64,
            },
            ttft,
        }
    }

    #[test]
    fn the_best_of_all_assignments_of_a_tiny_case_is_found() {
        let (sizes, fleet) = ([7_u32, 5, 4, 4, 3, 1], 3_u32);
        let all = (0..fleet.pow(6)).map(|number| {
            let workers: Vec<u32> = (0..6).map(|place| number / fleet.pow(place) % fleet).collect();
            served(&sizes, &workers, fleet)
        });
        let best = all
            .min_by(|one, other| one.worth.compare(&other.worth))
            .expect("there are some");
        let mut search = Search::new(1, fleet, served(&sizes, &[0; 6], fleet));
        for _ in 0..2_000 {
            let workers = search.next_try();
            search.tell(served(&sizes, &workers, fleet));
        }
        assert_eq!(search.best().worth, best.worth);
    }

    #[test]
    fn more_within_the_objectives_is_better_than_any_latency() {
        let many = Worth {
            good: 2,
            ttft_p99: 9.0,
            ttft_mean: 9.0,
        };
        let fast = Worth {
            good: 1,
            ttft_p99: 1.0,
            ttft_mean: 1.0,
        };
        assert_eq!(many.compare(&fast), Ordering::Less);
        assert_eq!(Worth { ttft_p99: 8.0, ..many }.compare(&many), Ordering::Less);
    }
}
