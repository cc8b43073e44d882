//! Does it begin and end as an operator expects?

use std::time::Instant;

use homing_telemetry::Asked;
use serde_json::{Value, json};

use crate::harness::{Engine, GUARD, Gateway, POLL, text_of};

/// Tokens that take about a minute unless the engine is told to hurry.
const MINUTE: u32 = 5_000;

fn stream(tokens: u32) -> Value {
    json!({
        "model": "tiny", "messages": [{ "role": "user", "content": "Tell me a story." }],
        "max_tokens": tokens, "temperature": 0, "stream": true
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_worker_it_is_live_and_not_ready() {
    let gateway = Gateway::start(&["http://127.0.0.1:1,model=tiny,cache-view=none".to_owned()], &[]).await;
    let get = async |path: &str| {
        let answer = gateway
            .client
            .get(format!("{}{path}", gateway.url))
            .send()
            .await
            .unwrap();
        answer.status().as_u16()
    };
    assert_eq!((get("/live").await, get("/ready").await), (200, 503));
    let response = gateway.send("/v1/chat/completions", &stream(1)).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    let models: Value = gateway
        .client
        .get(format!("{}/v1/models", gateway.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_told_to_end_streams_are_finished_and_nothing_new_is_taken() {
    let engines = [Engine::start(&[("mock.speedup", "1")])];
    let mut gateway = Gateway::before(&engines, &[]).await;
    let mut response = gateway.send("/v1/chat/completions", &stream(MINUTE)).await;
    let first = response.chunk().await.unwrap().unwrap();
    let ended = gateway.end();
    let wanted = async || {
        let asked = gateway.client.post(format!("{}/v1/completions", gateway.url));
        asked.body("{}").send().await
    };
    let until = Instant::now() + GUARD;
    while wanted().await.is_ok() {
        assert!(Instant::now() < until, "new requests are still accepted");
        tokio::time::sleep(POLL).await;
    }
    assert!(!ended.is_finished(), "somebody is still served");
    engines[0].hurry().await;
    let mut text = String::from_utf8(first.to_vec()).unwrap();
    while let Some(piece) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    let events = crate::harness::events(&text);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    assert!(!text_of(&events).is_empty());
    ended.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_drained_gets_nothing_new_and_finishes_what_it_has() {
    let engines = [
        Engine::start(&[("mock.speedup", "1")]),
        Engine::start(&[("mock.speedup", "1")]),
    ];
    let gateway = Gateway::before(&engines, &[]).await;
    let mut response = gateway.send("/v1/chat/completions", &stream(MINUTE)).await;
    let home = response.headers()["x-homing-served-by"].to_str().unwrap().to_owned();
    let drain = async |verb: &str| {
        let asked = gateway
            .client
            .post(format!("{}/admin/{verb}?worker={home}", gateway.admin));
        let answer: Value = asked.send().await.unwrap().json().await.unwrap();
        answer
    };
    let told = drain("drain").await;
    assert_eq!(
        (&told["draining"], &told["in_flight"]),
        (&json!(true), &json!(1)),
        "{told}"
    );
    for _ in 0..6 {
        let other = gateway.send("/v1/chat/completions", &stream(2)).await;
        assert_ne!(other.headers()["x-homing-served-by"], home.as_str());
    }
    for engine in &engines {
        engine.hurry().await;
    }
    let mut text = String::new();
    while let Some(piece) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert_eq!(
        crate::harness::events(&text).last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
    drain("undrain").await;
    let back = gateway
        .send_with("/v1/chat/completions", &stream(2), &[("x-homing-worker", &home)])
        .await;
    assert_eq!(back.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_later_are_found_and_those_that_restart_are_used_again() {
    let mut engine = Engine::start(&[]);
    let port = engine.place.address.port().to_string();
    let workers = [format!("{},model=tiny,cache-view=none", engine.url())];
    engine.kill();
    let gateway = Gateway::start(&workers, &[("serve.tries", "1")]).await;
    let failed_probes = gateway.metrics.discovery.asked_probes.of(Asked::Failed);
    gateway.wait("a failed probe", async || failed_probes.get() >= 1).await;
    assert_eq!(gateway.send("/v1/chat/completions", &stream(1)).await.status(), 503);
    for _ in 0..2 {
        let mut engine = Engine::start_again(&[("mock.port", &port)]);
        gateway
            .wait("an answer", async || {
                gateway.send("/v1/chat/completions", &stream(1)).await.status() == 200
            })
            .await;
        engine.kill();
        gateway
            .wait("its end", async || {
                gateway.send("/v1/chat/completions", &stream(1)).await.status() != 200
            })
            .await;
    }
}
