//! Adapters come and go on engines while requests use them.

use homing_platform::HttpClient;
use std::sync::atomic::{AtomicU32, Ordering};

use homing_telemetry::TryFailure;
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, events, file, refused};

const MANAGE: &[(&str, &str)] = &[
    ("serve.adapters", "manage"),
    ("adapters.round", "200ms"),
    ("adapters.expected-load", "20ms"),
    ("adapters.backoff", "50ms"),
    ("probe.interval", "300ms"),
    ("load.interval", "100ms"),
];

async fn order(gateway: &Gateway, body: &Value) -> (u16, Value) {
    let request = gateway.client.post(format!("{}/admin/adapters", gateway.admin));
    let response = request.json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn register(gateway: &Gateway, name: &str) {
    let (status, said) = order(gateway, &json!({"name": name, "path": format!("/adapters/{name}")})).await;
    assert_eq!(status, 200, "{said}");
}

fn ask(model: &str, number: u32, tokens: u32) -> Value {
    let prompt = crate::harness::prompt(number, 64);
    json!({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0})
}

async fn models_of(gateway: &Gateway, url: &str) -> Vec<String> {
    let response = gateway.client.get(format!("{url}/v1/models")).send().await.unwrap();
    let models: Value = response.json().await.unwrap();
    let names = models["data"].as_array().unwrap().iter();
    names.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_move_between_four_engines_while_streams_run_and_none_fails() {
    const ADAPTERS: u32 = 12;
    let engine = || {
        Engine::start(&[
            ("mock.speedup", "30"),
            ("mock.max-loras", "2"),
            ("mock.lora-fetch", "10ms"),
            ("mock.lora-load", "1ms"),
        ])
    };
    let engines = [engine(), engine(), engine(), engine()];
    // Engines are asked all the time what they have, so that some answers are old when they come.
    let often = [MANAGE, &[("probe.interval", "100ms")]].concat();
    let gateway = Gateway::before(&engines, &often).await;
    for number in 0..ADAPTERS {
        register(&gateway, &format!("lora-{number}")).await;
    }
    let served = AtomicU32::new(0);
    let user = async |user: u32| {
        for turn in 0..16 {
            // Each moves on to other adapters, and every fourth request is the model's own.
            let number = user * 31 + turn;
            let model = match number % 4 {
                0 => "tiny".to_owned(),
                _ => format!("lora-{}", (number * 7 + turn / 4) % ADAPTERS),
            };
            let mut body = ask(&model, number, 12);
            body["stream"] = json!(true);
            let response = gateway.send("/v1/completions", &body).await;
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            assert_eq!(status, 200, "{model}: {text}");
            let events = events(&text);
            assert!(
                events
                    .iter()
                    .any(|event| event["choices"][0]["finish_reason"] == "length"),
                "{model}: {text}"
            );
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(user(0), user(1), user(2), user(3), user(4), user(5));
    assert_eq!(served.load(Ordering::Relaxed), 96);
    let missed = gateway.metrics.gateway.failed_tries.of(TryFailure::NoAdapter).get();
    assert_eq!(missed, 0, "who is let in finds its adapter");
    let shown = gateway.admin("/admin/adapters").await;
    let moves = &shown["models"][0]["moves"];
    assert!(
        moves["loads"].as_u64().unwrap() > 8,
        "there are more adapters than slots: {moves}"
    );
    assert!(moves["unloads"].as_u64().unwrap() > 0, "{moves}");
    assert_eq!(
        (&moves["failed_loads"], &moves["failed_unloads"]),
        (&json!(0), &json!(0))
    );
    let decisions = gateway.admin("/admin/decisions?limit=1000").await;
    let decisions = decisions["decisions"].as_array().unwrap().clone();
    let waited = |decision: &&Value| decision["waited_for_loads"][0]["loaded"] == true;
    assert!(
        decisions.iter().any(|decision| waited(&decision)),
        "somebody waited for a load"
    );
    // When nothing moves any more, what is shown is what engines have, and it fits.
    gateway
        .wait("adapters to settle", async || {
            let shown = gateway.admin("/admin/adapters").await;
            let mut agrees = shown["models"][0]["moves"]["under_way"] == 0;
            for worker in shown["models"][0]["workers"].as_array().unwrap() {
                let mut has = models_of(&gateway, worker["worker"].as_str().unwrap()).await;
                has.retain(|name| name != "tiny");
                let shown: Vec<&str> = worker["adapters"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                assert!(has.len() <= 2, "{has:?}");
                agrees &= has == shown;
            }
            agrees
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_is_listed_and_what_is_not_is_refused() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, MANAGE).await;
    register(&gateway, "org/poet").await;
    let answer = gateway.ok("/v1/completions", &ask("org/poet", 1, 4)).await;
    assert_eq!(answer["model"], "org/poet");
    assert!(models_of(&gateway, &gateway.url).await.contains(&"org/poet".to_owned()));
    let (status, said) = gateway.post("/v1/completions", &ask("nobody", 1, 4)).await;
    assert_eq!(status, 404);
    assert!(
        said["error"]["message"].as_str().unwrap().contains("org/poet"),
        "{said}"
    );
    for (body, expected, words) in [
        (json!({"name": "a b", "path": "/x"}), 400, "must not have ' '"),
        (json!({"name": "", "path": "/x"}), 400, "must not be empty"),
        (json!({"name": "a"}), 400, "`path` or `uri` is needed"),
        (json!({"name": "a", "path": "/x\n"}), 400, "`path` or `uri` is needed"),
        (json!({"name": "tiny", "path": "/x"}), 409, "is the name of a model"),
        (json!({"nome": "a"}), 400, "must be a JSON object"),
    ] {
        let (status, said) = order(&gateway, &body).await;
        let message = said["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, expected, "{body}: {said}");
        assert!(message.contains(words), "{body}: {message}");
    }
    let delete = async |name: &str| {
        let request = gateway
            .client
            .delete(format!("{}/admin/adapters/{name}", gateway.admin));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(delete("org/poet").await, 200);
    assert_eq!(gateway.post("/v1/completions", &ask("org/poet", 1, 4)).await.0, 404);
    gateway
        .wait("the adapter to go", async || {
            let mut gone = true;
            for engine in &engines {
                gone &= models_of(&gateway, &engine.url()).await == ["tiny"];
            }
            gone
        })
        .await;
    gateway
        .wait("it to be forgotten", async || delete("org/poet").await == 404)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_load_is_left_for_one_that_can() {
    let engines = [
        Engine::start(&[("mock.fault-reject-adapters", "on"), ("mock.max-loras", "16")]),
        Engine::start(&[("mock.max-loras", "16")]),
    ];
    let gateway = Gateway::before(&engines, MANAGE).await;
    // Where they are at home is drawn from addresses: some are at home at the one that cannot.
    for number in 0..14 {
        let name = format!("lora-{number}");
        register(&gateway, &name).await;
        gateway.ok("/v1/completions", &ask(&name, number, 4)).await;
    }
    let shown = gateway.admin("/admin/adapters").await;
    let adapters = shown["models"][0]["adapters"].as_array().unwrap();
    for adapter in adapters {
        assert_eq!(adapter["on"], json!([engines[1].url()]), "{adapter}");
    }
    // Sooner or later somebody was at home at the one that cannot.
    gateway
        .wait("a failure to be shown", async || {
            let shown = gateway.admin("/admin/adapters").await;
            shown["models"][0]["moves"]["failed_loads"].as_u64().unwrap() > 0
        })
        .await;
}

/// Somebody else takes an adapter from an engine.
async fn take_away(gateway: &Gateway, engine: &Engine, name: &str) {
    let asked = gateway.client.post(format!("{}/v1/unload_lora_adapter", engine.url()));
    let taken = asked.json(&json!({ "lora_name": name })).send().await.unwrap();
    assert!(taken.status().is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_that_somebody_took_away_is_loaded_again_and_no_request_fails() {
    // It is not asked again what it has while this runs.
    let seldom = [MANAGE, &[("probe.interval", "10m")]].concat();
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &seldom).await;
    register(&gateway, "poet").await;
    let failed = || gateway.metrics.gateway.failed_tries.of(TryFailure::NoAdapter).get();
    for (round, stream) in [(1, false), (2, true)] {
        gateway.ok("/v1/completions", &ask("poet", round, 4)).await;
        take_away(&gateway, &engines[0], "poet").await;
        let mut body = ask("poet", 10 + round, 4);
        body["stream"] = json!(stream);
        let response = gateway.send("/v1/completions", &body).await;
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        assert_eq!(failed(), u64::from(round));
    }
    let decisions = gateway.admin("/admin/decisions?limit=1").await;
    let tries = decisions["decisions"][0]["tries"].as_array().unwrap();
    let why = tries[0]["failed"].as_str().unwrap();
    assert_eq!((tries.len(), why), (2, "does not have the adapter `poet`"), "{tries:?}");
    let fleet = gateway.admin("/admin/fleet").await;
    assert_eq!(fleet["workers"][0]["health"], "up", "it did nothing wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_managing_who_lost_an_adapter_is_left_for_who_has_it() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let load = json!({"lora_name": "poet", "lora_path": "/adapters/poet"});
    for engine in &engines {
        let asked = HttpClient::default().post(format!("{}/v1/load_lora_adapter", engine.url()));
        assert!(asked.json(&load).send().await.unwrap().status().is_success());
    }
    let gateway = Gateway::before(&engines, &[("probe.interval", "10m")]).await;
    take_away(&gateway, &engines[0], "poet").await;
    for number in 0..8 {
        let response = gateway.send("/v1/completions", &ask("poet", number, 4)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-homing-served-by"], engines[1].url().as_str());
    }
    let failed = gateway.metrics.gateway.failed_tries.of(TryFailure::NoAdapter).get();
    assert!(failed <= 1, "it is asked once at most: {failed}");
    // If nobody has it any more, the client reads what the engine said.
    take_away(&gateway, &engines[1], "poet").await;
    let (status, said) = gateway.post("/v1/completions", &ask("poet", 9, 4)).await;
    assert_eq!(status, 404, "{said}");
    assert!(said["error"]["message"].as_str().unwrap().contains("poet"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_managing_requests_go_to_who_has_it_and_nothing_is_loaded() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("probe.interval", "100ms")]).await;
    assert_eq!(order(&gateway, &json!({"name": "a", "path": "/x"})).await.0, 409);
    assert_eq!(gateway.post("/v1/completions", &ask("poet", 1, 4)).await.0, 404);
    let load = json!({"lora_name": "poet", "lora_path": "/adapters/poet"});
    let asked = gateway
        .client
        .post(format!("{}/v1/load_lora_adapter", engines[1].url()));
    assert!(asked.json(&load).send().await.unwrap().status().is_success());
    let booked = async || gateway.post("/v1/completions", &ask("poet", 1, 4)).await.0 == 200;
    gateway.wait("the adapter to be known", booked).await;
    for number in 0..8 {
        let response = gateway.send("/v1/completions", &ask("poet", number, 4)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-homing-served-by"], engines[1].url().as_str());
    }
    let shown = gateway.admin("/admin/adapters").await;
    assert_eq!(shown["mode"], "route");
    assert_eq!(shown["models"][0]["adapters"][0]["source"], "/adapters/poet");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_told_of_is_kept_over_a_restart() {
    let path = file("catalogue.json");
    let _ = std::fs::remove_file(&path);
    let settings = [MANAGE, &[("adapters.catalogue", path.to_str().unwrap())]].concat();
    let engines = [Engine::start(&[])];
    let mut before = Gateway::before(&engines, &settings).await;
    register(&before, "poet").await;
    register(&before, "cook").await;
    let gone = before.client.delete(format!("{}/admin/adapters/cook", before.admin));
    assert_eq!(gone.send().await.unwrap().status(), 200);
    before.end().await.unwrap();
    drop(before);
    // Of this engine nothing can be learnt.
    let fresh = [Engine::start(&[])];
    let after = Gateway::before(&fresh, &settings).await;
    assert_eq!(models_of(&after, &after.url).await, ["poet", "tiny"]);
    let answer = after.ok("/v1/completions", &ask("poet", 1, 4)).await;
    assert_eq!(answer["model"], "poet");
    assert_eq!(after.post("/v1/completions", &ask("cook", 1, 4)).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_cannot_be_used_is_refused_and_left_alone() {
    let path = file("no-catalogue.json");
    std::fs::write(&path, "{\"adapters\": 7}").unwrap();
    let settings = [MANAGE, &[("adapters.catalogue", path.to_str().unwrap())]].concat();
    let why = refused(&settings).await;
    assert!(
        why.contains("no catalogue of adapters") && why.contains("adapters.catalogue"),
        "{why}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"adapters\": 7}");
    let nowhere = [MANAGE, &[("adapters.catalogue", "/nonexistent/catalogue.json")]].concat();
    let why = refused(&nowhere).await;
    assert!(why.contains("cannot be written"), "{why}");
}
