//! How fast are stores, removals and lookups of the main workload?

use std::sync::Arc;

use crate::args::Size;
use crate::contender::{Contender, Form};
use crate::lineup;
use crate::log::Log;
use crate::lookups::{Asked, measure};
use crate::measure::{Effort, draw};
use crate::queries::{Kind, Queries};
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::threads::{Beside, Counted, beside_writer, throughput};
use crate::workload::{Scenario, Workload};

/// How much of a scenario is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Stores, lookups, removals.
    Plain,
    /// Threads and lookups beside a writer, too.
    Threads,
}

/// How targets call the figures of stores and removals.
pub const STORES: &str = "stores, M blocks/s";
/// See [`STORES`].
pub const REMOVALS: &str = "removals, M blocks/s";
/// How targets call lookups beside a writer.
pub const BESIDE_P50: &str = "deep, keys given: p50 ns";
/// See [`BESIDE_P50`].
pub const BESIDE_P99: &str = "deep, keys given: p99 ns";
/// The share of answers that were not of one instant.
pub const UNSETTLED: &str = "unsettled answers, share";

/// Runs one scenario from empty to empty, then stores and removes again in new indexes.
pub fn run(scenario: Scenario, depth: Depth, size: Size, report: &mut Report) {
    let case = scenario.case();
    let mut rng = Rng::new(0x5eed);
    let mut workload = Workload::new(scenario, 1);
    let mut contenders = lineup::all(scenario.workers, scenario.labels);
    let mut rates = Rates::default();
    let log = workload.build();
    let (blocks, entries) = (workload.catalog.len(), workload.entries());
    eprintln!("speed: {case} ({blocks} distinct blocks, {entries} entries)");
    rates.apply(STORES, &log, &workload, &mut contenders);
    let asked = Asked {
        case: &case,
        queries: Arc::new(Queries::draw(&workload, size.pick(3000, 200), &mut rng)),
        effort: effort(size),
    };
    let forms = [Form::Tokens, Form::Fresh, Form::Keys, Form::Ranks];
    measure(&asked, &forms, &mut contenders, &mut rng, report);
    if depth == Depth::Threads {
        threads(&contenders, &asked, size.pick(100_000, 2000), &mut rng, report);
        beside(&mut workload, &mut contenders, &asked, size, report);
    }
    let log = workload.empty();
    rates.apply(REMOVALS, &log, &workload, &mut contenders);
    drop(contenders);
    for _ in 1..size.pick(3, 1) {
        let mut contenders = lineup::all(scenario.workers, scenario.labels);
        // Far behind the others in this: once is enough.
        contenders.retain(|contender| contender.name() != lineup::POSITIONAL);
        rng.shuffle(&mut contenders);
        rates.apply(STORES, &workload.build(), &workload, &mut contenders);
        rates.apply(REMOVALS, &workload.empty(), &workload, &mut contenders);
    }
    rates.add(&case, report);
}

/// How fast each contender applied events, by what they were, in rounds.
#[derive(Default)]
struct Rates {
    rounds: Vec<(&'static str, &'static str, f64)>,
}

impl Rates {
    fn apply(&mut self, metric: &'static str, log: &Log, workload: &Workload, contenders: &mut [Box<dyn Contender>]) {
        for contender in contenders {
            contender.prepare(log, &workload.catalog);
            let took = contender.apply().as_secs_f64();
            let rate = log.block_ops() as f64 / took / 1e6;
            self.rounds.push((metric, contender.name(), rate));
        }
    }

    fn add(&self, case: &str, report: &mut Report) {
        for metric in [STORES, REMOVALS] {
            let figures = lineup::ALL.into_iter().map(|name| {
                let rounds = self.rounds.iter().filter(|round| (round.0, round.1) == (metric, name));
                (name, rounds.map(|round| round.2).collect::<Vec<_>>())
            });
            let figures: Vec<_> = figures.filter(|(_, rounds)| !rounds.is_empty()).collect();
            report.rounds(about(section::EVENTS, case, metric, Better::Higher), &figures);
        }
    }
}

fn threads(contenders: &[Box<dyn Contender>], asked: &Asked<'_>, each: usize, rng: &mut Rng, report: &mut Report) {
    let places = asked.queries.places(Kind::Deep);
    for (threads, metric) in [(1, "1 reader, M lookups/s"), (2, "2 readers, M lookups/s")] {
        let figures = contenders.iter().map(|contender| {
            let rate = throughput(contender.as_ref(), threads, &places, each, rng);
            (contender.name(), vec![rate])
        });
        let figures: Vec<_> = figures.collect();
        report.rounds(about(section::THREADS, asked.case, metric, Better::Higher), &figures);
    }
}

/// How many lookups a measurement makes.
pub fn effort(size: Size) -> Effort {
    Effort {
        rounds: size.pick(60, 5),
        batch: size.pick(100, 20),
    }
}

fn about<'a>(section: &'static str, case: &'a str, metric: &'a str, better: Better) -> About<'a> {
    About {
        section,
        case,
        metric,
        better,
    }
}

/// Copies move from worker to worker in rounds, the same for all, while one thread looks up.
fn beside(
    workload: &mut Workload,
    contenders: &mut [Box<dyn Contender>],
    asked: &Asked<'_>,
    size: Size,
    report: &mut Report,
) {
    let mut rng = Rng::new(0xbe51);
    let places = asked.queries.places(Kind::Deep);
    let mut rounds: Vec<Vec<Beside>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..size.pick(5, 1) {
        // Enough for the fastest writer to be at it while all these lookups are made.
        let log = workload.churn(size.pick(2_000_000, 20_000));
        let order = draw(&places, size.pick(1 << 14, 1 << 8), &mut rng);
        for (contender, rounds) in contenders.iter_mut().zip(&mut rounds) {
            contender.prepare(&log, &workload.catalog);
            rounds.push(beside_writer(
                contender.as_mut(),
                log.block_ops(),
                &order,
                Counted::Once,
            ));
        }
    }
    let names: Vec<_> = contenders.iter().map(|contender| contender.name()).collect();
    let rounds: Vec<_> = rounds.iter().map(Vec::as_slice).collect();
    add_beside(section::WRITING, asked.case, &names, &rounds, report);
}

/// Adds what readers and writers achieved beside each other.
pub fn add_beside(
    section: &'static str,
    case: &str,
    names: &[&'static str],
    rounds: &[&[Beside]],
    report: &mut Report,
) {
    let mut add = |metric: &str, better: Better, of: &dyn Fn(&Beside) -> f64| {
        let figures = names.iter().zip(rounds);
        let figures = figures.map(|(name, rounds)| (*name, rounds.iter().map(of).collect()));
        report.rounds(about(section, case, metric, better), &figures.collect::<Vec<_>>());
    };
    add(BESIDE_P50, Better::Lower, &|of| of.p50);
    add(BESIDE_P99, Better::Lower, &|of| of.p99);
    add("beside one reader, M block ops/s", Better::Higher, &|of| of.writes);
    for (name, rounds) in names.iter().zip(rounds) {
        if *name == lineup::OURS {
            let lookups: usize = rounds.iter().map(|of| of.lookups).sum();
            let unsettled: u64 = rounds.iter().map(|of| of.unsettled).sum();
            let share = unsettled as f64 / lookups.max(1) as f64;
            report.single(about(section, case, UNSETTLED, Better::Lower), name, share);
        }
    }
}
