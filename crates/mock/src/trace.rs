//! Who writes down what happens to blocks? A thread of its own, as lines of JSON.
//!
//! **Invariant:** nobody waits for the disk: when more than [`WAITING`] entries wait to be written, further ones are dropped, and
//! the next line says how many.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;

use homing_engine::TraceRecord;
use homing_engine::pool::Act;
use serde_json::json;

/// Entries that wait to be written: what one step of one rank did.
const WAITING: usize = 65_536;
/// How standard error is written.
const STANDARD_ERROR: &str = "-";

/// What one step of a rank of a worker did; `None` is the last word.
type Entry = Option<(u16, Vec<TraceRecord>)>;

/// Where traces are told. Clones write to one place.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    to: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes. It ends when this is dropped, after all that was told until then.
#[derive(Debug)]
pub(crate) struct Writing {
    to: SyncSender<Entry>,
    thread: Option<JoinHandle<()>>,
}

impl Trace {
    /// Opens the file anew, or takes standard error.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Writing)> {
        let out: Box<dyn Write + Send> = if path.as_os_str() == STANDARD_ERROR {
            Box::new(io::stderr())
        } else {
            Box::new(File::create(path)?)
        };
        let (to, from) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let lost = dropped.clone();
        let thread = std::thread::Builder::new().name("kv-trace".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = write(BufWriter::new(out), &from, &lost) {
                tracing::warn!("the trace of blocks ends: {error}");
            }
        })?;
        let writing = Writing {
            to: to.clone(),
            thread: Some(thread),
        };
        Ok((Self { to, dropped }, writing))
    }

    /// Tells what a step of a worker did.
    pub(crate) fn tell(&self, worker: u16, records: Vec<TraceRecord>) {
        if let Err(TrySendError::Full(Some((_, records)))) = self.to.try_send(Some((worker, records))) {
            self.dropped.fetch_add(records.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.to.send(None);
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked, and if it has there is nothing left to do.
            let _ = thread.join();
        }
    }
}

fn write(mut out: impl Write, from: &Receiver<Entry>, dropped: &AtomicU64) -> io::Result<()> {
    loop {
        let entry = match from.try_recv() {
            Ok(entry) => entry,
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                // Whoever reads along sees all of it before there is a pause.
                out.flush()?;
                from.recv().ok().flatten()
            }
        };
        let Some((worker, records)) = entry else {
            return out.flush();
        };
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(out, "{}", json!({ "dropped": lost }))?;
        }
        for record in records {
            line(&mut out, worker, &record)?;
        }
    }
}

fn line(out: &mut impl Write, worker: u16, record: &TraceRecord) -> io::Result<()> {
    let counts = &record.counts;
    let line = json!({
        "time_ms": record.at.0 as f64 / 1e6,
        "worker": worker,
        "rank": record.rank.0,
        "act": match record.act {
            Act::Allocated => "allocated",
            Act::Evicted => "evicted",
        },
        "blocks": record.blocks,
        "block_size": record.block_size,
        "free": counts.free,
        "active": counts.active,
        "inactive": counts.inactive,
        "total": counts.total,
    });
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::DpRank;
    use homing_engine::Time;
    use homing_engine::pool::Counts;

    fn record(block: u32) -> TraceRecord {
        TraceRecord {
            at: Time(1_500_000),
            rank: DpRank(3),
            act: Act::Allocated,
            blocks: vec![block],
            block_size: 16,
            counts: Counts::default(),
        }
    }

    #[test]
    fn what_is_dropped_is_said() {
        let (to, from) = sync_channel(1);
        let trace = Trace {
            to,
            dropped: Arc::default(),
        };
        trace.tell(0, vec![record(1)]);
        trace.tell(0, vec![record(2), record(3)]);
        let mut out = Vec::new();
        let dropped = trace.dropped.clone();
        drop(trace);
        write(&mut out, &from, &dropped).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({"dropped": 2}));
        assert_eq!(
            (&lines[1]["blocks"], &lines[1]["rank"], &lines[1]["time_ms"]),
            (&json!([1]), &json!(3), &json!(1.5))
        );
    }
}
