//! Does `homing demo` show what it promises, and end as it should?

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Few people who think quickly, and engines as quick as they.
const SMALL: &str = "--duration 6s --users 24 --mock-speedup 4";

fn homing(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("demo").args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command
}

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn out(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.is_empty(), "{error}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn every_request_is_answered_and_more_comes_from_caches_than_in_turn() {
    // Longer, so that every part of it sees second turns on a slow machine, too.
    let output = homing("--duration 20s --users 24 --mock-speedup 4 --seed 7 --json").output();
    let printed = out(&output.expect("the binary was built for this test"));
    let object: Value = serde_json::from_str(&printed).expect("one JSON object");
    assert_eq!(object["seed"], 7);
    assert_eq!(object["interrupted"], false);
    let phases = object["phases"].as_array().expect("phases");
    let said = |name: &str| phases.iter().map(|phase| phase[name].clone()).collect::<Vec<_>>();
    assert_eq!(said("name"), ["round-robin", "homing", "worker-killed", "worker-added"]);
    assert_eq!(said("policy"), ["round-robin", "time", "time", "time"]);
    assert_eq!(said("failed"), [0, 0, 0, 0], "{printed}");
    for phase in phases {
        assert!(phase["completed"].as_u64() > Some(0), "{phase}");
        let times = &phase["ttft_ms"];
        assert!(
            times["p50"].as_f64() > Some(0.0) && times["p50"].as_f64() <= times["p99"].as_f64(),
            "{phase}"
        );
    }
    let shares: Vec<f64> = said("cached_share").iter().filter_map(Value::as_f64).collect();
    assert!(shares[1] > shares[0], "{shares:?}");
    assert!(phases[1]["events"].as_u64() > Some(0), "{printed}");
    assert_eq!(
        phases[2]["killed"]["worker"].as_u64().map(|worker| worker < 4),
        Some(true),
        "{printed}"
    );
    assert_eq!(phases[3]["added"]["worker"], 4, "{printed}");
    assert!(object["answers"]["compared"].as_u64() > Some(0), "{printed}");
    assert_eq!(object["answers"]["wrong"], 0, "{printed}");
}

#[test]
fn whoever_reads_a_pipe_gets_plain_lines() {
    let output = homing(SMALL).output();
    let story = out(&output.expect("the binary was built for this test"));
    assert!(!story.contains('\x1b'), "{story}");
    for words in [
        "4 engines, a gateway and 24 people",
        "Round robin: ",
        "\nround-robin ",
        "\nhoming ",
        " is killed: ",
        "Worker 4 is added: ",
        "none failed, none differed",
        "homing serve --worker",
    ] {
        assert!(story.contains(words), "{words}: {story}");
    }
}

#[test]
fn it_ends_when_it_is_interrupted_and_tells_what_it_saw() {
    let started = homing("--users 8 --duration 10m").stdout(Stdio::piped()).spawn();
    let mut demo = Running(started.expect("the binary was built for this test"));
    let mut lines = BufReader::new(demo.0.stdout.take().expect("its output is ours")).lines();
    let moment = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("round-robin ")));
    assert!(moment.is_some(), "it shows what happens");
    let sent = Command::new("kill").args(["-INT", &demo.0.id().to_string()]).status();
    assert!(sent.expect("signals can be sent").success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(rest.iter().any(|line| line.contains("stopped before")), "{rest:?}");
    assert!(demo.0.wait().expect("it is our child").success());
}
