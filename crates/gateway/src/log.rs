//! What happened, for `homing replay`: one line of JSON for each request, without any text of it.
//!
//! Lines go to a thread that writes them. When it cannot keep up, lines are dropped and counted: a disk never holds up a request.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homing_telemetry::Metrics;
use homing_trace::LogRecord;

/// Lines that wait to be written.
const WAITING: usize = 16_384;
/// How long a line waits for others before it is written.
const FLUSH: Duration = Duration::from_millis(500);

/// Where the log goes.
#[derive(Clone, Debug)]
pub(crate) struct LogPlace {
    pub(crate) path: PathBuf,
    /// When a file is full.
    pub(crate) bytes: u64,
    /// Full ones that are kept.
    pub(crate) files: u32,
}

/// What the writer is told.
#[derive(Debug)]
enum Line {
    Text(String),
    /// Everything before this is to be on its way to the disk; then say so.
    Flush(SyncSender<()>),
}

/// The log of requests. Dropping it writes what is left.
#[derive(Debug)]
pub(crate) struct RequestLog {
    lines: Option<SyncSender<Line>>,
    writer: Option<JoinHandle<()>>,
    metrics: Arc<Metrics>,
}

impl RequestLog {
    /// Opens the file, to write behind what is there.
    pub(crate) fn open(place: LogPlace, metrics: Arc<Metrics>) -> io::Result<Self> {
        let file = append(&place.path)?;
        let (lines, taken) = sync_channel(WAITING);
        let writer = thread::Builder::new().name("request-log".to_owned());
        let writer = writer.spawn(move || {
            if let Err(error) = write(&place, file, &taken) {
                tracing::error!(path = %place.path.display(), %error, "the request log cannot be written any more");
            }
        })?;
        Ok(Self {
            lines: Some(lines),
            writer: Some(writer),
            metrics,
        })
    }

    pub(crate) fn write(&self, record: &LogRecord) {
        let sent = self
            .lines
            .as_ref()
            .map(|lines| lines.try_send(Line::Text(record.encode())));
        if matches!(sent, Some(Err(_))) {
            self.metrics.gateway.dropped_log_lines.add(1);
        }
    }
}

impl RequestLog {
    /// Waits until all lines so far are written.
    pub(crate) fn flush(&self) {
        let (done, told) = sync_channel(1);
        let sent = self.lines.as_ref().map(|lines| lines.send(Line::Flush(done)));
        if matches!(sent, Some(Ok(()))) {
            // An error means that the writer is gone, and has said so.
            let _ = told.recv();
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn write(place: &LogPlace, file: File, lines: &Receiver<Line>) -> io::Result<()> {
    let mut written = file.metadata()?.len();
    let mut file = BufWriter::new(file);
    loop {
        match lines.recv_timeout(FLUSH) {
            Ok(Line::Flush(done)) => {
                file.flush()?;
                let _ = done.send(());
            }
            Ok(Line::Text(line)) => {
                if written > 0 && written + line.len() as u64 > place.bytes {
                    file.flush()?;
                    drop(file);
                    rotate(place)?;
                    file = BufWriter::new(append(&place.path)?);
                    written = 0;
                }
                file.write_all(line.as_bytes())?;
                file.write_all(b"\n")?;
                written += line.len() as u64 + 1;
            }
            Err(RecvTimeoutError::Timeout) => file.flush()?,
            Err(RecvTimeoutError::Disconnected) => return file.flush(),
        }
    }
}

/// `log` becomes `log.1`, that becomes `log.2`, and the last goes.
fn rotate(place: &LogPlace) -> io::Result<()> {
    let numbered = |number: u32| {
        let mut name = place.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if place.files == 0 {
        return std::fs::remove_file(&place.path);
    }
    for number in (1..place.files).rev() {
        if numbered(number).exists() {
            std::fs::rename(numbered(number), numbered(number + 1))?;
        }
    }
    std::fs::rename(&place.path, numbered(1))
}
