//! What do all services have in common? Logs, a runtime, and an end when the system asks for it.

use std::future::Future;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use homing_config::Config;
use tokio::signal::unix::{SignalKind, signal};

use crate::logs;

/// Done when the service is to stop.
pub type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// After something ended, how long what it left behind may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// How many threads the runtime of a service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for each core.
    All,
    /// One for four cores. What carries requests has threads of its own; here every thread more is one that is woken to find
    /// nothing to do.
    Few,
}

/// Runs a service, which is given what tells it to stop: SIGINT or SIGTERM.
pub fn run<F>(config: &Config, threads: Threads, serve: impl FnOnce(Stop) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    logs::start(&config.log, homing_config::colour(io::stderr().is_terminal()));
    until_told(threads, serve)
}

/// The same for what has no logs.
pub fn until_told<T, F>(threads: Threads, work: impl FnOnce(Stop) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if threads == Threads::Few {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        runtime.worker_threads(cores.div_ceil(4));
    }
    let runtime = runtime.enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(async {
        // Before anything is said, so that who reads it may send one.
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let stop = Box::pin(async move {
            tokio::select! {
                _ = interrupt.recv() => tracing::info!("interrupted"),
                _ = terminate.recv() => tracing::info!("told to end"),
            }
        });
        work(stop).await
    });
    runtime.shutdown_timeout(GRACE);
    done
}

/// Says where the service listens: the last thing said on start, because who started us may wait for it.
pub fn announce(address: SocketAddr) -> io::Result<()> {
    announce_url(&format!("http://{address}"))
}

/// The same for one that perhaps speaks TLS.
pub fn announce_url(url: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "listening on {url}")?;
    out.flush()
}
