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
    /// the prompt it does not hold. Of equals the one with the longest prefix.
    LeastWork,
}

/// What came of serving a workload.
#[derive(Clone, Debug)]
pub struct Served {
    /// Requests served.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Full blocks of their prompts.
    pub prompt_blocks: u64,
    /// How many of those were cached where the request went.
    pub cached: u64,
    /// Blocks computed before the first token, those that waited before it included; summed over requests.
    pub work_ahead: u64,
    /// By worker.
    pub per_worker: Vec<Share>,
    /// Answers compared with the caches, one per request and worker.
    pub checked: u64,
    /// How many differed.
    pub wrong: u64,
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

    /// Blocks computed before a request's first token, on average.
    pub fn mean_work_ahead(&self) -> f64 {
        self.work_ahead as f64 / self.requests.max(1) as f64
    }
}

/// Serves the whole workload. Returns also the fleet as it is then, and the last prompts.
pub fn serve(config: &Config, policy: Policy, mut fleet: Fleet) -> (Served, Fleet, Vec<Sample>) {
    let workers = fleet.len();
    let mut served = Served {
        requests: 0,
        prompt_tokens: 0,
        prompt_blocks: 0,
        cached: 0,
        work_ahead: 0,
        per_worker: vec![Share::default(); workers],
        checked: 0,
        wrong: 0,
    };
    let mut backlog = vec![0_u64; workers]; // in thousandths of a block
    let mut samples = Vec::new();
    let mut generated = 0_u64;
    for request in Workload::new(&config.demo) {
        let keys = fleet.keys(&request.prompt);
        let checked = fleet.ask(&keys);
        let blocks = keys.len() as u64;
        let worker = match policy {
            Policy::RoundRobin => (served.requests % workers as u64) as usize,
            Policy::LeastWork => least_work(&backlog, &checked.depths, blocks),
        };
        let cached = u64::from(checked.depths[worker].0);
        backlog[worker] += (blocks - cached) * THOUSANDTHS;

        served.requests += 1;
        served.prompt_tokens += request.prompt.len() as u64;
        served.prompt_blocks += blocks;
        served.cached += cached;
        served.work_ahead += backlog[worker] / THOUSANDTHS;
        served.checked += workers as u64;
        served.wrong += checked.wrong;
        let share = &mut served.per_worker[worker];
        share.requests += 1;
        share.prompt_blocks += blocks;
        share.cached += cached;

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
