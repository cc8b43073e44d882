//! Requests whose prompt one worker computes and whose answer another gives.

use homing_platform::HttpClient;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Engine, GUARD, Gateway, POLL, events, prompt, text_of};

const LONG: usize = 1_200;

fn chat(number: u32, tokens: u32) -> Value {
    json!({
        "model": "tiny", "messages": [{ "role": "user", "content": prompt(number, LONG) }],
        "max_tokens": tokens, "temperature": 0
    })
}

fn nixl(more: &[(&str, &str)]) -> Engine {
    Engine::start(&[&[("mock.kv-connector", "nixl")], more].concat())
}

fn sglang(role: &str) -> Engine {
    Engine::start(&[
        ("mock.dialect", "sglang"),
        ("mock.kv-connector", "sglang"),
        ("mock.role", role),
    ])
}

/// Two are always used where there are two, so that it does not depend on predicted times.
const ALWAYS: (&str, &str) = ("disagg.when", "always");

/// What nobody fetched counts as staged until its lease has ended.
const LAPSES: [(&str, &str); 1] = [("mock.kv-lease", "8s")];

struct Fleet {
    prefill: Vec<Engine>,
    decode: Vec<Engine>,
    gateway: Gateway,
}

impl Fleet {
    /// So many of each, of vLLM.
    async fn start(prefills: usize, decodes: usize, settings: &[(&str, &str)]) -> Self {
        Self::of(
            (0..prefills).map(|_| nixl(&[])).collect(),
            (0..decodes).map(|_| nixl(&[])).collect(),
            settings,
        )
        .await
    }

    async fn of(prefill: Vec<Engine>, decode: Vec<Engine>, settings: &[(&str, &str)]) -> Self {
        let roles = [(&prefill, ",role=prefill"), (&decode, ",role=decode")];
        let workers: Vec<String> = roles
            .iter()
            .flat_map(|(engines, role)| engines.iter().map(|engine| engine.spec(role)))
            .collect();
        let gateway = Gateway::start(&workers, settings).await;
        gateway.wait_workers(workers.len()).await;
        Self {
            prefill,
            decode,
            gateway,
        }
    }

    fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.prefill.iter().chain(&self.decode)
    }

    /// Nothing is staged, on its way, booked or running any more.
    async fn rests(&self) {
        for engine in self.engines() {
            rests(engine).await;
        }
        let metrics = &self.gateway.metrics.gateway;
        self.gateway
            .wait("rest", async || {
                let fleet = self.gateway.admin("/admin/fleet").await;
                let busy = |worker: &Value| worker["in_flight"].as_u64().unwrap_or(0) > 0;
                let workers = fleet["workers"].as_array().cloned().unwrap_or_default();
                let staged = fleet["queue"]["staged_blocks"].as_u64();
                metrics.running_requests.get() == 0 && staged == Some(0) && !workers.iter().any(busy)
            })
            .await;
    }
}

async fn kv(engine: &Engine) -> Option<(u64, u64)> {
    let page = HttpClient::default()
        .get(format!("{}/mock/kv", engine.url()))
        .send()
        .await
        .ok()?;
    let page: Value = page.json().await.ok()?;
    Some((page["staged_blocks"].as_u64()?, page["incoming_blocks"].as_u64()?))
}

async fn rests(engine: &Engine) {
    let until = Instant::now() + GUARD;
    // Who was killed has nothing.
    while let Some(now) = kv(engine).await.filter(|now| *now != (0, 0)) {
        assert!(Instant::now() < until, "{now:?} blocks are staged and on their way");
        tokio::time::sleep(POLL).await;
    }
}

