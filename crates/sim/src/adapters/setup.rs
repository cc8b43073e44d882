//! Which world, and what came of it?

use std::collections::BTreeSet;

use homing_adapters::Method;
use homing_domain::AdapterName;
use homing_profile::Millis;

use crate::study::Quantiles;

/// How adapters get to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any worker is sent anything, and loads what it lacks.
    None,
    /// They are put where they are wanted.
    Managed(Method),
}

/// A worker that is lost for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lose {
    /// Which.
    pub worker: u32,
    /// When, in seconds.
    pub at: f64,
    /// When it is back, with nothing.
    pub back: f64,
}

/// A world to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// All that is drawn is drawn from it.
    pub seed: u64,
    /// Workers.
    pub workers: u32,
    /// Slots of each.
    pub slots: u32,
    /// Adapters.
    pub adapters: u32,
    /// How they get to workers.
    pub placement: Placement,
    /// Requests per second, of which one in five is for the model itself.
    pub rate: f64,
    /// How long requests come, in seconds.
    pub seconds: f64,
    /// How often popularity shifts, in seconds.
    pub shift: Option<f64>,
    /// How long a load takes on average.
    pub load: Millis,
    /// How many of a thousand loads fail.
    pub failing: u64,
    /// Who is lost.
    pub lose: Option<Lose>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that came, and those that were answered.
    pub requests: u64,
    /// Those that were answered.
    pub served: u64,
    /// Those that were given up.
    pub failed: u64,
    /// Requests that reached an engine without their adapter: there must be none.
    pub strays: u64,
    /// Times to the first token, in milliseconds, of requests for adapters.
    pub first_token: Quantiles,
    /// The same of those for the model itself.
    pub base_first_token: Quantiles,
    /// Each load: when, in seconds, where and what.
    pub loads: Vec<(f64, u32, AdapterName)>,
    /// Loads that failed.
    pub failed_loads: u64,
    /// What the lost worker had when it was lost, and what it has at the end.
    pub lost: BTreeSet<AdapterName>,
    /// What it has at the end.
    pub back: BTreeSet<AdapterName>,
}

impl Outcome {
    /// Loads from one second to another.
    pub fn loads_in(&self, from: f64, to: f64) -> usize {
        self.loads.iter().filter(|(at, ..)| (from..to).contains(at)).count()
    }

    /// Those of them that are of adapters which the lost worker had.
    pub fn loads_of_lost(&self, from: f64, to: f64) -> usize {
        let had = |name: &AdapterName| self.lost.contains(name);
        let loads = self.loads.iter().filter(|(at, ..)| (from..to).contains(at));
        loads.filter(|(_, _, name)| had(name)).count()
    }
}
