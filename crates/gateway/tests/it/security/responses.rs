//! Stored responses: only the tenant that made one can continue, read, cancel or delete it, also after a restart of the gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use homing_config::keys::{Fresh, Quota, fresh};
use homing_telemetry::RefusedResponseId;
use serde_json::{Value, json};

use crate::harness::{Gateway, file};
use crate::security::pki::written;

/// An engine that stores responses, as vLLM does with `VLLM_ENABLE_RESPONSES_API_STORE`.
#[derive(Clone, Default)]
struct StoringEngine {
    number: usize,
    state: Arc<Mutex<EngineState>>,
}

#[derive(Default)]
struct EngineState {
    stored: BTreeMap<String, Value>,
    /// Requests for or about responses: first line and body.
    requests: Vec<String>,
}

impl StoringEngine {
    async fn start(number: usize) -> (Self, SocketAddr) {
        let engine = Self {
            number,
            ..Self::default()
        };
        let models = json!({ "object": "list", "data": [{ "id": "tiny", "object": "model" }] });
        let routes = Router::new()
            .route("/v1/models", get(async move || Json(models)))
            .route("/v1/responses", post(create))
            .route("/v1/responses/{id}", get(about).delete(about))
            .route("/v1/responses/{id}/{action}", any(about_action))
            .fallback(async || Json(json!({})))
            .with_state(engine.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (engine, address)
    }

    fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    fn ids(&self) -> Vec<String> {
        self.state.lock().unwrap().stored.keys().cloned().collect()
    }

    fn not_found(id: &str) -> Response {
        let message = format!("Response with id '{id}' not found.");
        let error = json!({ "error": { "message": message, "type": "NotFoundError", "code": 404 } });
        (StatusCode::NOT_FOUND, Json(error)).into_response()
    }

    fn question(&self, line: String, id: &str, more: &Value) -> Response {
        let mut state = self.state.lock().unwrap();
        state.requests.push(line);
        let Some(response) = state.stored.get(id) else {
            return Self::not_found(id);
        };
        let mut answer = response.clone();
        answer
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Json(answer).into_response()
    }
}

async fn create(State(engine): State<StoringEngine>, Json(body): Json<Value>) -> Response {
    let mut state = engine.state.lock().unwrap();
    state.requests.push(format!("POST /v1/responses {body}"));
    let previous = body["previous_response_id"].as_str();
    if let Some(previous) = previous.filter(|previous| !state.stored.contains_key(*previous)) {
        return StoringEngine::not_found(previous);
    }
    let chosen = body["request_id"].as_str().map(str::to_owned);
    let id = chosen.unwrap_or_else(|| format!("resp_{}_{}", engine.number, state.stored.len()));
    let response = json!({
        "id": id, "object": "response", "status": "completed", "previous_response_id": previous,
        "output": [{ "type": "message", "id": "msg_1", "content": [{ "type": "output_text", "text": body["input"] }] }],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 },
    });
    state.stored.insert(id.clone(), response.clone());
    if body["stream"] != true {
        return Json(response).into_response();
    }
    let delta = json!({ "type": "response.output_text.delta", "item_id": "msg_1", "delta": format!("{{\"response\":{{\"id\":\"{id}\"}}}}") });
    let events = ["created", "in_progress", "completed"].map(|name| {
        let event = json!({ "type": format!("response.{name}"), "response": response });
        format!("event: response.{name}\ndata: {event}\n\n")
    });
    let [created, in_progress, completed] = events;
    let text = format!("{created}{in_progress}event: response.output_text.delta\ndata: {delta}\n\n{completed}");
    ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response()
}

async fn about(State(engine): State<StoringEngine>, Path(id): Path<String>, method: Method, uri: Uri) -> Response {
    let more = if method == Method::DELETE {
        json!({ "object": "response.deleted", "deleted": true })
    } else {
        json!({})
    };
    engine.question(format!("{method} {uri}"), &id, &more)
}

async fn about_action(
    State(engine): State<StoringEngine>,
    Path((id, action)): Path<(String, String)>,
    method: Method,
    uri: Uri,
) -> Response {
    engine.question(format!("{method} {uri}"), &id, &json!({ "action": action }))
}

fn key(tenant: &str) -> Fresh {
    let unlimited = Quota {
        requests: None,
        tokens: None,
    };
    fresh(tenant, 0, unlimited).unwrap()
}

async fn before(workers: &[SocketAddr], settings: &[(&str, &str)]) -> Gateway {
    let worker = |address: &SocketAddr| format!("http://{address},model=tiny,cache-view=none");
    let workers: Vec<String> = workers.iter().map(worker).collect();
    let quiet = [
        ("serve.policy", "round-robin"),
        ("serve.check-workers", "none"),
        ("discovery.file-interval", "10ms"),
    ];
    let gateway = Gateway::start(&workers, &[&quiet, settings].concat()).await;
    gateway.wait_workers(workers.len()).await;
    gateway
}

/// A client of a gateway, with a key or without one.
#[derive(Clone, Copy)]
struct Client<'a> {
    gateway: &'a Gateway,
    key: Option<&'a str>,
}

