//! Sockets that the binary opens on its own machine: no path and no port is named from elsewhere, and no file is destroyed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::json;

use super::harness::{FakeEngine, Process, TempDir, exchange, free_port, request, wait_until};

const TOKEN: &str = "token-of-the-attack-tests";
const PRECIOUS: &str = "what must not be lost";

fn is_untouched(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == PRECIOUS)
}

#[test]
fn a_registration_opens_nothing_on_the_gateways_machine() {
    let (engine, directory) = (FakeEngine::start("tiny"), TempDir::new("sockets"));
    let path = directory.write("precious", PRECIOUS);
    let port = free_port();
    let gateway = Process::serve(&[], &["--register-token", TOKEN]);
    let operators = gateway.operators();
    let mut accepted = Vec::new();
    for (number, events, replay) in [
        (0, format!("bind:ipc://{}", path.display()), None),
        (1, format!("bind:tcp://127.0.0.1:{port}"), None),
        (2, format!("bind:tcp://*:{port}"), None),
        (3, format!("ipc://{}", path.display()), None),
        (
            4,
            "tcp://10.0.0.1:5557".to_owned(),
            Some(format!("ipc://{}", path.display())),
        ),
    ] {
        let mut body = json!({ "url": engine.url(), "events": &events });
        if let Some(replay) = &replay {
            body["replay"] = json!(replay);
        }
        let authorization = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        let target = format!("/admin/workers/w{number}");
        let answer = exchange(
            &operators,
            request("PUT", &target, &headers, body.to_string().as_bytes()),
        );
        if answer.status != 400 || !answer.text().contains("settings file") {
            accepted.push(format!("{body}: {} {}", answer.status, answer.text()));
        }
        exchange(&operators, request("DELETE", &target, &headers, b""));
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
    assert!(is_untouched(&path));
    TcpListener::bind(("127.0.0.1", port)).expect("no port was opened");
}

#[test]
fn a_mistyped_path_destroys_no_file() {
    let engine = FakeEngine::start("tiny");
    for command in ["serve", "index", "agent"] {
        let directory = TempDir::new("sockets");
        let path = directory.write("precious", PRECIOUS);
        let worker = format!("{},events=bind:ipc://{}", engine.url(), path.display());
        let mut arguments = vec![command, "--listen", "127.0.0.1:0", "--worker", &worker];
        if command == "serve" {
            arguments.extend(["--admin", "127.0.0.1:0"]);
        }
        let mut process = Process::start(&arguments);
        wait_until("the path is named, or destroyed", || {
            let is_named = process.stderr().contains("is not a socket");
            is_named || !is_untouched(&path) || !process.is_running()
        });
        assert!(is_untouched(&path), "homing {command} replaced a file");
        let stderr = process.stderr();
        assert!(stderr.contains(&path.display().to_string()), "{command}: {stderr}");
    }
}

#[test]
fn a_mock_destroys_no_file_and_takes_no_socket_from_another_process() {
    let directory = TempDir::new("sockets");
    let path = directory.write("precious", PRECIOUS);
    let held = directory.path().join("held");
    let listener = UnixListener::bind(&held).unwrap();
    for (path, words) in [(&path, "is not a socket"), (&held, "is in use by another process")] {
        let events = format!("ipc://{}", path.display());
        let mut mock = Process::start(&["mock", "--port", "0", "--model", "tiny", "--events", &events]);
        wait_until("it says what is wrong, or listens", || {
            mock.stderr().contains(words) || mock.stdout().contains("listening on")
        });
        mock.kill();
        let error = mock.stderr();
        assert!(
            error.contains(words) && error.contains(&path.display().to_string()),
            "{events}: {error}"
        );
    }
    assert!(is_untouched(&path));
    let _client = UnixStream::connect(&held).unwrap();
    listener.accept().unwrap();
}

#[test]
fn others_have_no_rights_on_a_socket_file_and_an_abandoned_one_is_replaced() {
    let directory = TempDir::new("sockets");
    let path = directory.path().join("events");
    drop(UnixListener::bind(&path).unwrap());
    let events = format!("ipc://{}", path.display());
    let _mock = Process::mock(&["--events", &events]);
    let _client = UnixStream::connect(&path).expect("the mock listens there");
    let file = fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    let mode = file.permissions().mode() & 0o777;
    assert_eq!(mode & 0o117, 0, "{mode:o}");
}
