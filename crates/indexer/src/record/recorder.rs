//! Who writes the recording? A thread of its own: the writers of the indexes hand over bytes and never wait.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homing_config::Resolved;
use homing_domain::KeyHasher;
use homing_keeper::Told;
use homing_telemetry::Metrics;
use homing_wire::frame::FrameWriter;

use super::envelope::{HEAD, seal};
use super::put::{put, put_end, put_number};
use super::{RecordError, header};

/// Entries that wait to be written at most.
const QUEUE: usize = 1 << 16;
/// Bytes in them. One entry more is taken when there are fewer.
const QUEUE_BYTES: usize = 64 << 20;
/// How long what was written may stay in memory.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

/// A recording under way. Dropping it ends the recording properly.
#[derive(Debug)]
pub struct Recording {
    shared: Progress,
    queue: SyncSender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
    frames: FrameWriter,
    /// Feeds that are recorded so far; each has its number.
    feeds: u64,
}

/// How a recording is getting on: for its thread, for those who hand over, and for who wants to know.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Bytes handed over and not yet written.
    waiting: AtomicUsize,
    /// [`RUNNING`], until someone sets it to something else.
    stage: AtomicU8,
}

const RUNNING: u8 = 0;
/// Something could not be recorded: what comes after it must not be either.
const BROKEN: u8 = 1;
/// All of it is recorded, and no more is wanted.
const CLOSED: u8 = 2;

/// Records what is done to one feed.
#[derive(Debug)]
pub struct Recorder {
    shared: Progress,
    queue: SyncSender<Vec<u8>>,
    frames: FrameWriter,
    feed: u64,
    /// Times are recorded as the distance from this.
    last_ms: u64,
}

impl Recording {
    /// Begins a recording in a file, which is written anew.
    pub fn begin(path: &Path, resolved: &Resolved, metrics: Arc<Metrics>) -> Result<Self, RecordError> {
        Self::over(BufWriter::new(File::create(path)?), resolved, metrics)
    }

    fn over(
        mut file: impl Write + Send + 'static,
        resolved: &Resolved,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RecordError> {
        file.write_all(&header::write(resolved))?;
        file.flush()?;
        let (queue, entries) = mpsc::sync_channel(QUEUE);
        let shared = Progress::default();
        let pen = Pen {
            file,
            shared: shared.clone(),
            metrics,
        };
        let thread = thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || pen.run(&entries))?;
        Ok(Self {
            shared,
            queue,
            thread: Some(thread),
            frames: FrameWriter::new(&KeyHasher::new(resolved.config.hash_seed)),
            feeds: 0,
        })
    }

    /// What records the next feed. Feeds are told apart by the order in which this is called.
    pub fn recorder(&mut self) -> Recorder {
        let feed = self.feeds;
        self.feeds += 1;
        Recorder {
            shared: self.shared.clone(),
            queue: self.queue.clone(),
            frames: self.frames,
            feed,
            last_ms: 0,
        }
    }

