//! What holds? Each target of the project against the best peer of the same run.

use serde_json::{Value, json};

use crate::args::IndexArgs;
use crate::catalog::Labels;
use crate::churn;
use crate::contender::Form;
use crate::exact;
use crate::growth;
use crate::hash;
use crate::lookups::metric;
use crate::measure::median;
use crate::memory;
use crate::queries::Kind;
use crate::report::{Comparison, Report, section};
use crate::speed::{BESIDE_P50, BESIDE_P99, REMOVALS, STORES, UNSETTLED};
use crate::workload::Scenario;

/// One target and whether it holds.
#[derive(Clone, Debug)]
pub struct Target {
    /// What it is about.
    pub name: String,
    /// Our figure; none where we did not take part.
    pub ours: Option<f64>,
    /// The best peer's; none where the goal is an absolute limit.
    pub peer: Option<f64>,
    /// How many times better we are.
    pub ratio: Option<f64>,
    /// The least ratio, or the limit of our figure.
    pub goal: f64,
    /// Whether it holds.
    pub met: bool,
}

impl Target {
    /// We must be `goal` times better than the best peer.
    pub fn ratio(name: String, found: Option<Comparison>, goal: f64) -> Self {
        let ratio = found.and_then(|found| found.ratio);
        Self {
            name,
            ours: found.map(|found| found.ours),
            peer: found.and_then(|found| found.peer),
            ratio,
            goal,
            met: ratio.is_some_and(|ratio| ratio >= goal),
        }
    }

    /// Our figure must not be above `limit`; peers do not matter.
    pub fn limit(name: String, found: Option<Comparison>, limit: f64) -> Self {
        let ours = found.map(|found| found.ours);
        Self {
            name,
            ours,
            peer: None,
            ratio: ours.map(|ours| limit / ours).filter(|ratio| ratio.is_finite()),
            goal: limit,
            met: ours.is_some_and(|ours| ours <= limit),
        }
    }

    /// Our figure must not be above `limit`; the peer's stands beside it.
    #[cfg(feature = "ours")]
    fn limit_beside(name: String, found: Option<Comparison>, limit: f64) -> Self {
        Self {
            peer: found.and_then(|found| found.peer),
            ratio: found.and_then(|found| found.ratio),
            ..Self::limit(name, found, limit)
        }
    }

    /// As a script reads it.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "ours": self.ours,
            "peer": self.peer,
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
        })
    }
}

/// The targets of `index`.
pub fn index(args: &IndexArgs, sequences: usize, report: &Report) -> Vec<Target> {
    let mut targets = Vec::new();
    lookups(args, sequences, report, &mut targets);
    writes(args, sequences, report, &mut targets);
    bytes(sequences, report, &mut targets);
    wrong(args, report, &mut targets);
    let slice = growth::slice(&growth::shared(), growth::SLICE);
    let wide = growth::slice(growth::WIDE, growth::SLICE);
    for (metric, limit) in [
        (growth::SEQUENCES, 1.5),
        (growth::DEPTH, 1.5),
        (&slice, 100.0),
        (&wide, 100.0),
    ] {
        let found = report.compare(section::GROWTH, growth::CASE, metric);
        targets.push(Target::limit(metric.to_owned(), found, limit));
    }
    if args.only.is_some() {
        targets.retain(|target| target.ours.is_some());
    }
    targets
}

/// The targets of `decide`: limits of our own, with the peer's figure of the same run beside each.
#[cfg(feature = "ours")]
pub fn decide(report: &Report) -> Vec<Target> {
    use crate::decide::{MIDDLE, Work, case};
    let wanted = [
        (Work::Book, 512, MIDDLE, 3.0),
        (Work::Book, 4_096, MIDDLE, 20.0),
        (Work::Whole, 512, 16_384, 40.0),
    ];
    let target = |(work, ranks, tokens, limit): (Work, usize, usize, f64)| {
        let case = case(ranks, tokens);
        let found = report.compare(section::DECIDE, &case, &work.p50());
        Target::limit_beside(format!("{}, {case}", work.p50()), found, limit)
    };
    wanted.into_iter().map(target).collect()
}

