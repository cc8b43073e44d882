//! Does `homing index` start, answer, record, rebuild and end as a person would expect? Runs it as one would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Nobody listens there.
const WORKER: &str = "http://127.0.0.1:8000,model=tiny,block-size=4,events=tcp://127.0.0.1:1";

fn homing(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("index").args(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A service that runs; killed if the test fails.
struct Running {
    process: Child,
    address: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut process = homing(arguments).spawn().expect("the binary was built for this test");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("its output is ours");
        BufReader::new(out).read_line(&mut line).expect("it speaks text");
        let address = line.trim_end().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("it said {line:?}")).to_owned();
        Self { process, address }
    }

    fn ask(&self, request: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        write!(stream, "{request} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}").expect("it takes requests");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        let (_, body) = answer.split_once("\r\n\r\n").expect("head and body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Ends it by a signal, and gives what it wrote to standard error.
    fn end(mut self, signal: &str) -> String {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("there is a command to send signals").success());
        let mut said = String::new();
        let error = self.process.stderr.as_mut().expect("its errors are ours");
        error.read_to_string(&mut said).expect("they are text");
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn refused(arguments: &[&str]) -> String {
    let output: Output = homing(arguments).output().expect("the binary was built for this test");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn it_says_where_it_listens_and_to_whom_and_ends_when_it_is_told() {
    for signal in ["-INT", "-TERM"] {
        let running = Running::start(&["--worker", WORKER, "--listen", "127.0.0.1:0"]);
        assert_eq!(running.ask("GET /health", "")["status"], "ok");
        let answer = running.ask("POST /v1/overlap", r#"{"tokens":[1,2,3,4,5]}"#);
        assert_eq!(answer["blocks"], 1);
        assert_eq!(answer["ranks"][0]["state"], "stale");
        let said = running.end(signal);
        let worker = "worker http://127.0.0.1:8000,events=tcp://127.0.0.1:1,role=both,model=tiny,block-size=4,";
        assert!(said.contains(worker), "{said}");
    }
}

#[test]
fn the_level_of_logs_is_a_setting() {
    let running = Running::start(&["--worker", WORKER, "--listen", "127.0.0.1:0", "--log-level", "error"]);
    let said = running.end("-TERM");
    assert!(said.lines().all(|line| line.starts_with("worker ")), "{said}");
}

#[test]
fn a_port_that_is_taken_is_an_error_in_words() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let said = refused(&["--worker", WORKER, "--index-listen", &address]);
    assert!(
        said.starts_with(&format!("error: cannot listen on {address} (`index.listen`)")),
        "{said}"
    );
}

#[test]
fn what_was_recorded_is_served_again_without_its_workers() {
    let path = file("binary.recording");
    let path = path.to_str().expect("UTF-8");
    let running = Running::start(&["--worker", WORKER, "--listen", "127.0.0.1:0", "--record", path]);
    assert_eq!(running.ask("GET /health", "")["recording"], "running");
    running.end("-TERM");
    let running = Running::start(&["--from", path, "--listen", "127.0.0.1:0"]);
    let ranks = running.ask("GET /v1/ranks", "");
    assert_eq!(ranks["ranks"][0]["worker"], "http://127.0.0.1:8000");
    let said = running.end("-TERM");
    assert!(said.contains("the index is rebuilt"), "{said}");

    let whole = std::fs::read(path).expect("it is there");
    std::fs::write(path, &whole[..whole.len() - 3]).expect("it is ours");
    let running = Running::start(&["--from", path, "--listen", "127.0.0.1:0"]);
    let said = running.end("-TERM");
    assert!(said.contains("cut off"), "{said}");

    let said = refused(&["--from", path, "--record", path]);
    assert!(said.contains("index.record") && said.contains("excludes"), "{said}");
    std::fs::write(path, "no recording, by far").expect("it is ours");
    let said = refused(&["--from", path, "--listen", "127.0.0.1:0"]);
    assert!(said.contains("no recording of homing index"), "{said}");
}
