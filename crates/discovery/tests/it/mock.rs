//! Mocks in this process, and waiting for what is to come.

use homing_platform::HttpClient;
use std::future::Future;
use std::time::Duration;

use homing_config::{CacheView, Config, HttpUrl, Inputs, KnobId, WorkerDefaults, WorkerSpec, resolve};
use homing_mock::{Place, Service};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A test that hangs is to fail and not to be waited for.
pub const GUARD: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(5);

/// A mock that runs.
#[derive(Debug)]
pub struct Mock {
    pub places: Vec<Place>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

pub fn settings(more: &[(&str, &str)]) -> Config {
    let quick = [("mock.port", "0"), ("mock.speedup", "1000"), ("model", "tiny")];
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
        Self { places, stop, running }
    }

    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("it ends without a panic");
    }

    pub fn url(&self) -> HttpUrl {
        HttpUrl::parse(&format!("http://{}", self.places[0].address)).expect("the mock answers")
    }

    /// Makes it fail, or no longer.
    pub async fn faults(&self, change: serde_json::Value) {
        let url = format!("{}/mock/faults", self.url());
        let answer = HttpClient::default()
            .post(url)
            .json(&change)
            .send()
            .await
            .expect("the mock answers");
        assert!(answer.status().is_success());
    }
}

/// What holds for workers that do not say it, none of which is refused for want of a source.
pub fn defaults() -> WorkerDefaults {
    Config::default().worker_defaults().learning()
}

pub fn spec(text: &str) -> WorkerSpec {
    WorkerSpec::parse(text, &defaults()).unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}

/// Waits for something that must come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(GUARD, future).await {
        Ok(value) => value,
        Err(late) => panic!("{what} did not come: {late}"),
    }
}

/// Looks until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    soon(what, async {
        while !is_so() {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}

#[test]
fn a_view_that_nobody_chose_is_approximate() {
    assert_eq!(spec("http://a").cache_view, CacheView::Approximate);
}
