//! Is a settings file that changes read again?

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use homing_config::{Inputs, Reader};
use homing_discovery::{FileSource, Roster};
use homing_telemetry::Metrics;

use crate::mock::{soon, until};
use crate::roster::{config, next};

/// A file that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("homing-discovery-{}-{number}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        fs::write(&file.0, text).expect("there is room for files, ports and processes");
        file
    }

    /// Puts another file in its place, as mounted files are exchanged.
    fn exchange(&self, text: &str) {
        let other = self.0.with_extension("new");
        fs::write(&other, text).expect("there is room for files, ports and processes");
        fs::rename(&other, &self.0).expect("there is room for files, ports and processes");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn worker(name: &str) -> String {
    format!("[[worker]]\nurl = \"http://{name}\"\nagent = \"http://{name}:7600\"\n")
}

#[tokio::test]
async fn a_file_that_changes_changes_the_workers_and_one_that_is_broken_does_not() {
    let file = Scratch::new(&worker("a"));
    let reader = Reader::with_file(Inputs::default(), &file.0);
    let first = reader.read().unwrap();
    let (source, mut settings) = FileSource::new(reader, first, Duration::from_millis(10));
    let (roster, mut changes) = Roster::start(vec![Box::new(source)], config(), &Arc::new(Metrics::default()));
    assert_eq!(next(&mut changes).await, "+0 http://a");

    // Of the same length, which sizes and coarse times do not tell.
    file.exchange(&worker("b"));
    assert_eq!(next(&mut changes).await, "-0");
    assert_eq!(next(&mut changes).await, "+1 http://b");
    soon("other settings", settings.changed()).await.unwrap();
    assert_eq!(
        settings.borrow_and_update().config.workers[0].url.to_string(),
        "http://b"
    );

    file.exchange("[[worker]\nurl = 7");
    until("that it is broken", || roster.standing().sources[0].trouble.is_some()).await;
    let standing = roster.standing();
    let trouble = standing.sources[0].trouble.clone().unwrap();
    assert!(trouble.contains("not TOML"), "{trouble}");
    assert_eq!(standing.workers.len(), 1);
    assert!(!settings.has_changed().unwrap());

    fs::remove_file(&file.0).unwrap();
    until("that it is gone", || {
        let standing = roster.standing();
        let trouble = standing.sources[0].trouble.as_deref().unwrap_or_default();
        trouble.contains("No such file")
    })
    .await;
    assert_eq!(roster.standing().workers.len(), 1);

    fs::write(&file.0, format!("{}{}", worker("b"), worker("c"))).unwrap();
    assert_eq!(next(&mut changes).await, "+2 http://c");
    assert_eq!(roster.standing().sources[0].trouble, None);

    // A file that was cut has no entries. An empty one counts only if it says that it is empty on purpose.
    fs::write(&file.0, "").unwrap();
    until("that it is not used", || roster.standing().sources[0].trouble.is_some()).await;
    let standing = roster.standing();
    let trouble = standing.sources[0].trouble.clone().unwrap();
    assert!(trouble.contains("write `workers = []`"), "{trouble}");
    assert_eq!(standing.workers.len(), 2);
    fs::write(&file.0, "workers = []").unwrap();
    assert_eq!(next(&mut changes).await, "-1");
    assert_eq!(next(&mut changes).await, "-2");
    assert_eq!(roster.standing().sources[0].trouble, None);
}
