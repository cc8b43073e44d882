//! What is better, and by how much?

use homing_adapters::Method;
use homing_profile::Millis;

use super::setup::{Lose, Outcome, Placement, Setup};
use super::world::run;

/// The figures of one way to place adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Which.
    pub name: &'static str,
    /// Requests that came, and those that were answered.
    pub requests: u64,
    /// Those that were answered.
    pub served: u64,
    /// Those that reached an engine without their adapter.
    pub strays: u64,
    /// Time to the first token of requests for adapters, in milliseconds: half of them, and all but one in a hundred.
    pub ttft_ms_p50: f64,
    /// All but one in a hundred.
    pub ttft_ms_p99: f64,
    /// The same of requests for the model itself.
    pub base_ttft_ms_p99: f64,
    /// Loads, and those that failed.
    pub loads: usize,
    /// Those that failed.
    pub failed_loads: u64,
}

/// Ours in relation to doing nothing: less than 1 is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Times to the first token.
    pub ttft_p99: f64,
    /// Loads.
    pub loads: f64,
}

/// What happens when nothing changes, and when a worker is lost and comes back.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Loads in a minute in which nothing changed.
    pub steady_loads: usize,
    /// Adapters that the worker had.
    pub had: usize,
    /// Loads of these after it was lost, until it came back.
    pub loads_after_loss: usize,
    /// Loads of others in that time: what it had to do is done by fewer, which can be a reason for one more replica.
    pub other_loads: usize,
    /// Adapters of the lost worker that it has again.
    pub returned: usize,
    /// Requests that came, and those that were answered.
    pub requests: u64,
    /// Those that were answered.
    pub served: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Slots enough for all adapters: nothing, rendezvous, min-cost.
    pub ample: [Figures; 3],
    /// Slots for two thirds of them.
    pub scarce: [Figures; 3],
    /// With rendezvous.
    pub settled: Settled,
}

impl Comparison {
    /// How the others are to the first.
    pub fn ratios(figures: &[Figures; 3]) -> [Ratio; 2] {
        let [none, rest @ ..] = figures;
        rest.each_ref().map(|one| Ratio {
            ttft_p99: one.ttft_ms_p99 / none.ttft_ms_p99.max(1e-9),
            loads: one.loads as f64 / (none.loads as f64).max(1.0),
        })
    }
}

/// 200 adapters over 16 workers, of which others are popular every half minute, and of a hundred loads two fail.
fn shifting(seed: u64, seconds: f64, slots: u32, placement: Placement) -> Setup {
    Setup {
        seed,
        workers: 16,
        slots,
        adapters: 200,
        placement,
        rate: 40.0,
        seconds,
        shift: Some(30.0),
        load: Millis(500.0),
        failing: 20,
        lose: None,
    }
}

/// Runs the worlds of a seed, in which requests come for so many seconds.
pub fn compare(seed: u64, seconds: f64) -> Comparison {
    let all = |slots: u32| {
        [
            ("none", Placement::None),
            ("rendezvous", Placement::Managed(Method::Rendezvous)),
            ("min-cost", Placement::Managed(Method::MinCost)),
        ]
        .map(|(name, placement)| Figures::of(name, &run(&shifting(seed, seconds, slots, placement))))
    };
    Comparison {
        ample: all(16),
        scarce: all(8),
        settled: settled(seed),
    }
}

/// A fleet that has settled loses a worker, which comes back.
fn settled(seed: u64) -> Settled {
    let lose = Lose {
        worker: 5,
        at: 240.0,
        back: 300.0,
    };
    let setup = Setup {
        shift: None,
        failing: 0,
        lose: Some(lose),
        ..shifting(seed, 360.0, 20, Placement::Managed(Method::Rendezvous))
    };
    let outcome = run(&setup);
    Settled {
        steady_loads: outcome.loads_in(180.0, lose.at),
        had: outcome.lost.len(),
        loads_after_loss: outcome.loads_of_lost(lose.at, lose.back),
        other_loads: outcome.loads_in(lose.at, lose.back) - outcome.loads_of_lost(lose.at, lose.back),
        returned: outcome.lost.intersection(&outcome.back).count(),
        requests: outcome.requests,
        served: outcome.served,
    }
}

impl Figures {
    fn of(name: &'static str, outcome: &Outcome) -> Self {
        Self {
            name,
            requests: outcome.requests,
            served: outcome.served,
            strays: outcome.strays,
            ttft_ms_p50: outcome.first_token.at(0.5),
            ttft_ms_p99: outcome.first_token.at(0.99),
            base_ttft_ms_p99: outcome.base_first_token.at(0.99),
            loads: outcome.loads.len(),
            failed_loads: outcome.failed_loads,
        }
    }
}
