//! How many bytes does each entry cost, and does it matter to lookups how often blocks are copied?

use std::sync::Arc;

use crate::alloc::grown_by;
use crate::args::Size;
use crate::catalog::Labels;
use crate::contender::{Contender, Form};
use crate::lineup;
use crate::lookups::{Asked, measure};
use crate::queries::Queries;
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::speed::effort;
use crate::workload::{Scenario, Workload};

/// How targets call bytes per (block, worker) pair.
pub const PER_ENTRY: &str = "bytes per entry";
/// How tables call bytes per distinct block.
pub const PER_BLOCK: &str = "bytes per distinct block";

/// The scenarios, in the order of the tables.
pub fn scenarios(sequences: usize) -> Vec<Scenario> {
    let mut all = Vec::new();
    for labels in [Labels::Shared, Labels::Private] {
        for copies in [1.0, 1.5, 3.5, 4.5] {
            all.push(Scenario {
                copies,
                labels,
                ..Scenario::main(64, sequences)
            });
        }
    }
    all
}

/// Builds each contender between two readings of the allocator, then looks up.
pub fn run(scenario: Scenario, size: Size, report: &mut Report) {
    let case = scenario.case();
    eprintln!("memory: {case}");
    let mut rng = Rng::new(0x3e3);
    let mut workload = Workload::new(scenario, 1);
    let log = workload.build();
    let (entries, blocks) = (workload.entries() as f64, workload.catalog.len() as f64);
    let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
    let mut grown = Vec::new();
    for name in lineup::ALL
        .into_iter()
        .filter(|name| lineup::takes(name, scenario.labels))
    {
        let (built, bytes) = grown_by(|| {
            let mut contender = lineup::one(name, scenario.workers, scenario.labels)?;
            contender.build(&log, &workload.catalog);
            Some(contender)
        });
        if let Some(contender) = built {
            contenders.push(contender);
            grown.push((name, bytes as f64));
        }
    }
    for (metric, of) in [(PER_ENTRY, entries), (PER_BLOCK, blocks)] {
        let about = About {
            section: section::MEMORY,
            case: &case,
            metric,
            better: Better::Lower,
        };
        let figures: Vec<_> = grown.iter().map(|(name, bytes)| (*name, vec![bytes / of])).collect();
        report.rounds(about, &figures);
    }
    let asked = Asked {
        case: &case,
        queries: Arc::new(Queries::draw(&workload, size.pick(3000, 200), &mut rng)),
        effort: effort(size),
    };
    // The speed section has these lookups for the main workload.
    if (scenario.copies, scenario.labels) != (4.5, Labels::Shared) {
        measure(&asked, &[Form::Keys], &mut contenders, &mut rng, report);
    }
}