impl Client<'_> {
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, String) {
        let url = format!("{}{path}", self.gateway.url);
        let mut request = self.gateway.client.request(method, url);
        if let Some(key) = self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn create(&self, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["model"] = json!("tiny");
        let (status, text) = self.ask(Method::POST, "/v1/responses", Some(&body)).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// The id of a new response.
    async fn created(&self, body: &Value) -> String {
        let (status, answer) = self.create(body).await;
        assert_eq!(status, 200, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    /// The statuses of all that can be done with a response but to delete it.
    async fn uses(&self, id: &str) -> [u16; 4] {
        let (continued, _) = self.create(&json!({ "input": "y", "previous_response_id": id })).await;
        let path = format!("/v1/responses/{id}");
        let (read, _) = self.ask(Method::GET, &path, None).await;
        let (items, _) = self.ask(Method::GET, &format!("{path}/input_items"), None).await;
        let (cancelled, _) = self.ask(Method::POST, &format!("{path}/cancel"), None).await;
        [continued, read, items, cancelled]
    }

    async fn delete(&self, id: &str) -> u16 {
        self.ask(Method::DELETE, &format!("/v1/responses/{id}"), None).await.0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_belongs_to_its_tenant_also_after_a_restart() {
    let [acme, other] = ["acme", "other"].map(key);
    let keys = written("response-owners.toml", &(acme.spec.to_toml() + &other.spec.to_toml()));
    let state_dir = file("response-owners-state");
    let _ = std::fs::remove_dir_all(&state_dir);
    let settings = [
        ("serve.keys", keys.as_str()),
        ("serve.state-dir", state_dir.to_str().unwrap()),
    ];
    let mut engines = Vec::new();
    for number in 0..3 {
        engines.push(StoringEngine::start(number).await);
    }
    let workers: Vec<SocketAddr> = engines.iter().map(|(_, address)| *address).collect();
    let requests = || engines.iter().map(|(engine, _)| engine.requests().len()).sum::<usize>();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut gateway = before(&workers, &settings).await;
        let client = |key| Client {
            gateway: &gateway,
            key: Some(key),
        };
        let (owner, stranger) = (client(&acme.key), client(&other.key));
        for _ in 0..3 {
            ids.push(owner.created(&json!({ "input": "x" })).await);
        }
        let asked = requests();
        for id in &ids {
            assert_eq!(stranger.uses(id).await, [404; 4]);
            assert_eq!(stranger.delete(id).await, 404);
        }
        assert_eq!(requests(), asked, "no engine was asked for a stranger");
        let foreign = &gateway.metrics.gateway.refused_response_ids;
        assert_eq!(foreign.of(RefusedResponseId::Foreign).get(), 5 * ids.len() as u64);
        for id in &ids {
            // Each of three workers stores some: a wrong worker would not find it.
            assert_eq!(owner.uses(id).await, [200; 4]);
            assert_eq!(owner.delete(id).await, 200);
        }
        let ended = gateway.end();
        ended.await.unwrap();
    }
    assert!(engines.iter().all(|(engine, _)| !engine.ids().is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_no_id_of_ours_is_not_found_and_no_engine_is_asked() {
    let (engine, address) = StoringEngine::start(0).await;
    let gateway = before(&[address], &[]).await;
    let client = Client {
        gateway: &gateway,
        key: None,
    };
    let id = client.created(&json!({ "input": "x" })).await;
    let engine_id = engine.ids().remove(0);
    let other_gateway = before(&[address], &[]).await;
    let other = Client {
        gateway: &other_gateway,
        key: None,
    };
    let of_other = other.created(&json!({ "input": "x" })).await;
    let asked = engine.requests().len();
    let flipped = format!(
        "{}{}",
        &id[..id.len() - 2],
        if id.ends_with("AA") { "BA" } else { "AA" }
    );
    let long = format!("resp_{}", "A".repeat(20_000));
    for bad in [
        engine_id.as_str(),
        "resp_",
        "x",
        &id[..id.len() - 1],
        &id[5..],
        &format!("{id}A"),
        &flipped,
        &of_other,
        &long,
    ] {
        assert_eq!(client.uses(bad).await, [404; 4], "{bad}");
        assert_eq!(client.delete(bad).await, 404, "{bad}");
        let (_, said) = client
            .create(&json!({ "input": "y", "previous_response_id": bad }))
            .await;
        let error = &said["error"];
        assert_eq!(
            (&error["type"], &error["param"]),
            (&json!("NotFoundError"), &json!("previous_response_id"))
        );
        assert!(error["message"].as_str().unwrap().len() < 256, "{error}");
    }
    for odd in [json!(1), json!([id]), json!({ "id": id })] {
        let (status, said) = client
            .create(&json!({ "input": "y", "previous_response_id": odd }))
            .await;
        assert_eq!(status, 400, "{said}");
    }
    assert_eq!(engine.requests().len(), asked, "no engine was asked");
    let refused = &gateway.metrics.gateway.refused_response_ids;
    assert!(refused.of(RefusedResponseId::Malformed).get() > 0 && refused.of(RefusedResponseId::Forged).get() > 0);
    assert_eq!(client.uses(&id).await, [200; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_see_one_id_everywhere_and_engines_see_their_own() {
    let (engine, address) = StoringEngine::start(0).await;
    let gateway = before(&[address], &[]).await;
    let client = Client {
        gateway: &gateway,
        key: None,
    };
    let first = client.created(&json!({ "input": "x" })).await;
    let streamed = json!({ "input": "y", "stream": true, "previous_response_id": first });
    let (status, text) = client.create(&streamed).await;
    assert_eq!(status, 200, "{text}");
    let text = text.as_str().unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    assert_eq!(events.len(), 4, "{text}");
    let second = events[0]["response"]["id"].as_str().unwrap();
    assert!(second.starts_with("resp_") && second != first);
    for event in events.iter().filter(|event| event.get("response").is_some()) {
        assert_eq!(
            (&event["response"]["id"], &event["response"]["previous_response_id"]),
            (&json!(second), &json!(first)),
            "{event}"
        );
        assert_eq!(event["response"]["output"][0]["id"], "msg_1");
    }
    let delta = events.iter().find(|event| event.get("delta").is_some()).unwrap();
    assert_eq!(
        delta["delta"], r#"{"response":{"id":"resp_0_1"}}"#,
        "text is not changed"
    );
    let (_, read) = client
        .ask(Method::GET, &format!("/v1/responses/{second}?include=x"), None)
        .await;
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!(
        (&read["id"], &read["previous_response_id"]),
        (&json!(second), &json!(first))
    );
    let (_, deleted) = client
        .ask(Method::DELETE, &format!("/v1/responses/{second}"), None)
        .await;
    assert!(
        deleted.contains(second) && !deleted.contains("\"resp_0_1\""),
        "{deleted}"
    );
    let requests = engine.requests();
    assert!(
        requests[1].contains(r#""previous_response_id":"resp_0_0""#),
        "{requests:?}"
    );
    assert_eq!(
        requests[2..],
        ["GET /v1/responses/resp_0_1?include=x", "DELETE /v1/responses/resp_0_1"]
    );
    // The engine forgets it, and says so of the id that it knows.
    engine.state.lock().unwrap().stored.clear();
    for (_, said) in [
        client.ask(Method::GET, &format!("/v1/responses/{first}"), None).await,
        client
            .ask(
                Method::POST,
                "/v1/responses",
                Some(&json!({ "model": "tiny", "input": "z", "previous_response_id": first })),
            )
            .await,
    ] {
        assert!(said.contains(&format!("'{first}' not found")), "{said}");
    }
    let records = gateway.admin("/admin/decisions").await.to_string();
    assert!(!records.contains("resp_"), "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_choose_the_id_under_which_an_engine_stores() {
    let [acme, other] = ["acme", "other"].map(key);
    let keys = written("chosen-ids.toml", &(acme.spec.to_toml() + &other.spec.to_toml()));
    let (engine, address) = StoringEngine::start(0).await;
    let gateway = before(&[address], &[("serve.keys", &keys)]).await;
    let client = |key| Client {
        gateway: &gateway,
        key: Some(key),
    };
    let id = client(&acme.key).created(&json!({ "input": "secret" })).await;
    let engine_id = engine.ids().remove(0);
    let taken = json!({ "input": "taken", "request_id": engine_id });
    let (status, said) = client(&other.key).create(&taken).await;
    assert!(status == 200 || status == 400, "{said}");
    assert!(
        engine.requests().iter().all(|request| !request.contains("request_id")),
        "{:?}",
        engine.requests()
    );
    let (_, read) = client(&acme.key)
        .ask(Method::GET, &format!("/v1/responses/{id}"), None)
        .await;
    assert!(read.contains("secret"), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_while_the_gateway_runs() {
    const OLD: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n";
    const NEW: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n";
    let path = written("response-keys", OLD);
    let (_, address) = StoringEngine::start(0).await;
    let settings = [("responses.key-file", path.as_str())];
    let gateways = [before(&[address], &settings).await, before(&[address], &settings).await];
    let clients = gateways.each_ref().map(|gateway| Client { gateway, key: None });
    let by_old = clients[0].created(&json!({ "input": "x" })).await;
    assert_eq!(clients[1].uses(&by_old).await, [200; 4]);
    written("response-keys", &format!("{NEW}{OLD}"));
    let again = json!({ "input": "x", "previous_response_id": by_old });
    for client in clients {
        // The id that is repeated is signed by the key in use.
        let is_new = async || client.create(&again).await.1["previous_response_id"] != by_old.as_str();
        client.gateway.wait("the new key", is_new).await;
    }
    let by_new = clients[0].created(&again).await;
    assert_eq!(clients[1].uses(&by_new).await, [200; 4]);
    assert_eq!(clients[1].uses(&by_old).await, [200; 4]);
    written("response-keys", NEW);
    for client in clients {
        client
            .gateway
            .wait("the end of the old key", async || {
                client.uses(&by_old).await == [404; 4]
            })
            .await;
        assert_eq!(client.uses(&by_new).await, [200; 4]);
    }
}
