//! Stored responses of tenants: one that continues, reads, overwrites or guesses the response of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::harness::{FakeEngine, Process, ReceivedRequest, Reply, Response, TempDir, answer_json, get, post_json};

/// What an engine stores: inputs by the id of the response.
type Store = Arc<Mutex<BTreeMap<String, String>>>;

/// An engine that stores responses under the id that a request chooses, as vLLM and SGLang do.
fn storing_engine(store: &Store) -> FakeEngine {
    let store = store.clone();
    FakeEngine::start_with("tiny", move |request| {
        let path = request.target.split('?').next().unwrap_or_default();
        let mut store = store.lock().unwrap();
        if path == "/v1/responses" {
            return Reply::Bytes(create(&mut store, &request.json()));
        }
        match path.strip_prefix("/v1/responses/") {
            Some(rest) => Reply::Bytes(answer_about(&store, rest.split('/').next().unwrap_or_default())),
            None => Reply::Usual,
        }
    })
}

fn create(store: &mut BTreeMap<String, String>, body: &Value) -> Vec<u8> {
    let previous = body["previous_response_id"].as_str();
    let history = previous.map_or(Some(String::new()), |previous| store.get(previous).cloned());
    let Some(history) = history else {
        return not_found(previous.unwrap_or_default());
    };
    let chosen = body["request_id"].as_str().map(str::to_owned);
    let id = chosen.unwrap_or_else(|| format!("resp_engine{}", store.len()));
    let text = format!("{history} {}", body["input"].as_str().unwrap_or_default());
    store.insert(id.clone(), text.clone());
    answer_json(200, &response(&id, &text))
}

fn answer_about(store: &BTreeMap<String, String>, id: &str) -> Vec<u8> {
    match store.get(id) {
        Some(text) => answer_json(200, &response(id, text)),
        None => not_found(id),
    }
}

fn response(id: &str, text: &str) -> Value {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    json!({ "id": id, "object": "response", "status": "completed", "text": text, "usage": usage })
}

fn not_found(id: &str) -> Vec<u8> {
    let message = format!("Response with id '{id}' not found.");
    answer_json(404, &json!({ "error": { "message": message, "code": 404 } }))
}

/// Requests that engines got for or about responses.
fn about_responses(requests: &[ReceivedRequest]) -> usize {
    let about = |request: &&ReceivedRequest| request.target.starts_with("/v1/responses");
    requests.iter().filter(about).count()
}

/// A file of keys and the key of each tenant.
fn keys_of(directory: &TempDir, tenants: [&str; 2]) -> (String, [String; 2]) {
    let file = directory.path().join("keys.toml");
    let file = file.to_str().unwrap().to_owned();
    let keys = tenants.map(|tenant| {
        let made = Process::run(&["keys", "new", "--tenant", tenant, "--file", &file]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let printed = String::from_utf8_lossy(&made.stdout).into_owned();
        let key = printed.split_whitespace().find(|word| word.starts_with("homing-sk-"));
        key.unwrap_or_else(|| panic!("no key in {printed:?}")).to_owned()
    });
    (file, keys)
}

/// A gateway with these keys. Settings are given as variables, of which a binary ignores those that it does not know.
fn gateway(engine: &FakeEngine, keys: &str, variables: &[(&str, &str)]) -> Process {
    let worker = format!("{},cache-view=none", engine.url());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let more = ["--health-interval", "200ms", "--worker", &worker, "--keys", keys];
    let process = Process::start_with(&[&arguments[..], &more].concat(), variables);
    process.wait_ready();
    process
}

struct Client<'a> {
    address: &'a str,
    bearer: String,
}

impl<'a> Client<'a> {
    fn new(address: &'a str, key: &str) -> Self {
        let bearer = format!("Bearer {key}");
        Self { address, bearer }
    }

    fn create(&self, more: Value) -> Response {
        let mut body = json!({ "model": "tiny" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let headers = [("authorization", self.bearer.as_str())];
        post_json(self.address, "/v1/responses", &headers, &body)
    }

    fn read(&self, id: &str) -> Response {
        let headers = [("authorization", self.bearer.as_str())];
        get(self.address, &format!("/v1/responses/{id}"), &headers)
    }

    /// The statuses of continuing and of reading it.
    fn uses(&self, id: &str) -> (u16, u16) {
        let continued = self.create(json!({ "input": "and", "previous_response_id": id }));
        (continued.status, self.read(id).status)
    }
}

fn id_of(response: &Response) -> String {
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn after_a_restart_a_tenant_cannot_use_the_response_of_another() {
    let directory = TempDir::new("response-ids");
    let key_file = directory.write("response-keys", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n");
    let state_dir = directory.path().join("state");
    let (keys, [of_acme, of_other]) = keys_of(&directory, ["acme", "other"]);
    for (variable, value) in [
        ("HOMING_RESPONSES_KEY_FILE", &key_file),
        ("HOMING_SERVE_STATE_DIR", &state_dir),
    ] {
        let variables = [(variable, value.to_str().unwrap())];
        let store = Store::default();
        let engine = storing_engine(&store);
        let first = gateway(&engine, &keys, &variables);
        let id = id_of(&Client::new(&first.address(), &of_acme).create(json!({ "input": "secret" })));
        drop(first);
        let second = gateway(&engine, &keys, &variables);
        let address = second.address();
        let (acme, other) = (Client::new(&address, &of_acme), Client::new(&address, &of_other));
        let engine_id = store.lock().unwrap().keys().next().unwrap().clone();
        engine.take_requests();
        assert_eq!(other.uses(&id), (404, 404), "{variable}: another tenant's response");
        assert_eq!(other.uses(&engine_id), (404, 404), "{variable}: the engine's own id");
        assert_eq!(
            about_responses(&engine.requests()),
            0,
            "{variable}: no engine is asked for a response of another tenant"
        );
        assert_eq!(acme.uses(&id), (200, 200), "{variable}: the owner's response");
        let text = acme
            .create(json!({ "input": "more", "previous_response_id": id }))
            .json();
        assert!(text["text"].as_str().unwrap().contains("secret"), "{text}");
    }
}

#[test]
fn a_tenant_cannot_store_under_the_id_of_another() {
    let directory = TempDir::new("chosen-response-ids");
    let (keys, [of_acme, of_other]) = keys_of(&directory, ["acme", "other"]);
    let store = Store::default();
    let engine = storing_engine(&store);
    let process = gateway(&engine, &keys, &[]);
    let address = process.address();
    let (acme, other) = (Client::new(&address, &of_acme), Client::new(&address, &of_other));
    let id = id_of(&acme.create(json!({ "input": "secret" })));
    let engine_id = store.lock().unwrap().keys().next().unwrap().clone();
    other.create(json!({ "input": "forged", "request_id": engine_id }));
    let text = acme.read(&id).json()["text"].to_string();
    assert!(text.contains("secret") && !text.contains("forged"), "{text}");
}

#[test]
fn a_gateway_whose_key_ends_with_it_says_so() {
    let store = Store::default();
    let engine = storing_engine(&store);
    let directory = TempDir::new("process-response-key");
    let (keys, [of_acme, _]) = keys_of(&directory, ["acme", "other"]);
    let first = gateway(&engine, &keys, &[]);
    let id = id_of(&Client::new(&first.address(), &of_acme).create(json!({ "input": "x" })));
    assert!(first.stderr().contains("serve.state-dir"), "{}", first.stderr());
    drop(first);
    let second = gateway(&engine, &keys, &[]);
    let uses = Client::new(&second.address(), &of_acme).uses(&id);
    assert_eq!(uses, (404, 404), "an id of a key that is gone");
}
