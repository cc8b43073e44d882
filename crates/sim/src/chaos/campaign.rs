//! Many seeds: is anything wrong in any of them, and are planted mistakes found?

use std::collections::BTreeMap;
use std::fmt;
use std::panic::catch_unwind;

use homing_profile::Time;

use super::{Bug, Run};
use crate::fleet::faults::NAMES;
use crate::fleet::{Check, Outcome, Violation};

/// Lines of a log that are shown with what is wrong.
const SHOWN: usize = 30;

/// Which worlds to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// Kinds of faults that may happen, by name.
    pub faults: Vec<&'static str>,
}

impl Order {
    fn run(&self, seed: u64, bug: Option<Bug>) -> Run {
        Run {
            seed,
            faults: self.faults.clone(),
            bug,
            log: false,
        }
    }
}

/// Something wrong, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Found {
    /// In which world.
    pub run: Run,
    /// What.
    pub violation: Violation,
    /// What happened before.
    pub log: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { check, at, what } = &self.violation;
        writeln!(f, "seed {}, at {at}", self.run.seed)?;
        writeln!(f, "  expected: {}", check.words())?;
        writeln!(f, "  found: {what}")?;
        write!(f, "  repeat: homing sim run --seed {}", self.run.seed)?;
        if let Some(bug) = self.run.bug {
            write!(f, " --bug {bug}")?;
        }
        if self.run.faults.len() != NAMES.len() {
            let faults = if self.run.faults.is_empty() {
                "none".to_owned()
            } else {
                self.run.faults.join(",")
            };
            write!(f, " --faults {faults}")?;
        }
        write!(f, " --trace")?;
        for line in &self.log {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Seeds that were run.
    pub seeds: u64,
    /// What was wrong, one per seed at most.
    pub found: Vec<Found>,
    /// What happened in all of them.
    pub happened: Happened,
}

/// What happened in worlds.
#[derive(Clone, Debug, Default)]
pub struct Happened {
    /// Faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Requests.
    pub requests: u64,
    /// Those that were answered, failed, and were given up.
    pub ended_as: [u64; 3],
    /// Those that waited in a router.
    pub waited: u64,
    /// Attempts after the first.
    pub retried: u64,
    /// Steps of engines.
    pub steps: u64,
    /// Requests that lost their blocks.
    pub preemptions: u64,
    /// Views that were compared with the truth.
    pub compared: u64,
    /// Virtual time.
    pub seconds: f64,
}

impl Happened {
    fn add(&mut self, outcome: &Outcome) {
        for (name, count) in &outcome.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (sum, more) in self.ended_as.iter_mut().zip(outcome.ended_as) {
            *sum += more;
        }
        self.requests += outcome.requests;
        self.waited += outcome.waited;
        self.retried += outcome.retried;
        self.steps += outcome.steps;
        self.preemptions += outcome.preemptions;
        self.compared += outcome.compared;
        self.seconds += outcome.ended.0 as f64 / 1e9;
    }
}

impl Campaign {
    /// Runs every seed twice: once to see whether anything is wrong, and once to see whether it is the same again.
    pub fn run(order: &Order) -> Self {
        let mut campaign = Self::default();
        for seed in order.first..order.first.saturating_add(order.seeds) {
            let run = order.run(seed, None);
            let (outcome, again) = (repeat(&run), repeat(&run));
            campaign.seeds += 1;
            campaign.happened.add(&outcome);
            if let Some(violation) = outcome.violations.first() {
                campaign.found.push(shown(run, violation.clone()));
            } else if (outcome.hash, outcome.ended) != (again.hash, again.ended) {
                let what = format!("{:016x} and {:016x}", outcome.hash, again.hash);
                let violation = Violation {
                    check: Check::Deterministic,
                    at: outcome.ended,
                    what,
                };
                campaign.found.push(shown(run, violation));
            }
        }
        campaign
    }

    /// How many seeds failed this.
    pub fn failed(&self, failed: impl Fn(Check) -> bool) -> usize {
        self.found.iter().filter(|found| failed(found.violation.check)).count()
    }

    /// Kinds of faults that were allowed and never happened.
    pub fn never_happened(&self, order: &Order) -> Vec<&'static str> {
        // A rolling restart is made of others.
        let allowed = order.faults.iter().filter(|name| **name != "rolling-restart");
        let never = allowed.filter(|name| !self.happened.faults.contains_key(*name));
        never.copied().collect()
    }
}

/// Runs a world. A panic is a violation as any other, and so is a world that cannot go on.
pub fn repeat(run: &Run) -> Outcome {
    let failed = |check, what: String| Outcome {
        violations: vec![Violation {
            check,
            at: Time::ZERO,
            what,
        }],
        ..Outcome::default()
    };
    match catch_unwind(|| run.run()) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => failed(Check::Recovers, format!("the world cannot go on: {error}")),
        Err(_) => failed(Check::NoPanic, "the message that was just printed".to_owned()),
    }
}

/// What is wrong, with what happened before it.
fn shown(run: Run, violation: Violation) -> Found {
    let mut log = repeat(&Run {
        log: true,
        ..run.clone()
    })
    .log;
    log.drain(..log.len().saturating_sub(SHOWN));
    Found { run, violation, log }
}

/// Whether a planted mistake was found.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Which.
    pub bug: Bug,
    /// Seeds that were run until it was found.
    pub seeds: u64,
    /// How it was found, if it was.
    pub found: Option<Found>,
}

/// Runs seeds until a planted mistake is found.
pub fn hunt(bug: Bug, order: &Order) -> Hunt {
    for (tried, seed) in (order.first..order.first.saturating_add(order.seeds)).enumerate() {
        let run = order.run(seed, Some(bug));
        let violation = repeat(&run).violations.into_iter().next();
        // A seed that fails without the mistake says nothing about it.
        if let Some(violation) = violation
            && repeat(&order.run(seed, None)).violations.is_empty()
        {
            let found = Found {
                run,
                violation,
                log: Vec::new(),
            };
            return Hunt {
                bug,
                seeds: tried as u64 + 1,
                found: Some(found),
            };
        }
    }
    Hunt {
        bug,
        seeds: order.seeds,
        found: None,
    }
}
