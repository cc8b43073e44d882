//! Processes of the binary under test.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use super::{binary, get, wait_until};

/// A running process of the binary; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    /// Starts `homing <arguments>` without any `HOMING_*` variable.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// The same, with these variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(arguments);
        command.envs(variables.iter().copied());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", binary().display()));
        let stdout = collected(child.stdout.take().expect("it was piped"));
        let stderr = collected(child.stderr.take().expect("it was piped"));
        Self { child, stdout, stderr }
    }

    /// Starts `homing serve` on ports that are free, in front of engines at these URLs (each may have `,key=value` behind it).
    pub fn serve(workers: &[&str], more: &[&str]) -> Self {
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        // Down is seen soon, and no question of the gateway's own is among the requests that an engine gets.
        for option in [["--health-interval", "200ms"], ["--check-workers", "none"]] {
            if !more.contains(&option[0]) {
                arguments.extend(option);
            }
        }
        for worker in workers {
            arguments.extend(["--worker", worker]);
        }
        let process = Self::start(&[&arguments, more].concat());
        process.address();
        process
    }

    /// Starts `homing mock` on a port that is free, with the model `tiny`.
    pub fn mock(more: &[&str]) -> Self {
        let base = ["mock", "--port", "0", "--model", "tiny", "--answer-tokens", "0"];
        let process = Self::start(&[&base, more].concat());
        process.address();
        process
    }

    /// The same with KV events and their replay; also what `--worker` is given for it.
    pub fn mock_with_events(more: &[&str]) -> (Self, String) {
        let (events, replay) = (free_port(), free_port());
        let events = format!("tcp://127.0.0.1:{events}");
        let replay = format!("tcp://127.0.0.1:{replay}");
        let process = Self::mock(&[&["--events", events.as_str(), "--replay", replay.as_str()], more].concat());
        let worker = format!("http://{},events={events},replay={replay}", process.address());
        (process, worker)
    }

    /// Runs `homing <arguments>` to its end.
    pub fn run(arguments: &[&str]) -> Output {
        let output = command(arguments).stdin(Stdio::null()).output();
        output.unwrap_or_else(|error| panic!("{}: {error}", binary().display()))
    }

    /// Where it listens, as `HOST:PORT`.
    pub fn address(&self) -> String {
        self.addresses(1).remove(0)
    }

    /// The same for so many listeners.
    pub fn addresses(&self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        self.wait_until_alive("it says where it listens", |process| {
            found = lines_with(&process.stdout(), "listening on ");
            found.len() >= count
        });
        found
    }

    /// The address that a line of standard error tells after `begin`, such as `operators:`.
    pub fn address_after(&self, begin: &str) -> String {
        let mut found = Vec::new();
        self.wait_until_alive(begin, |process| {
            found = lines_with(&process.stderr(), begin);
            !found.is_empty()
        });
        found.remove(0)
    }

    /// Where operators ask it.
    pub fn operators(&self) -> String {
        self.address_after("operators:")
    }

    /// Where proxies ask it, without the path.
    pub fn proxies(&self) -> String {
        let address = self.address_after("proxies:");
        address.split('/').next().unwrap_or_default().to_owned()
    }

    /// Waits until it takes requests for some model.
    pub fn wait_ready(&self) -> &Self {
        let address = self.address();
        self.wait_until_alive("a worker is ready", |_| get(&address, "/ready", &[]).status == 200);
        self
    }

    /// What it wrote to standard output.
    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    /// What it wrote to standard error.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory.
    pub fn rss_bytes(&self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// The most that its resident memory was.
    pub fn peak_rss_bytes(&self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        size.unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    /// Sends a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.expect("signals can be sent").success(), "{signal}");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits until it has ended by itself.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let mut status = None;
        let child = &mut self.child;
        wait_until("the process ends", || {
            status = child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("it has ended")
    }

    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Waits for a condition on it, and fails early with its errors where it ended.
    fn wait_until_alive(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        wait_until(what, || {
            if condition(self) {
                return true;
            }
            let state = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
            assert!(!state.contains(") Z "), "it ended before {what}: {}", self.stderr());
            false
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback interface that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    listener.local_addr().expect("it is bound").port()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command
}

/// What comes from a pipe, read to its end by a thread of its own.
fn collected(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = text.clone();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|size| size > 0) {
            collected.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    text
}

/// The URLs without scheme that complete lines which begin so end with.
fn lines_with(text: &str, begin: &str) -> Vec<String> {
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let urls = complete.filter_map(|line| line.strip_prefix(begin)?.split_whitespace().next());
    urls.map(|url| url.split_once("://").map_or(url, |(_, address)| address).to_owned())
        .collect()
}
