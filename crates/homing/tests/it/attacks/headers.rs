//! Headers that pass between clients and engines although they mean something to one side only.

use std::collections::BTreeSet;

use serde_json::json;

use super::harness::{FakeEngine, Process, ReceivedRequest, Reply, answer_with, post_json};

/// Headers that no engine may see of a client.
const OF_CLIENTS: [(&str, &str); 14] = [
    ("cookie", "session=of-a-browser"),
    ("x-data-parallel-rank", "0"),
    ("x-dp-rank", "1"),
    ("x-prefill-dp-rank", "1"),
    ("x-worker-instance-id", "7"),
    ("x-dynamo-worker-instance-id", "7"),
    ("x-tenant-id", "of-another"),
    ("x-forwarded-for", "10.0.0.1"),
    ("forwarded", "for=10.0.0.1"),
    ("x-real-ip", "10.0.0.1"),
    ("x-original-url", "/sleep"),
    ("x-http-method-override", "DELETE"),
    ("endpoint-load-metrics-format", "JSON"),
    ("origin", "https://evil.example"),
];

/// Headers that no client may see of an engine.
const OF_ENGINES: [(&str, &str); 10] = [
    ("server", "uvicorn"),
    ("set-cookie", "engine=7; Path=/"),
    ("x-engine-id", "engine-7"),
    ("x-engine-host", "10.1.2.3"),
    ("x-data-parallel-rank", "1"),
    ("x-powered-by", "something"),
    ("location", "http://10.1.2.3:8000/"),
    ("endpoint-load-metrics", "kv=0.5"),
    ("access-control-allow-origin", "*"),
    ("x-process-time", "5"),
];

/// A gateway in front of an engine, of which nothing is asked when it comes.
fn serve(engine: &FakeEngine) -> Process {
    let gateway = Process::serve(&[&engine.url()], &["--check-workers", "none"]);
    gateway.wait_ready();
    gateway
}

/// What was forwarded to an engine. The gateway asks for the tokens of prompts besides.
fn forwarded(engine: &FakeEngine) -> Vec<ReceivedRequest> {
    let mut requests = engine.take_requests();
    requests.retain(|request| request.target == "/v1/completions");
    requests
}

#[test]
fn headers_of_clients_do_not_reach_engines() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine);
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    let needed = [
        ("accept", "application/json"),
        ("user-agent", "a-client/1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("anthropic-version", "2023-06-01"),
    ];
    let response = post_json(
        &gateway.address(),
        "/v1/completions",
        &[&needed[..], &OF_CLIENTS].concat(),
        &body,
    );
    assert_eq!(response.status, 200, "{}", response.text());
    let sent = forwarded(&engine).remove(0);
    for (name, value) in OF_CLIENTS {
        assert_eq!(sent.header(name), None, "{name}");
        assert!(
            !String::from_utf8_lossy(&sent.raw).contains(&format!("{name}: {value}")),
            "{name}"
        );
    }
    for (name, value) in needed {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    assert_eq!(sent.header("content-type"), Some("application/json"));
}

#[test]
fn headers_of_engines_do_not_reach_clients() {
    let engine = FakeEngine::start_with("tiny", |request| {
        if request.is_probe() {
            return Reply::Usual;
        }
        let needed = [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("retry-after", "3"),
        ];
        let headers = [&needed[..], &OF_ENGINES].concat();
        let status = if request.text().contains("fails") { 400 } else { 200 };
        Reply::Bytes(answer_with(status, &headers, b"{\"choices\":[]}"))
    });
    let gateway = serve(&engine);
    for prompt in ["works", "fails"] {
        let body = json!({ "model": "tiny", "prompt": prompt, "max_tokens": 1 });
        let response = post_json(&gateway.address(), "/v1/completions", &[], &body);
        for (name, _) in OF_ENGINES {
            assert_eq!(response.header(name), None, "{name} of an answer that {prompt}");
        }
        for (name, value) in [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("retry-after", "3"),
        ] {
            assert_eq!(response.header(name), Some(value), "{name} of an answer that {prompt}");
        }
    }
}

#[test]
fn ids_of_requests_do_not_collide_at_an_engine() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine);
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    for _ in 0..4 {
        let response = post_json(
            &gateway.address(),
            "/v1/completions",
            &[("x-request-id", "chosen")],
            &body,
        );
        assert_eq!(
            response.header("x-request-id"),
            Some("chosen"),
            "the client sees its own"
        );
    }
    let response = post_json(&gateway.address(), "/v1/completions", &[], &body);
    assert_eq!(response.header("x-request-id"), response.header("x-homing-request-id"));
    let requests = forwarded(&engine);
    let ids: BTreeSet<&str> = requests
        .iter()
        .filter_map(|request| request.header("x-request-id"))
        .collect();
    assert_eq!(ids.len(), 5, "{ids:?}");
    assert!(!ids.contains("chosen"));
}
