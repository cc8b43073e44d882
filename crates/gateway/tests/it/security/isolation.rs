//! Tenants, salts, ranks and fields of engines, with mock engines that report what they cached.

use homing_config::Switch;
use homing_config::keys::{Fresh, Quota, fresh};
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, ports};
use crate::security::pki::written;

fn key(tenant: &str, pin: Switch) -> Fresh {
    let mut key = fresh(tenant, 0, Quota::default()).unwrap();
    key.spec.pin = pin;
    key
}

fn keys(name: &str, keys: &[&Fresh]) -> String {
    let tables: Vec<String> = keys.iter().map(|key| key.spec.to_toml()).collect();
    written(name, &tables.join("\n"))
}

fn tokens(seed: u32) -> Vec<u32> {
    (0..640).map(|at| (seed * 7919 + at * 31) % 256).collect()
}

/// Tokens from the cache of an answer: as the engine reports, and as it was predicted.
async fn proxied(gateway: &Gateway, key: &Fresh, body: &Value) -> (u64, u64) {
    let answer = gateway
        .send_with("/v1/completions", body, &[("x-api-key", &key.key)])
        .await;
    assert_eq!(answer.status(), 200);
    let predicted = answer.headers()["x-homing-cached-tokens"].to_str().unwrap().parse();
    let answer: Value = answer.json().await.unwrap();
    let reported = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (reported.as_u64().unwrap_or(0), predicted.unwrap())
}