/// What one worker alone says.
async fn alone(bodies: &[Value]) -> Vec<String> {
    let engine = Engine::start(&[]);
    let gateway = Gateway::before(std::slice::from_ref(&engine), &[]).await;
    let ask = async |body: &Value| text_of(&gateway.stream("/v1/chat/completions", body).await);
    join_all(bodies.iter().map(ask)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_that_of_one_worker_and_the_receipt_names_both() {
    let fleet = Fleet::start(1, 1, &[ALWAYS]).await;
    let body = chat(1, 20);
    let expected = alone(std::slice::from_ref(&body)).await.remove(0);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let response = fleet.gateway.send("/v1/chat/completions", &streamed).await;
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header("x-homing-served-by"), Some(fleet.decode[0].url()));
    assert_eq!(header("x-homing-prefilled-by"), Some(fleet.prefill[0].url()));
    assert_eq!(header("x-homing-cached-tokens").as_deref(), Some("0"));
    assert_eq!(text_of(&events(&response.text().await.unwrap())), expected);
    let whole = fleet.gateway.ok("/v1/chat/completions", &body).await;
    assert_eq!(whole["choices"][0]["message"]["content"], expected.as_str());
    assert_eq!(whole["usage"]["completion_tokens"], 20);
    let decisions = fleet.gateway.admin("/admin/decisions").await;
    let tries = &decisions["decisions"][1]["tries"];
    assert_eq!(
        (&tries[0]["leg"], &tries[1]["leg"]),
        (&json!("prefill"), &json!("decode")),
        "{decisions}"
    );
    assert!(
        tries[0]["why"].is_object() && tries[0]["took_ms"].as_f64().unwrap() > 0.0,
        "{decisions}"
    );
    fleet.rests().await;
    assert!(
        fleet
            .gateway
            .metrics
            .gateway
            .handoffs
            .of(homing_telemetry::HandoffFate::HandedOver)
            .get()
            >= 2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_sglang_meet() {
    let fleet = Fleet::of(
        vec![sglang("prefill")],
        vec![sglang("decode"), sglang("decode")],
        &[ALWAYS],
    )
    .await;
    let bodies: Vec<Value> = (0..8).map(|number| chat(number, 12)).collect();
    let expected = alone(&bodies).await;
    let ask = async |body: &Value| text_of(&fleet.gateway.stream("/v1/chat/completions", body).await);
    assert_eq!(join_all(bodies.iter().map(ask)).await, expected);
    fleet.rests().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_of_sglang_is_learnt_from_itself() {
    let (prefill, decode) = (sglang("prefill"), sglang("decode"));
    let gateway = Gateway::start(&[prefill.spec(""), decode.spec("")], &[ALWAYS]).await;
    gateway.wait_workers(2).await;
    let response = gateway.send("/v1/chat/completions", &chat(1, 4)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-homing-prefilled-by"], prefill.url().as_str());
    assert_eq!(response.headers()["x-homing-served-by"], decode.url().as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_worker_that_fails_at_any_step_costs_nobody_an_answer() {
    let bodies: Vec<Value> = (0..6).map(|number| chat(number, 12)).collect();
    let expected = alone(&bodies).await;
    let settings = [
        ALWAYS,
        ("disagg.prefill-timeout", "3s"),
        ("disagg.begin-timeout", "3s"),
        ("disagg.lease", "3s"),
    ];
    for fault in ["die-before", "die-after", "lose", "lapse", "hang"] {
        let short = [("mock.kv-lease", "3s")];
        let prefill = vec![nixl(&short), nixl(&short)];
        let fleet = Fleet::of(prefill, vec![nixl(&[]), nixl(&[])], &settings).await;
        fleet.prefill[0].faults(json!({ "handover": fault })).await;
        let ask = async |body: &Value| text_of(&fleet.gateway.stream("/v1/chat/completions", body).await);
        assert_eq!(join_all(bodies.iter().map(ask)).await, expected, "{fault}");
        fleet.prefill[0].faults(json!({ "handover": "none" })).await;
        fleet.rests().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_decode_worker_that_could_not_fetch_serves_alone() {
    let fleet = Fleet::of(vec![nixl(&LAPSES)], vec![nixl(&[])], &[ALWAYS]).await;
    fleet.prefill[0].faults(json!({ "handover": "lapse" })).await;
    for stream in [false, true] {
        let mut body = chat(5, 8);
        body["stream"] = json!(stream);
        let response = fleet.gateway.send("/v1/chat/completions", &body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-homing-served-by"], fleet.decode[0].url().as_str());
        assert!(!response.headers().contains_key("x-homing-prefilled-by"));
    }
    fleet.rests().await;
}

/// Many that fail at once would take the only decode worker for ill, and it is the other that is.
#[tokio::test(flavor = "multi_thread")]
async fn kv_that_nobody_can_fetch_is_laid_to_the_worker_that_computed_it() {
    let settings = [ALWAYS, ("health.least-requests", "4"), ("health.backoff", "60s")];
    let fleet = Fleet::of(vec![nixl(&LAPSES)], vec![nixl(&[])], &settings).await;
    fleet.prefill[0].faults(json!({ "handover": "lapse" })).await;
    let bodies: Vec<Value> = (0..12).map(|number| chat(number, 12)).collect();
    let ask = async |body: &Value| fleet.gateway.send("/v1/chat/completions", body).await.status();
    for status in join_all(bodies.iter().map(ask)).await {
        assert_eq!(status, 200);
    }
    let page = fleet.gateway.admin("/admin/fleet").await;
    let state = |engine: &Engine| {
        let workers = page["workers"].as_array().expect("a list");
        let found = workers.iter().find(|worker| worker["url"] == engine.url().as_str());
        found.expect("it is listed")["health"].clone()
    };
    assert_eq!(state(&fleet.prefill[0]), "down");
    assert_eq!(state(&fleet.decode[0]), "up");
    fleet.rests().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_of_either_kind_break_no_stream() {
    // What a worker that was killed was about to fetch stays until it lapses.
    let slow = [
        ("mock.speedup", "1"),
        ("mock.fault-slowdown", "20"),
        ("mock.kv-lease", "3s"),
    ];
    let (prefill, decode) = (
        (0..3).map(|_| nixl(&slow)).collect(),
        (0..3).map(|_| nixl(&slow)).collect(),
    );
    let settings = [ALWAYS, ("disagg.lease", "3s")];
    let mut fleet = Fleet::of(prefill, decode, &settings).await;
    let bodies: Vec<Value> = (0..40).map(|number| chat(number, 40)).collect();
    let expected = alone(&bodies).await;
    let (mut first, mut second) = (fleet.prefill.remove(0), fleet.decode.remove(0));
    let gateway = &fleet.gateway;
    let ask = async |body: &Value| text_of(&gateway.stream("/v1/chat/completions", body).await);
    let killing = async {
        gateway
            .wait("streams", async || gateway.metrics.gateway.running_requests.get() >= 10)
            .await;
        first.kill();
        gateway.wait_not_up(&first).await;
        second.kill();
        for engine in fleet.prefill.iter().chain(&fleet.decode) {
            engine.hurry().await;
        }
    };
    let (said, ()) = tokio::join!(join_all(bodies.iter().map(ask)), killing);
    assert_eq!(said, expected);
    assert_eq!(gateway.metrics.gateway.broken_answers.get(), 0);
    fleet.rests().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let fleet = Fleet::of(vec![nixl(&[("mock.speedup", "5")])], vec![nixl(&[])], &[ALWAYS]).await;
    // How long the client waits decides how far its request is when it leaves. Nothing is asserted of that moment.
    for after in [1, 5, 20, 60] {
        let body = chat(after, 200);
        let leaving = fleet.gateway.send("/v1/chat/completions", &body);
        let left = tokio::time::timeout(Duration::from_millis(u64::from(after)), leaving).await;
        drop(left);
        fleet.rests().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prefill_workers_decode_workers_serve_alone_unless_both_are_required() {
    let mut fleet = Fleet::start(1, 1, &[ALWAYS]).await;
    fleet.prefill[0].kill();
    let body = chat(3, 8);
    let response = fleet.gateway.send("/v1/chat/completions", &body).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-homing-served-by"], fleet.decode[0].url().as_str());
    assert!(!response.headers().contains_key("x-homing-prefilled-by"));

    let decode = nixl(&[]);
    let gateway = Gateway::start(&[decode.spec(",role=decode")], &[("require-disagg", "on")]).await;
    gateway.wait_workers(1).await;
    let response = gateway.send("/v1/chat/completions", &body).await;
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let words = response.text().await.unwrap();
    assert!(words.contains("prefill"), "{words}");
    let models: Value = HttpClient::default()
        .get(format!("{}/v1/models", gateway.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["data"], json!([]), "it is not listed");
    assert_eq!(
        HttpClient::default()
            .get(format!("{}/ready", gateway.url))
            .send()
            .await
            .unwrap()
            .status(),
        503
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_can_be_named_and_a_dry_run_answers_with_the_pair() {
    let fleet = Fleet::start(2, 2, &[ALWAYS]).await;
    let (prefill, decode) = (fleet.prefill[1].url(), fleet.decode[1].url());
    let named = [
        ("x-homing-prefill-worker", prefill.as_str()),
        ("x-homing-worker", decode.as_str()),
    ];
    let response = fleet
        .gateway
        .send_with("/v1/chat/completions", &chat(1, 4), &named)
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-homing-prefilled-by"], prefill.as_str());
    assert_eq!(response.headers()["x-homing-served-by"], decode.as_str());
    let dry = [named[0], named[1], ("x-homing-dry-run", "1")];
    let response = fleet.gateway.send_with("/v1/chat/completions", &chat(1, 4), &dry).await;
    let said: Value = response.json().await.unwrap();
    assert_eq!(
        (&said["worker"], &said["prefill_worker"]),
        (&json!(decode), &json!(prefill)),
        "{said}"
    );
    fleet.rests().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_divided_is_served_by_one() {
    let fleet = Fleet::start(1, 1, &[ALWAYS]).await;
    let one_token = fleet.gateway.send("/v1/chat/completions", &chat(1, 1)).await;
    assert_eq!(
        one_token.headers()["x-homing-served-by"],
        fleet.prefill[0].url().as_str()
    );
    let mut several = chat(2, 4);
    several["n"] = json!(2);
    let several = fleet.gateway.send("/v1/chat/completions", &several).await;
    assert_eq!(several.headers()["x-homing-served-by"], fleet.decode[0].url().as_str());
    assert!(!several.headers().contains_key("x-homing-prefilled-by"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_wrong_is_refused_once_and_in_the_engines_words() {
    let fleet = Fleet::start(2, 1, &[ALWAYS]).await;
    let mut wrong = chat(1, 4);
    wrong["temperature"] = json!(-3);
    let (status, said) = fleet.gateway.post("/v1/chat/completions", &wrong).await;
    assert_eq!(status, 400, "{said}");
    fleet.rests().await;
}
