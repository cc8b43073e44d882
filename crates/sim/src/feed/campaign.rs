//! Many seeds: is anything wrong in any of them, and are planted mistakes found?

use std::panic::catch_unwind;

use homing_feed::Bug;

use super::checker::{Check, Violation};
use super::faults::{Fault, Happened};
use super::log::Trace;
use super::world::{Outcome, Run, run};

/// Which seeds to run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The first.
    pub first: u64,
    /// How many.
    pub seeds: u64,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Seeds that were run.
    pub seeds: u64,
    /// What was wrong, one per seed at most.
    pub violations: Vec<Violation>,
    /// What happened in all of them.
    pub happened: Happened,
    /// Inputs that feeds were given.
    pub inputs: u64,
    /// Contents of views that were compared with the truth.
    pub compared: u64,
    /// Virtual time.
    pub virtual_ms: u64,
}

impl Campaign {
    /// Runs every seed twice: once to see whether anything is wrong, and once to see whether it is the same again.
    pub fn run(order: Order) -> Self {
        let mut campaign = Self::default();
        for seed in order.first..order.first + order.seeds {
            let outcome = repeat(seed, None, Trace::Off);
            let again = repeat(seed, None, Trace::Off);
            campaign.seeds += 1;
            campaign.happened.add(&outcome.happened);
            campaign.inputs += outcome.inputs;
            campaign.compared += outcome.compared;
            campaign.virtual_ms += outcome.end_ms;
            if outcome.digest != again.digest {
                campaign.violations.push(undetermined(seed, &outcome, &again));
            }
            campaign.violations.extend(outcome.violation);
        }
        campaign
    }

    /// How many seeds failed one of these checks.
    pub fn failed(&self, checks: impl Fn(Check) -> bool) -> usize {
        self.violations
            .iter()
            .filter(|violation| checks(violation.check))
            .count()
    }

    /// Kinds of faults that never happened.
    pub fn never_happened(&self) -> Vec<Fault> {
        let never = self.happened.iter().filter(|(_, count)| *count == 0);
        never.map(|(fault, _)| fault).collect()
    }
}

fn undetermined(seed: u64, outcome: &Outcome, again: &Outcome) -> Violation {
    Violation {
        seed,
        bug: None,
        check: Check::Deterministic,
        at_ms: outcome.end_ms,
        router: 0,
        rank: None,
        found: format!("logs {:016x} and {:016x}", outcome.digest, again.digest),
    }
}

/// Runs one seed. A panic is a violation as any other.
pub fn repeat(seed: u64, bug: Option<Bug>, trace: Trace) -> Outcome {
    catch_unwind(|| run(Run { seed, bug, trace })).unwrap_or_else(|_| Outcome {
        violation: Some(Violation {
            seed,
            bug,
            check: Check::NoPanic,
            at_ms: 0,
            router: 0,
            rank: None,
            found: "the message that was just printed".to_owned(),
        }),
        ..Outcome::default()
    })
}

/// Whether a planted mistake was found.
#[derive(Clone, Debug)]
pub struct BugHunt {
    /// Which.
    pub bug: Bug,
    /// Seeds that were run until it was found.
    pub seeds: u64,
    /// How it was found, if it was.
    pub violation: Option<Violation>,
}

/// Runs seeds until a planted mistake is found.
pub fn hunt(bug: Bug, order: Order) -> BugHunt {
    for (tried, seed) in (order.first..order.first + order.seeds).enumerate() {
        // A seed that fails without the mistake says nothing about it.
        if let Some(violation) = repeat(seed, Some(bug), Trace::Off).violation
            && repeat(seed, None, Trace::Off).violation.is_none()
        {
            return BugHunt {
                bug,
                seeds: tried as u64 + 1,
                violation: Some(violation),
            };
        }
    }
    BugHunt {
        bug,
        seeds: order.seeds,
        violation: None,
    }
}

/// How a planted mistake is called on the command line.
pub fn bug_name(bug: Bug) -> String {
    crate::kebab(&bug)
}

/// The planted mistake that is called so.
pub fn bug_named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| bug_name(*bug) == name)
}
