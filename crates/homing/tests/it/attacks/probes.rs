//! Probes of orchestrators, which have no token.

use super::harness::{FakeEngine, Process, get};

const TOKEN: &str = "the-token-of-the-operators-of-this-test";

#[test]
fn probes_are_answered_without_a_token_and_without_detail() {
    let engine = FakeEngine::start("tiny");
    let gateway = Process::serve(&[&engine.url()], &["--admin-token", TOKEN]);
    gateway.wait_ready();
    let operators = gateway.operators();
    for path in ["/health/live", "/health/ready", "/health", "/live", "/ready"] {
        let response = get(&operators, path, &[]);
        assert_eq!((response.status, response.text().as_str()), (200, "ok\n"), "{path}");
    }
    // Everything else asks for it, also what looks like a probe.
    for path in [
        "/metrics",
        "/admin/fleet",
        "/health/",
        "/health/live/",
        "/health/ready/x",
        "//health",
        "/health%2flive",
        "/",
    ] {
        let response = get(&operators, path, &[]);
        assert_eq!(response.status, 401, "{path}");
        assert!(response.error_message().is_some(), "{path}: {}", response.text());
    }
}

#[test]
fn why_a_gateway_is_not_ready_is_told_with_the_token_only() {
    let gateway = Process::serve(&[], &["--admin-token", TOKEN]);
    let operators = gateway.operators();
    for path in ["/health/ready", "/ready"] {
        let response = get(&operators, path, &[]);
        assert_eq!(
            (response.status, response.text().as_str()),
            (503, "not ready\n"),
            "{path}"
        );
        let header = format!("Bearer {TOKEN}");
        let response = get(&operators, path, &[("authorization", &header)]);
        assert_eq!(response.status, 503, "{path}");
        assert!(response.text().contains("no worker"), "{path}: {}", response.text());
    }
}
