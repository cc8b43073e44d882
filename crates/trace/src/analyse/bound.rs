//! How soon can first tokens come on average, whatever routes?
//!
//! No fleet serves better than one server as fast as all of it together that can interrupt what it does for nothing, and for that
//! the shortest remaining work first is the best. So the mean time of this is below that of any fleet.
//!
//! Cost: `n log n`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homing_profile::{Millis, Time};

/// The mean time from arrival to the end of work, under the shortest remaining work first on one server. `jobs` are arrivals with the
/// work that the server has with each; their order does not matter. Nothing for no jobs.
///
/// For a fleet of equal workers, divide the work of a prefill by their number.
pub fn mean_first_token_bound(jobs: &[(Time, Millis)]) -> Option<Millis> {
    let mut jobs: Vec<(u64, u64)> = jobs.iter().map(|(at, work)| (at.0, work.nanos())).collect();
    jobs.sort_unstable();
    let mut open: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut now, mut waited) = (0_u64, 0_u128);
    let mut arrivals = jobs.iter().copied().peekable();
    loop {
        let Some(Reverse((left, arrived))) = open.pop() else {
            let Some((at, work)) = arrivals.next() else {
                break;
            };
            now = at;
            open.push(Reverse((work, at)));
            continue;
        };
        let end = now.saturating_add(left);
        if let Some((at, work)) = arrivals.next_if(|(at, _)| *at < end) {
            open.push(Reverse((end - at, arrived)));
            open.push(Reverse((work, at)));
            now = at;
        } else {
            now = end;
            waited += u128::from(end - arrived);
        }
    }
    (!jobs.is_empty()).then(|| Millis(waited as f64 / jobs.len() as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least sum of times over all ways to give each unit of time to a job.
    fn brute_force(jobs: &[(u64, u64)], now: u64, left: &mut [u64]) -> u64 {
        let ready: Vec<usize> = (0..jobs.len())
            .filter(|&job| jobs[job].0 <= now && left[job] > 0)
            .collect();
        if ready.is_empty() {
            let next = (0..jobs.len())
                .filter(|&job| left[job] > 0)
                .map(|job| jobs[job].0)
                .min();
            return next.map_or(0, |next| brute_force(jobs, next, left));
        }
        let tries = ready.into_iter().map(|job| {
            left[job] -= 1;
            let ended = if left[job] == 0 { now + 1 - jobs[job].0 } else { 0 };
            let all = ended + brute_force(jobs, now + 1, left);
            left[job] += 1;
            all
        });
        tries.min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_schedule_of_tiny_cases_is_better_and_one_is_as_good(jobs in prop::collection::vec((0..6_u64, 1..4_u64), 1..5)) {
            let mut left: Vec<u64> = jobs.iter().map(|job| job.1).collect();
            let least = brute_force(&jobs, 0, &mut left) as f64 / jobs.len() as f64;
            let millis = |value: u64| value as f64;
            let timed: Vec<(Time, Millis)> =
                jobs.iter().map(|&(at, work)| (Time::from_millis(millis(at)), Millis(millis(work)))).collect();
            let bound = mean_first_token_bound(&timed).unwrap();
            prop_assert!((bound.0 - least).abs() < 1e-9, "{} {}", bound.0, least);
        }
    }

    #[test]
    fn nothing_has_no_mean_and_no_work_takes_no_time() {
        assert_eq!(mean_first_token_bound(&[]), None);
        let jobs = [(Time(5), Millis::ZERO), (Time(5), Millis::ZERO)];
        assert_eq!(mean_first_token_bound(&jobs), Some(Millis::ZERO));
    }
}
