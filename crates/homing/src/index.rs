//! `homing index`: runs the index as a service until it is told to stop.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;

use anyhow::Context as _;
use homing_config::Resolved;
use homing_indexer::Service;
use homing_telemetry::Metrics;
use tokio::signal::unix::{SignalKind, signal};

use crate::logs;

/// Runs until SIGINT or SIGTERM.
pub fn run(resolved: &Resolved) -> anyhow::Result<()> {
    logs::start(
        resolved.config.log.level,
        homing_config::colour(io::stderr().is_terminal()),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(resolved))
}

async fn serve(resolved: &Resolved) -> anyhow::Result<()> {
    // Before anything is said, so that who reads it may send one.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => tracing::info!("interrupted"),
            _ = terminate.recv() => tracing::info!("told to end"),
        }
    };
    let service = Service::start(resolved, Arc::new(Metrics::default())).await?;
    for line in service.workers() {
        writeln!(io::stderr(), "{line}")?;
    }
    // Last, because who started us may wait for it.
    let mut out = io::stdout();
    writeln!(out, "listening on http://{}", service.address())?;
    out.flush()?;
    service.run(stop).await.context("cannot go on answering")
}
