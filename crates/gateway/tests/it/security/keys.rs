//! Who asks, and how much may he?

use homing_platform::HttpResponse;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use homing_config::keys::{Fresh, Quota, fresh};
use homing_gateway::Service;
use homing_telemetry::{Asker, Quota as Limit};
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, events, file, resolved};
use crate::security::pki::written;
use crate::security::raw::{Recorder, before};
use crate::security::renewal::RegistrationToken;

const UNLIMITED: Quota = Quota {
    requests: None,
    tokens: None,
};

fn key(tenant: &str, quota: Quota) -> Fresh {
    fresh(tenant, 0, quota).unwrap()
}

/// A file of these keys.
fn keys(name: &str, keys: &[&Fresh]) -> String {
    let tables: Vec<String> = keys.iter().map(|key| key.spec.to_toml()).collect();
    written(name, &tables.join("\n"))
}

fn asked(tokens: u32) -> Value {
    json!({ "model": "tiny", "prompt": "x", "max_tokens": tokens, "temperature": 0 })
}

async fn ask(gateway: &Gateway, key: &str, body: &Value) -> HttpResponse {
    let bearer = format!("Bearer {key}");
    gateway
        .send_with("/v1/completions", body, &[("authorization", &bearer)])
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_that_is_known_nothing_is_answered() {
    let acme = key("acme", UNLIMITED);
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("serve.keys", &keys("known.toml", &[&acme]))]).await;
    let (good, bad) = (acme.key.as_str(), "homing-sk-0000000000000000");
    let bearer = format!("Bearer {good}");
    let wrong = format!("Bearer {bad}");
    let messages = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "x" }], "max_tokens": 2 });
    for (path, body) in [
        ("/v1/completions", &asked(2)),
        ("/v1/messages", &messages),
        ("/v1/nothing", &messages),
    ] {
        for headers in [
            &[][..],
            &[("authorization", wrong.as_str())],
            &[("authorization", good)],
            &[("authorization", "Bearer")],
            &[("authorization", "Basic Og==")],
            &[("x-api-key", bad)],
            &[("x-api-key", "")],
            // The first that is sent is the one that counts.
            &[("authorization", wrong.as_str()), ("x-api-key", good)],
        ] {
            let answer = gateway.send_with(path, body, headers).await;
            assert_eq!(answer.status(), 401, "{path} {headers:?}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
            let said: Value = answer.json().await.unwrap();
            let kind = if path == "/v1/messages" {
                (&said["type"], &said["error"]["type"], "error", "authentication_error")
            } else {
                (
                    &said["error"]["code"],
                    &said["error"]["type"],
                    "invalid_api_key",
                    "AuthenticationError",
                )
            };
            assert_eq!((kind.0, kind.1), (&json!(kind.2), &json!(kind.3)), "{said}");
        }
        let expected = if path == "/v1/nothing" { 404 } else { 200 };
        for headers in [[("authorization", bearer.as_str())], [("x-api-key", good)]] {
            assert_eq!(
                gateway.send_with(path, body, &headers).await.status(),
                expected,
                "{path}"
            );
        }
    }
    let unknown = gateway.metrics.gateway.unauthorized_requests.of(Asker::Client).get();
    assert_eq!(unknown, 24);
    let get = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = gateway.client.get(format!("{}{path}", gateway.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    for path in ["/v1/models", "/v1/models/tiny"] {
        assert_eq!(get(path, &[]).await, 401);
        assert_eq!(get(path, &[("x-api-key", good)]).await, 200);
    }
    for path in ["/health", "/live", "/ready"] {
        assert_eq!(get(path, &[]).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_see_no_key_of_a_client() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let acme = key("acme", UNLIMITED);
    let path = keys("unseen.toml", &[&acme]);
    for (settings, engine_key) in [
        (vec![("serve.keys", path.as_str())], None),
        (
            vec![
                ("serve.keys", path.as_str()),
                ("serve.worker-key", "key-of-the-engines"),
            ],
            Some("authorization: bearer key-of-the-engines"),
        ),
        (
            vec![("serve.worker-key", "key-of-the-engines")],
            Some("authorization: bearer key-of-the-engines"),
        ),
        // Where nobody asks for keys, a client's is the engine's.
        (vec![], Some("x-api-key: homing-sk-")),
    ] {
        let worker = Recorder::start(ANSWER).await;
        let gateway = before(&worker, &settings).await;
        for name in ["authorization", "x-api-key"] {
            let value = if name == "x-api-key" {
                acme.key.clone()
            } else {
                format!("Bearer {}", acme.key)
            };
            let answer = gateway.send_with("/v1/completions", &asked(1), &[(name, &value)]).await;
            assert_eq!(answer.status(), 200);
        }
        let seen = worker.everything().join("\n").to_lowercase();
        let is_seen = seen.contains(&acme.key);
        assert_eq!(is_seen, settings.is_empty(), "{settings:?}: {seen}");
        assert!(engine_key.is_none_or(|key| seen.contains(key)), "{settings:?}: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_says_whose_a_request_is_and_how_urgent_it_may_be() {
    let mut acme = key("acme", UNLIMITED);
    acme.spec.priority = 5;
    let log = file("tenants.jsonl");
    let _ = std::fs::remove_file(&log);
    let engines = [Engine::start(&[])];
    let settings = [
        ("serve.keys", keys("tenant.toml", &[&acme])),
        ("serve.log", log.to_str().unwrap().to_owned()),
    ];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut gateway = Gateway::before(&engines, &settings).await;
    for (hint, priority) in [("9", 5), ("-3", -3), ("", 5)] {
        let mut headers = vec![("x-api-key", acme.key.as_str()), ("x-homing-tenant", "somebody-else")];
        if !hint.is_empty() {
            headers.push(("x-homing-priority", hint));
        }
        let body = json!({ "model": "tiny", "prompt": format!("x{priority}"), "max_tokens": 1 });
        let answer = gateway.send_with("/v1/completions", &body, &headers).await;
        assert_eq!(answer.status(), 200);
        let id = answer.headers()["x-homing-request-id"].to_str().unwrap().to_owned();
        answer.bytes().await.unwrap();
        let found = gateway.admin(&format!("/admin/decisions?id={id}")).await;
        assert_eq!(found["decisions"][0]["tenant"], "acme", "{found}");
    }
    gateway.end().await.unwrap();
    let written = std::fs::read_to_string(&log).unwrap();
    let priorities: Vec<i64> = written
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["priority"].as_i64().unwrap_or_default()
        })
        .collect();
    assert_eq!(priorities, [5, -3, 5], "{written}");
    assert!(!written.contains("somebody-else") && !written.contains(&acme.key));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_at_its_limit_gets_429_and_others_do_not_notice() {
    let limited = key(
        "limited",
        Quota {
            requests: Some(20),
            tokens: None,
        },
    );
    let free = key("free", UNLIMITED);
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("serve.keys", &keys("limits.toml", &[&limited, &free]))]).await;
    let (served, turned) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let greedy = async |_: usize| {
        let answer = ask(&gateway, &limited.key, &asked(1)).await;
        if answer.status() == 200 {
            served.fetch_add(1, SeqCst);
            return;
        }
        assert_eq!(answer.status(), 429);
        let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&after), "{after}");
        let said: Value = answer.json().await.unwrap();
        assert_eq!(said["error"]["type"], "RateLimitError", "{said}");
        turned.fetch_add(1, SeqCst);
    };
    let modest = async |_: usize| {
        let answer = ask(&gateway, &free.key, &asked(3)).await;
        assert_eq!(answer.status(), 200);
    };
    let greedy = futures_util::future::join_all((0..200).map(greedy));
    let modest = futures_util::future::join_all((0..100).map(modest));
    tokio::join!(greedy, modest);
    let (served, turned) = (served.into_inner(), turned.into_inner());
    // What came in during the test is one request in three seconds.
    assert!((20..40).contains(&served), "{served}");
    assert_eq!(served + turned, 200);
    let counted = gateway.metrics.gateway.limited_requests.of(Limit::Requests).get();
    assert_eq!(counted, turned as u64);
    let messages = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "x" }], "max_tokens": 2 });
    let ask = async || {
        let own = [("x-api-key", limited.key.as_str())];
        gateway.send_with("/v1/messages", &messages, &own).await
    };
    // Where the test took long, some requests came in meanwhile.
    let mut answer = ask().await;
    for _ in 0..40 {
        if answer.status() == 200 {
            answer = ask().await;
        }
    }
    assert_eq!(answer.status(), 429);
    let said: Value = answer.json().await.unwrap();
    assert_eq!(
        said["error"]["type"], "rate_limit_error",
        "in the words of its protocol: {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_also_of_those_who_leave_before_the_end() {
    let quota = Quota {
        requests: None,
        tokens: Some(1_000),
    };
    let (patient, hasty) = (key("patient", quota), key("hasty", quota));
    let engines = [Engine::start(&[("mock.speedup", "50")])];
    let gateway = Gateway::before(&engines, &[("serve.keys", &keys("tokens.toml", &[&patient, &hasty]))]).await;
    let limited = || gateway.metrics.gateway.limited_requests.of(Limit::Tokens).get();
    // Nothing is charged that was not answered.
    let wrong = json!({ "model": "tiny", "prompt": "x".repeat(900), "max_tokens": 999_999_999 });
    for _ in 0..3 {
        assert_ne!(ask(&gateway, &patient.key, &wrong).await.status(), 429);
    }
    let began = Instant::now();
    assert_eq!(ask(&gateway, &patient.key, &asked(1_500)).await.status(), 200);
    let turned = ask(&gateway, &patient.key, &asked(1)).await;
    assert_eq!(turned.status(), 429);
    let after: u64 = turned.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    let least = 29_u64.saturating_sub(began.elapsed().as_secs());
    assert!(
        (least..=32).contains(&after),
        "500 are missing, and 1,000 come in a minute: {after}"
    );
    assert_eq!(limited(), 1);
    let mut body = asked(4_000);
    body["stream"] = json!(true);
    let mut stream = ask(&gateway, &hasty.key, &body).await;
    let mut came = 0;
    while came < 1_200 {
        let piece = stream.chunk().await.unwrap().unwrap();
        came += String::from_utf8_lossy(&piece).matches("data: ").count();
    }
    drop(stream);
    gateway
        .wait("its tokens to be charged", async || {
            ask(&gateway, &hasty.key, &asked(1)).await.status() == 429
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_change_and_no_stream_ends() {
    let (old, new) = (key("acme", UNLIMITED), key("acme", UNLIMITED));
    let path = keys("renewed.toml", &[&old]);
    let engines = [Engine::start(&[("mock.speedup", "1")])];
    let mut token = RegistrationToken::new("keys-registration-token");
    let token_setting = token.setting();
    let settings = [
        ("serve.keys", path.as_str()),
        ("serve.register-token", &token_setting),
        ("discovery.file-interval", "20ms"),
    ];
    let gateway = Gateway::before(&engines, &settings).await;
    let mut body = asked(5_000);
    body["stream"] = json!(true);
    let mut stream = ask(&gateway, &old.key, &body).await;
    let mut text = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    keys("renewed.toml", &[&new]);
    gateway
        .wait("the new key", async || {
            ask(&gateway, &new.key, &asked(1)).await.status() == 200
        })
        .await;
    assert_eq!(ask(&gateway, &old.key, &asked(1)).await.status(), 401);
    // A file that cannot be used changes nothing.
    written("renewed.toml", "[[key]]\nsha256 = 7\n");
    token.wait_until_files_were_read(&gateway).await;
    assert_eq!(ask(&gateway, &new.key, &asked(1)).await.status(), 200);
    // One that says that there are none takes all of them away.
    written("renewed.toml", "key = []\n");
    gateway
        .wait("no key", async || {
            ask(&gateway, &new.key, &asked(1)).await.status() == 401
        })
        .await;
    engines[0].hurry().await;
    while let Some(piece) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(events(&text).len() >= 5_000, "the stream was finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_start_where_anybody_could_ask() {
    let acme = key("acme", UNLIMITED);
    let path = keys("start.toml", &[&acme]);
    let (open, local) = ("0.0.0.0:0", "127.0.0.1:0");
    let token = ("serve.admin-token", "the-token-of-operators");
    let missing = file("no-such-file").to_str().unwrap().to_owned();
    let short_token = format!("file:{}", written("short-token", "short\n"));
    for (settings, expected) in [
        (vec![("serve.listen", local), ("serve.admin", local)], Ok(())),
        (
            vec![("serve.listen", open), ("serve.admin", local)],
            Err("homing keys new --tenant"),
        ),
        (
            vec![("serve.listen", open), ("serve.admin", local), ("serve.open", "on")],
            Ok(()),
        ),
        (
            vec![
                ("serve.listen", open),
                ("serve.admin", local),
                ("serve.keys", path.as_str()),
            ],
            Ok(()),
        ),
        (vec![("serve.listen", "[::]:0"), ("serve.admin", local)], Err("--open")),
        (
            vec![("serve.listen", local), ("serve.admin", open)],
            Err("serve.admin-token"),
        ),
        (
            vec![("serve.listen", local), ("serve.admin", open), ("serve.open", "on")],
            Err("serve.admin-token"),
        ),
        (vec![("serve.listen", local), ("serve.admin", open), token], Ok(())),
        (
            vec![
                ("serve.listen", local),
                ("serve.admin", local),
                ("serve.keys", missing.as_str()),
            ],
            Err("no-such-file"),
        ),
        (
            vec![
                ("serve.listen", local),
                ("serve.admin", local),
                ("serve.admin-token", short_token.as_str()),
            ],
            Err("visible characters"),
        ),
    ] {
        let started = Service::start(&resolved(&[], &settings), None, std::sync::Arc::default()).await;
        match (started.map(drop).map_err(|error| error.to_string()), expected) {
            (Ok(()), Ok(())) => {}
            (Err(said), Err(expected)) => assert!(said.contains(expected), "{settings:?}: {said}"),
            (found, expected) => panic!("{settings:?}: {found:?} and not {expected:?}"),
        }
    }
}
