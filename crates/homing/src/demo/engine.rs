//! An engine of the demo: `homing mock` on a runtime of its own, so that all of it can be gone at once.

use std::future::pending;
use std::sync::Arc;

use anyhow::Context as _;
use homing_config::{Config, Switch, WorkerSpec};
use homing_mock::{Place, Service};
use tokio::runtime::Runtime;

use crate::register;

/// Any port of this machine, for those on it.
const ANYWHERE: &str = "tcp://127.0.0.1:0";

/// An engine that runs until it is killed.
#[derive(Debug)]
pub struct Engine {
    /// Where it answers, as a gateway names it.
    pub url: String,
    /// What a gateway is to know of it.
    pub spec: WorkerSpec,
    place: Place,
    config: Arc<Config>,
    runtime: Option<Runtime>,
}

impl Engine {
    /// Starts one that is as the settings say, but for where it listens.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let config = Arc::new(settings(config));
        let service = runtime.spawn({
            let config = config.clone();
            async move { Service::start(&config).await }
        });
        let service = service.await.context("an engine did not start")??;
        let place = service.places().into_iter().next().context("an engine has no place")?;
        runtime.spawn(service.run(pending()));
        Ok(Self {
            url: format!("http://{}", place.address),
            spec: register::worker(&config, place.address, &place)?,
            place,
            config,
            runtime: Some(runtime),
        })
    }

    /// Tells a gateway of itself, for as long as it runs.
    pub fn register(&self, gateway: &str) -> anyhow::Result<()> {
        let (place, mut config) = (self.place.clone(), (*self.config).clone());
        config.mock.register = Some(gateway.to_owned());
        let runtime = self.runtime.as_ref().context("it was killed")?;
        runtime.spawn(async move {
            match register::start(&config, &[place]).await {
                Ok(_registered) => pending().await,
                Err(error) => tracing::error!(%error, "a worker cannot register"),
            }
        });
        Ok(())
    }

    /// All of it is gone at once, as when a process is killed: connections break in the middle of answers.
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

fn settings(config: &Config) -> Config {
    let mut config = config.clone();
    let mock = &mut config.mock;
    "127.0.0.1".clone_into(&mut mock.host);
    mock.port = 0;
    mock.workers = 1;
    mock.dp_size = 1;
    mock.blocks = config.demo.cache;
    // Answers are as long as is asked for, so that what is computed does not depend on luck.
    mock.answer_tokens = 0;
    mock.kv_trace = None;
    mock.register = None;
    mock.events.connects = Switch::Off;
    mock.events.publish = Some(ANYWHERE.to_owned());
    mock.events.replay = Some(ANYWHERE.to_owned());
    mock.faults.drop_every = config.demo.drop_every;
    config
}
