//! Mock engines and a gateway in this process, over real sockets.

use homing_platform::{HttpClient, HttpResponse};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Inputs, KnobId, Reader, Resolved, resolve};
use homing_gateway::Service;
use homing_mock::Place;
use homing_telemetry::Metrics;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// A test that hangs is to fail and not to be waited for.
pub const GUARD: Duration = Duration::from_mins(1);
pub const POLL: Duration = Duration::from_millis(5);

/// What workers must know that register.
pub const REGISTER_TOKEN: &str = "token-of-the-tests";

/// On ports that nobody has.
const ANYWHERE: &[(&str, &str)] = &[
    ("serve.listen", "127.0.0.1:0"),
    ("serve.admin", "127.0.0.1:0"),
    ("serve.threads", "2"),
    ("health.interval", "200ms"),
    ("load.interval", "200ms"),
    ("serve.register-token", REGISTER_TOKEN),
    // Nobody here is too slow unless a test says so; a machine may be.
    ("serve.tokenize-timeout", "1m"),
    ("serve.connect-timeout", "1m"),
    ("health.timeout", "1m"),
    ("probe.timeout", "1m"),
];

pub fn resolved(workers: &[String], settings: &[(&str, &str)]) -> Resolved {
    let flag = |(path, text): &(&str, &str)| {
        let id = KnobId::of_path(path).unwrap_or_else(|| panic!("{path} is no setting"));
        (id, (*text).to_owned())
    };
    let inputs = Inputs {
        flags: settings.iter().map(flag).collect(),
        worker_flags: workers.to_vec(),
        ..Inputs::default()
    };
    resolve(&inputs).unwrap_or_else(|rejected| panic!("{rejected}"))
}

/// An engine that can be killed.
#[derive(Debug)]
pub struct Engine {
    pub place: Place,
    runtime: Option<Runtime>,
}

impl Engine {
    /// An engine with events, on any ports unless others are given.
    pub fn start(more: &[(&str, &str)]) -> Self {
        let quick = [
            ("mock.port", "0"),
            ("mock.speedup", "1000"),
            ("model", "tiny"),
            ("mock.answer-tokens", "0"),
            ("mock.events", "tcp://127.0.0.1:0"),
            ("mock.replay", "tcp://127.0.0.1:0"),
        ];
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let config = resolved(&[], &[&quick, more].concat()).config;
        // Whoever starts it may be a task, which must not wait for another runtime.
        let started = std::thread::spawn(move || {
            let service = runtime.block_on(homing_mock::Service::start(&config));
            let service = service.unwrap_or_else(|error| panic!("{error}"));
            let place = service.places().remove(0);
            runtime.spawn(async move { service.run(std::future::pending()).await });
            (place, runtime)
        });
        let (place, runtime) = started.join().expect("it starts");
        Self {
            place,
            runtime: Some(runtime),
        }
    }

    /// An engine at ports that were another's a moment ago.
    pub fn start_again(more: &[(&str, &str)]) -> Self {
        let until = Instant::now() + GUARD;
        let ports = more
            .iter()
            .filter(|(name, _)| ["mock.port", "mock.events", "mock.replay"].contains(name));
        let ports: Vec<String> = ports
            .map(|(_, place)| place.rsplit(':').next().unwrap_or_default().to_owned())
            .collect();
        while ports
            .iter()
            .any(|port| std::net::TcpListener::bind(format!("127.0.0.1:{port}")).is_err())
        {
            assert!(Instant::now() < until, "ports {ports:?} are not free again");
            std::thread::sleep(POLL);
        }
        Self::start(more)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.place.address)
    }

    /// As `--worker` takes it.
    pub fn spec(&self, more: &str) -> String {
        let (events, replay) = &self.place.ranks[0];
        let mut spec = format!("{},model=tiny", self.url());
        if let (Some(events), Some(replay)) = (events, replay) {
            spec = format!("{spec},events={events},replay={replay}");
        }
        format!("{spec}{more}")
    }

    /// What goes wrong with it from now on.
    pub async fn faults(&self, faults: Value) {
        let told = HttpClient::default()
            .post(format!("{}/mock/faults", self.url()))
            .json(&faults)
            .send()
            .await
            .expect("it answers");
        assert!(told.status().is_success(), "{}", told.text().await.expect("in text"));
    }

    /// Answers come as fast as this machine allows. So a test can ask for one that is still running whenever the test
    /// gets to what it wants to see, on a busy machine too, and need not wait for its end.
    pub async fn hurry(&self) {
        self.faults(json!({ "slowdown": 0.001 })).await;
    }

    /// Everything of it is gone at once, as when a process is killed.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    pub url: String,
    pub admin: String,
    /// Where proxies ask, if they may.
    pub route: Option<String>,
    pub metrics: Arc<Metrics>,
    pub client: HttpClient,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<()>>,
}

impl Gateway {
    /// A gateway in front of these engines, ready.
    pub async fn before(engines: &[Engine], settings: &[(&str, &str)]) -> Self {
        let workers: Vec<String> = engines.iter().map(|engine| engine.spec("")).collect();
        let gateway = Self::start(&workers, settings).await;
        gateway.wait_workers(engines.len()).await;
        gateway.wait_live(engines.len()).await;
        gateway
    }

