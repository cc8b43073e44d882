//! Is a worker that came set up well? Looked at once, quietly, while it serves already.
//!
//! **Invariant:** nothing waits for it: a worker takes requests whether it was looked at or not, and only a few are looked at at once.
//!
//! **Invariant:** no prompt is sent unless the settings say so.

use std::sync::{Arc, Weak};

use homing_config::{CheckWorkers, Config};
use homing_discovery::Outward;
use homing_doctor::{Depth, Examined, Examiner, Outcome, Patience, Severity, judge};
use tokio::sync::Semaphore;

use crate::tokens::Prompters;
use crate::worker::Worker;

/// Workers that are looked at at once. Others wait.
const AT_ONCE: usize = 8;

/// Looks at workers that came.
#[derive(Debug)]
pub(crate) struct Checkup {
    examiner: Examiner,
    depth: Depth,
    prompters: Arc<Prompters>,
    room: Arc<Semaphore>,
}

impl Checkup {
    /// As the settings say; `None` if nothing is to be looked at.
    pub(crate) fn new(config: &Arc<Config>, prompters: Arc<Prompters>, spoken: &Outward) -> Option<Self> {
        let depth = match config.serve.check_workers {
            CheckWorkers::None => return None,
            CheckWorkers::Quiet => Depth::Quiet,
            CheckWorkers::Prompts => Depth::Prompts,
        };
        let patience = Patience {
            answer: config.probe.timeout,
            ..Patience::default()
        };
        Some(Self {
            examiner: Examiner::new(config.clone(), patience, spoken),
            depth,
            prompters,
            room: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    /// Begins to look at a worker. Who is gone before his turn is not looked at.
    pub(crate) fn begin(&self, worker: &Arc<Worker>) {
        let (examiner, depth, room) = (self.examiner.clone(), self.depth, self.room.clone());
        let prompters = self.prompters.clone();
        let worker: Weak<Worker> = Arc::downgrade(worker);
        tokio::spawn(async move {
            let _turn = room.acquire_owned().await;
            let Some(patient) = worker.upgrade().map(|worker| Examined {
                spec: worker.spec.clone(),
                facts: (*worker.facts).clone(),
                prompter: prompters.of(worker.spec.model.as_str(), worker.spec.dialect),
            }) else {
                return;
            };
            let observed = examiner.look(&patient, depth).await;
            if let Some(worker) = worker.upgrade() {
                tell(&worker, judge(&observed));
            }
        });
    }
}

fn tell(worker: &Worker, outcomes: Vec<Outcome>) {
    let mut findings = Vec::new();
    for outcome in outcomes {
        let Outcome::Found(finding) = outcome else { continue };
        let (check, severity) = (finding.check.name(), finding.severity.name());
        let (seen, change) = (&finding.seen, &finding.change);
        if finding.severity == Severity::Note {
            tracing::debug!(worker = %worker.name, check, severity, change, "{seen}");
        } else {
            tracing::warn!(worker = %worker.name, check, severity, change, "{seen}");
        }
        findings.push(finding);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    // It is looked at once: whoever changes comes as another.
    let _ = worker.findings.set(findings);
}
