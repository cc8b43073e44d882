//! Do sources come together as one stream?

use std::sync::Arc;
use std::time::Duration;

use homing_config::{Source as Place, WorkerSpec};
use homing_discovery::source::Telling;
use homing_discovery::{Absence, Change, Origin, Roster, RosterConfig, Source, SourceKind, Static, Tell, Told};
use homing_telemetry::Metrics;
use tokio::sync::mpsc;

use crate::mock::{soon, spec, until};

pub fn config() -> RosterConfig {
    RosterConfig {
        linger: Duration::from_millis(50),
        flap_window: Duration::ZERO,
        flap_wait: Duration::ZERO,
    }
}

/// A source that tells what a test tells it.
struct Puppet(mpsc::Receiver<Told>);

impl Source for Puppet {
    fn origin(&self) -> Origin {
        Origin::new(SourceKind::Dns, "puppet")
    }

    fn run(mut self: Box<Self>, tell: Tell) -> Telling {
        Box::pin(async move {
            while let Some(told) = self.0.recv().await {
                if tell.tell(told).await.is_err() {
                    return;
                }
            }
        })
    }
}

fn set(workers: &[&str]) -> Told {
    Told::Set {
        workers: workers.iter().map(|text| Arc::new(spec(text))).collect(),
        absence: Absence::Doubtful,
    }
}

pub async fn next(changes: &mut mpsc::Receiver<Change>) -> String {
    match soon("a change", changes.recv()).await.expect("the roster goes on") {
        Change::Came(worker) => format!("+{} {}", worker.id.0, worker.spec.url),
        Change::Changed(worker) => format!("~{} {}", worker.id.0, worker.spec.url),
        Change::Left(id) => format!("-{}", id.0),
    }
}

#[tokio::test]
async fn sources_are_merged_lingered_and_survive_failures() {
    let (tell, told) = mpsc::channel(4);
    let named: Vec<WorkerSpec> = vec![spec("http://a"), spec("http://b")];
    let sources: Vec<Box<dyn Source>> = vec![
        Box::new(Static::new(named, &Place::Flag("worker".to_owned()))),
        Box::new(Puppet(told)),
    ];
    let metrics = Arc::new(Metrics::default());
    let (roster, mut changes) = Roster::start(sources, config(), &metrics);
    assert_eq!(next(&mut changes).await, "+0 http://a");
    assert_eq!(next(&mut changes).await, "+1 http://b");
    tell.send(set(&["http://b", "http://c"])).await.unwrap();
    assert_eq!(next(&mut changes).await, "+2 http://c");
    tell.send(Told::Failed {
        why: "no answer".to_owned(),
    })
    .await
    .unwrap();
    until("the failure", || roster.standing().sources[1].trouble.is_some()).await;
    let standing = roster.standing();
    assert_eq!(standing.workers.len(), 3);
    assert_eq!(standing.sources[0].origin.to_string(), "from flag --worker");
    assert_eq!(standing.sources[1].workers, Some(2));
    assert_eq!(metrics.discovery.source_failures.of(SourceKind::Dns).get(), 1);
    // Missing, and gone after a while without another word.
    tell.send(set(&[])).await.unwrap();
    assert_eq!(next(&mut changes).await, "-2");
    tell.send(set(&["http://c"])).await.unwrap();
    assert_eq!(next(&mut changes).await, "+3 http://c", "a number is never given again");
    assert_eq!(metrics.discovery.known_workers.get(), 3);
    assert_eq!(metrics.discovery.came_workers.get(), 4);
    drop(roster);
    assert_eq!(soon("the end", changes.recv()).await, None);
}
