//! Which workers does a name lead to?

use std::net::SocketAddr;
use std::time::Duration;

use homing_config::WorkerDefaults;

use crate::source::{Origin, Source, Tell, Telling};

/// How names are resolved.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Whom to ask; `None` for whom the system asks.
    pub server: Option<SocketAddr>,
    /// A name is resolved again when its answer is no longer valid, but not sooner than this.
    pub least: Duration,
    /// And not later than this.
    pub most: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Workers behind a name, resolved again and again.
#[derive(Debug)]
pub struct Dns {
    origin: Origin,
}

impl Dns {
    /// `what` is what the operator wrote; `defaults` hold for what it does not say.
    pub fn new(what: &homing_config::Discover, defaults: WorkerDefaults, config: DnsConfig) -> Self {
        let _ = (what, defaults, config);
        todo!()
    }
}

impl Source for Dns {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        let _ = tell;
        todo!()
    }
}
