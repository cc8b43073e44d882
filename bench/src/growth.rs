//! How do we grow, and how long does our writer work without a pause? Of us alone.

use std::sync::Arc;

use crate::args::Size;
use crate::catalog::Labels;
use crate::contender::{Contender, Form, Probe};
use crate::lineup::{self, OURS};
use crate::measure::{median, paired, percentile};
use crate::queries::Queries;
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::speed::effort;
use crate::workload::{Scenario, Workload};

/// What costs how many times more, as targets call it.
pub const SEQUENCES: &str = "10x the sequences, cost of a lookup, times";
/// See [`SEQUENCES`].
pub const DEPTH: &str = "10x the depth in one run, cost of a lookup, times";
/// The longest piece of work, but for one in ten thousand.
pub const SLICE: &str = "p99.99";
/// One beginning that all sequences share, as a system prompt.
pub const WIDE: &str = "one beginning";
/// The workload of all these.
pub const CASE: &str = "homing alone";

/// Measures all of it; nothing where we were not compiled in.
pub fn run(size: Size, report: &mut Report) {
    let few = size.pick(10_000, 500);
    compare(SEQUENCES, single_runs(few, 64), single_runs(few * 10, 64), size, report);
    let some = size.pick(1000, 50);
    compare(DEPTH, single_runs(some, 400), single_runs(some, 4000), size, report);
    for (case, scenario) in slice_cases(size) {
        slices(&case, scenario, size, report);
    }
}

/// Sequences that share nothing, of one run each.
fn single_runs(sequences: usize, length: usize) -> Scenario {
    Scenario {
        length: (length, length),
        group: 1,
        ..Scenario::main(64, sequences)
    }
}

fn compare(metric: &str, small: Scenario, large: Scenario, size: Size, report: &mut Report) {
    eprintln!("growth: {metric}");
    let queries = small.sequences.min(5000);
    let (Some((_small, probe)), Some((_large, other))) = (load(small, queries), load(large, queries)) else {
        return;
    };
    let places = 0..queries;
    let mut probes = [probe, other];
    let mut rng = Rng::new(0x960);
    let taken = paired(&mut probes, Form::Keys, &places, effort(size), &mut rng);
    let rounds = taken[0].rounds.iter().zip(&taken[1].rounds);
    let times: Vec<_> = rounds.map(|(small, large)| large / small).collect();
    report.single(about(metric), OURS, median(&times));
}

fn load(scenario: Scenario, queries: usize) -> Option<(Box<dyn Contender>, Box<dyn Probe>)> {
    let mut contender = lineup::one(OURS, scenario.workers, scenario.labels)?;
    let mut workload = Workload::new(scenario, 3);
    contender.build(&workload.build(), &workload.catalog);
    let mut rng = Rng::new(0x61);
    let sequences = &workload.sequences;
    let paths = (0..queries).map(|_| sequences[rng.below(sequences.len())].path.clone());
    contender.ask(&Arc::new(Queries::of(paths)));
    let probe = contender.probe();
    Some((contender, probe))
}

/// In which cases the writer's pieces of work are timed.
fn slice_cases(size: Size) -> [(String, Scenario); 3] {
    let main = |labels| Scenario {
        labels,
        ..Scenario::main(64, size.pick(4000, 200))
    };
    let sequences = size.pick(40_000, 400);
    let wide = Scenario {
        length: (16, 48),
        group: sequences,
        ..Scenario::main(64, sequences)
    };
    [
        (shared(), main(Labels::Shared)),
        (format!("{} labels", Labels::Private.name()), main(Labels::Private)),
        (WIDE.to_owned(), wide),
    ]
}

/// As [`WIDE`], for the main workload.
pub fn shared() -> String {
    format!("{} labels", Labels::Shared.name())
}

/// Build, churn and the departure of all workers, with two clocks around every piece of work: what the machine gives to others
/// meanwhile is not the writer's work.
fn slices(case: &str, scenario: Scenario, size: Size, report: &mut Report) {
    let Some(mut contender) = lineup::one(OURS, scenario.workers, scenario.labels) else {
        return;
    };
    eprintln!("growth: writer's slices, {case}");
    let mut workload = Workload::new(scenario, 4);
    let mut log = workload.build();
    log.append(&workload.churn(size.pick(2_000_000, 20_000)));
    contender.prepare(&log, &workload.catalog);
    let slices = contender.slices();
    let mut busy: Vec<u64> = slices.iter().map(|slice| slice.busy).collect();
    let mut wall: Vec<u64> = slices.iter().map(|slice| slice.wall).collect();
    busy.sort_unstable();
    wall.sort_unstable();
    for (name, share) in [("p99.9", 0.999), (SLICE, 0.9999), ("longest", 1.0)] {
        report.single(about(&slice(case, name)), OURS, percentile(&busy, share) / 1e3);
    }
    let name = format!("{SLICE} on the wall");
    report.single(about(&slice(case, &name)), OURS, percentile(&wall, 0.9999) / 1e3);
}

/// How tables and targets call how long the writer's pieces of work are.
pub fn slice(case: &str, name: &str) -> String {
    format!("writer's slice, {case}, {name}, us")
}

fn about(metric: &str) -> About<'_> {
    About {
        section: section::GROWTH,
        case: CASE,
        metric,
        better: Better::Lower,
    }
}
