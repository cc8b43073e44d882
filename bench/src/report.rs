//! What was measured? Rows, as tables for a person or as one object for a script.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::lineup::{ALL, OURS};
use crate::measure::median;
use crate::targets::Target;

/// Names of the parts of the benchmark.
pub mod section {
    /// Lookups, alone.
    pub const LOOKUP: &str = "lookups";
    /// Stores and removals in bulk.
    pub const EVENTS: &str = "events";
    /// Lookups on several threads.
    pub const THREADS: &str = "reader threads";
    /// Lookups beside a writer.
    pub const WRITING: &str = "while events are applied";
    /// Churn of a trace.
    pub const CHURN: &str = "churn";
    /// Bytes.
    pub const MEMORY: &str = "memory";
    /// Wrong answers.
    pub const EXACT: &str = "wrong answers";
    /// How we grow.
    pub const GROWTH: &str = "growth";
    /// Decisions.
    pub const DECIDE: &str = "decisions";
    /// Hashing.
    pub const HASH: &str = "hash";
    /// The engine that needs no GPU.
    pub const MOCK: &str = "mock";
    /// The gateway.
    pub const GATEWAY: &str = "gateway";
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes, errors.
    Lower,
    /// Rates.
    Higher,
}

/// One figure of one contender.
#[derive(Clone, Debug)]
pub struct Row {
    /// The part of the benchmark.
    pub section: &'static str,
    /// The workload.
    pub case: String,
    /// What was measured, with its unit.
    pub metric: String,
    /// Of whom.
    pub contender: &'static str,
    /// The figure: the median where there were rounds.
    pub value: f64,
    /// The lowest and the highest of several rounds.
    pub spread: Option<(f64, f64)>,
    /// Which way is better.
    pub better: Better,
    /// For us: how many times better than the best peer, from paired rounds. `None`: as the figures say.
    pub ratio: Option<f64>,
}

/// All rows of a run.
#[derive(Default)]
pub struct Report {
    /// In the order of measuring.
    pub rows: Vec<Row>,
    /// Names and versions of programs beside us; none where peers are crates.
    pub programs: Vec<(&'static str, String)>,
}

/// Our figure against the best peer's.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Ours.
    pub ours: f64,
    /// The best peer's.
    pub peer: Option<f64>,
    /// How many times better we are.
    pub ratio: Option<f64>,
}

/// What a measurement is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The part of the benchmark.
    pub section: &'static str,
    /// The workload.
    pub case: &'a str,
    /// What was measured, with its unit.
    pub metric: &'a str,
    /// Which way is better.
    pub better: Better,
}

