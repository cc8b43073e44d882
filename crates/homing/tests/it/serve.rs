//! Does `homing serve` stand in front of engines as a person would run it? Processes, signals, thousands of streams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(20);

/// A process of ours; killed if the test fails.
struct Running {
    process: Child,
    address: String,
    /// What it wrote to standard error before it listened.
    said: Vec<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
            command.env_remove(name);
        }
        let mut process = command.spawn().expect("the binary was built for this test");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("its output is ours");
        BufReader::new(out).read_line(&mut line).expect("it speaks text");
        let address = line.trim_end().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("it said {line:?}")).to_owned();
        let mut error = BufReader::new(process.stderr.take().expect("its errors are ours"));
        // Read to the end by a thread, so that it never waits for us.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while error.read_line(&mut line).is_ok_and(|read| read > 0) {
                let _ = tell.send(std::mem::take(&mut line));
            }
        });
        let mut said = Vec::new();
        // Told before it listens, and read by another thread a moment later.
        while arguments[0] == "serve" && !said.iter().any(|line: &String| line.starts_with("operators:")) {
            let line = told.recv_timeout(GUARD);
            said.push(line.unwrap_or_else(|error| panic!("{error}: it said {said:?}")));
        }
        Self { process, address, said }
    }

    /// The address that a line which begins so ends with.
    fn told(&self, begin: &str) -> String {
        let line = self.said.iter().find(|line| line.starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("no {begin:?} in {:?}", self.said));
        line.trim_end()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .trim_start_matches("http://")
            .to_owned()
    }

    fn memory_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .expect("it has memory");
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number")
            / 1024
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status();
        assert!(sent.expect("there is a command to send signals").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn mock(more: &[&str]) -> Running {
    let base = ["mock", "--port", "0", "--model", "tiny", "--answer-tokens", "0"];
    Running::start(&[&base, more].concat())
}

fn serve(workers: &[&Running], more: &[&str]) -> Running {
    let specs: Vec<String> = workers
        .iter()
        .map(|worker| format!("http://{}", worker.address))
        .collect();
    let mut arguments = vec![
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--health-interval",
        "200ms",
    ];
    for spec in &specs {
        arguments.extend(["--worker", spec]);
    }
    Running::start(&[&arguments, more].concat())
}

fn ask(address: &str, request: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    write!(stream, "{request} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}").expect("it takes requests");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    (status, body.to_owned())
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + GUARD;
    while !is() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(POLL);
    }
}

fn chat(tokens: u32) -> String {
    json!({
        "model": "tiny", "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": tokens, "stream": true
    })
    .to_string()
}

