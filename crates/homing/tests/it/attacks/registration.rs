//! Workers that register themselves: which names, addresses and answers are taken, from whom, and how often.

use serde_json::{Value, json};

use super::harness::{
    Connection, FakeEngine, Process, Reply, Response, TempDir, answer_json, answer_with, exchange, get, request,
    wait_until,
};

const TOKEN: &str = "token-of-the-attack-tests";
const TEAM_TOKEN: &str = "token-of-a-team-in-a-file";
/// SHA-256 of it.
const TEAM_DIGEST: &str = "54e7ed51f836f0bd08387d01d7a9e5aada30871cb3d81f8b79cb8c703dc31832";

struct Gateway {
    process: Process,
    operators: String,
}

impl Gateway {
    fn start(variables: &[(&str, &str)]) -> Self {
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--health-interval",
            "50ms",
            "--register-token",
            TOKEN,
        ];
        let process = Process::start_with(&arguments, variables);
        process.address();
        let operators = process.operators();
        Self { process, operators }
    }

    fn send(&self, method: &str, name: &str, token: &str, body: &Value) -> Response {
        exchange(&self.operators, registration(method, name, token, body))
    }

    fn put(&self, name: &str, token: &str, body: &Value) -> Response {
        self.send("PUT", name, token, body)
    }

    /// The worker at this URL, as operators see it.
    fn worker(&self, url: &str) -> Option<Value> {
        let fleet = get(&self.operators, "/admin/fleet", &[]).json();
        let workers = fleet["workers"].as_array().cloned().unwrap_or_default();
        workers.into_iter().find(|worker| worker["url"] == url)
    }
}

fn registration(method: &str, name: &str, token: &str, body: &Value) -> Vec<u8> {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    request(
        method,
        &format!("/admin/workers/{name}"),
        &headers,
        body.to_string().as_bytes(),
    )
}

/// The variable is unknown to binaries from before register tokens.
fn team_tokens(directory: &TempDir) -> String {
    let text = format!(
        "[[token]]\nsha256 = \"{TEAM_DIGEST}\"\nname = \"team-a\"\nworkers = [\"a-*\"]\nroles = [\"decode\"]\n"
    );
    directory.write("tokens.toml", text).display().to_string()
}

