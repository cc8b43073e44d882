//! What must be said before it starts.

use std::sync::Arc;

use homing_indexer::Service;
use homing_telemetry::Metrics;

use crate::indexer::settings;

async fn refusal(workers: &[String], more: &[(&str, &str)]) -> String {
    let started = Service::start(&settings(workers, more), Arc::new(Metrics::default())).await;
    started.expect_err("it cannot start").to_string()
}

#[tokio::test]
async fn nobody_to_listen_to_is_an_error() {
    let said = refusal(&[], &[]).await;
    assert!(said.contains("no worker") && said.contains("--from"), "{said}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let worker = "http://127.0.0.1:9000,cache-view=none".to_owned();
    let said = refusal(&[worker], &[("index.listen", &address)]).await;
    assert!(said.contains(&address) && said.contains("index.listen"), "{said}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named() {
    let worker = "http://127.0.0.1:9000,cache-view=none".to_owned();
    let said = refusal(&[worker], &[("index.record", "/nowhere/at/all")]).await;
    assert!(
        said.contains("/nowhere/at/all") && said.contains("index.record"),
        "{said}"
    );
}
