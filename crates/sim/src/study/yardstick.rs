//! What can no policy beat on this traffic?
//!
//! *The ladder* of cached tokens: a cache that forgets nothing; one cache as large as all together that knows the future (an upper
//! bound: routing cannot do better than having no need of it). *The bound* of the mean time to the first token: the shortest remaining
//! prefill first on one server as fast as the fleet, and for each request its own prefill on the fastest worker; both with all
//! cached that came before. When requests of sessions come depends on who serves them: for these only the latter is a bound.
//!
//! Long traffic is looked at in larger blocks, so that memory has a bound. What is lost by that is added again, so that bounds stay
//! bounds: at most a larger block less a block for each request.

use homing_domain::{BlockSize, Tokens};
use homing_profile::Millis;
use homing_trace::analyse::{Accesses, infinite_cache, laid_out, mean_first_token_bound};
use homing_trace::{Request, TraceError, Traffic};

use super::mix::Mix;
use super::survey::{Job, Survey, Work};
use super::tally::Counted;
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
    /// The mean time to the first token if the fleet were one server; none without requests, and none where some follow others.
    pub shortest_first: Option<Millis>,
    /// The mean time to the first token if each request were alone.
    pub alone: Option<Millis>,
}

impl Yardstick {
    /// The greater of the bounds of the mean time to the first token.
    pub fn mean_ttft(&self) -> Option<Millis> {
        let alone = self.alone?;
        Some(self.shortest_first.map_or(alone, |one| Millis(one.0.max(alone.0))))
    }
}

/// Traffic that was looked at: what of it came before, and what is used again.
#[derive(Debug)]
pub struct Reuse {
    survey_share: f64,
    thinned: bool,
    follows: bool,
    counted: Counted,
    jobs: Vec<Job>,
    /// Tokens of a request that came before and were perhaps not seen, because they fill no larger block.
    unseen: u32,
    accesses: Accesses,
    fine: BlockSize,
    coarse: BlockSize,
}

impl Reuse {
    /// Looks at all of a traffic. Requests that come before those that count do not. `open` begins the trace anew.
    pub fn of<I, F>(
        (survey, work): (&Survey, &Work),
        mix: Mix,
        counted: Counted,
        mut open: F,
    ) -> Result<Self, TraceError>
    where
        I: Traffic,
        F: FnMut() -> Result<I, TraceError>,
    {
        let (fine, copies) = (survey.block, mix.copies);
        let all_blocks = survey.summary.blocks.saturating_mul(u64::from(copies));
        let most = MOST_BLOCKS * u64::from(copies.clamp(1, COPIES));
        let coarse = coarsened(survey.looked_at, all_blocks, most);
        let taking = |request: &Request| work.alone(request);
        let mut traffic = || mix.traffic(&mut open).map(|traffic| laid_out(traffic, taking));
        let (jobs, looked_at) = if mix.is_plain() && !survey.follows {
            (survey.jobs.clone(), survey.looked_at)
        } else {
            (jobs(traffic()?, coarse)?, coarse)
        };
        Ok(Self {
            survey_share: survey.summary.cached_share(),
            thinned: mix.last_kept < 1.0,
            follows: survey.follows,
            counted,
            jobs,
            unseen: looked_at.get() - fine.get(),
            accesses: Accesses::of(traffic()?, coarse)?,
            fine,
            coarse,
        })
    }

    /// The most blocks that were worth keeping at one moment.
    pub fn working_set(&self) -> u64 {
        self.accesses.working_set() * u64::from(self.coarse.get()) / u64::from(self.fine.get())
    }

    /// What no policy of this fleet can beat.
    pub fn yardstick(&self, setup: &FleetSetup, work: &Work) -> Yardstick {
        let infinite = self.infinite();
        let tokens = setup.cache_tokens() * u64::from(setup.workers.count);
        let pooled = self.accesses.pooled(tokens / u64::from(self.coarse.get()));
        let slack = self.coarse.get() - self.fine.get();
        let each = self
            .jobs
            .iter()
            .zip(&pooled.cached)
            .filter(|(job, _)| self.counted.has(job.at));
        let held = each.map(|(job, held)| (u64::from(job.prompt), u64::from(held.0 + slack)));
        let (prompt, held) = held.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let (shortest_first, alone) = self.bounds(setup, work);
        Yardstick {
            ladder: Ladder {
                infinite_cache: infinite,
                pooled_capacity: share(held, prompt).min(infinite),
            },
            shortest_first,
            alone,
        }
    }

    /// The share of tokens that came before. Copies of a trace repeat as much as the trace does, so what larger blocks lose of that
    /// is known and made good.
    fn infinite(&self) -> f64 {
        let sum = |jobs: &mut dyn Iterator<Item = &Job>| {
            let add = |sum: (u64, u64), job: &Job| (sum.0 + u64::from(job.cached), sum.1 + u64::from(job.prompt));
            let (cached, prompt) = jobs.fold((0, 0), add);
            share(cached, prompt)
        };
        let found = sum(&mut self.jobs.iter());
        let counted = sum(&mut self.jobs.iter().filter(|job| self.counted.has(job.at)));
        if found > 0.0 && !self.thinned {
            (counted * self.survey_share / found).min(1.0)
        } else {
            counted
        }
    }

    fn bounds(&self, setup: &FleetSetup, work: &Work) -> (Option<Millis>, Option<Millis>) {
        let speeds: Vec<f64> = (0..setup.workers.count).map(|number| setup.speed(number)).collect();
        let all: f64 = speeds.iter().sum();
        let fastest = speeds.iter().copied().fold(0.0, f64::max);
        let (mut shared, mut alone) = (Vec::new(), 0.0);
        for job in self.jobs.iter().filter(|job| self.counted.has(job.at)) {
            let cached = (job.cached + self.unseen).min(job.prompt.saturating_sub(1));
            let (new, cached) = (Tokens(job.prompt - cached), Tokens(cached));
            shared.push((job.at, work.marginal_prefill(new, cached) * (1.0 / all)));
            alone += work.timing.prefill(new, cached).0;
        }
        let hops = setup.links.hop.0 * 2.0;
        let shortest = mean_first_token_bound(&shared).filter(|_| !self.follows);
        let shortest = shortest.map(|mean| Millis(mean.0 + hops));
        let alone = (!shared.is_empty()).then(|| Millis(alone / fastest / shared.len() as f64 + hops));
        (shortest, alone)
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

fn jobs<I: Traffic>(traffic: I, block: BlockSize) -> Result<Vec<Job>, TraceError> {
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