#[test]
fn a_name_belongs_to_the_token_that_registered_it_first() {
    let directory = TempDir::new("registration");
    let gateway = Gateway::start(&[("HOMING_SERVE_REGISTER_TOKENS", &team_tokens(&directory))]);
    let worker = |last: u8| json!({ "url": format!("http://10.0.0.{last}:8000"), "role": "decode" });
    let mut found = Vec::new();
    for (method, name, token, body, expected) in [
        ("PUT", "a-1", TEAM_TOKEN, worker(1), 201),
        ("PUT", "a-1", TOKEN, worker(2), 409),
        ("PUT", "a-1", TOKEN, worker(1), 409),
        ("DELETE", "a-1", TOKEN, Value::Null, 403),
        ("PUT", "a-1", TEAM_TOKEN, worker(3), 200),
        ("PUT", "b-1", TEAM_TOKEN, worker(4), 403),
        ("PUT", "a-2", TEAM_TOKEN, json!({ "url": "http://10.0.0.5:8000" }), 403),
        ("PUT", "b-1", TOKEN, worker(6), 201),
        ("DELETE", "b-1", TEAM_TOKEN, Value::Null, 403),
        ("PUT", "a-3", "another-token-of-nobody", worker(7), 401),
        ("DELETE", "a-1", TEAM_TOKEN, Value::Null, 200),
        ("PUT", "a-1", TOKEN, worker(8), 201),
    ] {
        let status = gateway.send(method, name, token, &body).status;
        if status != expected {
            found.push(format!(
                "{method} {name} {token} {body}: {status} instead of {expected}"
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn addresses_that_only_this_machine_reaches_are_refused() {
    let gateway = Gateway::start(&[]);
    let (clients, operators) = (gateway.process.address(), gateway.operators.clone());
    let port = clients.rsplit(':').next().unwrap();
    let mut accepted = Vec::new();
    for (number, (url, events)) in [
        ("http://169.254.169.254", None),
        ("http://169.254.1.1:8000", None),
        ("http://[fe80::1]:8000", None),
        ("http://[::ffff:169.254.169.254]", None),
        ("http://[fd00:ec2::254]", None),
        ("http://0.0.0.0:8000", None),
        ("http://[::]:8000", None),
        ("http://224.0.0.1:8000", None),
        ("http://[ff02::1]:8000", None),
        ("http://2852039166", None),
        (&format!("http://{clients}"), None),
        (&format!("http://{operators}"), None),
        (&format!("http://localhost:{port}"), None),
        (&format!("http://[::ffff:127.0.0.1]:{port}"), None),
        ("http://10.0.0.1:8000", Some("tcp://169.254.169.254:80".to_owned())),
        ("http://10.0.0.1:8000", Some(format!("tcp://{operators}"))),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = json!({ "url": url });
        if let Some(events) = events {
            body["events"] = json!(events);
        }
        let answer = gateway.put(&format!("w{number}"), TOKEN, &body);
        if answer.status != 403 {
            accepted.push(format!("{body}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
    let allowed = gateway.put(
        "good",
        TOKEN,
        &json!({ "url": "http://127.0.0.1:9", "events": "tcp://127.0.0.1:10" }),
    );
    assert_eq!(
        allowed.status,
        201,
        "a worker on this machine may register: {}",
        allowed.text()
    );
}

#[test]
fn what_does_not_prove_to_be_an_engine_takes_no_requests() {
    let not_found = || Reply::Bytes(answer_json(404, &json!({ "detail": "Not Found" })));
    let no_models = || Reply::Bytes(answer_json(200, &json!({ "object": "list", "data": [] })));
    let path = |target: &str| target.split('?').next().unwrap_or_default().to_owned();
    let unfit = [
        ("answers 404", FakeEngine::start_with("a", move |_| not_found())),
        (
            "has no model",
            FakeEngine::start_with("b", move |request| match path(&request.target).as_str() {
                "/v1/models" => no_models(),
                _ => Reply::Usual,
            }),
        ),
        (
            "has no version",
            FakeEngine::start_with("c", move |request| match path(&request.target).as_str() {
                "/v1/models" => Reply::Usual,
                _ => Reply::Bytes(answer_with(404, &[], b"")),
            }),
        ),
    ];
    let gateway = Gateway::start(&[]);
    for (what, engine) in &unfit {
        let answer = gateway.put(&what.replace(' ', "-"), TOKEN, &json!({ "url": engine.url() }));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    for (what, engine) in &unfit {
        let asked = || {
            engine
                .probes()
                .iter()
                .filter(|probe| probe.target == "/v1/models")
                .count()
        };
        // What is taken for an engine is not asked again for a minute.
        wait_until("it is taken, or was asked more than once", || {
            gateway.worker(&engine.url()).is_some() || asked() > 2
        });
        let taken = gateway.worker(&engine.url());
        assert!(taken.is_none(), "one that {what} takes requests: {taken:?}");
    }
    let good = FakeEngine::start("tiny");
    gateway.put("good", TOKEN, &json!({ "url": good.url() }));
    wait_until("a real engine takes requests", || gateway.worker(&good.url()).is_some());
}

#[test]
fn a_registered_worker_without_a_health_page_goes_down() {
    let engine = FakeEngine::start_with("tiny", |request| match request.target.as_str() {
        "/health" => Reply::Bytes(answer_with(404, &[], b"")),
        _ => Reply::Usual,
    });
    let gateway = Gateway::start(&[]);
    gateway.put("w", TOKEN, &json!({ "url": engine.url() }));
    wait_until("it is taken", || gateway.worker(&engine.url()).is_some());
    let pings = || engine.probes().iter().filter(|probe| probe.target == "/health").count();
    let before = pings();
    let health = || gateway.worker(&engine.url()).unwrap()["health"].clone();
    wait_until("it is down, or was asked often", || {
        health() == "down" || pings() > before + 20
    });
    assert_eq!(health(), "down");
}

#[test]
fn registrations_are_limited_for_each_token_and_address() {
    let gateway = Gateway::start(&[]);
    let body = json!({ "url": "http://10.0.0.1:8000" });
    let bytes = String::from_utf8(registration("PUT", "w", TOKEN, &body)).unwrap();
    let bytes = bytes.replace("connection: close\r\n", "");
    let mut connection = Connection::open(&gateway.operators);
    let limited = (0..20_000).find_map(|_| {
        connection.send(&bytes).unwrap();
        let answer = connection.read_response().unwrap();
        assert!([200, 201, 429].contains(&answer.status), "{}", answer.text());
        (answer.status == 429).then_some(answer)
    });
    let limited = limited.expect("20,000 registrations in a row are limited");
    let wait: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
}

#[test]
fn who_registered_what_is_logged_without_the_token() {
    let gateway = Gateway::start(&[]);
    gateway.put("w1", TOKEN, &json!({ "url": "http://10.0.0.1:8000" }));
    gateway.put("w2", TOKEN, &json!({ "url": "http://169.254.169.254", "model": "x" }));
    gateway.send("DELETE", "w1", TOKEN, &Value::Null);
    let is_logged = |words: &[&str]| {
        let log = gateway.process.stderr();
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    };
    // What is logged of this comes behind the rest.
    gateway.put("w3", TOKEN, &json!({ "url": "http://10.0.0.3:8000" }));
    wait_until("the last worker is logged", || {
        is_logged(&["came", "http://10.0.0.3:8000"])
    });
    for words in [
        &["worker registered", "w1", "serve.register-token", "127.0.0.1"][..],
        &["registration refused", "w2", "serve.register-token", "127.0.0.1"],
        &["registration removed", "w1", "serve.register-token", "127.0.0.1"],
    ] {
        assert!(is_logged(words), "{words:?}: {}", gateway.process.stderr());
    }
    assert!(!gateway.process.stderr().contains(TOKEN));
}
