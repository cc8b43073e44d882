//! Where does each request go, and how much of it was cached there?

use homing_config::Config;
use homing_domain::{BlockKey, Blocks};

use super::fleet::Fleet;
use super::workload::Workload;

/// How many prompts are kept for the scenes and the timing.
const SAMPLES: usize = 512;

/// How much of a request, of average length and without any cache, the fleet could compute until the next one arrives.
/// Below 100: without any reuse this fleet would be overrun; dealt out in turn, it just keeps up.
const HEADWAY_PERCENT: u64 = 70;

/// Backlogs are kept in thousandths of a block: many workers share what one request brings.
const THOUSANDTHS: u64 = 1_000;

/// How a worker is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each in turn; what is cached where does not matter.
    RoundRobin,
    /// The one that has the least to compute before this request's first token: what waits there already and what of
    /// the prompt it is not known to hold. Of equals the one with the longest prefix. Where nothing is known of the
    /// caches, that is the one with the least load.
    LeastWork,
}

/// What came of serving a workload.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Requests served.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Full blocks of their prompts.
    pub prompt_blocks: u64,
    /// How many of those were cached where the request went, in truth.
    pub cached: u64,
    /// How many blocks more than that were taken to be there.
    pub missed: u64,
    /// How many blocks were there and not known to be.
    pub unknown: u64,
    /// Blocks computed before the first token, those that waited before it included; summed over requests.
    pub work_ahead: u64,
    /// By worker.
    pub per_worker: Vec<Share>,
    /// Answers compared with the caches, one per request and worker.
    pub checked: u64,
    /// How many said more than was there.
    pub too_high: u64,
    /// How many said less, and were not known to be lower bounds.
    pub too_low: u64,
}

/// One worker's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Requests it served.
    pub requests: u64,
    /// Prompt blocks of those.
    pub prompt_blocks: u64,
    /// Prompt blocks it had cached.
    pub cached: u64,
    /// Blocks in its cache at the end.
    pub holds: Blocks,
}

/// A prompt that was served.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its keys.
    pub keys: Vec<BlockKey>,
}

impl Served {
    /// The share of prompt blocks that was cached.
    pub fn share_cached(&self) -> f64 {
        self.cached as f64 / self.prompt_blocks.max(1) as f64
    }

    /// Answers that differed from the caches.
    pub fn wrong(&self) -> u64 {
        self.too_high + self.too_low
    }

    /// Blocks computed before a request's first token, on average.
    pub fn mean_work_ahead(&self) -> f64 {
        self.work_ahead as f64 / self.requests.max(1) as f64
    }
}

/// Serves the whole workload. Returns also the fleet as it is then, and the last prompts.
pub fn serve(config: &Config, policy: Policy, mut fleet: Fleet) -> (Served, Fleet, Vec<Sample>) {
    let workers = fleet.len();
    let mut served = Served {
        per_worker: vec![Share::default(); workers],
        ..Served::default()
    };
    // In thousandths of a block. Whatever is known of the caches, the load is known.
    let mut backlog = vec![0_u64; workers];
    let mut samples = Vec::new();
    let mut generated = 0_u64;
    for request in Workload::new(&config.demo) {
        fleet.tick();
        let keys = fleet.keys(&request.prompt);
        let answers = fleet.ask(&keys);
        let blocks = keys.len() as u64;
        let worker = match policy {
            Policy::RoundRobin => (served.requests % workers as u64) as usize,
            Policy::LeastWork => least_work(&backlog, &answers.depths, blocks),
        };
        // The view chooses, but what is computed depends on what the worker holds in truth.
        let (taken, cached) = (answers.depths[worker].0, fleet.held(worker, &keys).0);
        let (missed, unknown) = (taken.saturating_sub(cached), cached.saturating_sub(taken));
        let cached = u64::from(cached);
        backlog[worker] += (blocks - cached) * THOUSANDTHS;

        served.requests += 1;
        served.prompt_tokens += request.prompt.len() as u64;
        served.prompt_blocks += blocks;
        served.cached += cached;
        served.missed += u64::from(missed);
        served.unknown += u64::from(unknown);
        served.work_ahead += backlog[worker] / THOUSANDTHS;
        served.checked += answers.compared;
        served.too_high += answers.too_high;
        served.too_low += answers.too_low;
        let share = &mut served.per_worker[worker];
        share.requests += 1;
        share.prompt_blocks += blocks;
        share.cached += cached;

        fleet.routed(worker, &keys);
        let whole = [request.prompt.as_slice(), &request.answer].concat();
        let all = fleet.keys(&whole);
        fleet.serve(worker, &all);
        let answered = all.len() as u64 - blocks;
        backlog[worker] += answered * THOUSANDTHS;
        generated += answered;
        let mean = (served.prompt_blocks + generated) * THOUSANDTHS / served.requests;
        let computed = mean * HEADWAY_PERCENT / 100 / workers as u64;
        for waiting in &mut backlog {
            *waiting = waiting.saturating_sub(computed);
        }
        keep(
            &mut samples,
            served.requests,
            Sample {
                tokens: request.prompt,
                keys,
            },
        );
    }
    for (number, share) in served.per_worker.iter_mut().enumerate() {
        share.holds = fleet.cached(number);
    }
    (served, fleet, samples)
}

/// Keeps the last ones.
fn keep(samples: &mut Vec<Sample>, requests: u64, sample: Sample) {
    if samples.len() < SAMPLES {
        samples.push(sample);
    } else {
        samples[(requests - 1) as usize % SAMPLES] = sample;
    }
}

fn least_work(backlog: &[u64], depths: &[Blocks], blocks: u64) -> usize {
    let work = |worker: usize| {
        let held = u64::from(depths[worker].0);
        (backlog[worker] + (blocks - held) * THOUSANDTHS, blocks - held)
    };
    (0..backlog.len()).min_by_key(|&worker| work(worker)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_worth_a_wait_but_not_any_wait() {
        let depths = [Blocks(0), Blocks(8)];
        assert_eq!(least_work(&[0, 5_000], &depths, 10), 1);
        assert_eq!(least_work(&[0, 9_000], &depths, 10), 0);
        assert_eq!(least_work(&[0, 8_000], &depths, 10), 1, "of equals the longest prefix");
    }
}