impl Report {
    /// Adds a row for each contender from its figures in paired rounds: their median, and for us the median over rounds
    /// of the ratio to the best peer.
    pub fn rounds(&mut self, about: About<'_>, figures: &[(&'static str, Vec<f64>)]) {
        let ours = figures.iter().find(|(name, _)| *name == OURS);
        let peers = figures.iter().filter(|(name, _)| *name != OURS);
        let middle = |of: &&(&str, Vec<f64>)| median(&of.1);
        let best = match about.better {
            Better::Lower => peers.min_by(|a, b| middle(a).total_cmp(&middle(b))),
            Better::Higher => peers.max_by(|a, b| middle(a).total_cmp(&middle(b))),
        };
        let ratio = ours.zip(best).map(|((_, ours), (_, peer))| {
            let ratios = ours.iter().zip(peer).map(|(ours, peer)| match about.better {
                Better::Lower => peer / ours,
                Better::Higher => ours / peer,
            });
            median(&ratios.collect::<Vec<_>>())
        });
        for (name, figures) in figures {
            self.rows.push(Row {
                section: about.section,
                case: about.case.to_owned(),
                metric: about.metric.to_owned(),
                contender: name,
                value: median(figures),
                spread: spread(figures),
                better: about.better,
                ratio: ratio.filter(|ratio| *name == OURS && ratio.is_finite()),
            });
        }
    }

    /// Adds one figure of one contender.
    pub fn single(&mut self, about: About<'_>, contender: &'static str, value: f64) {
        self.rounds(about, &[(contender, vec![value])]);
    }

    /// The rows of one measurement.
    pub fn find(&self, section: &str, case: &str, metric: &str) -> impl Iterator<Item = &Row> {
        self.rows
            .iter()
            .filter(move |row| row.section == section && row.case == case && row.metric == metric)
    }

    /// Us against the best peer; `None` where we did not take part.
    pub fn compare(&self, section: &str, case: &str, metric: &str) -> Option<Comparison> {
        let ours = self.find(section, case, metric).find(|row| row.contender == OURS)?;
        let peers = self.find(section, case, metric).filter(|row| row.contender != OURS);
        let best = match ours.better {
            Better::Lower => peers.map(|row| row.value).min_by(f64::total_cmp),
            Better::Higher => peers.map(|row| row.value).max_by(f64::total_cmp),
        };
        let plain = best.map(|peer| match ours.better {
            Better::Lower => peer / ours.value,
            Better::Higher => ours.value / peer,
        });
        Some(Comparison {
            ours: ours.value,
            peer: best,
            ratio: ours.ratio.or(plain).filter(|ratio| ratio.is_finite()),
        })
    }

    /// Everything as one object.
    pub fn json(&self, command: &str, targets: &[Target]) -> Value {
        let programs: serde_json::Map<_, _> = self
            .programs
            .iter()
            .map(|(name, version)| ((*name).to_owned(), json!(version)))
            .collect();
        let peers = if programs.is_empty() {
            json!({ "dynamo-kv-router": "1.6.1", "kv-index": "2.0.0" })
        } else {
            json!(programs)
        };
        json!({
            "benchmark": command,
            "peers": peers,
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
        })
    }

    /// Everything as tables: one for each part and workload, in the order of measuring.
    pub fn tables(&self, targets: &[Target]) -> String {
        let mut text = String::new();
        for table in distinct(self.rows.iter().map(|row| (row.section, row.case.as_str()))) {
            let rows = || self.rows.iter().filter(|row| (row.section, row.case.as_str()) == table);
            let others = distinct(rows().map(|row| row.contender).filter(|name| !ALL.contains(name)));
            let names = match others.as_slice() {
                [] => ALL.to_vec(),
                others => [&[OURS], others].concat(),
            };
            let _ = writeln!(text, "\n{}: {}\n{:50}{}", table.0, table.1, "", header(&names));
            for metric in distinct(rows().map(|row| row.metric.as_str())) {
                let _ = writeln!(text, "{metric:50}{}", self.line(table.0, table.1, metric, &names));
            }
        }
        text + &target_table(targets)
    }

    fn line(&self, section: &str, case: &str, metric: &str, names: &[&str]) -> String {
        let mut line = String::new();
        for name in names {
            let row = self.find(section, case, metric).find(|row| row.contender == *name);
            let said = match row {
                None => "-".to_owned(),
                // There each figure is that of a few rounds of seconds, and how far they are apart is half of what it says.
                Some(row) if section == section::GATEWAY => apart(row),
                Some(row) => figure(row.value),
            };
            let _ = write!(line, "{said:>18}");
        }
        let ratio = self.compare(section, case, metric).and_then(|found| found.ratio);
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}x"));
        let _ = write!(line, "{ratio:>9}");
        line
    }
}

/// The lowest and the highest of several figures.
fn spread(figures: &[f64]) -> Option<(f64, f64)> {
    let lowest = figures.iter().copied().min_by(f64::total_cmp)?;
    let highest = figures.iter().copied().max_by(f64::total_cmp)?;
    (figures.len() > 1).then_some((lowest, highest))
}

/// A figure with its spread.
fn apart(row: &Row) -> String {
    let value = figure(row.value);
    match row.spread {
        Some((lowest, highest)) => format!("{value} ({}-{})", figure(lowest), figure(highest)),
        None => value,
    }
}

/// Each item once, where it came first.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn header(names: &[&str]) -> String {
    let mut header = String::new();
    for name in names {
        let _ = write!(header, "{name:>18}");
    }
    header + &format!("{:>9}", "ratio")
}

fn target_table(targets: &[Target]) -> String {
    let mut text = format!(
        "\n{:78}{:>12}{:>12}{:>9}{:>9}\n",
        "targets", "homing", "best peer", "ratio", "goal"
    );
    for target in targets {
        let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let met = if target.met { "met" } else { "NOT MET" };
        let _ = writeln!(
            text,
            "{:78}{:>12}{:>12}{:>9}{:>9}  {met}",
            target.name,
            of(target.ours),
            of(target.peer),
            of(target.ratio),
            figure(target.goal)
        );
    }
    text
}

/// A number with as many digits as mean something.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

fn row_json(row: &Row) -> Value {
    json!({
        "section": row.section,
        "case": row.case,
        "metric": row.metric,
        "contender": row.contender,
        "value": row.value,
        "lowest": row.spread.map(|(lowest, _)| lowest),
        "highest": row.spread.map(|(_, highest)| highest),
        "better": match row.better { Better::Lower => "lower", Better::Higher => "higher" },
        "ratio": row.ratio,
    })
}
