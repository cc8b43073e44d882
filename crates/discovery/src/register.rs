//! How does a worker tell a gateway that it is there?

use std::time::Duration;

use homing_config::HttpUrl;

/// What is told, to whom.
#[derive(Clone, Debug)]
pub struct RegistrantConfig {
    /// The gateway's admin listener.
    pub gateway: HttpUrl,
    /// What the worker is called there.
    pub name: String,
    /// The worker, as [`homing_config::WorkerSpec`] is written as text.
    pub worker: String,
    /// How long it holds without a further word. A third of it passes between two.
    pub lease: Duration,
}

/// Tells of a worker until it is told to end.
#[derive(Debug)]
pub struct Registrant {}

impl Registrant {
    /// Begins to tell. Failures are logged and tried again.
    pub fn start(config: RegistrantConfig) -> Self {
        let _ = config;
        todo!()
    }

    /// Takes the worker off the gateway's table and ends.
    pub async fn end(self) {
        todo!()
    }
}
