//! An engine of the demo: `homing mock` on a runtime of its own, so that all of it can be gone at once.

use std::future::pending;

use anyhow::Context as _;
use homing_config::{Config, HttpUrl, Switch, WorkerSpec};
use homing_discovery::Registrant;
use homing_discovery::register::RegistrantConfig;
use homing_mock::Service;
use tokio::runtime::Runtime;

/// Any port of this machine, for those on it.
const ANYWHERE: &str = "tcp://127.0.0.1:0";

/// An engine that runs until it is killed.
#[derive(Debug)]
pub struct Engine {
    /// Where it answers, as a gateway names it.
    pub url: String,
    /// What a gateway is to know of it.
    pub spec: WorkerSpec,
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
        let config = settings(config);
        let defaults = config.worker_defaults();
        let service = runtime.spawn(async move { Service::start(&config).await });
        let service = service.await.context("an engine did not start")??;
        let place = service.places().into_iter().next().context("an engine has no place")?;
        runtime.spawn(service.run(pending()));
        let url = format!("http://{}", place.address);
        let mut spec = url.clone();
        if let Some((Some(events), Some(replay))) = place.ranks.first() {
            spec = format!("{spec},events={events},replay={replay}");
        }
        let spec = WorkerSpec::parse(&spec, &defaults.learning());
        let spec = spec.ok().context("an engine's address is none")?;
        Ok(Self {
            url,
            spec,
            runtime: Some(runtime),
        })
    }

    /// Tells a gateway of itself, for as long as it runs.
    pub fn register(&self, gateway: &str, config: &Config) -> anyhow::Result<()> {
        let registrant = RegistrantConfig {
            gateway: HttpUrl::parse(gateway)?,
            name: "late".to_owned(),
            worker: self.spec.clone(),
            lease: config.discovery.lease,
        };
        let runtime = self.runtime.as_ref().context("it was killed")?;
        runtime.spawn(async move {
            match Registrant::start(registrant) {
                Ok(_registrant) => pending().await,
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
    mock.host = "127.0.0.1".to_owned();
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
