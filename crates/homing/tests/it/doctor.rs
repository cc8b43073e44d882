//! Do `homing doctor` and `homing status` say what a script and a person need? Runs them beside `homing mock` and `homing serve`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command
}

/// A process of ours; killed when the test ends.
struct Running {
    process: Child,
    url: String,
    /// Where operators ask, of a gateway.
    admin: Option<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut process = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("its output is ours");
        BufReader::new(out).read_line(&mut line).expect("it speaks text");
        let url = line.trim_end().strip_prefix("listening on ");
        let url = url.unwrap_or_else(|| panic!("it said {line:?}")).to_owned();
        let mut admin = None;
        let mut error = BufReader::new(process.stderr.take().expect("its errors are ours"));
        if arguments[0] == "serve" {
            while admin.is_none() {
                let mut line = String::new();
                assert!(
                    error.read_line(&mut line).expect("it speaks text") > 0,
                    "it says where operators ask"
                );
                admin = line.trim_end().strip_prefix("operators: ").map(str::to_owned);
            }
        }
        // Read to the end, so that it never waits for us.
        std::thread::spawn(move || std::io::copy(&mut error, &mut std::io::sink()));
        Self { process, url, admin }
    }

    fn mock(more: &[&str]) -> Self {
        let base = [
            "mock",
            "--port",
            "0",
            "--model",
            "tiny",
            "--speedup",
            "1000",
            "--events",
            "tcp://127.0.0.1:0",
            "--replay",
            "tcp://127.0.0.1:0",
        ];
        Self::start(&[&base, more].concat())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn an_engine_that_is_well_ends_with_0() {
    let engine = Running::mock(&[]);
    let looked = run(&["doctor", "--worker", &engine.url]);
    let said = text(&looked.stdout);
    assert_eq!(looked.status.code(), Some(0), "{said}{}", text(&looked.stderr));
    assert!(
        said.contains("the 4 blocks of a prompt came at tcp://127.0.0.1:"),
        "{said}"
    );
    assert!(said.ends_with("nothing to change\n"), "{said}");
}

#[test]
fn what_is_to_be_changed_ends_with_1_and_scripts_can_read_it() {
    let engine = Running::mock(&["--usage-details", "off"]);
    let looked = run(&["doctor", "--worker", &engine.url]);
    let said = text(&looked.stdout);
    assert_eq!(looked.status.code(), Some(1), "{said}");
    assert!(
        said.contains("to change     start it with --enable-prompt-tokens-details\n"),
        "{said}"
    );
    let looked = run(&["doctor", "--worker", &engine.url, "--json"]);
    assert_eq!(looked.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&looked.stdout).expect("one JSON object");
    let worker = &told["workers"][0];
    assert_eq!(
        (&worker["is_well"], &worker["findings"][0]["check"]),
        (&json!(false), &json!("usage"))
    );
    for part in ["severity", "seen", "cost", "change"] {
        assert!(worker["findings"][0][part].is_string(), "{worker}");
    }
    // What only matters to some does not fail a script.
    let engine = Running::mock(&["--lora-updating", "off"]);
    let looked = run(&["doctor", "--worker", &engine.url, "--no-prompts"]);
    assert_eq!(looked.status.code(), Some(0), "{}", text(&looked.stdout));
}

#[test]
fn who_cannot_be_asked_ends_with_2() {
    for (arguments, says) in [
        (vec!["doctor", "--worker", "http://127.0.0.1:1"], "it cannot be reached"),
        (vec!["doctor"], "name the engine to look at"),
        (vec!["doctor", "--worker", "nonsense"], "--worker nonsense"),
        (
            vec!["doctor", "--worker", "http://a", "--block-size", "x"],
            "block-size",
        ),
        (vec!["doctor", "--wrong"], "--wrong"),
    ] {
        let looked = run(&arguments);
        assert_eq!(looked.status.code(), Some(2), "{arguments:?}");
        let said = text(&looked.stderr);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn status_is_a_table_of_a_running_fleet() {
    let engines = [Running::mock(&[]), Running::mock(&["--usage-details", "off"])];
    let gateway = Running::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--check-workers",
        "prompts",
        "--worker",
        &format!("{},cache-view=approximate", engines[0].url),
        "--worker",
        &format!("{},cache-view=approximate", engines[1].url),
    ]);
    let admin = gateway.admin.clone().expect("it is a gateway");
    let until = Instant::now() + GUARD;
    let told = loop {
        let looked = run(&["status", "--url", &admin, "--json"]);
        assert!(looked.status.success(), "{}", text(&looked.stderr));
        let told: Value = serde_json::from_slice(&looked.stdout).expect("one JSON object");
        let workers = told["workers"].as_array().expect("workers");
        if workers.len() == 2 && workers.iter().all(|worker| worker["checked"] == true) {
            break told;
        }
        assert!(Instant::now() < until, "{told:#}");
        std::thread::sleep(POLL);
    };
    assert_eq!(told["ready"], true);
    assert!(told["rates"]["requests_per_second"].is_number(), "{told:#}");
    let looked = run(&["status", "--url", &admin]);
    let said = text(&looked.stdout);
    assert!(
        said.starts_with("ready, 2 workers, 0 requests under way, 0 wait"),
        "{said}"
    );
    for part in [
        "WORKER",
        &engines[0].url,
        &engines[1].url,
        "warning usage: its answers do not tell how many tokens came from the cache",
        "to change  start it with --enable-prompt-tokens-details",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    watched(&admin);
    let nobody = run(&["status", "--url", "http://127.0.0.1:1"]);
    assert!(!nobody.status.success());
    assert!(
        text(&nobody.stderr).contains("no gateway answers at http://127.0.0.1:1"),
        "{}",
        text(&nobody.stderr)
    );
}

/// The table is written anew until somebody interrupts.
fn watched(admin: &str) {
    let mut watching = command(&["status", "--url", admin, "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built for this test");
    let lines = BufReader::new(watching.stdout.take().expect("its output is ours")).lines();
    let mut tables = lines
        .map_while(Result::ok)
        .filter(|line| line.contains("ready, 2 workers"));
    for _ in 0..2 {
        let line = tables.next().expect("a table");
        assert!(line.starts_with("\x1b[2J\x1b[H"), "{line:?}");
    }
    let id = watching.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("there is a command to send signals").success());
    assert!(watching.wait().expect("it ends").success());
}

#[test]
fn logs_can_be_json_lines() {
    let engine = Running::mock(&[]);
    let mut gateway = command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--log-level",
        "debug",
        "--worker",
        &format!("{},cache-view=approximate", engine.url),
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the binary was built for this test");
    let lines = BufReader::new(gateway.stderr.take().expect("its errors are ours")).lines();
    let events = lines.map_while(Result::ok).filter(|line| line.starts_with('{'));
    let mut events = events.map(|line| serde_json::from_str::<Value>(&line).expect("an object"));
    let told = events
        .find(|event| event["message"] == "takes requests")
        .expect("it takes requests");
    let mut listens = String::new();
    let out = gateway.stdout.as_mut().expect("its output is ours");
    BufReader::new(out).read_line(&mut listens).expect("it speaks text");
    let id = asked(listens.trim_end().trim_start_matches("listening on http://"));
    let ended = events
        .find(|event| event["message"] == "ended")
        .expect("a request ended");
    assert_eq!(
        (&ended["request"], &ended["status"]),
        (&json!(id), &json!(200)),
        "{ended}"
    );
    gateway.kill().ok();
    gateway.wait().ok();
    assert_eq!((&told["level"], &told["model"]), (&json!("info"), &json!("tiny")));
    assert_eq!(told["worker"], engine.url.as_str());
    assert!(told["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{told}");
}

/// Sends a request, and says under which name it is known.
fn asked(address: &str) -> String {
    let body = r#"{"model": "tiny", "prompt": "hello", "max_tokens": 2}"#;
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let name = answer
        .lines()
        .find_map(|line| line.strip_prefix("x-homing-request-id: "));
    name.unwrap_or_else(|| panic!("no name in {answer}")).to_owned()
}
