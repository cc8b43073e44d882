//! Which workers told of themselves, and until when does it hold?

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use homing_config::WorkerDefaults;
use homing_telemetry::Metrics;

use crate::source::Source;

/// What registrations may be.
#[derive(Clone, Debug)]
pub struct RegistrationsConfig {
    /// How long one holds that does not say it.
    pub lease: Duration,
    /// The longest that one may hold.
    pub longest: Duration,
    /// What holds for workers that do not say it themselves.
    pub defaults: WorkerDefaults,
}

/// Workers that told of themselves. Copies are of the same table.
#[derive(Clone, Debug)]
pub struct Registrations {}

impl Registrations {
    /// An empty table.
    pub fn new(config: RegistrationsConfig, metrics: &Arc<Metrics>) -> Self {
        let _ = (config, metrics);
        todo!()
    }

    /// `GET /admin/workers`, and `PUT`, `GET` and `DELETE` of `/admin/workers/{name}`. Whoever can reach them can add workers:
    /// mount them where only operators come.
    pub fn router(&self) -> Router {
        todo!()
    }

    /// Tells who is registered. One source per table is enough.
    pub fn source(&self) -> Box<dyn Source> {
        todo!()
    }
}
