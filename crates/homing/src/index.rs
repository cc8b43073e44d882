//! `homing index`: the index as a service, until it is told to stop.

use std::io::{self, Write as _};
use std::sync::Arc;

use homing_config::Resolved;
use homing_indexer::Service;

use crate::service;

/// Runs until SIGINT or SIGTERM.
pub fn run(resolved: &Resolved) -> anyhow::Result<()> {
    service::run(&resolved.config, service::Threads::All, async |stop| {
        let index = Service::start(resolved, Arc::default()).await?;
        for line in index.workers() {
            writeln!(io::stderr(), "{line}")?;
        }
        service::announce_url(&index.url())?;
        index.run(stop).await;
        Ok(())
    })
}
