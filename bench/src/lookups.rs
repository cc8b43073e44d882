//! How long do lookups take? One measurement, for whichever workload is loaded.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use crate::contender::{Contender, Form, Probe};
use crate::lineup::OURS;
use crate::measure::{Effort, draw, median, paired};
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
            if matches!((form, kind), (Form::Tokens, Kind::Deep)) {
                let alone = reading_tokens(asked, rng);
                let about = About {
                    section: section::LOOKUP,
                    case: asked.case,
                    metric: READING,
                    better: Better::Lower,
                };
                report.single(about, OURS, alone);
            }
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

/// How the floor of all lookups from tokens is called.
const READING: &str = "deep, from tokens, of which reading one token of each cache line: ns";

/// What it takes to bring the tokens of deep requests from memory, and nothing else. In stripes side by side, because the
/// processor fetches ahead within a page only: one after the other takes longer.
fn reading_tokens(asked: &Asked<'_>, rng: &mut Rng) -> f64 {
    let mut rounds = Vec::new();
    for _ in 0..asked.effort.rounds {
        let places = draw(&asked.queries.places(Kind::Deep), asked.effort.batch, rng);
        let start = Instant::now();
        for place in &places {
            black_box(read_in_stripes(&asked.queries.all[*place as usize].tokens));
        }
        rounds.push(start.elapsed().as_nanos() as f64 / places.len() as f64);
    }
    median(&rounds)
}

fn read_in_stripes(tokens: &[u32]) -> u32 {
    let (lines, _) = tokens.as_chunks::<TOKENS_PER_LINE>();
    let length = lines.len().div_ceil(STRIPES).max(1);
    let mut stripes = lines.chunks(length);
    let stripes: [&[[u32; TOKENS_PER_LINE]]; STRIPES] = std::array::from_fn(|_| stripes.next().unwrap_or_default());
    let mut sum = 0;
    for at in 0..length {
        for stripe in stripes {
            sum ^= stripe.get(at).map_or(0, |line| line[0]);
        }
    }
    sum
}

const TOKENS_PER_LINE: usize = 16;
const STRIPES: usize = 8;
