//! The mock in this process, asked over HTTP.

use homing_platform::{HttpClient, HttpClientError, HttpResponse};
use std::time::{Duration, Instant};

use homing_config::{Config, Inputs, KnobId, resolve};
use homing_mock::{Place, Service};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A test that hangs is to fail and not to be waited for.
pub const GUARD: Duration = Duration::from_mins(1);
pub const POLL: Duration = Duration::from_millis(5);

/// A mock that runs.
#[derive(Debug)]
pub struct Mock {
    pub places: Vec<Place>,
    pub client: HttpClient,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

pub fn settings(more: &[(&str, &str)]) -> Config {
    let quick = [
        ("mock.port", "0"),
        ("mock.speedup", "1000"),
        ("model", "tiny"),
        ("mock.answer-tokens", "0"),
    ];
    let flag = |(path, text): &(&str, &str)| {
        let id = KnobId::of_path(path).unwrap_or_else(|| panic!("{path} is no setting"));
        (id, (*text).to_owned())
    };
    let inputs = Inputs {
        flags: quick.iter().chain(more).map(flag).collect(),
        ..Inputs::default()
    };
    resolve(&inputs).unwrap_or_else(|rejected| panic!("{rejected}")).config
}

impl Mock {
    pub async fn start(more: &[(&str, &str)]) -> Self {
        let service = Service::start(&settings(more)).await;
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        let places = service.places();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let stopped = async move { drop(stopped.await) };
            service.run(stopped).await.expect("it answers to its end");
        });
        Self {
            places,
            client: HttpClient::default(),
            stop,
            running,
        }
    }

    /// With sockets for events on any ports.
    pub async fn telling(more: &[(&str, &str)]) -> Self {
        let sockets = [
            ("mock.events", "tcp://127.0.0.1:0"),
            ("mock.replay", "tcp://127.0.0.1:0"),
        ];
        Self::start(&[&sockets, more].concat()).await
    }

    /// Stops it as a signal does.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("it ends without a panic");
    }

    /// All of it is gone at once.
    pub fn kill(&self) {
        self.running.abort();
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.places[0].address)
    }

    pub async fn send(&self, path: &str, body: &Value) -> Result<HttpResponse, HttpClientError> {
        let request = self.client.post(format!("{}{path}", self.url()));
        request.json(body).send().await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.send(path, body).await.expect("it answers");
        let status = response.status().as_u16();
        let text = response.text().await.expect("in text");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub async fn get(&self, path: &str) -> String {
        let response = self.client.get(format!("{}{path}", self.url())).send().await;
        response.expect("it answers").text().await.expect("in text")
    }

    pub async fn get_json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await).expect("it is JSON")
    }

    /// The events of a stream, without the last one, which must be the end.
    pub async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.send(path, &body).await.expect("it answers");
        assert_eq!(response.status().as_u16(), 200);
        assert!(
            response.headers()["content-type"]
                .to_str()
                .expect("as it was set up")
                .starts_with("text/event-stream")
        );
        let text = response.text().await.expect("the whole stream");
        let mut events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        let parsed = events
            .iter()
            .map(|event| event.strip_prefix("data: ").expect("an event"));
        parsed
            .map(|event| serde_json::from_str(event).expect("it is JSON"))
            .collect()
    }

    /// A number from the metrics, of the first line that begins so.
    pub async fn metric(&self, line: &str) -> f64 {
        let page = self.get("/metrics").await;
        let found = page.lines().find(|one| one.starts_with(line));
        let found = found.unwrap_or_else(|| panic!("{line} is not in\n{page}"));
        found
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    /// Waits until a metric is as it should be.
    pub async fn wait_metric(&self, line: &str, is: impl Fn(f64) -> bool) {
        let until = Instant::now() + GUARD;
        while !is(self.metric(line).await) {
            assert!(Instant::now() < until, "waited for {line}");
            tokio::time::sleep(POLL).await;
        }
    }
}
