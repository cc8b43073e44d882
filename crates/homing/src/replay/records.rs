//! What became of each request, and the decision about it, as a line of JSON each.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use homing_scheduler::Decision;
use homing_sim::fleet::Record;
use serde_json::{Value, json};

/// A file that all runs write to. Lines of runs that happen at once are mixed; each names its run.
pub struct Records {
    path: String,
    out: Mutex<BufWriter<File>>,
}

impl Records {
    /// Begins the file anew.
    pub fn create(path: &str) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("records cannot be written to {path}"))?;
        Ok(Self {
            path: path.to_owned(),
            out: Mutex::new(BufWriter::with_capacity(1 << 16, file)),
        })
    }

    /// A request of a run is over. A line that cannot be written is missed when the file is finished.
    pub fn add(&self, (policy, seed): (&str, u64), record: &Record, decision: Option<&Decision>) {
        let mut line = describe(record, decision.map(Decision::to_json).as_deref());
        line["policy"] = policy.into();
        line["seed"] = seed.into();
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // The buffer keeps what could not be written, so that finishing fails as well.
        let _ = writeln!(out, "{line}");
    }

    /// All is written.
    pub fn finish(&self) -> anyhow::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.flush()
            .with_context(|| format!("records cannot be written to {}", self.path))
    }
}

/// A request as an object, with the decision about it if there was one.
pub fn describe(record: &Record, decision: Option<&str>) -> Value {
    let decision: Option<Value> = decision.and_then(|json| serde_json::from_str(json).ok());
    json!({
        "number": record.number,
        "router": record.router,
        "worker": record.rank.map(|rank| rank.worker.0),
        "arrived_s": record.arrived.millis() / 1e3,
        "queued_ms": record.queued.0,
        "ttft_ms": record.first_token.map(|first| first.0),
        "served_ttft_ms": record.served_first_token.map(|first| first.0),
        "predicted_ttft_ms": record.predicted_first_token.0,
        "e2e_ms": record.whole.0,
        "prompt": record.prompt.0,
        "output": record.output.0,
        "cached": record.cached.0,
        "predicted_cached": record.predicted_cached.0,
        "attempts": record.attempts,
        "end": format!("{:?}", record.end),
        "decision": decision,
    })
}
