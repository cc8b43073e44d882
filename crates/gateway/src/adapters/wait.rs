//! A request whose adapter nobody has waits until it is loaded.

use std::time::Instant;

use homing_adapters::Entered;
use homing_domain::{AdapterName, WorkerId};
use serde_json::{Value, json};

use super::MOST_LOADS;
use crate::trip::Trip;

/// A load that a request waited for.
#[derive(Clone, Debug)]
pub(crate) struct LoadWait {
    /// Where it was to be.
    pub(crate) worker: String,
    pub(crate) ms: f64,
    /// What came of it.
    pub(crate) loaded: bool,
}

impl LoadWait {
    pub(crate) fn json(&self) -> Value {
        json!({ "worker": self.worker, "ms": self.ms, "loaded": self.loaded })
    }
}

impl Trip {
    /// Waits until a worker has the adapter, or will not have it. Returns whether to decide again: not if it waited too often, or if its
    /// time is over.
    pub(crate) async fn await_adapter(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        if self.way.record.told().loads.len() >= MOST_LOADS {
            return false;
        }
        let began = Instant::now();
        let mut changes = self.lane.shelf.changes();
        let done = async {
            loop {
                changes.borrow_and_update();
                match self.lane.shelf.finds(worker, adapter) {
                    (Entered::Ready, _) => return true,
                    (Entered::Absent, false) => return false,
                    (Entered::Absent, true) => {}
                }
                if changes.changed().await.is_err() {
                    return false;
                }
            }
        };
        let left = self.way.until.saturating_duration_since(began);
        let loaded = tokio::time::timeout(left, done).await;
        let took = began.elapsed();
        self.way.gateway.metrics.gateway.adapter_wait.observe(took);
        let table = self.way.gateway.table.load();
        let name = table.workers.get(&worker).map(|worker| worker.name.to_string());
        self.way.record.told().loads.push(LoadWait {
            worker: name.unwrap_or_default(),
            ms: took.as_secs_f64() * 1e3,
            loaded: loaded == Ok(true),
        });
        loaded.is_ok()
    }
}
