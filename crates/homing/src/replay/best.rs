//! `--best-found`: a local search for a better assignment than the policies found, on the first requests of the traffic.
//!
//! For the worst latencies and for goodput there is no bound that could be computed, so this is one that was found, and is called that.

use anyhow::Context as _;
use homing_sim::fleet::{End, FleetSetup, World};
use homing_sim::study::Tally;
use homing_sim::study::local::{Found, Search, Worth};

use super::plan::Plan;
use super::run::{PolicyRuns, Progress, Run};

/// Requests of the traffic that are looked at.
pub const REQUESTS: u64 = 500;

/// What the search did.
pub struct BestFound {
    /// Assignments that were tried.
    pub tries: u32,
    /// The policy whose assignment it began with.
    pub begun_with: String,
}

/// Begins with the best of the policies.
pub fn search(plan: &Plan, policies: &[PolicyRuns], tries: u32) -> anyhow::Result<(PolicyRuns, BestFound)> {
    let seed = plan.setup.seed;
    let worth = |runs: &PolicyRuns| worth(&runs.runs[0].tally);
    let first = policies.iter().min_by(|one, other| worth(one).compare(&worth(other)));
    let first = first.context("there is no policy to begin with")?;
    let mut setup = plan.fleet(&first.policy, seed);
    let (begun, _) = assigned(plan, &setup, None)?;
    // Where each request goes is decided here, so that nothing need be predicted.
    "direct".clone_into(&mut setup.routers.policy);
    let mut search = Search::new(seed, setup.workers.count, begun);
    let progress = Progress::new(u64::from(tries), "best-found");
    let searched = std::thread::scope(|scope| {
        scope.spawn(|| progress.show());
        let searched = (0..tries).try_for_each(|_| {
            let workers = search.next_try();
            search.tell(assigned(plan, &setup, Some(workers))?.0);
            progress.add();
            anyhow::Ok(())
        });
        progress.finish();
        searched
    });
    searched?;
    let (_, run) = assigned(plan, &setup, Some(search.best().workers.clone()))?;
    let found = BestFound {
        tries,
        begun_with: first.policy.clone(),
    };
    let runs = PolicyRuns {
        policy: "best-found".to_owned(),
        tally: run.tally.clone(),
        runs: vec![run],
    };
    Ok((runs, found))
}

fn worth(tally: &Tally) -> Worth {
    Worth {
        good: tally.counts.good,
        ttft_p99: tally.ttft.at(0.99),
        ttft_mean: tally.ttft.mean(),
    }
}

/// Runs the fleet, with requests where they are sent, or as the policy wants.
fn assigned(plan: &Plan, setup: &FleetSetup, workers: Option<Vec<u32>>) -> anyhow::Result<(Found, Run)> {
    let requests = usize::try_from(plan.requests()).unwrap_or(usize::MAX);
    let mut went = vec![0_u32; requests];
    let mut ttft = vec![f32::INFINITY; requests];
    let mut tally = Tally::new(setup.workers.count, plan.slo, plan.counted);
    let mut world = World::new(setup.clone(), plan.traffic()?)?;
    if let Some(workers) = workers {
        world = world.with_assignment(workers.into());
    }
    let outcome = world.run(&mut |record, _| {
        tally.add(record);
        let place = usize::try_from(record.number).unwrap_or(usize::MAX);
        if let Some(went) = went.get_mut(place) {
            *went = record.rank.map_or(0, |rank| rank.worker.0);
        }
        if let (Some(ttft), End::Answered, Some(first)) = (ttft.get_mut(place), record.end, record.first_token) {
            *ttft = first.0 as f32;
        }
    })?;
    let found = Found {
        workers: went,
        worth: worth(&tally),
        ttft,
    };
    let run = Run {
        seed: setup.seed,
        tally,
        outcome,
        samples: Vec::new(),
    };
    Ok((found, run))
}