/// The same by the route API: the caller makes the edits that it is told and sends the body itself.
async fn routed(gateway: &Gateway, tenant: &str, body: &Value) -> (u64, u64) {
    let client = &gateway.client;
    let route = gateway.route.as_ref().unwrap();
    let mut asked = body.clone();
    asked["homing"] = json!({ "tenant": tenant });
    let routed = client.post(format!("{route}/route")).json(&asked).send().await.unwrap();
    let routed: Value = routed.json().await.unwrap();
    let mut sent = body.clone();
    for path in routed["body_edits"]["remove"].as_array().unwrap() {
        sent.as_object_mut().unwrap().remove(path.as_str().unwrap());
    }
    if let Some(salt) = routed["body_edits"]["cache_salt"].as_str() {
        sent["cache_salt"] = json!(salt);
    }
    let url = routed["worker"]["url"].as_str().unwrap_or_else(|| panic!("{routed}"));
    let answer = client.post(format!("{url}/v1/completions")).json(&sent).send().await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    let reported = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let id = routed["id"].as_str().unwrap();
    let done = client
        .post(format!("{route}/route/{id}/done"))
        .json(&json!({ "cached_tokens": reported }));
    assert_eq!(done.send().await.unwrap().status(), 200);
    (reported.unwrap_or(0), routed["cached_tokens"].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn predicted_and_reported_tokens_agree_on_both_ways_in() {
    let (acme, other) = (key("acme", Switch::Off), key("other", Switch::Off));
    let path = keys("both-ways.toml", &[&acme, &other]);
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let settings = [("serve.keys", path.as_str()), ("serve.route", "127.0.0.1:0")];
    let gateway = Gateway::before(&engines, &settings).await;
    for (seed, salt) in [(1, json!("s")), (2, Value::Null), (3, json!("4:acme:s"))] {
        let body = json!({
            "model": "tiny", "prompt": tokens(seed), "max_tokens": 1, "cache_salt": salt, "extra_key": "k", "priority": 3
        });
        assert_eq!(proxied(&gateway, &acme, &body).await, (0, 0), "{salt}");
        gateway
            .wait("predictions", async || {
                proxied(&gateway, &acme, &body).await == (624, 624)
            })
            .await;
        assert_eq!(routed(&gateway, "acme", &body).await, (624, 624), "{salt}");
        assert_eq!(routed(&gateway, "other", &body).await, (0, 0), "{salt}");
        gateway
            .wait("predictions", async || {
                routed(&gateway, "other", &body).await == (624, 624)
            })
            .await;
        assert_eq!(proxied(&gateway, &other, &body).await, (624, 624), "{salt}");
    }
    let fleet = gateway.admin("/admin/fleet").await;
    for worker in fleet["workers"].as_array().unwrap() {
        assert_eq!(worker["truth"]["less"], 0, "{worker}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_can_have_caches_of_their_own() {
    let (acme, other) = (key("acme", Switch::Off), key("other", Switch::Off));
    let path = keys("own-caches.toml", &[&acme, &other]);
    let engines = [Engine::start(&[])];
    let body = json!({ "model": "tiny", "prompt": tokens(4), "max_tokens": 1 });
    for (isolation, seen) in [("tenant", (0, 0)), ("salt", (624, 624))] {
        let settings = [("serve.keys", path.as_str()), ("serve.cache-isolation", isolation)];
        let gateway = Gateway::before(&engines, &settings).await;
        gateway
            .wait("predictions", async || {
                proxied(&gateway, &acme, &body).await == (624, 624)
            })
            .await;
        assert_eq!(proxied(&gateway, &other, &body).await, seen, "{isolation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_is_a_pin_for_the_router() {
    let (pins, other) = (key("acme", Switch::On), key("acme", Switch::Off));
    let path = keys("ranks.toml", &[&pins, &other]);
    let base = ports(6);
    let events = format!("tcp://127.0.0.1:{base}");
    let replay = format!("tcp://127.0.0.1:{}", base + 3);
    let engine = Engine::start(&[
        ("mock.dp-size", "3"),
        ("mock.events", &events),
        ("mock.replay", &replay),
    ]);
    let gateway = Gateway::start(&[engine.spec(",ranks=3")], &[("serve.keys", path.as_str())]).await;
    gateway.wait_workers(1).await;
    let decided = async |key: &Fresh, fields: Value, headers: &[(&str, &str)]| {
        let mut body = json!({ "model": "tiny", "prompt": "x", "max_tokens": 1, "homing": { "dry_run": true } });
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let headers = [&[("x-api-key", key.key.as_str())], headers].concat();
        let answer = gateway.send_with("/v1/completions", &body, &headers).await;
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for rank in 0..3 {
        let header = rank.to_string();
        for (fields, headers) in [
            (json!({ "data_parallel_rank": rank }), &[][..]),
            (json!({ "routed_dp_rank": rank }), &[]),
            (json!({}), &[("x-data-parallel-rank", header.as_str())]),
            (
                json!({ "data_parallel_rank": 7 }),
                &[("X-Data-Parallel-Rank", header.as_str())],
            ),
        ] {
            let (status, said) = decided(&pins, fields.clone(), headers).await;
            assert_eq!(status, 200, "{said}");
            let chosen = said["decision"]["chosen"]["rank"].to_string();
            assert!(
                chosen.trim_matches('"').ends_with(&format!("/{rank}")) || chosen == header,
                "{chosen} for {rank}"
            );
            assert_eq!(decided(&other, fields, headers).await.0, 403);
        }
    }
    let url = engine.url();
    let (status, said) = decided(&pins, json!({ "data_parallel_rank": 1 }), &[("x-homing-worker", &url)]).await;
    assert_eq!(status, 200, "{said}");
    for wrong in [json!(3), json!(70_000), json!(-1), json!("x"), json!([1])] {
        let (status, said) = decided(&pins, json!({ "data_parallel_rank": wrong }), &[]).await;
        assert_eq!(status, 400, "{wrong}: {said}");
        assert!(said["error"]["message"].as_str().unwrap().contains("rank"), "{said}");
    }
    assert_eq!(decided(&other, json!({}), &[]).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_fields_can_be_allowed() {
    let engines = [Engine::start(&[("mock.kv-connector", "nixl")])];
    for (mode, is_told) in [("allow", true), ("strip", false)] {
        let gateway = Gateway::before(&engines, &[("serve.engine-fields", mode)]).await;
        let body = json!({
            "model": "tiny", "prompt": tokens(5), "max_tokens": 1, "kv_transfer_params": { "do_remote_decode": true }
        });
        let answer = gateway.ok("/v1/completions", &body).await;
        assert_eq!(answer["kv_transfer_params"].is_object(), is_told, "{mode}: {answer}");
        let counted = gateway
            .metrics
            .gateway
            .engine_fields
            .of(homing_telemetry::FieldAction::Stripped);
        assert_eq!(counted.get(), u64::from(!is_told));
    }
}
