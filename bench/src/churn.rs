//! How fast are the events of a trace applied, alone and beside a reader?

use std::sync::Arc;

use crate::args::{IndexArgs, Size};
use crate::catalog::Labels;
use crate::contender::Contender;
use crate::exact::{QUERIES, wrong};
use crate::fleet::serve;
use crate::lineup;
use crate::log::Log;
use crate::measure::draw;
use crate::mooncake::{Trace, TraceError};
use crate::oracle::Oracle;
use crate::queries::{Kind, Queries};
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::speed::add_beside;
use crate::threads::{Beside, Counted, beside_writer};

const WORKERS: u16 = 32;
const CAPACITY: usize = 16_384;
/// Rounds of a writer alone: each takes a fraction of a second, and what else the machine does shows in few of them.
const ROUNDS: usize = 11;
/// Rounds beside a reader.
const BESIDE_ROUNDS: usize = 3;

/// How targets call the rate of a writer alone.
pub const ALONE: &str = "alone, M block ops/s";
/// How targets call the check after it.
pub const WRONG: &str = "after the churn, wrong of 450";

/// How tables and targets call the trace.
pub const fn case(args: &IndexArgs) -> &'static str {
    match args.trace {
        Some(_) => "Mooncake trace, 32 workers of 16384 blocks",
        None => "generated sessions, 32 workers of 16384 blocks",
    }
}

/// Reads or generates the trace and applies it in rounds.
pub fn run(args: &IndexArgs, report: &mut Report) -> Result<(), TraceError> {
    let case = case(args);
    eprintln!("churn: {case}");
    let requests = args.size.pick(4000, 200);
    let trace = match &args.trace {
        Some(path) => Trace::read(path, requests)?,
        None => Trace::generate(requests, 5),
    };
    let log = serve(&trace.requests, WORKERS, CAPACITY);
    let mut rng = Rng::new(0xc4);
    let paths = (0..args.size.pick(2000, QUERIES)).map(|_| trace.requests[rng.below(trace.requests.len())].clone());
    let round = Round {
        log,
        queries: Arc::new(Queries::of(paths)),
        trace,
    };
    let rounds = round.all(args.size, &mut rng);
    add(case, &rounds, report);
    Ok(())
}

struct Round {
    trace: Trace,
    log: Log,
    queries: Arc<Queries>,
}

/// What one contender achieved.
#[derive(Default)]
struct Achieved {
    alone: Vec<f64>,
    beside: Vec<Beside>,
    wrong: usize,
}

impl Round {
    fn all(&self, size: Size, rng: &mut Rng) -> Vec<(&'static str, Achieved)> {
        let mut oracle = Oracle::new(WORKERS);
        oracle.apply(&self.log);
        let mut all: Vec<_> = lineup::ALL
            .into_iter()
            .map(|name| (name, Achieved::default()))
            .collect();
        for round in 0..size.pick(ROUNDS, 1) {
            for (name, achieved) in &mut all {
                // An order of magnitude behind the others: once is enough.
                if round == 0 || *name != lineup::POSITIONAL {
                    self.alone(name, achieved, &oracle);
                }
                if round < BESIDE_ROUNDS && (round == 0 || *name != lineup::POSITIONAL) {
                    self.beside(name, achieved, rng);
                }
            }
        }
        all.retain(|(_, achieved)| !achieved.alone.is_empty());
        all
    }

    fn alone(&self, name: &'static str, achieved: &mut Achieved, oracle: &Oracle) {
        let Some(mut contender) = self.prepared(name) else {
            return;
        };
        let took = contender.apply().as_secs_f64();
        achieved.alone.push(self.log.block_ops() as f64 / took / 1e6);
        if achieved.alone.len() == 1 {
            contender.ask(&Arc::new(Queries::of(self.some_paths())));
            achieved.wrong = wrong(contender.as_mut(), &Queries::of(self.some_paths()), oracle);
        }
    }

    fn beside(&self, name: &'static str, achieved: &mut Achieved, rng: &mut Rng) {
        let Some(mut contender) = self.prepared(name) else {
            return;
        };
        contender.ask(&self.queries);
        let order = draw(&self.queries.places(Kind::Deep), 1 << 14, rng);
        let beside = beside_writer(contender.as_mut(), self.log.block_ops(), &order, Counted::All);
        achieved.beside.push(beside);
    }

    fn prepared(&self, name: &'static str) -> Option<Box<dyn Contender>> {
        let mut contender = lineup::one(name, WORKERS, Labels::Shared)?;
        contender.prepare(&self.log, &self.trace.catalog);
        Some(contender)
    }

    fn some_paths(&self) -> impl Iterator<Item = Vec<u32>> {
        self.queries.all.iter().take(QUERIES).map(|query| query.path.clone())
    }
}

fn add(case: &str, rounds: &[(&'static str, Achieved)], report: &mut Report) {
    let about = |metric, better| About {
        section: section::CHURN,
        case,
        metric,
        better,
    };
    let alone: Vec<_> = rounds.iter().map(|(name, of)| (*name, of.alone.clone())).collect();
    report.rounds(about(ALONE, Better::Higher), &alone);
    let names: Vec<_> = rounds.iter().map(|(name, _)| *name).collect();
    let beside: Vec<_> = rounds.iter().map(|(_, of)| of.beside.as_slice()).collect();
    add_beside(section::CHURN, case, &names, &beside, report);
    let wrong: Vec<_> = rounds.iter().map(|(name, of)| (*name, vec![of.wrong as f64])).collect();
    report.rounds(about(WRONG, Better::Lower), &wrong);
}
