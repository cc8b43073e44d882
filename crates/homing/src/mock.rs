//! `homing mock`: engines without a GPU, until they are told to stop.

use std::io::{self, Write as _};

use anyhow::Context as _;
use homing_config::Config;
use homing_mock::Service;

use crate::{register, service};

/// Runs until SIGINT or SIGTERM.
pub fn run(config: &Config) -> anyhow::Result<()> {
    // Every stream is an open file, and what is allowed at first is often 1,024. Where it cannot be raised, further connections
    // wait.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    service::run(config, service::Threads::All, async |stop| {
        let mock = Service::start(config).await?;
        let places = mock.places();
        for (number, place) in places.iter().enumerate() {
            writeln!(io::stderr(), "worker {number}: http://{}", place.address)?;
            if let Some(kv) = place.kv {
                writeln!(io::stderr(), "worker {number}: KV at {kv}")?;
            }
            for (rank, (events, replay)) in place.ranks.iter().enumerate() {
                let shown = |endpoint: &Option<String>| endpoint.clone().unwrap_or_else(|| "none".to_owned());
                writeln!(
                    io::stderr(),
                    "worker {number} rank {rank}: events {}, replay {}",
                    shown(events),
                    shown(replay)
                )?;
            }
        }
        for place in &places {
            service::announce(place.address)?;
        }
        let registered = register::start(config, &places).await?;
        let stop = async move {
            stop.await;
            // Before it stops answering, so that nobody is sent to it any more.
            registered.end().await;
        };
        mock.run(stop).await.context("cannot go on answering")
    })
}
