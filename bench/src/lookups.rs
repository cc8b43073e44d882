//! How long do lookups take? One measurement, for whichever workload is loaded.

use std::sync::Arc;

use crate::contender::{Contender, Form, Probe};
use crate::measure::{Effort, paired};
use crate::queries::{Kind, Queries};
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;

/// A loaded workload, ready to be asked.
pub struct Asked<'a> {
    /// How tables and targets call it.
    pub case: &'a str,
    /// What is asked.
    pub queries: Arc<Queries>,
    /// How much is measured.
    pub effort: Effort,
}

/// How targets call a figure about lookups.
pub fn metric(kind: Kind, form: Form, unit: &str) -> String {
    format!("{}, {}: {unit}", kind.name(), form.name())
}

/// Measures every kind of request in each of these forms.
pub fn measure(
    asked: &Asked<'_>,
    forms: &[Form],
    contenders: &mut [Box<dyn Contender>],
    rng: &mut Rng,
    report: &mut Report,
) {
    for contender in contenders.iter_mut() {
        contender.ask(&asked.queries);
    }
    let names: Vec<_> = contenders.iter().map(|contender| contender.name()).collect();
    let mut probes: Vec<Box<dyn Probe>> = contenders.iter().map(|contender| contender.probe()).collect();
    for form in forms {
        for kind in Kind::ALL {
            let taken = paired(&mut probes, *form, &asked.queries.places(kind), asked.effort, rng);
            let mut add = |unit: &str, of: &dyn Fn(usize) -> Vec<f64>| {
                let about = About {
                    section: section::LOOKUP,
                    case: asked.case,
                    metric: &metric(kind, *form, unit),
                    better: Better::Lower,
                };
                let figures: Vec<_> = names.iter().enumerate().map(|(at, name)| (*name, of(at))).collect();
                report.rounds(about, &figures);
            };
            add("ns", &|at| taken[at].rounds.clone());
            add("p50 ns", &|at| vec![taken[at].p50]);
            add("p99 ns", &|at| vec![taken[at].p99]);
        }
    }
}
