//! `homing serve`: the gateway, until it is told to stop.

use std::io::{self, Write as _};
use std::sync::Arc;

use anyhow::Context as _;
use homing_config::Reader;
use homing_gateway::Service;

use crate::service;

/// Runs until SIGINT or SIGTERM, and then as long as requests take, within their limit.
pub fn run(reader: Reader) -> anyhow::Result<()> {
    let resolved = &reader.read().context("the settings cannot be used")?;
    // Every request is two open files, and what is allowed at first is often 1,024. Where it cannot be raised, clients wait.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    service::run(&resolved.config, service::Threads::Few, async |stop| {
        let gateway = Service::start(resolved, Some(reader), Arc::default()).await?;
        for worker in &resolved.config.workers {
            writeln!(io::stderr(), "worker {worker}")?;
        }
        writeln!(io::stderr(), "operators: {}", gateway.admin_url())?;
        if let Some(url) = gateway.route_url() {
            writeln!(io::stderr(), "proxies: {url}")?;
        }
        service::announce_url(&gateway.url())?;
        gateway.run(stop).await;
        Ok(())
    })
}
