//! Workers that hang: what waits there moves, streams may move, and a fleet that hangs as a whole is left alone.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, events, prompt, text_of};

/// Steps of a real engine, so that streams last.
const REAL: &[(&str, &str)] = &[("mock.speedup", "1")];
const IN_TURN: (&str, &str) = ("serve.policy", "round-robin");

fn completion(number: u32, tokens: u32) -> Value {
    json!({
        "model": "tiny", "prompt": prompt(number, 64), "max_tokens": tokens, "temperature": 0, "stream": true
    })
}

/// A gateway whose workers are up. In turn, it has no views that could be waited for.
async fn start(engines: &[Engine], settings: &[(&str, &str)]) -> Gateway {
    let workers: Vec<String> = engines.iter().map(|engine| engine.spec("")).collect();
    let gateway = Gateway::start(&workers, settings).await;
    gateway.wait_workers(engines.len()).await;
    gateway
}

/// Requests that show the gateway how fast its workers are.
async fn calibrate(gateway: &Gateway, workers: u32) {
    join_all(
        (0..4 * workers).map(|number| async move { gateway.stream("/v1/completions", &completion(number, 20)).await }),
    )
    .await;
}

async fn health(gateway: &Gateway, engine: &Engine) -> (String, Value) {
    let fleet = gateway.admin("/admin/fleet").await;
    let workers = fleet["workers"].as_array().unwrap();
    let worker = workers.iter().find(|worker| worker["url"] == engine.url()).unwrap();
    (worker["health"].as_str().unwrap().to_owned(), worker["stall"].clone())
}

