//! Runs of the fleet, several at once, with a word about how far they are.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use homing_scheduler::Decision;
use homing_sim::fleet::{FleetSetup, Outcome, Record, World};
use homing_sim::study::Tally;

use super::plan::Plan;
use super::records::Records;

/// Requests whose decisions are shown, evenly spread, and the slowest beside them.
const SAMPLES: u64 = 240;
const SLOWEST: usize = 16;
/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// A request with the decision about it.
pub struct Sample {
    /// What became of it.
    pub record: Record,
    /// Why it went there; as JSON.
    pub decision: Option<String>,
}

/// One run.
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Its figures.
    pub tally: Tally,
    /// What the world says of itself.
    pub outcome: Outcome,
    /// Requests that are shown, in the order of arrival.
    pub samples: Vec<Sample>,
}

/// All runs of a policy.
pub struct PolicyRuns {
    /// Which.
    pub policy: String,
    /// One for each seed.
    pub runs: Vec<Run>,
    /// The figures of all of them.
    pub tally: Tally,
}

/// Whether decisions are kept, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// They are, of the first seed.
    Kept,
    /// They are not.
    Dropped,
}

/// What is shown of requests.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// Some of them, on a page.
    pub samples: Samples,
    /// All of them, in a file.
    pub records: Option<&'a Records>,
}

impl Shown<'_> {
    /// Nothing.
    pub const NOTHING: Self = Self {
        samples: Samples::Dropped,
        records: None,
    };
}

/// Runs every policy with every seed.
pub fn all(plan: &Plan, policies: &[String], seeds: &[u64], shown: Shown<'_>) -> anyhow::Result<Vec<PolicyRuns>> {
    let jobs: Vec<(usize, u64)> = (0..policies.len())
        .flat_map(|policy| seeds.iter().map(move |seed| (policy, *seed)))
        .collect();
    let progress = Progress::new(plan.requests() * jobs.len() as u64, "runs");
    let results = in_parallel(plan.threads, jobs.len(), &progress, |job| {
        let (policy, seed) = jobs[job];
        let shown = Shown {
            samples: if seed == seeds[0] {
                shown.samples
            } else {
                Samples::Dropped
            },
            ..shown
        };
        one(plan, &plan.fleet(&policies[policy], seed), shown, &progress).with_context(|| policies[policy].clone())
    });
    let mut by_policy: Vec<Vec<Run>> = policies.iter().map(|_| Vec::new()).collect();
    for (result, (policy, _)) in results.into_iter().zip(&jobs) {
        by_policy[*policy].push(result?);
    }
    let runs = policies
        .iter()
        .zip(by_policy)
        .map(|(policy, runs)| together(policy, runs));
    Ok(runs.collect())
}

fn together(policy: &str, runs: Vec<Run>) -> PolicyRuns {
    let mut tally = runs[0].tally.clone();
    for run in &runs[1..] {
        tally.merge(&run.tally);
    }
    PolicyRuns {
        policy: policy.to_owned(),
        runs,
        tally,
    }
}

/// Does jobs on several threads. Results come in the order of the jobs.
fn in_parallel<T: Send>(
    threads: usize,
    jobs: usize,
    progress: &Progress,
    job: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> Vec<anyhow::Result<T>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<anyhow::Result<T>>>> = Mutex::new((0..jobs).map(|_| None).collect());
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= jobs {
                break;
            }
            let result = job(number);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[number] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| progress.show());
        let workers: Vec<_> = (0..threads.clamp(1, jobs.max(1)))
            .map(|_| scope.spawn(worker))
            .collect();
        for worker in workers {
            // A panic of a worker is passed on when the scope ends.
            let _ = worker.join();
        }
        progress.finish();
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results
        .into_iter()
        .map(|result| result.context("a run did not end").and_then(|result| result))
        .collect()
}

/// One run of the fleet.
pub fn one(plan: &Plan, setup: &FleetSetup, shown: Shown<'_>, progress: &Progress) -> anyhow::Result<Run> {
    let mut tally = Tally::new(setup.workers.count, plan.slo, plan.counted);
    let mut sampler = Sampler::new(plan.requests());
    let mut world = World::new(setup.clone(), plan.traffic()?)?;
    if shown.samples == Samples::Kept || shown.records.is_some() {
        world = world.with_decisions();
    }
    let outcome = world.run(&mut |record, decision| {
        tally.add(record);
        progress.add();
        if shown.samples == Samples::Kept {
            sampler.see(record, decision);
        }
        if let Some(records) = shown.records {
            records.add((&setup.routers.policy, setup.seed), record, decision);
        }
    })?;
    if let Some(violation) = outcome.violations.first() {
        bail!("the simulated world is not as it must be, {violation}; please report the command");
    }
    Ok(Run {
        seed: setup.seed,
        tally,
        outcome,
        samples: sampler.done(),
    })
}

/// Keeps some requests.
struct Sampler {
    every: u64,
    spread: Vec<Sample>,
    /// The slowest, the fastest of them first.
    slowest: Vec<Sample>,
}

impl Sampler {
    fn new(requests: u64) -> Self {
        Self {
            every: requests.div_ceil(SAMPLES).max(1),
            spread: Vec::new(),
            slowest: Vec::new(),
        }
    }

    fn see(&mut self, record: &Record, decision: Option<&Decision>) {
        let sample = || Sample {
            record: *record,
            decision: decision.map(Decision::to_json),
        };
        if record.number.is_multiple_of(self.every) {
            self.spread.push(sample());
            return;
        }
        let first = |record: &Record| record.first_token.map_or(f64::INFINITY, |first| first.0);
        if self.slowest.len() == SLOWEST && first(record) <= first(&self.slowest[0].record) {
            return;
        }
        let place = self.slowest.partition_point(|slow| first(&slow.record) < first(record));
        self.slowest.insert(place, sample());
        if self.slowest.len() > SLOWEST {
            self.slowest.remove(0);
        }
    }

    fn done(mut self) -> Vec<Sample> {
        self.spread.append(&mut self.slowest);
        self.spread.sort_by_key(|sample| sample.record.number);
        self.spread
    }
}

/// How far it is, shown on standard error if that is a terminal.
pub struct Progress {
    all: u64,
    done: AtomicU64,
    over: AtomicBool,
    what: &'static str,
    began: Instant,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(all: u64, what: &'static str) -> Self {
        Self {
            all,
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
            what,
            began: Instant::now(),
        }
    }

    /// One more is done.
    pub fn add(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// All is done.
    pub fn finish(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Shows it until all is done.
    pub fn show(&self) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        while !self.over.load(Ordering::Acquire) {
            self.draw();
            std::thread::sleep(SHOWN_EVERY);
        }
        // A cleared line, so that nothing of it stays above the table.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }

    fn draw(&self) {
        const WIDTH: usize = 30;
        let done = self.done.load(Ordering::Relaxed).min(self.all);
        let share = done as f64 / self.all.max(1) as f64;
        let full = (share * WIDTH as f64) as usize;
        let seconds = self.began.elapsed().as_secs_f64();
        let left = if share > 0.01 {
            format!(", {:.0} s left", seconds / share - seconds)
        } else {
            String::new()
        };
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH - full));
        // Nobody minds if progress cannot be shown.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{} [{bar}] {:.0} %{left}",
            self.what,
            share * 100.0
        );
    }
}