/// The targets of `hash`.
pub fn hash(report: &Report) -> Vec<Target> {
    let sizes = hash::SIZES.into_iter();
    sizes
        .map(|size| {
            let case = hash::case(size);
            let found = report.compare(section::HASH, &case, hash::AGAINST_DYNAMO);
            Target::ratio(format!("tokens to chain keys, {case}, against dynamo"), found, 1.0)
        })
        .collect()
}

/// The fleet size in the middle of those asked for.
pub fn middle(args: &IndexArgs) -> u16 {
    args.workers.get(args.workers.len() / 2).copied().unwrap_or(64)
}

fn lookups(args: &IndexArgs, sequences: usize, report: &Report, targets: &mut Vec<Target>) {
    let wanted = [
        (Kind::Deep, Form::Tokens, 3.0),
        (Kind::Deep, Form::Fresh, 3.0),
        (Kind::Deep, Form::Keys, 2.5),
        (Kind::Half, Form::Keys, 1.3),
    ];
    for (kind, form, goal) in wanted {
        for workers in &args.workers {
            let case = Scenario::main(*workers, sequences).case();
            let found = report.compare(section::LOOKUP, &case, &metric(kind, form, "ns"));
            let name = format!("lookup, {}, {}, {workers} workers, ns", form.name(), kind.name());
            targets.push(Target::ratio(name, found, goal));
        }
    }
}

fn writes(args: &IndexArgs, sequences: usize, report: &Report, targets: &mut Vec<Target>) {
    let case = Scenario::main(middle(args), sequences).case();
    for metric in [BESIDE_P50, BESIDE_P99] {
        let found = report.compare(section::WRITING, &case, metric);
        targets.push(Target::ratio(format!("while events are applied, {metric}"), found, 2.0));
    }
    let found = report.compare(section::WRITING, &case, UNSETTLED);
    targets.push(Target::limit(UNSETTLED.to_owned(), found, 1e-4));
    for metric in [STORES, REMOVALS] {
        let found: Vec<_> = args
            .workers
            .iter()
            .filter_map(|workers| report.compare(section::EVENTS, &Scenario::main(*workers, sequences).case(), metric))
            .collect();
        let name = format!("bulk {metric}, replicated content, drained, median of fleet sizes");
        targets.push(Target::ratio(name, middle_of(&found), 3.0));
    }
    let found = report.compare(section::CHURN, churn::case(args), churn::ALONE);
    targets.push(Target::ratio(
        format!("churn of the trace, {}, drained", churn::ALONE),
        found,
        1.3,
    ));
}

fn bytes(sequences: usize, report: &Report, targets: &mut Vec<Target>) {
    let shared = [(1.0, 1.0), (3.5, 2.0), (4.5, 2.0)].map(|(copies, goal)| (copies, Labels::Shared, goal));
    let private = [1.0, 4.5].map(|copies| (copies, Labels::Private, 1.0));
    for (copies, labels, goal) in shared.into_iter().chain(private) {
        let scenario = Scenario {
            copies,
            labels,
            ..Scenario::main(64, sequences)
        };
        let found = report.compare(section::MEMORY, &scenario.case(), memory::PER_ENTRY);
        let name = format!("{}, {copies} copies, {} labels", memory::PER_ENTRY, labels.name());
        targets.push(Target::ratio(name, found, goal));
    }
}

fn wrong(args: &IndexArgs, report: &Report, targets: &mut Vec<Target>) {
    for labels in [Labels::Shared, Labels::Private] {
        for step in exact::STEPS {
            let found = report.compare(section::EXACT, &exact::scenario(labels).case(), step);
            let name = format!("wrong answers, {} labels, {step}", labels.name());
            targets.push(Target::limit(name, found, 0.0));
        }
    }
    let found = report.compare(section::CHURN, churn::case(args), churn::WRONG);
    targets.push(Target::limit(format!("wrong answers, {}", churn::WRONG), found, 0.0));
}

/// Medians of each part.
fn middle_of(found: &[Comparison]) -> Option<Comparison> {
    let of = |part: &dyn Fn(&Comparison) -> Option<f64>| {
        let values: Vec<_> = found.iter().filter_map(part).collect();
        Some(median(&values)).filter(|value| value.is_finite())
    };
    Some(Comparison {
        ours: of(&|found| Some(found.ours))?,
        peer: of(&|found| found.peer),
        ratio: of(&|found| found.ratio),
    })
}
