//! What can no policy beat on this traffic?
//!
//! *The ladder* of cached tokens: a cache that forgets nothing; one cache as large as all together that knows the future (an upper
//! bound: routing cannot do better than having no need of it). *The bound* of the mean time to the first token: the shortest remaining
//! prefill first on one server as fast as the fleet, and for each request its own prefill on the fastest worker; both with all
//! cached that came before.
//!
//! Long traffic is looked at in larger blocks, so that memory has a bound. What is lost by that is added again, so that bounds stay
//! bounds: at most a larger block less a block for each request.

use homing_domain::{BlockSize, Tokens};
use homing_profile::{Millis, Time};
use homing_trace::analyse::{Accesses, infinite_cache, mean_first_token_bound};
use homing_trace::{TraceError, Traffic};

use super::mix::{Mix, Mixed};
use super::survey::{Job, Survey, Work};
use crate::fleet::FleetSetup;

/// Blocks of all requests that are looked at, at most, for each of up to [`COPIES`] copies; beyond it blocks are made larger.
const MOST_BLOCKS: u64 = 1 << 22;
const COPIES: u32 = 4;

/// Shares of prompts' tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ladder {
    /// With a cache that forgets nothing.
    pub infinite_cache: f64,
    /// With one cache of the fleet's size that knows the future, at most.
    pub pooled_capacity: f64,
}

/// What no policy can beat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Yardstick {
    /// Shares of prompts' tokens.
    pub ladder: Ladder,
    /// The most blocks that were worth keeping at one moment.
    pub working_set: u64,
    /// The mean time to the first token if the fleet were one server; none without requests.
    pub shortest_first: Option<Millis>,
    /// The mean time to the first token if each request were alone.
    pub alone: Option<Millis>,
}

impl Yardstick {
    /// The greater of the bounds of the mean time to the first token.
    pub fn mean_ttft(&self) -> Option<Millis> {
        let (one, other) = (self.shortest_first?, self.alone?);
        Some(Millis(one.0.max(other.0)))
    }
}

/// All that a yardstick is made for.
#[derive(Debug)]
pub struct Measured<'a> {
    /// What is in the trace.
    pub survey: &'a Survey,
    /// How it is multiplied.
    pub mix: Mix,
    /// Requests before this do not count.
    pub since: Time,
    /// What a worker takes.
    pub work: &'a Work,
}

impl Yardstick {
    /// Looks at all of a traffic. `open` begins the trace anew.
    pub fn of<I, F>(of: &Measured<'_>, setup: &FleetSetup, mut open: F) -> Result<Self, TraceError>
    where
        I: Traffic,
        F: FnMut() -> Result<I, TraceError>,
    {
        let (fine, copies) = (of.survey.block, of.mix.copies);
        let all_blocks = of.survey.summary.blocks.saturating_mul(u64::from(copies));
        let most = MOST_BLOCKS * u64::from(copies.clamp(1, COPIES));
        let coarse = coarsened(fine, all_blocks, most);
        let slack = coarse.get() - fine.get();
        let (jobs, unseen) = if of.mix.is_plain() {
            (of.survey.jobs.clone(), 0)
        } else {
            (jobs(of.mix.traffic(&mut open)?, coarse)?, slack)
        };
        let infinite = of.infinite(&jobs);
        let accesses = Accesses::of(of.mix.traffic(&mut open)?, coarse)?;
        let tokens = setup.cache_tokens() * u64::from(setup.workers.count);
        let pooled = accesses.pooled(tokens / u64::from(coarse.get()));
        let each = jobs.iter().zip(&pooled.cached).filter(|(job, _)| job.at >= of.since);
        let held = each.map(|(job, held)| (u64::from(job.prompt), u64::from(held.0 + slack)));
        let (prompt, held) = held.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let (shortest_first, alone) = bounds(of, setup, &jobs, unseen);
        Ok(Self {
            ladder: Ladder {
                infinite_cache: infinite,
                pooled_capacity: share(held, prompt).min(infinite),
            },
            working_set: accesses.working_set() * u64::from(coarse.get()) / u64::from(fine.get()),
            shortest_first,
            alone,
        })
    }
}

impl Measured<'_> {
    /// The share of tokens that came before. Copies of a trace repeat as much as the trace does, so what larger blocks lose of that
    /// is known and made good.
    fn infinite(&self, jobs: &[Job]) -> f64 {
        let sum = |jobs: &mut dyn Iterator<Item = &Job>| {
            let add = |sum: (u64, u64), job: &Job| (sum.0 + u64::from(job.cached), sum.1 + u64::from(job.prompt));
            let (cached, prompt) = jobs.fold((0, 0), add);
            share(cached, prompt)
        };
        let (found, counted) = (
            sum(&mut jobs.iter()),
            sum(&mut jobs.iter().filter(|job| job.at >= self.since)),
        );
        let right = self.survey.summary.cached_share();
        if found > 0.0 && self.mix.last_kept >= 1.0 {
            (counted * right / found).min(1.0)
        } else {
            counted
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Blocks so large that there are not too many.
fn coarsened(block: BlockSize, blocks: u64, most: u64) -> BlockSize {
    let mut size = block;
    let mut blocks = blocks;
    while blocks > most
        && let Some(larger) = size.get().checked_mul(2).and_then(BlockSize::new)
    {
        size = larger;
        blocks /= 2;
    }
    size
}

fn jobs<I: Traffic>(traffic: Mixed<I>, block: BlockSize) -> Result<Vec<Job>, TraceError> {
    let jobs = infinite_cache(traffic, block).map(|sized| {
        let sized = sized?;
        Ok(Job {
            at: sized.at,
            prompt: sized.prompt.0,
            cached: sized.cached.0,
        })
    });
    jobs.collect()
}

/// Both bounds, where up to `unseen` tokens more than a job says may have come before.
fn bounds(of: &Measured<'_>, setup: &FleetSetup, jobs: &[Job], unseen: u32) -> (Option<Millis>, Option<Millis>) {
    let speeds: Vec<f64> = (0..setup.workers.count).map(|number| setup.speed(number)).collect();
    let all: f64 = speeds.iter().sum();
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    let (mut shared, mut alone) = (Vec::new(), 0.0);
    for job in jobs.iter().filter(|job| job.at >= of.since) {
        let cached = (job.cached + unseen).min(job.prompt.saturating_sub(1));
        let (new, cached) = (Tokens(job.prompt - cached), Tokens(cached));
        shared.push((job.at, of.work.marginal_prefill(new, cached) * (1.0 / all)));
        alone += of.work.timing.prefill(new, cached).0;
    }
    let hops = setup.links.hop.0 * 2.0;
    let shortest = mean_first_token_bound(&shared).map(|mean| Millis(mean.0 + hops));
    let alone = (!shared.is_empty()).then(|| Millis(alone / fastest / shared.len() as f64 + hops));
    (shortest, alone)
}
