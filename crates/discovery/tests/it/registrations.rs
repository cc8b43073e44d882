//! Can workers tell of themselves?

use bytes::Bytes;
use homing_platform::HttpClient;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use homing_config::register_tokens::RegisterToken;
use homing_config::{AddressRules, HttpUrl};
use homing_discovery::registrations::MAX_BODY;
use homing_discovery::{
    Registrant, RegistrantConfig, Registrar, RegistrarKind, Registrations, RegistrationsConfig, Roster,
};
use homing_telemetry::Metrics;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::mock::{defaults, spec, until};
use crate::roster::{config, next};

struct Gateway {
    table: Registrations,
    url: HttpUrl,
    metrics: Arc<Metrics>,
}

async fn gateway() -> Gateway {
    gateway_at("127.0.0.1:0").await
}

async fn gateway_at(address: &str) -> Gateway {
    gateway_for(address, Registrar::operator(Ipv4Addr::LOCALHOST.into())).await
}

async fn gateway_for(address: &str, registrar: Registrar) -> Gateway {
    let metrics = Arc::new(Metrics::default());
    let table = Registrations::new(
        RegistrationsConfig {
            lease: Duration::from_secs(15),
            longest: Duration::from_mins(5),
            defaults: defaults(),
            rules: Arc::new(AddressRules::default()),
            lookup_timeout: Duration::from_millis(20),
        },
        &metrics,
    );
    let listener = TcpListener::bind(address)
        .await
        .expect("ports can be had, and a server on this machine answers");
    let url = HttpUrl::parse(&format!(
        "http://{}",
        listener
            .local_addr()
            .expect("ports can be had, and a server on this machine answers")
    ))
    .expect("ports can be had, and a server on this machine answers");
    let routes = table.router().layer(Extension(registrar));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Gateway { table, url, metrics }
}

impl Gateway {
    async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
        let method = method
            .parse()
            .expect("ports can be had, and a server on this machine answers");
        let url = format!("{}/admin/workers{path}", self.url);
        let answer = HttpClient::default()
            .request(method, url)
            .body(body)
            .send()
            .await
            .expect("ports can be had, and a server on this machine answers");
        let status = answer.status().as_u16();
        let text = answer
            .text()
            .await
            .expect("ports can be had, and a server on this machine answers");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn put(&self, name: &str, body: &Value) -> (u16, Value) {
        self.send("PUT", &format!("/{name}"), body.to_string()).await
    }
}

#[tokio::test]
async fn a_worker_registers_renews_changes_and_goes() {
    let gateway = gateway().await;
    let (_roster, mut changes) = Roster::start(vec![gateway.table.source()], config(), &gateway.metrics);
    let body = json!({
        "url": "http://10.0.0.1:8000", "events": "tcp://10.0.0.1:5557", "ranks": 2, "lease": "90s",
        "labels": {"zone": "a"}, "model": null,
    });
    let (status, answer) = gateway.put("w1", &body).await;
    assert_eq!(
        (status, &answer["outcome"], &answer["lease_ms"]),
        (201, &json!("registered"), &json!(90_000))
    );
    assert_eq!(
        answer["worker"],
        "http://10.0.0.1:8000,events=tcp://10.0.0.1:5557,role=both,model=default,block-size=16,label=zone=a,dialect=vllm,ranks=2,\
         cache-view=events,copies=counted"
    );
    assert_eq!(next(&mut changes).await, "+0 http://10.0.0.1:8000");
    let (status, answer) = gateway.put("w1", &body).await;
    assert_eq!((status, &answer["outcome"]), (200, &json!("renewed")));
    let (_, shown) = gateway.send("GET", "/w1", "").await;
    assert_eq!(shown["name"], "w1");
    assert!(shown["left_ms"].as_u64().is_some_and(|left| left > 30_000), "{shown}");

    let other = json!({"url": "http://10.0.0.1:8000", "events": "tcp://10.0.0.1:5557", "ranks": 2, "role": "decode"});
    let (_, answer) = gateway.put("w1", &other).await;
    assert_eq!(
        (&answer["outcome"], &answer["lease_ms"]),
        (&json!("changed"), &json!(15_000))
    );
    assert_eq!(next(&mut changes).await, "~0 http://10.0.0.1:8000");
    let (_, all) = gateway.send("GET", "", "").await;
    assert_eq!(all["workers"].as_array().unwrap().len(), 1);
    assert_eq!(gateway.metrics.discovery.held_leases.get(), 1);

    assert_eq!(gateway.send("DELETE", "/w1", "").await.0, 200);
    assert_eq!(next(&mut changes).await, "-0");
    assert_eq!(gateway.send("DELETE", "/w1", "").await.0, 404);
    assert_eq!(gateway.send("GET", "/w1", "").await.0, 404);
}

