//! `homing agent`: list and watch beside an engine, until it is told to stop.

use std::sync::Arc;

use homing_agent::Agent;
use homing_config::Config;

use crate::service;

/// Runs until SIGINT or SIGTERM.
pub fn run(config: &Config) -> anyhow::Result<()> {
    service::run(config, service::Threads::All, async |stop| {
        let agent = Agent::start(config, Arc::default()).await?;
        service::announce_url(&agent.url()?)?;
        agent.serve(stop).await;
        Ok(())
    })
}
