//! Does `homing agent` start, tell where it listens, and end when it is asked to?

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

fn homing(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("agent").args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command
}

fn refused(arguments: &str) -> String {
    let Output { status, stderr, .. } = homing(arguments).output().expect("the binary was built for this test");
    assert!(!status.success());
    String::from_utf8(stderr).expect("UTF-8")
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
fn it_tells_where_it_listens_and_ends_when_asked() {
    for signal in ["TERM", "INT"] {
        // Nobody is there: the agent says so and waits.
        let started = homing("--listen 127.0.0.1:0 --worker http://127.0.0.1:1,events=tcp://127.0.0.1:1,ranks=2")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut agent = Running(started.expect("the binary was built for this test"));
        let mut line = String::new();
        let out = agent.0.stdout.take().expect("its output is ours");
        BufReader::new(out).read_line(&mut line).expect("it says something");
        let address = line
            .trim_end()
            .strip_prefix("listening on http://")
            .expect("it says where");
        assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
        let ranks = get(address, "/v1/ranks");
        assert!(
            ranks.contains(r#""dp_rank":1"#) && ranks.contains(r#""served":false"#),
            "{ranks}"
        );
        let watch = get(address, "/v1/ranks/0/1/watch");
        assert!(watch.starts_with("HTTP/1.1 503"), "{watch}");
        assert!(get(address, "/metrics").contains("\nhoming_agent_active_watchers 0\n"));
        let sent = Command::new("kill")
            .args([format!("-{signal}"), agent.0.id().to_string()])
            .status();
        assert!(sent.expect("signals can be sent").success());
        assert!(agent.0.wait().expect("it is our child").success(), "{signal}");
    }
}

#[test]
fn it_refuses_what_makes_no_sense() {
    for (arguments, words) in [
        ("", "an agent needs at least one worker"),
        (
            "--worker http://a,agent=http://b",
            "give `events` (and `replay`) in place of `agent`",
        ),
        ("--worker http://a,cache-view=none", "there is nothing to list or watch"),
        ("--listen nowhere", "agent.listen"),
        (
            "--ring-bytes 1KiB --worker http://a,events=tcp://a:1",
            "agent.ring-bytes",
        ),
    ] {
        let error = refused(arguments);
        assert!(error.contains(words), "{arguments}: {error}");
    }
}