    pub async fn start(workers: &[String], settings: &[(&str, &str)]) -> Self {
        Self::run(&resolved(workers, &[ANYWHERE, settings].concat()), None).await
    }

    /// A gateway whose settings file is read again when it changes.
    pub async fn reading(reader: Reader) -> Self {
        let resolved = reader.read().unwrap_or_else(|rejected| panic!("{rejected}"));
        Self::run(&resolved, Some(reader)).await
    }

    async fn run(resolved: &Resolved, reader: Option<Reader>) -> Self {
        let metrics = Arc::new(Metrics::default());
        let service = Service::start(resolved, reader, metrics.clone()).await;
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        let (url, admin, route) = (service.url(), service.admin_url(), service.route_url());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(service.run(async move { drop(stopped.await) }));
        Self {
            url,
            admin,
            route,
            metrics,
            client: HttpClient::default(),
            stop: Some(stop),
            ended: Some(ended),
        }
    }

    /// Tells it to end; done when it has.
    pub fn end(&mut self) -> tokio::task::JoinHandle<()> {
        drop(self.stop.take());
        self.ended.take().expect("it is ended once")
    }

    pub async fn admin(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.admin)).send().await;
        let text = response.expect("it answers").text().await.expect("in text");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    pub async fn wait_workers(&self, count: usize) {
        self.wait("workers", async || {
            let fleet = self.admin("/admin/fleet").await;
            let up = |worker: &&Value| worker["health"] == "up" || worker["health"] == "suspect";
            fleet["workers"]
                .as_array()
                .is_some_and(|workers| workers.iter().filter(up).count() == count)
        })
        .await;
    }

    /// Waits until the views of so many ranks are such that they count.
    pub async fn wait_live(&self, count: usize) {
        self.wait("views", async || {
            let fleet = self.admin("/admin/fleet").await;
            let workers = fleet["workers"].as_array().cloned().unwrap_or_default();
            let live =
                |worker: &&Value| worker["ranks"][0]["view"] == "live" || worker["ranks"][0]["view"] == "warming";
            workers.iter().filter(live).count() == count
        })
        .await;
    }

    /// Waits until the gateway no longer takes this engine for a healthy one.
    pub async fn wait_not_up(&self, engine: &Engine) {
        let url = engine.url();
        self.wait("the engine not to be up", async || {
            let fleet = self.admin("/admin/fleet").await;
            let is_up = |worker: &Value| worker["url"] == url.as_str() && worker["health"] == "up";
            fleet["workers"]
                .as_array()
                .is_some_and(|workers| !workers.iter().any(is_up))
        })
        .await;
    }

    pub async fn wait(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let until = Instant::now() + GUARD;
        while !is().await {
            let late = Instant::now() > until;
            assert!(!late, "waited for {what}: {}", self.admin("/admin/fleet").await);
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn send(&self, path: &str, body: &Value) -> HttpResponse {
        self.send_with(path, body, &[]).await
    }

    pub async fn send_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> HttpResponse {
        let mut request = self.client.post(format!("{}{path}", self.url)).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("it answers")
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.send(path, body).await;
        let status = response.status().as_u16();
        let text = response.text().await.expect("in text");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The events of a stream, without the last one, which must be the end.
    pub async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.send(path, &body).await;
        let status = response.status().as_u16();
        let text = response.text().await.expect("the whole stream");
        assert_eq!(status, 200, "{text}");
        events(&text)
    }
}

/// The events of a text, without the last one, which must be the end.
pub fn events(text: &str) -> Vec<Value> {
    let mut events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    let parsed = events
        .iter()
        .map(|event| event.strip_prefix("data: ").expect("an event"));
    parsed
        .map(|event| serde_json::from_str(event).expect("it is JSON"))
        .collect()
}

/// The text of a stream of chat chunks or completion chunks.
pub fn text_of(events: &[Value]) -> String {
    let piece = |event: &Value| {
        let choice = &event["choices"][0];
        let text = choice["delta"]["content"].as_str().or_else(|| choice["text"].as_str());
        text.unwrap_or_default().to_owned()
    };
    events.iter().map(piece).collect()
}

/// A prompt of so many tokens (the mock's are bytes).
pub fn prompt(seed: u32, tokens: usize) -> String {
    let words = (0..).map(|word: u32| format!("{:08x}", seed.wrapping_mul(2_654_435_761).wrapping_add(word * 40_503)));
    let mut text = String::with_capacity(tokens);
    for word in words {
        if text.len() >= tokens {
            break;
        }
        text.push_str(&word);
    }
    text.truncate(tokens);
    text
}

/// Why a gateway does not start with these settings.
pub async fn refused(settings: &[(&str, &str)]) -> String {
    let resolved = resolved(&[], &[ANYWHERE, settings].concat());
    let started = Service::start(&resolved, None, Arc::default()).await;
    started.map(|_| ()).unwrap_err().to_string()
}

/// A file of this test run.
pub fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The first of so many ports in a row that nobody has.
pub fn ports(count: u16) -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Below those that the system gives away.
    let mut first = 15_000 + fastrand::u16(..15_000);
    while !(first..first + count).all(free) {
        first = 15_000 + fastrand::u16(..15_000);
    }
    first
}
