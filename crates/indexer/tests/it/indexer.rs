//! The service in this process, asked over HTTP.

use bytes::Bytes;
use homing_platform::{HttpClient, Method};
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Inputs, KnobId, Resolved, resolve};
use homing_indexer::Service;
use homing_telemetry::Metrics;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cache::{BLOCK, Cache};
use crate::engine::Engine;

/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(5);

/// A service that runs.
#[derive(Debug)]
pub struct Indexer {
    pub url: String,
    client: HttpClient,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// The settings of a service with these workers, on any port.
pub fn settings(workers: &[String], more: &[(&str, &str)]) -> Resolved {
    let quick = [
        ("index.listen", "127.0.0.1:0"),
        ("feed.verify-within", "2s"),
        ("agent.heartbeat", "100ms"),
        ("feed.backoff-base", "5ms"),
        ("feed.repair-timeout", "1s"),
    ];
    let flag = |(path, text): &(&str, &str)| {
        let id = KnobId::of_path(path).unwrap_or_else(|| panic!("{path} is no setting"));
        (id, (*text).to_owned())
    };
    let inputs = Inputs {
        flags: quick.iter().chain(more).map(flag).collect(),
        worker_flags: workers.to_vec(),
        ..Inputs::default()
    };
    resolve(&inputs).unwrap_or_else(|rejected| panic!("{rejected}"))
}

impl Indexer {
    /// Starts one for this engine alone.
    pub async fn of(engine: &Engine) -> Self {
        Self::start(&settings(&[engine.worker()], &[])).await
    }

    pub async fn start(settings: &Resolved) -> Self {
        let service = Service::start(settings, Arc::new(Metrics::default())).await;
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        let url = format!("http://{}", service.address());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let stopped = async move { drop(stopped.await) };
            service.run(stopped).await;
        });
        Self {
            url,
            client: HttpClient::default(),
            stop,
            running,
        }
    }

    /// Stops it as a signal does.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("it ends without a panic");
    }

    /// Asks, and gives status and text.
    pub async fn ask(&self, method: Method, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        let request = self.client.request(method, format!("{}{path}", self.url)).body(body);
        let response = request.send().await.expect("it answers");
        let status = response.status().as_u16();
        (status, response.text().await.expect("in text"))
    }

    pub async fn get(&self, path: &str) -> String {
        let (status, text) = self.ask(Method::GET, path, "").await;
        assert_eq!(status, 200, "{text}");
        text
    }

    pub async fn get_json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await).expect("it is JSON")
    }

    pub async fn post(&self, question: &Value) -> (u16, Value) {
        let (status, text) = self.ask(Method::POST, "/v1/overlap", question.to_string()).await;
        (status, serde_json::from_str(&text).expect("it is JSON"))
    }

    /// Leading blocks on the device of the only rank.
    pub async fn overlap(&self, tokens: &[u32]) -> u64 {
        let (status, answer) = self.post(&json!({ "model": "tiny", "tokens": tokens })).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["blocks"], tokens.len() / BLOCK);
        answer["ranks"][0]["blocks"]["device"].as_u64().expect("a number")
    }

    /// The only rank.
    pub async fn rank(&self) -> Value {
        self.get_json("/v1/ranks").await["ranks"][0].clone()
    }

    /// Waits until the only rank is as it should be, and gives it.
    pub async fn wait(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + GUARD;
        loop {
            let rank = self.rank().await;
            if is(&rank) {
                return rank;
            }
            assert!(Instant::now() < until, "waited for {what}: {rank}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until this batch is applied and the state is this.
    pub async fn wait_for(&self, cursor: u64, state: &str) -> Value {
        let what = format!("{state} at {cursor}");
        self.wait(&what, |rank| rank["cursor"] == cursor && rank["state"] == state)
            .await
    }

    /// Waits until the health is as it should be, and gives it.
    pub async fn wait_health(&self, is: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + GUARD;
        loop {
            let health = self.get_json("/health").await;
            if is(&health) {
                return health;
            }
            assert!(Instant::now() < until, "waited for another health: {health}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Compares the answers with the truth.
    pub async fn agrees(&self, cache: &Cache, prompts: &[Vec<u32>]) {
        for tokens in prompts {
            assert_eq!(self.overlap(tokens).await, cache.overlap(tokens), "{:?}", &tokens[..1]);
        }
        assert_eq!(self.rank().await["blocks"], cache.len());
    }
}
