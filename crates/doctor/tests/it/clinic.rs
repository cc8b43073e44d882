//! A mock engine in this process, and a doctor who looks at it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{Config, Inputs, KnobId, WorkerSpec, resolve};
use homing_discovery::NotReached;
use homing_doctor::{Depth, Examined, Examiner, Outcome, Patience, Report, judge, prompter};
use homing_mock::Place;

/// Long enough for a machine that is busy, where something comes; nothing waits for all of it where all is well.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(10),
    prompt: Duration::from_secs(10),
    events: Duration::from_secs(12),
};

pub fn settings(settings: &[(&str, &str)]) -> Config {
    let flag = |(path, text): &(&str, &str)| {
        let id = KnobId::of_path(path).unwrap_or_else(|| panic!("{path} is no setting"));
        (id, (*text).to_owned())
    };
    let inputs = Inputs {
        flags: settings.iter().map(flag).collect(),
        ..Inputs::default()
    };
    resolve(&inputs).unwrap_or_else(|rejected| panic!("{rejected}")).config
}

/// An engine that lives as long as this.
#[derive(Debug)]
pub struct Engine {
    pub place: Place,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Engine {
    pub async fn start(more: &[(&str, &str)]) -> Self {
        let quick = [
            ("mock.port", "0"),
            ("mock.speedup", "1000"),
            ("model", "tiny"),
            ("mock.events", "tcp://127.0.0.1:0"),
            ("mock.replay", "tcp://127.0.0.1:0"),
        ];
        let config = settings(&[&quick, more].concat());
        let service = homing_mock::Service::start(&config).await;
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        let place = service.places().remove(0);
        let serving = tokio::spawn(service.run(std::future::pending()));
        Self { place, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.place.address)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Looks at a worker as `homing doctor` does.
pub async fn look(worker: &str, folder: Option<&Path>, depth: Depth) -> Result<Report, NotReached> {
    let config = Arc::new(Config::default());
    let defaults = config.worker_defaults();
    let said = WorkerSpec::parse(worker, &defaults.learning()).unwrap_or_else(|problems| panic!("{problems:?}"));
    let examiner = Examiner::new(config, PATIENCE, &homing_discovery::Outward::default());
    let (facts, filled) = examiner.learn(&said, &defaults).await?;
    let spec = filled.spec;
    let prompter = folder.map(|folder| prompter(folder, spec.model.as_str(), spec.dialect));
    let prompter = prompter.map(|made| Arc::new(made.unwrap_or_else(|error| panic!("{error}"))));
    let patient = Examined { spec, facts, prompter };
    let observed = examiner.look(&patient, depth).await;
    Ok(Report::new(&patient.spec, filled.learnt, judge(&observed)))
}

/// What was found, a line for each.
pub fn found(report: &Report) -> Vec<String> {
    let line = |outcome: &Outcome| match outcome {
        Outcome::Found(finding) => Some(format!(
            "{} {}: {}; {}",
            finding.severity.name(),
            finding.check.name(),
            finding.seen,
            finding.change
        )),
        _ => None,
    };
    report.outcomes.iter().filter_map(line).collect()
}

/// Whether these are the findings: each begins so.
pub fn check(name: &str, report: &Report, expected: &[&str]) {
    let found = found(report);
    assert_eq!(found.len(), expected.len(), "{name}: {}", report.text());
    for (line, begin) in found.iter().zip(expected) {
        assert!(line.starts_with(begin), "{name}:\n{line}\n{begin}");
    }
}
