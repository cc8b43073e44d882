//! Does `homing mock` start, tell where it listens, and end when it is asked to?

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use homing_config::Config;
use homing_discovery::{Registrar, Registrations, RegistrationsConfig};
use homing_telemetry::Metrics;
use tokio::net::TcpListener;

fn homing(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("mock").args(arguments.split_whitespace());
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

fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers in text");
    answer
}

#[test]
fn it_tells_where_its_workers_listen_and_ends_when_asked() {
    let arguments = "--port 0 --workers 2 --model m --blocks 1000 --speedup 10 --seed 3 --dialect vllm \
                     --events tcp://127.0.0.1:0 --replay tcp://127.0.0.1:0 --dp-size 2";
    let started = homing(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut mock = Running(started.expect("the binary was built for this test"));
    let out = mock.0.stdout.take().expect("its output is ours");
    let lines = BufReader::new(out).lines().take(2);
    let addresses: Vec<String> = lines
        .map(|line| {
            let line = line.expect("it says something");
            line.strip_prefix("listening on http://")
                .expect("it says where")
                .to_owned()
        })
        .collect();
    assert_ne!(addresses[0], addresses[1]);
    for address in &addresses {
        let models = get(address, "/v1/models");
        assert!(models.contains(r#""id":"m""#), "{models}");
    }
    let sent = Command::new("kill").args(["-TERM", &mock.0.id().to_string()]).status();
    assert!(sent.expect("signals can be sent").success());
    assert!(mock.0.wait().expect("it is our child").success());
}

#[test]
fn its_workers_register_and_take_themselves_back() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    let metrics = Arc::new(Metrics::default());
    let config = RegistrationsConfig::of(&Config::default());
    let table = Registrations::new(config, &metrics);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("there are ports");
    let gateway = listener.local_addr().expect("it is bound").to_string();
    let operator = Registrar::operator(Ipv4Addr::LOCALHOST.into());
    let routes = table.router().layer(Extension(operator));
    runtime.spawn(async move { axum::serve(listener, routes).await });

    let arguments = format!(
        "--port 0 --workers 2 --model m --host 0.0.0.0 --events tcp://*:0 --dialect sglang --block-size 64 --register http://{gateway}"
    );
    let started = homing(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut mock = Running(started.expect("the binary was built for this test"));
    let held = |count: u64| {
        let began = Instant::now();
        while metrics.discovery.held_leases.get() != count {
            assert!(
                began.elapsed() < Duration::from_mins(1),
                "{count} workers are not registered"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    held(2);
    let workers = get(&gateway, "/admin/workers");
    for part in [
        "http://127.0.0.1:",
        "events=tcp://127.0.0.1:",
        "model=m",
        "dialect=sglang",
        "block-size=64",
        "topic=kv-events",
    ] {
        assert!(workers.contains(part), "{part} is missing in {workers}");
    }
    let sent = Command::new("kill").args(["-TERM", &mock.0.id().to_string()]).status();
    assert!(sent.expect("signals can be sent").success());
    assert!(mock.0.wait().expect("it is our child").success());
    assert_eq!(
        metrics.discovery.held_leases.get(),
        0,
        "they took themselves back before they ended"
    );
}

#[test]
fn it_refuses_what_makes_no_sense() {
    for (arguments, words) in [
        ("--profile nothing", "h200-llama-3.1-8b"),
        ("--host nowhere", "mock.host"),
        ("--port 0 --events nowhere", "mock.events"),
        ("--speedup 0", "mock.speedup"),
        ("--dialect trtllm", "mock.dialect"),
        ("--port 0 --register nowhere", "mock.register"),
    ] {
        let output = homing(arguments).output().expect("the binary was built for this test");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            !output.status.success() && error.contains(words),
            "{arguments}: {error}"
        );
    }
}
