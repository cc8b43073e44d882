//! Is a proxy of one's own told where to send requests, and is what it tells used?

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Engine, Gateway};

async fn start(engines: &[Engine], settings: &[(&str, &str)]) -> Gateway {
    Gateway::before(engines, &[&[("serve.route", "127.0.0.1:0")], settings].concat()).await
}

impl Gateway {
    /// What is answered to a proxy.
    async fn advice(&self, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/{path}", self.route.as_ref().expect("proxies may ask"));
        let response = self.client.post(url).json(body).send().await.expect("it answers");
        let status = response.status().as_u16();
        (status, response.json().await.expect("in JSON"))
    }

    async fn advised(&self, path: &str, body: &Value) -> Value {
        let (status, said) = self.advice(path, body).await;
        assert_eq!(status, 200, "{path}: {said}");
        said
    }

    /// Prompt tokens, blocks and requests of all ranks.
    async fn load(&self) -> (u64, u64, u64) {
        let loads = self.advised("loads", &json!({})).await;
        let ranks = loads["ranks"].as_array().expect("ranks");
        let sum = |name: &str| ranks.iter().map(|rank| rank[name].as_u64().expect("a number")).sum();
        (sum("prefill_tokens"), sum("decode_blocks"), sum("requests"))
    }
}

fn tokens(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| (seed * 7919 + at * 31) % 256).collect()
}

