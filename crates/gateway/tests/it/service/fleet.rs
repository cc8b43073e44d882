//! Who comes and who goes while requests are under way?

use homing_config::{Inputs, KnobId, Reader};
use homing_telemetry::SourceKind;
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, REGISTER_TOKEN, events, file, prompt};

fn asked(text: &str, tokens: u32) -> Value {
    json!({ "model": "tiny", "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": true })
}

/// Tells the gateway of a worker, or takes it back.
async fn register(gateway: &Gateway, name: &str, spec: Option<&str>) {
    let place = format!("{}/admin/workers/{name}", gateway.admin);
    let answer = match spec {
        Some(spec) => {
            let (url, keys) = spec.split_once(',').unwrap();
            let keys = keys.split(',').map(|pair| pair.split_once('=').unwrap());
            let keys = keys.map(|(key, value)| (key.to_owned(), json!(value)));
            let told: serde_json::Map<String, Value> = keys.chain([("url".to_owned(), json!(url))]).collect();
            let put = gateway.client.put(place).bearer_auth(REGISTER_TOKEN);
            put.json(&told).send().await
        }
        None => gateway.client.delete(place).bearer_auth(REGISTER_TOKEN).send().await,
    };
    let answer = answer.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_all_day_leave_nothing_behind() {
    let stays = Engine::start(&[]);
    let comes = Engine::start(&[]);
    let quick = [("discovery.flap-wait", "0s"), ("serve.drain", "1s")];
    let gateway = Gateway::start(&[stays.spec("")], &quick).await;
    gateway.wait_workers(1).await;
    for turn in 0..40 {
        register(&gateway, "comes", Some(&comes.spec(""))).await;
        gateway.wait_workers(2).await;
        let text = gateway
            .send("/v1/completions", &asked(&prompt(turn, 64), 2))
            .await
            .text()
            .await
            .unwrap();
        assert_eq!(events(&text).len(), 2);
        register(&gateway, "comes", None).await;
        gateway.wait_workers(1).await;
    }
    gateway
        .wait("ranks to be forgotten", async || {
            gateway.metrics.index.live_ranks.get() == 1
        })
        .await;
    assert_eq!(gateway.metrics.gateway.known_workers.get(), 1);
    assert_eq!(gateway.metrics.gateway.running_requests.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_comes_later_is_served_and_gone_when_its_worker_leaves() {
    let tiny = Engine::start(&[]);
    let other = Engine::start(&[("model", "other"), ("block-size", "8")]);
    let gateway = Gateway::start(
        &[tiny.spec("")],
        &[("discovery.flap-wait", "0s"), ("serve.drain", "1s")],
    )
    .await;
    gateway.wait_workers(1).await;
    let ask = json!({ "model": "other", "prompt": "x", "max_tokens": 2 });
    assert_eq!(gateway.post("/v1/completions", &ask).await.0, 404);
    register(
        &gateway,
        "other",
        Some(&other.spec("").replace("model=tiny", "model=other")),
    )
    .await;
    gateway.wait_workers(2).await;
    let answer = gateway.ok("/v1/completions", &ask).await;
    assert_eq!(answer["model"], "other");
    let fleet = gateway.admin("/admin/fleet").await;
    let found = fleet["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|worker| worker["model"] == "other")
        .cloned();
    assert_eq!(found.unwrap()["block_size"], 8, "its block size was learnt: {fleet}");
    register(&gateway, "other", None).await;
    gateway.wait_workers(1).await;
    assert_eq!(gateway.post("/v1/completions", &ask).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_settings_file_changes_the_fleet_and_drops_no_stream() {
    let engines = [Engine::start(&[("mock.speedup", "1")]), Engine::start(&[])];
    let path = file("gateway.toml");
    let written = |engines: &[&Engine], patience: &str| {
        let table = |engine: &&Engine| format!("[[worker]]\nurl = \"{}\"\n", engine.url());
        let tables: String = engines.iter().map(table).collect();
        let text = format!("[serve]\nfirst-token-timeout = \"{patience}\"\n{tables}");
        std::fs::write(&path, text).unwrap();
    };
    written(&[&engines[0]], "10m");
    let flags = [
        ("serve.listen", "127.0.0.1:0"),
        ("serve.admin", "127.0.0.1:0"),
        ("discovery.file-interval", "50ms"),
    ];
    let flags = flags.map(|(name, value)| (KnobId::of_path(name).unwrap(), value.to_owned()));
    let inputs = Inputs {
        flags: flags.to_vec(),
        ..Inputs::default()
    };
    let reader = Reader::with_file(inputs, &path);
    let gateway = Gateway::reading(reader).await;
    gateway.wait_workers(1).await;
    let mut response = gateway.send("/v1/completions", &asked("A long story", 5_000)).await;
    let mut text = String::from_utf8(response.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    std::fs::write(&path, "[serve\npolicy = 7\n").unwrap();
    let failures = gateway.metrics.discovery.source_failures.of(SourceKind::File);
    gateway
        .wait("the unusable file to be read", async || failures.get() >= 1)
        .await;
    written(&[&engines[1]], "5m");
    let second = engines[1].url();
    gateway
        .wait("the other worker alone", async || {
            let answer = gateway.send("/v1/completions", &asked("x", 1)).await;
            answer
                .headers()
                .get("x-homing-served-by")
                .is_some_and(|by| *by == second.as_str())
        })
        .await;
    engines[0].hurry().await;
    while let Some(piece) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert_eq!(
        events(&text).len(),
        5_000,
        "the stream at the worker that left was finished"
    );
}
