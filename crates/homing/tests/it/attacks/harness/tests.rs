//! Does the harness see what happens between clients, the binary and engines?

use serde_json::json;

use super::{Connection, FakeEngine, Process, TempDir, binary, get, post_json, wait_until};

#[test]
fn a_request_reaches_the_engine_and_is_recorded_byte_for_byte() {
    let engine = FakeEngine::start("tiny");
    let mut gateway = Process::serve(&[&engine.url()], &[]);
    gateway.wait_ready();
    let body = json!({ "model": "tiny", "prompt": "a b", "max_tokens": 1 });
    let response = post_json(&gateway.address(), "/v1/completions", &[], &body);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["choices"][0]["text"], "yes");
    let requests = engine.wait_requests_to("/v1/completions", 1);
    assert_eq!(requests[0].json(), body);
    assert!(requests[0].raw.starts_with(b"POST /v1/completions HTTP/1.1\r\n"));
    assert!(!engine.probes().is_empty());
    // Two requests over one connection, the second of which is no JSON.
    let mut connection = Connection::open(&gateway.address());
    connection.send("GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let models = connection.read_response().unwrap();
    assert_eq!(models.json()["data"][0]["id"], "tiny");
    connection
        .send("POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n{")
        .unwrap();
    let refused = connection.read_response().unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.error_message().is_some(), "{}", refused.text());
    assert!(gateway.rss_bytes() > 1 << 20 && gateway.peak_rss_bytes() >= gateway.rss_bytes());
    assert!(gateway.is_running());
    gateway.signal("-TERM");
    assert!(gateway.wait_exit().success(), "{}", gateway.stderr());
}

#[test]
fn a_mock_with_events_is_a_worker_whose_view_is_known() {
    let (_mock, worker) = Process::mock_with_events(&[]);
    let gateway = Process::serve(&[&worker], &[]);
    gateway.wait_ready();
    wait_until("a view of the mock", || {
        let fleet = get(&gateway.operators(), "/admin/fleet", &[]).json();
        let view = &fleet["workers"][0]["ranks"][0]["view"];
        view == "warming" || view == "live"
    });
}

#[test]
fn a_command_runs_to_its_end() {
    let directory = TempDir::new("harness");
    let file = directory.write("homing.toml", "not toml");
    let output = Process::run(&["config", "--config", file.to_str().unwrap()]);
    assert!(!output.status.success(), "{}", binary().display());
    assert!(String::from_utf8_lossy(&output.stderr).contains("homing.toml"));
}
