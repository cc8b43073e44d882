//! What becomes of requests when engines, clients or the load misbehave?

use homing_platform::HttpClient;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, events, prompt, text_of};

fn chat(text: &str, tokens: u32) -> Value {
    json!({
        "model": "tiny", "messages": [{ "role": "user", "content": text }],
        "max_tokens": tokens, "temperature": 0, "stream": true
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fails_before_the_first_token_costs_nobody_an_answer() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    // One that stalls is given up once, and long after an answer would have come from the other on a busy machine.
    let patience = [
        ("serve.first-token-timeout", "5s"),
        ("health.failures", "1"),
        ("health.backoff", "1m"),
    ];
    for (fault, settings) in [
        (json!({ "fail": true }), &[][..]),
        (json!({ "refuse": true }), &[]),
        (json!({ "stall": true }), &patience),
    ] {
        let gateway = Gateway::before(&engines, settings).await;
        engines[0].faults(fault.clone()).await;
        for number in 0..8 {
            let events = gateway
                .stream("/v1/chat/completions", &chat(&prompt(number, 64), 4))
                .await;
            assert_eq!(
                events.last().unwrap()["choices"][0]["finish_reason"],
                "length",
                "{fault}"
            );
        }
        engines[0]
            .faults(json!({ "fail": false, "refuse": false, "stall": false }))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_go_on_elsewhere_when_their_worker_is_killed() {
    let slow = [("mock.speedup", "1"), ("mock.max-running", "512")];
    let mut engines = vec![Engine::start(&slow), Engine::start(&slow), Engine::start(&slow)];
    let gateway = Gateway::before(&engines, &[]).await;
    let (streams, tokens) = (200, 40);
    let body = |number: u32| {
        if number.is_multiple_of(2) {
            chat(&prompt(number, 64), tokens)
        } else {
            json!({
                "model": "tiny", "prompt": prompt(number, 64), "max_tokens": tokens, "temperature": 0, "stream": true
            })
        }
    };
    let path = |number: u32| {
        if number.is_multiple_of(2) {
            "/v1/chat/completions"
        } else {
            "/v1/completions"
        }
    };
    let begun = AtomicU32::new(0);
    let ask = async |number: u32| {
        let mut response = gateway.send(path(number), &body(number)).await;
        assert_eq!(response.status(), 200);
        let mut text = Vec::new();
        while let Some(piece) = response.chunk().await.expect("the stream is whole") {
            if text.is_empty() {
                begun.fetch_add(1, SeqCst);
            }
            text.extend_from_slice(&piece);
        }
        events(std::str::from_utf8(&text).unwrap())
    };
    let slower = async |engines: &[Engine], times: f64| {
        for engine in engines {
            engine.faults(json!({ "slowdown": times })).await;
        }
    };
    let undisturbed = join_all((0..streams).map(ask)).await;
    // So that none has ended when the last one begins, however busy this machine is.
    slower(&engines, 30.0).await;
    let before = gateway.metrics.gateway.migrated_answers.get();
    let killing = async {
        gateway
            .wait("all streams to begin", async || begun.load(SeqCst) == 2 * streams)
            .await;
        engines[1].kill();
        slower(&engines[..1], 1.0).await;
        slower(&engines[2..], 1.0).await;
    };
    let (disturbed, ()) = tokio::join!(join_all((0..streams).map(ask)), killing);
    for (number, (with, without)) in disturbed.iter().zip(&undisturbed).enumerate() {
        assert_eq!(text_of(with), text_of(without), "stream {number}");
        let ids: std::collections::BTreeSet<&str> = with.iter().map(|event| event["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 1, "stream {number} has one id");
        let ends = with
            .iter()
            .filter(|event| !event["choices"][0]["finish_reason"].is_null())
            .count();
        assert_eq!(ends, 1, "stream {number} ends once");
    }
    assert!(
        gateway.metrics.gateway.migrated_answers.get() > before,
        "some of them were there"
    );
    assert_eq!(gateway.metrics.gateway.broken_answers.get(), 0);
    gateway
        .wait("rest", async || gateway.metrics.gateway.running_requests.get() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_go_on_ends_with_an_error_that_says_why() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    for engine in &engines {
        engine.faults(json!({ "cut_after": 3 })).await;
    }
    let mut asked = chat("Hello", 16);
    asked["n"] = json!(2);
    let text = gateway.send("/v1/chat/completions", &asked).await.text().await.unwrap();
    assert!(text.contains("\"error\"") && text.contains("several answers"), "{text}");
    let last = gateway.admin("/admin/decisions?limit=1").await;
    assert_eq!(last["decisions"][0]["end"], "failed", "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_frees_its_worker_at_once() {
    let engines = [Engine::start(&[("mock.speedup", "1")])];
    let gateway = Gateway::before(&engines, &[]).await;
    let mut response = gateway
        .send("/v1/chat/completions", &chat("Tell me everything.", 10_000))
        .await;
    response.chunk().await.unwrap().unwrap();
    drop(response);
    gateway
        .wait("the end", async || gateway.metrics.gateway.running_requests.get() == 0)
        .await;
    let client = HttpClient::default();
    gateway
        .wait("the engine to be idle", async || {
            let page = client
                .get(format!("{}/metrics", engines[0].url()))
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap();
            let line = page
                .lines()
                .find(|line| line.starts_with("vllm:num_requests_running"))
                .unwrap();
            line.ends_with(" 0.0") || line.ends_with(" 0")
        })
        .await;
    let last = gateway.admin("/admin/decisions?limit=1").await;
    assert_eq!(last["decisions"][0]["end"], "cancelled", "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_is_refused_with_a_time_to_come_back() {
    let engines = [Engine::start(&[("mock.speedup", "1"), ("mock.blocks", "64")])];
    let limits = [
        ("serve.queue-requests", "1"),
        ("serve.start-within", "1ms"),
        ("serve.most-wait", "2s"),
    ];
    let gateway = Gateway::before(&engines, &limits).await;
    let asked = (0..24).map(|number| {
        let body = chat(&prompt(number, 900), 30);
        let gateway = &gateway;
        async move {
            let response = gateway.send("/v1/chat/completions", &body).await;
            let retry = response.headers().contains_key("retry-after");
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            (status, retry, text)
        }
    });
    let answers = join_all(asked).await;
    let refused: Vec<_> = answers.iter().filter(|(status, ..)| *status != 200).collect();
    assert!(!refused.is_empty() && refused.len() < 24, "{} of 24", refused.len());
    for (status, retry, text) in refused {
        assert_eq!(*status, 503, "{text}");
        assert!(*retry && text.contains("\"error\""), "{text}");
    }
    gateway
        .wait("rest", async || gateway.metrics.gateway.running_requests.get() == 0)
        .await;
}