#[tokio::test]
async fn a_registration_that_is_not_renewed_ends() {
    let gateway = gateway().await;
    let (_roster, mut changes) = Roster::start(vec![gateway.table.source()], config(), &gateway.metrics);
    gateway.put("w1", &json!({"url": "http://a", "lease": "5m"})).await;
    assert_eq!(next(&mut changes).await, "+0 http://a");
    gateway.put("w2", &json!({"url": "http://b", "lease": "5m"})).await;
    assert_eq!(next(&mut changes).await, "+1 http://b");
    // One that is shorter than before counts at once.
    gateway.put("w2", &json!({"url": "http://b", "lease": "1s"})).await;
    assert_eq!(next(&mut changes).await, "-1");
    assert_eq!(gateway.metrics.discovery.expired_leases.get(), 1);
}

#[tokio::test]
async fn what_is_wrong_is_said_and_changes_nothing() {
    let gateway = gateway().await;
    assert_eq!(gateway.put("good", &json!({"url": "http://taken"})).await.0, 201);
    let wrong = [
        (json!([1]), 400, "must be a JSON object"),
        (json!({}), 400, "`url`"),
        (json!({"url": "ftp://a"}), 400, "must begin with http://"),
        (
            json!({"url": "http://a", "rolle": "decode"}),
            400,
            "did you mean `role`?",
        ),
        (
            json!({"url": "http://a", "role": ["decode"]}),
            400,
            "`role` must be a text or a number",
        ),
        (json!({"url": "http://a,role=decode"}), 400, "without a comma"),
        (
            json!({"url": "http://a", "model": "x,role=decode"}),
            400,
            "without a comma",
        ),
        (
            json!({"url": "http://a", "labels": {"k,role": "v"}}),
            400,
            "without a comma",
        ),
        (json!({"url": "http://a", "labels": {"k": 1}}), 400, "`labels.k`"),
        (
            json!({"url": "http://a", "lease": "1h"}),
            400,
            "`lease` must be a time from 100ms to 300s",
        ),
        (json!({"url": "http://a", "lease": -1}), 400, "`lease`"),
        (
            json!({"url": "http://a", "cache-view": "events"}),
            400,
            "needs `events` or `agent`",
        ),
        (json!({"url": "http://me:secret@a"}), 400, "must hold no user name"),
        (json!({"url": "http://a/v2"}), 400, "must have no path"),
        (
            json!({"url": "http://a", "events": "bind:tcp://*:5557"}),
            400,
            "settings file only",
        ),
        (
            json!({"url": "http://a", "events": "bind:ipc:///tmp/x"}),
            400,
            "settings file only",
        ),
        (
            json!({"url": "http://a", "events": "tcp://a:1", "replay": "ipc:///tmp/x"}),
            400,
            "settings file only",
        ),
        (
            json!({"url": "http://taken"}),
            409,
            "http://taken is registered as `good`",
        ),
    ];
    for (body, status, words) in wrong {
        let (got, answer) = gateway.put("w1", &body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(got == status && error.contains(words), "{body}: {got} {answer}");
        assert!(!error.contains("secret"), "{error}");
    }
    let (status, answer) = gateway.send("PUT", "/w1", "{").await;
    assert_eq!(status, 400, "{answer}");
    let (status, _) = gateway.send("PUT", "/w1", "x".repeat(MAX_BODY + 1)).await;
    assert_eq!(status, 413);
    let (status, _) = gateway.put(&"x".repeat(129), &json!({"url": "http://a"})).await;
    assert_eq!(status, 400);
    let (status, _) = gateway.put("a%20b", &json!({"url": "http://a"})).await;
    assert_eq!(status, 400);
    let (_, all) = gateway.send("GET", "", "").await;
    assert_eq!(all["workers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_worker_tells_of_itself_and_takes_itself_back() {
    let gateway = gateway().await;
    let (_roster, mut changes) = Roster::start(vec![gateway.table.source()], config(), &gateway.metrics);
    let worker = spec("http://10.0.0.1:8000,events=tcp://10.0.0.1:5557,label=zone=a,role=decode");
    let registrant = |gateway: &HttpUrl| {
        Registrant::start(RegistrantConfig {
            gateway: gateway.clone(),
            name: "w/1".to_owned(),
            worker: worker.clone(),
            lease: Duration::from_mins(1),
            token: None,
            trust: None,
        })
    };
    let telling = registrant(&gateway.url);
    assert_eq!(next(&mut changes).await, "+0 http://10.0.0.1:8000");
    let (_, all) = gateway.send("GET", "", "").await;
    assert_eq!(
        (&all["workers"][0]["name"], &all["workers"][0]["worker"]),
        (&json!("w/1"), &json!(worker.to_string()))
    );
    telling.end().await;
    assert_eq!(next(&mut changes).await, "-0");
    assert_eq!(
        gateway.metrics.discovery.expired_leases.get(),
        0,
        "it was taken back, and did not run out"
    );
}

#[tokio::test]
async fn a_worker_tells_again_before_its_lease_is_over() {
    let words = Arc::new(AtomicU32::new(0));
    let heard = words.clone();
    let hear = move || {
        heard.fetch_add(1, Ordering::Relaxed);
        async { "{}" }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = HttpUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let routes = Router::new().route("/admin/workers/w1", axum::routing::put(hear));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let telling = Registrant::start(RegistrantConfig {
        gateway,
        name: "w1".to_owned(),
        worker: spec("http://a"),
        lease: Duration::from_millis(150),
        token: None,
        trust: None,
    });
    until("a third word", || words.load(Ordering::Relaxed) >= 3).await;
    drop(telling);
}

#[tokio::test]
async fn a_gateway_that_comes_later_hears_of_a_worker_that_was_there_before() {
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = held.local_addr().unwrap().to_string();
    drop(held);
    let telling = Registrant::start(RegistrantConfig {
        gateway: HttpUrl::parse(&format!("http://{address}")).unwrap(),
        name: "w1".to_owned(),
        worker: spec("http://a"),
        lease: Duration::from_millis(100),
        token: None,
        trust: None,
    });
    let gateway = gateway_at(&address).await;
    until("the worker", || gateway.metrics.discovery.held_leases.get() == 1).await;
    telling.end().await;
    assert_eq!(gateway.metrics.discovery.held_leases.get(), 0);
}

#[tokio::test]
async fn a_token_registers_its_own_names_and_roles_only() {
    let token = homing_config::register_tokens::parse(&format!(
        "[[token]]\nsha256 = \"{}\"\nname = \"team-a\"\nworkers = [\"a-*\"]\nroles = [\"decode\"]",
        "ab".repeat(32)
    ));
    let registrar = |token: RegisterToken, peer: [u8; 4]| Registrar {
        token: Arc::new(token),
        kind: RegistrarKind::Worker,
        peer: peer.into(),
    };
    let team_a = registrar(token.unwrap().remove(0), [10, 0, 0, 9]);
    let gateway = gateway_for("127.0.0.1:0", team_a).await;
    for (name, body, status, words) in [
        ("a-1", json!({"url": "http://10.0.0.1", "role": "decode"}), 201, ""),
        (
            "b-1",
            json!({"url": "http://10.0.0.2", "role": "decode"}),
            403,
            "may not register `b-1`",
        ),
        ("a-2", json!({"url": "http://10.0.0.2"}), 403, "of role `both`"),
        (
            "a-2",
            json!({"url": "http://127.0.0.1:8000", "role": "decode"}),
            403,
            "loopback address",
        ),
    ] {
        let (got, answer) = gateway.put(name, &body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(got == status && error.contains(words), "{name} {body}: {got} {answer}");
    }
    assert_eq!(gateway.send("DELETE", "/b-1", "").await.0, 403);
    assert_eq!(gateway.metrics.discovery.refused_registrations.get(), 4);

    // Another token may neither replace nor remove the name while its lease holds.
    let other = registrar(RegisterToken::unrestricted("team-b", [0; 32]), [10, 0, 0, 8]);
    let body = json!({"url": "http://10.0.0.3"}).to_string();
    let stolen = gateway.table.put(&other, "a-1", body.as_bytes()).await.unwrap_err();
    assert!(stolen.to_string().contains("another token"), "{stolen}");
    assert!(gateway.table.remove(&other, "a-1").is_err());
    let (_, shown) = gateway.send("GET", "/a-1", "").await;
    assert_eq!(shown["token"], "team-a");
    let operator = Registrar::operator([10, 0, 0, 7].into());
    gateway.table.put(&operator, "a-1", body.as_bytes()).await.unwrap();
    let (status, answer) = gateway
        .put("a-1", &json!({"url": "http://10.0.0.1", "role": "decode"}))
        .await;
    assert_eq!(status, 409, "{answer}");
    assert_eq!(gateway.send("DELETE", "/a-1", "").await.0, 403);
}