async fn is(gateway: &Gateway, engine: &Engine, wanted: &str) -> bool {
    health(gateway, engine).await.0 == wanted
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_an_engine_core_that_hangs_moves_and_the_worker_comes_back() {
    let engines = [Engine::start(REAL), Engine::start(REAL), Engine::start(REAL)];
    let gateway = start(&engines, &[IN_TURN]).await;
    calibrate(&gateway, 3).await;
    engines[0].faults(json!({ "stall": true })).await;
    let asked = join_all((0..9).map(|number| {
        let gateway = &gateway;
        async move { gateway.stream("/v1/completions", &completion(100 + number, 5)).await }
    }));
    for events in asked.await {
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
    let metrics = &gateway.metrics.gateway;
    assert!(metrics.moved_requests.get() > 0);
    let (state, stall) = health(&gateway, &engines[0]).await;
    assert_eq!(
        (state.as_str(), &stall["state"]),
        ("stalled", &json!("ejected")),
        "{stall}"
    );
    assert!(stall["reason"].as_str().unwrap().contains("counters"), "{stall}");
    assert_eq!(metrics.stalled_workers.get(), 1);
    // Nothing is booked there, and what it says when it goes on is read by no client.
    let fleet = gateway.admin("/admin/fleet").await;
    let worker = fleet["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|worker| worker["url"] == engines[0].url());
    let worker = worker.unwrap();
    assert_eq!(
        (&worker["in_flight"], &worker["ranks"][0]["booked"]),
        (&json!(0), &json!(0)),
        "{worker}"
    );
    engines[0].faults(json!({ "stall": false })).await;
    gateway
        .wait("it is taken back", async || is(&gateway, &engines[0], "up").await)
        .await;
    let before = worker["served"].as_u64().unwrap();
    gateway
        .wait("it serves again", async || {
            gateway.stream("/v1/completions", &completion(200, 2)).await;
            let fleet = gateway.admin("/admin/fleet").await;
            let workers = fleet["workers"].as_array().unwrap();
            let worker = workers.iter().find(|worker| worker["url"] == engines[0].url()).unwrap();
            worker["served"].as_u64().unwrap() > before
        })
        .await;
    assert_eq!(metrics.stalled_workers.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn running_streams_leave_an_engine_that_hangs_if_they_are_told_to() {
    for (migrates, settings) in [
        (false, &[IN_TURN][..]),
        (true, &[IN_TURN, ("health.stall-migrate-streams", "on")]),
    ] {
        let engines = [Engine::start(REAL), Engine::start(REAL), Engine::start(REAL)];
        let gateway = start(&engines, settings).await;
        calibrate(&gateway, 3).await;
        let tokens = 400;
        let undisturbed = gateway.stream("/v1/completions", &completion(1, tokens)).await;
        let body = completion(1, tokens);
        let answers: Vec<_> = (0..3).map(|_| gateway.send("/v1/completions", &body)).collect();
        let mut answers = join_all(answers).await;
        let mut texts = vec![Vec::new(); 3];
        for (answer, text) in answers.iter_mut().zip(&mut texts) {
            text.extend_from_slice(&answer.chunk().await.unwrap().unwrap());
        }
        engines[0].faults(json!({ "stall": true })).await;
        let reading = answers
            .into_iter()
            .zip(&mut texts)
            .map(|(mut answer, text)| async move {
                while let Some(piece) = answer.chunk().await.expect("the stream is whole") {
                    text.extend_from_slice(&piece);
                }
            });
        let release = async {
            gateway
                .wait("it is ejected", async || is(&gateway, &engines[0], "stalled").await)
                .await;
            if !migrates {
                engines[0].faults(json!({ "stall": false })).await;
            }
        };
        tokio::join!(join_all(reading), release);
        for text in &texts {
            let said = events(std::str::from_utf8(text).unwrap());
            assert_eq!(text_of(&said), text_of(&undisturbed));
        }
        assert_eq!(gateway.metrics.gateway.migrated_answers.get(), u64::from(migrates));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_hangs_as_a_whole_is_not_ejected() {
    let engines = [Engine::start(REAL), Engine::start(REAL), Engine::start(REAL)];
    let gateway = start(&engines, &[IN_TURN]).await;
    calibrate(&gateway, 3).await;
    let asked = async {
        join_all((0..9).map(|number| {
            let gateway = &gateway;
            async move { gateway.stream("/v1/completions", &completion(100 + number, 200)).await }
        }))
        .await
    };
    let metrics = &gateway.metrics.gateway;
    let hang = async {
        gateway
            .wait("all to be there", async || metrics.running_requests.get() == 9)
            .await;
        for engine in &engines {
            engine.faults(json!({ "stall": true })).await;
        }
        gateway
            .wait("panic", async || metrics.unejected_workers.get() >= 2)
            .await;
        assert!(
            metrics.stalled_workers.get() <= 1,
            "one was perhaps found before the others"
        );
        for engine in &engines {
            engine.faults(json!({ "stall": false })).await;
        }
    };
    let (answers, ()) = tokio::join!(asked, hang);
    for events in answers {
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retries_left_what_waits_stays_and_is_answered_later() {
    let engines = [Engine::start(REAL), Engine::start(REAL)];
    let gateway = start(&engines, &[IN_TURN, ("serve.tries", "1")]).await;
    calibrate(&gateway, 2).await;
    engines[0].faults(json!({ "stall": true })).await;
    let asked = async {
        join_all((0..4).map(|number| {
            let gateway = &gateway;
            async move { gateway.stream("/v1/completions", &completion(100 + number, 5)).await }
        }))
        .await
    };
    let release = async {
        gateway
            .wait("it is ejected", async || is(&gateway, &engines[0], "stalled").await)
            .await;
        engines[0].faults(json!({ "stall": false })).await;
    };
    let (answers, ()) = tokio::join!(asked, release);
    for events in answers {
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
    assert_eq!(gateway.metrics.gateway.moved_requests.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_a_worker_that_goes_down_is_tried_elsewhere_at_once() {
    let engines = [Engine::start(REAL), Engine::start(REAL)];
    // Only failing requests find it: stall detection and pings are off.
    let settings = [
        IN_TURN,
        ("health.stall-detection", "off"),
        ("health.interval", "1h"),
        ("health.failures", "2"),
        ("health.backoff", "1m"),
    ];
    let gateway = start(&engines, &settings).await;
    engines[0].faults(json!({ "stall": true })).await;
    let body = |number: u32| json!({ "model": "tiny", "prompt": prompt(number, 64), "max_tokens": 4 });
    let waits = async {
        let began = Instant::now();
        let bodies: Vec<Value> = (0..4).map(body).collect();
        let answers = join_all(bodies.iter().map(|body| gateway.send("/v1/completions", body))).await;
        assert!(answers.iter().all(|answer| answer.status() == 200));
        began.elapsed()
    };
    let metrics = &gateway.metrics.gateway;
    let fails = async {
        gateway
            .wait("all to be sent", async || metrics.running_requests.get() >= 2)
            .await;
        // What came before waits on; what comes now fails.
        engines[0].faults(json!({ "refuse": true })).await;
        gateway
            .wait("it is down", async || {
                drop(gateway.send("/v1/completions", &body(9)).await);
                is(&gateway, &engines[0], "down").await
            })
            .await;
    };
    let (took, ()) = tokio::join!(waits, fails);
    assert!(took < Duration::from_mins(1), "{took:?}");
    assert!(metrics.moved_requests.get() > 0);
}