    /// How it is getting on.
    pub fn progress(&self) -> Progress {
        self.shared.clone()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Whoever still records finds it closed. An empty message wakes the thread, which may have ended by itself.
        self.shared.leave_running_for(CLOSED);
        let _ = self.queue.send(Vec::new());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Progress {
    /// Whether everything is recorded so far.
    pub fn is_running(&self) -> bool {
        self.stage() == RUNNING
    }

    fn stage(&self) -> u8 {
        self.0.stage.load(Ordering::Relaxed)
    }

    /// Says whether it was running before.
    fn leave_running_for(&self, stage: u8) -> bool {
        let left = self
            .0
            .stage
            .compare_exchange(RUNNING, stage, Ordering::Relaxed, Ordering::Relaxed);
        left.is_ok()
    }
}

impl Recorder {
    /// This is done to the feed. Does not wait.
    pub fn record(&mut self, now_ms: u64, told: Told<'_>) {
        if !self.shared.is_running() {
            return;
        }
        if let Err(reason) = self.try_record(now_ms, told)
            && self.shared.leave_running_for(BROKEN)
        {
            tracing::error!(reason, "the recording ends here");
        }
    }

    fn try_record(&mut self, now_ms: u64, told: Told<'_>) -> Result<(), String> {
        let mut entry = vec![0; HEAD];
        put_number(&mut entry, self.feed);
        put_number(&mut entry, now_ms.saturating_sub(self.last_ms));
        put(told, self.frames, &mut entry).map_err(|error| error.to_string())?;
        seal(&mut entry, 0);
        let length = entry.len();
        if self.shared.0.waiting.fetch_add(length, Ordering::Relaxed) >= QUEUE_BYTES {
            return Err(format!("{QUEUE_BYTES} bytes wait to be written: the file is too slow"));
        }
        self.queue.try_send(entry).map_err(|error| match error {
            TrySendError::Full(_) => format!("{QUEUE} entries wait to be written: the file is too slow"),
            TrySendError::Disconnected(_) => "nobody writes it any more".to_owned(),
        })?;
        self.last_ms = self.last_ms.max(now_ms);
        Ok(())
    }
}

/// What writes to the file.
struct Pen<W> {
    file: W,
    shared: Progress,
    metrics: Arc<Metrics>,
}

impl<W: Write> Pen<W> {
    fn run(mut self, entries: &Receiver<Vec<u8>>) {
        if let Err(error) = self.write_all(entries) {
            self.shared.leave_running_for(BROKEN);
            tracing::error!(%error, "the recording cannot be written and ends here");
        }
    }

    /// Writes what comes until it is closed, and then that nothing is missing; or until it is broken.
    fn write_all(&mut self, entries: &Receiver<Vec<u8>>) -> io::Result<()> {
        let mut flushed = Instant::now();
        loop {
            match entries.recv_timeout(FLUSH_AFTER) {
                Ok(entry) if !entry.is_empty() => {
                    self.write(&entry)?;
                    if flushed.elapsed() >= FLUSH_AFTER {
                        self.file.flush()?;
                        flushed = Instant::now();
                    }
                    continue;
                }
                // All that was handed over before is written.
                Ok(_) | Err(RecvTimeoutError::Timeout) => self.file.flush()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            match self.shared.stage() {
                RUNNING => {}
                BROKEN => return Ok(()),
                _ => break,
            }
        }
        let mut end = vec![0; HEAD];
        put_end(&mut end);
        seal(&mut end, 0);
        self.file.write_all(&end)?;
        self.file.flush()
    }

    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        self.file.write_all(entry)?;
        self.shared.0.waiting.fetch_sub(entry.len(), Ordering::Relaxed);
        self.metrics.indexer.recorded_bytes.add(entry.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::{Inputs, resolve};
    use homing_feed::Input;
    use std::sync::{Condvar, Mutex};

    use crate::record::rebuild::{Ending, rebuild_from};

    /// A file that has room for so many bytes, and waits until it may write more.
    #[derive(Clone, Default)]
    struct Disk {
        written: Arc<Mutex<Vec<u8>>>,
        room: usize,
        gate: Arc<(Mutex<Gate>, Condvar)>,
    }

    #[derive(Clone, Copy, Default, PartialEq)]
    enum Gate {
        #[default]
        Open,
        Shut,
    }

    impl Disk {
        fn set(&self, gate: Gate) {
            *self.gate.0.lock().unwrap() = gate;
            self.gate.1.notify_all();
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let gate = self.gate.0.lock().unwrap();
            drop(self.gate.1.wait_while(gate, |gate| *gate == Gate::Shut).unwrap());
            let mut written = self.written.lock().unwrap();
            if written.len() + bytes.len() > self.room {
                return Err(io::Error::other("no room"));
            }
            written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn settings() -> Resolved {
        let inputs = Inputs {
            worker_flags: vec!["http://a:1,cache-view=none".to_owned()],
            ..Inputs::default()
        };
        resolve(&inputs).unwrap()
    }

    fn begun(disk: &Disk) -> Recording {
        Recording::over(disk.clone(), &settings(), Arc::default()).unwrap()
    }

    fn ending(disk: &Disk) -> (u64, Ending) {
        let written = disk.written.lock().unwrap();
        let rebuilt = rebuild_from(written.as_slice(), settings().config.hash_seed).unwrap();
        (rebuilt.entries, rebuilt.ending)
    }

    #[test]
    fn what_is_recorded_before_it_is_dropped_is_in_the_file_with_its_end() {
        let disk = Disk {
            room: 1 << 20,
            ..Disk::default()
        };
        let mut recording = begun(&disk);
        let (mut recorder, progress) = (recording.recorder(), recording.progress());
        for now_ms in [5, 3, 9] {
            recorder.record(now_ms, Told::Input(&Input::Tick));
        }
        assert!(progress.is_running());
        drop(recording);
        recorder.record(10, Told::Maintain(1));
        assert_eq!(ending(&disk), (3, Ending::Whole));
    }

    #[test]
    fn a_file_that_is_full_ends_the_recording_and_nothing_else() {
        let header = header::write(&settings()).len();
        let disk = Disk {
            room: header + 40,
            ..Disk::default()
        };
        let mut recording = begun(&disk);
        let (mut recorder, progress) = (recording.recorder(), recording.progress());
        while progress.is_running() {
            recorder.record(1, Told::Input(&Input::Tick));
            thread::yield_now();
        }
        drop(recording);
        let (entries, ending) = ending(&disk);
        assert_eq!(ending, Ending::CutOff { bytes_left: 0 });
        assert_eq!(entries, 2);
    }

    #[test]
    fn a_file_that_is_too_slow_ends_the_recording_where_something_is_missing() {
        let disk = Disk {
            room: usize::MAX,
            ..Disk::default()
        };
        let mut recording = begun(&disk);
        let (mut recorder, progress) = (recording.recorder(), recording.progress());
        disk.set(Gate::Shut);
        let mut told = 0;
        while progress.is_running() {
            recorder.record(1, Told::Input(&Input::Tick));
            told += 1;
        }
        // One may be in the thread's hands, and the last was not taken.
        assert!((QUEUE + 1..=QUEUE + 2).contains(&told), "{told}");
        disk.set(Gate::Open);
        drop(recording);
        assert_eq!(ending(&disk), (told as u64 - 1, Ending::CutOff { bytes_left: 0 }));
    }
}
