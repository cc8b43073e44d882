//! How many answers are wrong? Every contender against the oracle, also after holes and their repair.

use std::sync::Arc;

use crate::catalog::{BlockId, Labels};
use crate::contender::Contender;
use crate::lineup;
use crate::log::Log;
use crate::oracle::Oracle;
use crate::queries::Queries;
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::workload::{Scenario, Workload};

/// Requests asked after each step.
pub const QUERIES: usize = 450;

/// The steps, as targets call them.
pub const STEPS: [&str; 3] = [
    "after build, wrong of 450",
    "after blocks in mid-prefix went, wrong of 450",
    "after only those came again, wrong of 450",
];

/// Checks with either kind of labels.
pub fn run(report: &mut Report) {
    for labels in [Labels::Shared, Labels::Private] {
        run_with(scenario(labels), report);
    }
}

/// What is checked.
pub fn scenario(labels: Labels) -> Scenario {
    Scenario {
        group: 20,
        segments: 4,
        labels,
        ..Scenario::main(24, 300)
    }
}

fn run_with(scenario: Scenario, report: &mut Report) {
    let case = scenario.case();
    eprintln!("wrong answers: {case}");
    let mut rng = Rng::new(0x0dd);
    let mut workload = Workload::new(scenario, 2);
    let build = workload.build();
    let (holes, repair) = holes(&workload, &mut rng);
    let queries = Arc::new(Queries::draw(&workload, QUERIES / 3, &mut rng));
    let mut oracle = Oracle::new(scenario.workers);
    // All of them, whatever the labels: what an index does with labels it cannot take is part of the answer.
    let mut contenders: Vec<_> = lineup::ALL
        .into_iter()
        .filter_map(|name| lineup::one(name, scenario.workers, scenario.labels))
        .collect();
    for contender in &mut contenders {
        contender.ask(&queries);
    }
    for (step, log) in STEPS.into_iter().zip([&build, &holes, &repair]) {
        oracle.apply(log);
        let about = About {
            section: section::EXACT,
            case: &case,
            metric: step,
            better: Better::Lower,
        };
        let figures = contenders.iter_mut().map(|contender| {
            contender.build(log, &workload.catalog);
            (
                contender.name(),
                vec![wrong(contender.as_mut(), &queries, &oracle) as f64],
            )
        });
        let figures: Vec<_> = figures.collect();
        report.rounds(about, &figures);
    }
}

/// Requests for which at least one worker's answer differs from the oracle's.
pub fn wrong(contender: &mut dyn Contender, queries: &Queries, oracle: &Oracle) -> usize {
    let differs = |(place, path): (usize, &[BlockId])| contender.depths(place) != oracle.depths(path);
    let paths = queries.all.iter().map(|query| query.path.as_slice());
    paths.enumerate().map(differs).filter(|differs| *differs).count()
}

/// Removes one block from the middle of every other sequence, on one of its workers; and stores just that one again.
fn holes(workload: &Workload, rng: &mut Rng) -> (Log, Log) {
    let (mut holes, mut repair) = (Log::default(), Log::default());
    for sequence in workload.sequences.iter().step_by(2) {
        let (path, holders) = (&sequence.path, sequence.holders());
        let worker = holders[rng.below(holders.len())];
        // Past the shared beginning, so that no block goes twice, and before the last, so that it leaves a hole.
        let (first, last) = (sequence.own(), path.len() - 1);
        if first >= last {
            continue;
        }
        let at = rng.between(first, last - 1);
        holes.remove(worker, &[path[at]]);
        repair.store(worker, Some(path[at - 1]), &[path[at]]);
    }
    (holes, repair)
}