#[test]
fn it_serves_and_ends_as_the_system_asks() {
    let worker = mock(&["--speedup", "100"]);
    let mut gateway = serve(&[&worker], &[]);
    let admin = gateway.told("operators:");
    wait("a worker", || ask(&admin, "GET /ready", "").0 == 200);
    let (status, text) = ask(&gateway.address, "POST /v1/chat/completions", &chat(5));
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let (_, metrics) = ask(&admin, "GET /metrics", "");
    assert!(
        metrics.contains("homing_gateway_ended_requests_total{end=\"served\"} 1"),
        "{metrics}"
    );
    let (_, decisions) = ask(&admin, "GET /admin/decisions", "");
    let decisions: Value = serde_json::from_str(&decisions).expect("JSON");
    assert_eq!(decisions["decisions"][0]["end"], "served", "{decisions}");
    gateway.signal("-TERM");
    let status = gateway.process.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

/// What `/admin/fleet` says of the only worker, once it takes requests.
fn only_worker(gateway: &Running) -> Value {
    let admin = gateway.told("operators:");
    wait("a worker", || ask(&admin, "GET /ready", "").0 == 200);
    let (_, fleet) = ask(&admin, "GET /admin/fleet", "");
    let fleet: Value = serde_json::from_str(&fleet).expect("JSON");
    fleet["workers"][0].clone()
}

#[test]
fn of_a_worker_nothing_but_its_address_needs_to_be_said() {
    let silent = mock(&["--events", "none", "--replay", "none"]);
    let guessed = only_worker(&serve(&[&silent], &[]));
    assert_eq!(guessed["ranks"][0]["view"], "guess", "{guessed}");
    // This one tells where its events are.
    let telling = mock(&["--dialect", "sglang", "--events", "tcp://127.0.0.1:0"]);
    let heard = only_worker(&serve(&[&telling], &[]));
    assert_ne!(heard["ranks"][0]["view"], "guess", "{heard}");
    assert!(
        heard["remarks"].to_string().contains("it publishes events at"),
        "{heard}"
    );
}

#[test]
fn settings_that_cannot_be_are_refused_in_words() {
    for (arguments, words) in [
        (vec!["serve", "--policy", "fastest"], "there is no policy `fastest`"),
        (vec!["serve", "--profile", "none-such"], "serve.profile"),
        (vec!["serve", "--tokenizer", "/nonexistent"], "is no folder"),
        (vec!["serve", "--listen", "203.0.113.1:80"], "homing keys new"),
        (vec!["serve", "--route", "203.0.113.1:80"], "serve.admin-token"),
        (
            vec!["serve", "--open", "--listen", "203.0.113.1:80"],
            "cannot listen on 203.0.113.1:80 (`serve.listen`)",
        ),
        // The default is events where there are any; who says `events` is taken at his word.
        (
            vec![
                "serve",
                "--worker",
                "http://127.0.0.1:1",
                "--index-cache-view",
                "events",
            ],
            "`cache-view` is `events` by the setting `index.cache-view`",
        ),
        (
            vec!["index", "--worker", "http://127.0.0.1:1"],
            "`cache-view` is `events` by the setting `index.cache-view`",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_homing")).args(&arguments).output();
        let output = output.expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn an_engine_that_registers_itself_is_served_and_gone_when_it_ends() {
    let token = ["--register-token", "the-token-of-this-test"];
    let gateway = serve(&[], &token);
    let admin = gateway.told("operators:");
    assert_eq!(ask(&admin, "GET /ready", "").0, 503);
    assert_eq!(ask(&gateway.address, "POST /v1/chat/completions", &chat(1)).0, 503);
    let url = format!("http://{admin}");
    let engine = mock(&["--register", &url, token[0], token[1]]);
    wait("the engine", || ask(&admin, "GET /ready", "").0 == 200);
    assert_eq!(ask(&gateway.address, "POST /v1/chat/completions", &chat(3)).0, 200);
    engine.signal("-TERM");
    wait("its end", || ask(&admin, "GET /ready", "").0 == 503);
}

/// Reads the beginning of an answer that is to be good.
fn begins(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(GUARD)).expect("a time limit");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("every stream begins");
    if &head != b"HTTP/1.1 200" {
        let mut rest = vec![0; 4096];
        let size = stream.read(&mut rest).unwrap_or(0);
        panic!(
            "{}{}",
            String::from_utf8_lossy(&head),
            String::from_utf8_lossy(&rest[..size])
        );
    }
}

/// The figure of the issue: 5,000 streams at once, under 512 MiB.
#[test]
fn five_thousand_streams_take_less_than_512_mib() {
    const STREAMS: usize = 5_000;
    const AT_ONCE: usize = 500;
    rlimit::increase_nofile_limit(u64::MAX).expect("limits can be read");
    if rlimit::getrlimit(rlimit::Resource::NOFILE)
        .expect("limits can be read")
        .0
        < 2 * STREAMS as u64 + 500
    {
        panic!("this test needs {} open files: raise the limit", 2 * STREAMS + 500);
    }
    // Slow enough that all of them are open at once.
    let worker = mock(&[
        "--speedup",
        "1",
        "--max-running",
        "8192",
        "--blocks",
        "200000",
        "--fault-slowdown",
        "2",
    ]);
    let gateway = serve(
        &[&worker],
        &[
            "--start-within",
            "1h",
            "--most-wait",
            "1h",
            "--queue-requests",
            "10000",
            // More connect at once than the worker has room for before it accepts them.
            "--connect-timeout",
            "60s",
        ],
    );
    let admin = gateway.told("operators:");
    wait("a worker", || ask(&admin, "GET /ready", "").0 == 200);
    let body = chat(10_000);
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut streams = Vec::with_capacity(STREAMS);
    // Some hundreds at a time: a worker that is not scheduled for a while loses connections that wait to be accepted.
    while streams.len() < STREAMS {
        let begun = streams.len();
        for _ in begun..STREAMS.min(begun + AT_ONCE) {
            let mut stream = TcpStream::connect(&gateway.address).expect("it accepts");
            stream.write_all(request.as_bytes()).expect("it takes requests");
            streams.push(stream);
        }
        for stream in &mut streams[begun..] {
            begins(stream);
        }
    }
    let running = || {
        let (_, metrics) = ask(&admin, "GET /metrics", "");
        let line = metrics
            .lines()
            .find(|line| line.starts_with("homing_gateway_running_requests "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
            .expect("a number")
    };
    assert_eq!(running(), STREAMS);
    let memory = gateway.memory_mib();
    assert!(memory < 512, "{memory} MiB");
    drop(streams);
    // The worker notices that clients left at its next step, and may take its time for that no longer.
    let (status, told) = ask(&worker.address, "POST /mock/faults", r#"{"slowdown":0.01}"#);
    assert_eq!(status, 200, "{told}");
    wait("all to be released", || running() == 0);
    let (_, fleet) = ask(&admin, "GET /admin/fleet", "");
    let fleet: Value = serde_json::from_str(&fleet).expect("JSON");
    assert_eq!(fleet["workers"][0]["in_flight"], 0, "{fleet}");
}
