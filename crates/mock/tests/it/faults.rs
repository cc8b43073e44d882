//! What goes wrong on request.

use std::time::Duration;

use serde_json::{Value, json};

use crate::mock::Mock;

fn ask() -> Value {
    json!({"prompt": "x", "max_tokens": 10})
}

#[tokio::test]
async fn it_refuses_fails_and_comes_back() {
    let mock = Mock::start(&[]).await;
    mock.ok("/mock/faults", &json!({"refuse": true})).await;
    assert!(mock.send("/v1/completions", &ask()).await.is_err());
    assert!(mock.client.get(format!("{}/health", mock.url())).send().await.is_err());
    let faults = mock.ok("/mock/faults", &json!({"refuse": false, "fail": true})).await;
    assert_eq!((&faults["refuse"], &faults["fail"]), (&json!(false), &json!(true)));
    let (status, answer) = mock.post("/v1/completions", &ask()).await;
    assert_eq!((status, &answer["error"]["type"]), (500, &json!("InternalServerError")));
    mock.ok("/mock/faults", &json!({"fail": false})).await;
    mock.ok("/v1/completions", &ask()).await;
    assert_eq!(mock.post("/mock/faults", &json!({"fial": true})).await.0, 400);
}

#[tokio::test]
async fn it_stalls_until_it_is_told_otherwise() {
    let mock = Mock::start(&[("mock.fault-stall", "on")]).await;
    let (url, client) = (mock.url(), mock.client.clone());
    let stalled = tokio::spawn(async move { client.post(format!("{url}/v1/completions")).json(&ask()).send().await });
    // Others are answered meanwhile.
    assert_eq!(mock.get_json("/mock/faults").await["stall"], true);
    assert!(!stalled.is_finished());
    mock.ok("/mock/faults", &json!({"stall": false})).await;
    assert_eq!(stalled.await.unwrap().unwrap().status().as_u16(), 200);
}

#[tokio::test]
async fn a_stall_stops_running_streams_and_counters_while_health_and_metrics_are_answered() {
    let mock = Mock::start(&[("mock.speedup", "1")]).await;
    let mut response = mock
        .send(
            "/v1/completions",
            &json!({"prompt": "x", "max_tokens": 100, "temperature": 0, "stream": true}),
        )
        .await
        .unwrap();
    response.chunk().await.unwrap().unwrap();
    mock.ok("/mock/faults", &json!({"stall": true})).await;
    let counted = async || {
        let page = mock.get("/metrics").await;
        let names = [
            "vllm:iteration_tokens_total",
            "vllm:generation_tokens_total",
            "vllm:kv_cache_usage_perc",
        ];
        let lines = page
            .lines()
            .filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let before = counted().await;
    assert!(
        before
            .iter()
            .any(|line| line.starts_with("vllm:iteration_tokens_total_count")),
        "{before:?}"
    );
    // What was on its way when it stalled may come; then nothing does, for much longer than a step.
    let silence = Duration::from_millis(500);
    while let Ok(piece) = tokio::time::timeout(silence, response.chunk()).await {
        assert!(piece.unwrap().is_some(), "it goes on later");
    }
    assert_eq!(
        mock.client
            .get(format!("{}/health", mock.url()))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16(),
        200
    );
    assert_eq!(counted().await, before);
    mock.ok("/mock/faults", &json!({"stall": false})).await;
    let mut rest = Vec::new();
    while let Some(piece) = response.chunk().await.unwrap() {
        rest.extend_from_slice(&piece);
    }
    assert!(String::from_utf8_lossy(&rest).contains("[DONE]"));
    assert_ne!(counted().await, before);
}

#[tokio::test]
async fn answers_break_off_when_it_is_killed_and_nobody_is_there_any_more() {
    let mock = Mock::start(&[("mock.speedup", "1")]).await;
    let endless = json!({"prompt": "x", "max_tokens": 10_000, "stream": true});
    let mut response = mock.send("/v1/completions", &endless).await.unwrap();
    response.chunk().await.unwrap().unwrap();
    mock.kill();
    let end = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(end.is_err(), "it must not end well");
    assert!(mock.send("/v1/completions", &ask()).await.is_err());
}

#[tokio::test]
async fn it_cuts_streams_after_so_many_tokens() {
    let mock = Mock::start(&[("mock.fault-cut-after", "3")]).await;
    let mut stream = ask();
    stream["stream"] = json!(true);
    let mut response = mock.send("/v1/completions", &stream).await.unwrap();
    let mut heard = Vec::new();
    let cut = loop {
        match response.chunk().await {
            Ok(Some(bytes)) => heard.extend_from_slice(&bytes),
            other => break other,
        }
    };
    assert!(cut.is_err(), "it must not end well");
    let heard = String::from_utf8(heard).unwrap();
    assert_eq!(heard.matches("data: ").count(), 3, "{heard}");
    let whole = mock.send("/v1/completions", &ask()).await;
    let whole = match whole {
        Ok(response) => response.text().await.err(),
        Err(error) => Some(error),
    };
    assert!(whole.is_some());
}

#[tokio::test]
async fn it_restarts_with_a_new_identity_and_loses_what_it_was_doing() {
    let mock = Mock::start(&[("mock.speedup", "1")]).await;
    let before = mock.metric("process_start_time_seconds ").await;
    let endless = json!({"prompt": "x", "max_tokens": 100_000, "stream": true});
    let mut lost = mock.send("/v1/completions", &endless).await.unwrap();
    lost.chunk().await.unwrap().expect("it begins");
    mock.ok("/mock/restart", &Value::Null).await;
    let end = loop {
        match lost.chunk().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(end.is_err(), "it must not end well");
    assert!(mock.metric("process_start_time_seconds ").await > before);
    assert!(mock.metric("vllm:generation_tokens_total").await < 1.0);
    mock.ok("/v1/completions", &ask()).await;
}

#[tokio::test]
async fn it_slows_down_and_rejects_adapters() {
    let mock = Mock::start(&[("mock.speedup", "100")]).await;
    mock.ok("/v1/completions", &ask()).await;
    let first = mock.metric("vllm:e2e_request_latency_seconds_sum").await;
    mock.ok("/mock/faults", &json!({"slowdown": 50.0, "reject_adapters": true}))
        .await;
    // Model time, so that how busy this machine is does not matter.
    mock.ok("/v1/completions", &ask()).await;
    let both = mock.metric("vllm:e2e_request_latency_seconds_sum").await;
    assert!(both - first > 20.0 * first, "{first} {both}");
    assert_eq!(
        mock.post("/v1/load_lora_adapter", &json!({"lora_name": "a", "lora_path": "x"}))
            .await
            .0,
        500
    );
    tokio::time::timeout(Duration::from_secs(30), mock.stop())
        .await
        .expect("it stops");
}