/// Sends a prompt to a worker as a proxy would; what the engine says of its usage.
async fn send(gateway: &Gateway, routed: &Value, tokens: &[u32]) -> Value {
    let url = format!(
        "{}/v1/completions",
        routed["worker"]["url"].as_str().expect("an address")
    );
    let body = json!({ "model": "tiny", "prompt": tokens, "max_tokens": 4 });
    let answer = gateway.client.post(url).json(&body).send().await.expect("it answers");
    let answer: Value = answer.json().await.expect("in JSON");
    answer["usage"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_asks_sends_and_tells() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = start(&engines, &[]).await;
    let prompt = tokens(1, 320);
    let asked = json!({ "tokens": prompt, "max_tokens": 4, "homing": { "tenant": "acme" } });
    let routed = gateway.advised("route", &asked).await;
    assert_eq!((&routed["booked"], &routed["cached_tokens"]), (&json!(true), &json!(0)));
    assert_eq!(routed["prompt_tokens"], 320);
    assert_eq!(gateway.load().await, (320, 20, 1), "it is booked");
    let usage = send(&gateway, &routed, &prompt).await;
    let id = routed["id"].as_str().unwrap().to_owned();
    gateway.advised(&format!("route/{id}/prefill-done"), &json!({})).await;
    assert_eq!(gateway.load().await.0, 0, "its prompt is computed");
    gateway
        .advised(&format!("route/{id}/output"), &json!({ "tokens": 3 }))
        .await;
    let done = json!({ "output_tokens": 4, "prompt_tokens": usage["prompt_tokens"], "cached_tokens": 0 });
    gateway.advised(&format!("route/{id}/done"), &done).await;
    assert_eq!(gateway.load().await, (0, 0, 0));
    let (status, why) = gateway.advice(&format!("route/{id}/done"), &json!({})).await;
    assert_eq!(status, 404, "it ends once: {why}");

    // What the engine stored is found again, and the prediction is what the engine says.
    gateway
        .wait("events", async || {
            let overlap = gateway.advised("overlap", &json!({ "tokens": prompt })).await;
            let ranks = overlap["ranks"].as_array().unwrap().clone();
            ranks.iter().any(|rank| {
                rank["worker"] == routed["worker"] && rank["blocks_up_to_tier"]["device"].as_u64() >= Some(20)
            })
        })
        .await;
    let again = gateway.advised("route", &asked).await;
    assert_eq!(again["worker"], routed["worker"]);
    let usage = send(&gateway, &again, &prompt).await;
    let cached = usage["prompt_tokens_details"]["cached_tokens"].clone();
    // Of a prompt that is cached to its end the last block is computed again.
    assert_eq!((&again["cached_tokens"], &cached), (&json!(304), &json!(304)));
    let done = json!({ "output_tokens": 4, "cached_tokens": cached });
    gateway
        .advised(&format!("route/{}/done", again["id"].as_str().unwrap()), &done)
        .await;
    let fleet = gateway.admin("/admin/fleet").await;
    let equal: u64 = fleet["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["truth"]["equal"].as_u64().unwrap())
        .sum();
    assert_eq!(equal, 2, "{fleet}");
    let decision = gateway.admin(&format!("/admin/decisions?id={id}")).await;
    let decision = &decision["decisions"][0];
    assert_eq!(
        (&decision["end"], &decision["tenant"]),
        (&json!("served"), &json!("acme"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_expires() {
    let engine = [Engine::start(&[])];
    let gateway = start(&engine, &[]).await;
    let routed = gateway
        .advised("route", &json!({ "tokens": tokens(2, 64), "lease_ms": 300 }))
        .await;
    assert_eq!(routed["lease_ms"], 300);
    gateway
        .wait("the end of the lease", async || gateway.load().await == (0, 0, 0))
        .await;
    let id = routed["id"].as_str().unwrap();
    let (status, _) = gateway
        .advice(&format!("route/{id}/output"), &json!({ "tokens": 1 }))
        .await;
    assert_eq!(status, 404);
    assert_eq!(gateway.metrics.gateway.lapsed_requests.get(), 1);
    // One of which something is heard stays.
    let routed = gateway
        .advised("route", &json!({ "tokens": tokens(3, 64), "lease_ms": 6000 }))
        .await;
    let id = routed["id"].as_str().unwrap();
    assert_eq!(gateway.load().await.2, 1);
    // It was booked before a request with the same lease of which nothing is heard, and outlives it.
    gateway
        .advised("route", &json!({ "tokens": tokens(4, 64), "lease_ms": 6000 }))
        .await;
    gateway
        .wait("the end of the other lease", async || {
            gateway
                .advised(&format!("route/{id}/output"), &json!({ "tokens": 1 }))
                .await;
            gateway.metrics.gateway.lapsed_requests.get() == 2
        })
        .await;
    assert_eq!(gateway.load().await.2, 1);
    gateway
        .advised(&format!("route/{id}/done"), &json!({ "end": "cancelled" }))
        .await;
    assert_eq!(gateway.load().await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_booked_later_there_or_elsewhere() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = start(&engines, &[]).await;
    let considered = gateway
        .advised("route", &json!({ "tokens": tokens(4, 64), "book": false }))
        .await;
    assert_eq!(considered["booked"], false);
    assert_eq!(gateway.load().await, (0, 0, 0));
    let id = considered["id"].as_str().unwrap();
    let (status, _) = gateway
        .advice(&format!("route/{id}/output"), &json!({ "tokens": 1 }))
        .await;
    assert_eq!(status, 409, "it is not booked");
    let booked = gateway.advised(&format!("route/{id}/book"), &json!({})).await;
    assert_eq!(
        (&booked["worker"], &booked["booked"]),
        (&considered["worker"], &json!(true))
    );
    assert_eq!(gateway.load().await, (64, 4, 1));
    let (status, _) = gateway.advice(&format!("route/{id}/book"), &json!({})).await;
    assert_eq!(status, 409, "it is booked already");
    gateway
        .advised(&format!("route/{id}/done"), &json!({ "end": "failed" }))
        .await;

    let considered = gateway
        .advised("route", &json!({ "tokens": tokens(5, 64), "book": false }))
        .await;
    let chosen = considered["worker"]["url"].as_str().unwrap().to_owned();
    let other = engines.iter().map(Engine::url).find(|url| *url != chosen).unwrap();
    let id = considered["id"].as_str().unwrap();
    let (status, _) = gateway
        .advice(&format!("route/{id}/book"), &json!({ "worker": "http://nowhere" }))
        .await;
    assert_eq!(status, 400, "and it can still be booked elsewhere");
    let booked = gateway
        .advised(&format!("route/{id}/book"), &json!({ "worker": other }))
        .await;
    assert_eq!(booked["worker"]["url"], other);
    let loads = gateway.advised("loads", &json!({ "tokens": tokens(6, 32) })).await;
    assert_eq!(loads["prompt_tokens"], 32);
    for rank in loads["ranks"].as_array().unwrap() {
        let expected = if rank["worker"]["url"] == other { 96 } else { 32 };
        assert_eq!(rank["prefill_tokens"], expected, "{loads}");
    }
    gateway
        .advised(&format!("route/{id}/done"), &json!({ "end": "cancelled" }))
        .await;
    assert_eq!(gateway.load().await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said() {
    let engine = [Engine::start(&[])];
    let gateway = start(&engine, &[]).await;
    for (path, body, status, word) in [
        ("route", json!({}), 400, "tokens"),
        ("route", json!({ "tokens": [1], "model": "other" }), 404, "other"),
        ("route", json!({ "tokens": "x" }), 400, "tokens"),
        (
            "route",
            json!({ "tokens": [1], "homing": { "worker": "http://nowhere" } }),
            400,
            "nowhere",
        ),
        (
            "route",
            json!({ "tokens": [1], "homing": { "labels": { "gpu": "b200" } } }),
            503,
            "label",
        ),
        ("route/x/book", json!({}), 404, "x"),
        ("route/x/output", json!({ "tokens": -1 }), 400, "-1"),
        ("route/x/done", json!({ "end": "maybe" }), 400, "maybe"),
        ("route/x/done", json!([1]), 400, "object"),
        ("overlap", json!({}), 400, "needed"),
        ("elsewhere", json!({}), 404, "openapi.json"),
    ] {
        let (found, said) = gateway.advice(path, &body).await;
        let message = said["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{path} {body}: {said}");
        assert!(message.contains(word), "{path} {body}: {message}");
    }
    assert_eq!(gateway.load().await, (0, 0, 0));
}

/// Python 3.11 cannot parse its own language in two threads at once, which is done to describe functions: they go without descriptions.
const RUN: &str = "import hypothesis.internal.lambda_sources as sources; sources.lambda_description = lambda _: 'lambda'; \
    from schemathesis.cli import schemathesis; schemathesis()";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[tokio::test(flavor = "multi_thread")]
async fn it_is_as_its_description_says() {
    let Ok(python) = std::env::var("HOMING_TEST_PYTHON") else {
        panic!("HOMING_TEST_PYTHON is not set: run ./test");
    };
    let engines = [Engine::start(&[]), Engine::start(&[])];
    // Bookings that random questions leave behind are not to fill the fleet.
    let gateway = start(&engines, &[("serve.route-lease", "2s")]).await;
    let description = format!("{}/openapi.json", gateway.route.as_ref().unwrap());
    let folder = crate::harness::file("schemathesis");
    std::fs::create_dir_all(&folder).unwrap();
    let settings = folder.join("schemathesis.toml");
    // Nobody may fit what is asked for, and then the answer is 503.
    std::fs::write(
        &settings,
        "[checks]\nnot_a_server_error.expected-statuses = [\"2xx\", \"4xx\", 503, 504]\n",
    )
    .unwrap();
    let mut command = Command::new(python);
    command
        .args(["-c", RUN, "--config-file"])
        .arg(&settings)
        .args([
            "run",
            &description,
            "--seed",
            "1",
            "--max-examples",
            "60",
            "--workers",
            "2",
        ])
        .args([
            "--phases",
            "coverage,fuzzing,stateful",
            "--no-color",
            "--checks",
            CHECKS,
        ])
        // What it keeps for its next run is not kept here.
        .current_dir(&folder)
        .stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output());
    let run = run.await.expect("it does not panic").expect("schemathesis runs");
    let _ = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("Tested: 7"), "all operations were asked: {said}");
    gateway
        .wait("all leases to end", async || gateway.load().await == (0, 0, 0))
        .await;
}
