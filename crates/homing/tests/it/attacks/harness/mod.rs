//! What attack tests share: processes of the binary, raw HTTP, engines that record what reaches them.
//!
//! Everything blocks and has a deadline: a test that hangs fails.

mod engine;
mod http;
mod process;
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use engine::{FakeEngine, ReceivedRequest, Reply, answer_json, answer_with};
pub use http::{Connection, Response, exchange, get, post_json, request, try_exchange};
pub use process::{Process, free_port};

/// Until when something must have happened. Generous, because the machines of tests are slow.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// The pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

/// The binary under test.
pub fn binary() -> PathBuf {
    std::env::var_os("HOMING_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_homing").into(), PathBuf::from)
}

/// Waits until the condition holds; fails with `what` at the deadline.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// Runs `check` for every case on a few threads. All failures are collected, and told with the number of cases.
pub fn check_all<T: Sync>(cases: &[T], check: impl Fn(&T) -> Result<(), String> + Sync) {
    const THREADS: usize = 8;
    let next = AtomicU32::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed) as usize) {
                    if let Err(failure) = check(case) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

/// A directory of one test; removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("homing-{test}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("directories can be made");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it; returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("files can be written");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
