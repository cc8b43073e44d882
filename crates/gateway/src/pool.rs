//! Idle connections to workers.

use homing_domain::WorkerId;
use homing_platform::ConnectionPool;

/// The connections of a thread that carries requests.
pub(crate) type Pool = ConnectionPool<WorkerId>;
