//! How is all of it told? As lines for people, and as JSON for scripts.

use std::fmt::Write as _;

use homing_config::WorkerSpec;
use serde::Serialize;
use serde_json::{Value, json};

use crate::finding::{Check, Finding, Outcome, Severity};

/// How wide the first two columns are.
const FIRST: usize = 9;
const SECOND: usize = 12;

/// What was found out about one engine.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which, as text.
    pub worker: String,
    /// What was taken from the engine because nobody said it, in words.
    pub learnt: Vec<String>,
    /// What came of each check.
    pub outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
struct Line<'a> {
    check: Check,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl Report {
    /// The report about a worker.
    pub fn new(spec: &WorkerSpec, learnt: Vec<String>, outcomes: Vec<Outcome>) -> Self {
        Self {
            worker: spec.to_string(),
            learnt,
            outcomes,
        }
    }

    /// What is to be changed, the worst first.
    pub fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self
            .outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Found(finding) => Some(finding),
                _ => None,
            })
            .collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    /// Whether nothing was found that is more than a note.
    pub fn is_well(&self) -> bool {
        self.findings().iter().all(|finding| finding.severity == Severity::Note)
    }

    /// As lines.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.worker);
        for learnt in &self.learnt {
            line(&mut out, "", "learnt", learnt);
        }
        for outcome in &self.outcomes {
            match outcome {
                Outcome::Well(check, seen) => line(&mut out, "well", check.name(), seen),
                Outcome::Unchecked(check, why) => line(&mut out, "unchecked", check.name(), why),
                Outcome::Found(finding) => {
                    let severity = finding.severity.name().to_uppercase();
                    line(&mut out, &severity, finding.check.name(), &finding.seen);
                    line(&mut out, "", "it costs", &finding.cost);
                    line(&mut out, "", "to change", &finding.change);
                }
            }
        }
        let count = self.findings().len();
        let said = match (count, self.is_well()) {
            (0, _) => "nothing to change".to_owned(),
            (_, true) => format!("nothing that must be changed, {}", counted(count)),
            (_, false) => counted(count),
        };
        let _ = writeln!(out, "{said}");
        out
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let mut well = Vec::new();
        let mut unchecked = Vec::new();
        for outcome in &self.outcomes {
            match outcome {
                Outcome::Well(check, seen) => well.push(Line {
                    check: *check,
                    seen: Some(seen),
                    why: None,
                }),
                Outcome::Unchecked(check, why) => unchecked.push(Line {
                    check: *check,
                    seen: None,
                    why: Some(why),
                }),
                Outcome::Found(_) => {}
            }
        }
        json!({
            "worker": self.worker,
            "is_well": self.is_well(),
            "findings": self.findings(),
            "well": well,
            "unchecked": unchecked,
            "learnt": self.learnt,
        })
    }
}

fn line(out: &mut String, first: &str, second: &str, text: &str) {
    let _ = writeln!(out, "  {first:FIRST$}  {second:SECOND$}  {text}");
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    }
}
