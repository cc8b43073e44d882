//! Ten thousand connections over which nothing comes.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::Engine;
use crate::harness::Gateway;
use crate::security::raw::until;

/// The figure of the issue, where as many files may be open: each connection is two of this process.
const MOST: usize = 10_000;
/// What the rest of the test needs.
const SPARE: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_keep_nobody_from_asking() {
    let allowed = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let count = MOST.min((usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(SPARE)) / 2);
    println!("{count} connections, because {allowed} files may be open");
    assert!(count >= 200, "{allowed} open files are too few to show anything");
    let engines = [Engine::start(&[])];
    let settings = [
        ("serve.max-connections-per-client", "20000"),
        ("serve.header-timeout", "60s"),
        ("discovery.file-interval", "1h"),
    ];
    let gateway = Gateway::before(&engines, &settings).await;
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let mut idle = Vec::with_capacity(count);
    while idle.len() < count {
        let few = (0..100.min(count - idle.len())).map(|_| TcpStream::connect(&address));
        for stream in futures_util::future::join_all(few).await {
            idle.push(stream.unwrap());
        }
    }
    let open = || gateway.metrics.gateway.open_connections.get() as usize;
    until("all of them", || open() >= count).await;
    let asked = json!({ "model": "tiny", "prompt": "x", "max_tokens": 2 });
    for _ in 0..20 {
        let answering = gateway.send("/v1/completions", &asked);
        let answer = tokio::time::timeout(Duration::from_secs(20), answering).await;
        assert_eq!(answer.expect("it is answered").status(), 200);
    }
    drop(idle);
    until("their end", || open() < 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_does_not_stay() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("serve.header-timeout", "2s")]).await;
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let few = (0..100).map(|_| TcpStream::connect(&address));
    let idle = futures_util::future::join_all(few).await;
    let turned = &gateway.metrics.gateway.refused_connections;
    until("them to be closed", || {
        turned.of(homing_telemetry::TurnedAway::HeaderTime).get() >= 100
    })
    .await;
    drop(idle);
}
