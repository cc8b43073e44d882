//! What is said to a client whose request goes nowhere?

use std::time::Duration;

use homing_protocol::Problem;
use homing_router::Turned;
use homing_scheduler::Refusal;
use homing_scheduler::queue::Refused;
use homing_telemetry::{Quota, RequestEnd};

/// When nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// Why a request gets no answer of an engine.
#[derive(Debug)]
pub(crate) struct Refuse {
    pub(crate) problem: Problem,
    /// When to try again, if that helps.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) end: RequestEnd,
    /// The limit of who asks that was reached, if it is that.
    pub(crate) limit: Option<Quota>,
}

impl Refuse {
    /// The request is wrong.
    pub(crate) fn wrong(status: u16, message: impl Into<String>) -> Self {
        Self {
            problem: Problem::new(status, message),
            retry_after: None,
            end: RequestEnd::Wrong,
            limit: None,
        }
    }

    /// Nobody knows who asks.
    pub(crate) fn unauthorized(message: &'static str) -> Self {
        Self {
            problem: Problem::new(401, message).code("invalid_api_key"),
            retry_after: None,
            end: RequestEnd::Refused,
            limit: None,
        }
    }

    /// There is nobody for it now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self {
            problem: Problem::new(503, message),
            retry_after: Some(SOON),
            end: RequestEnd::Refused,
            limit: None,
        }
    }

    /// Workers failed.
    pub(crate) fn failed(status: u16, message: impl Into<String>) -> Self {
        Self {
            problem: Problem::new(status, message),
            retry_after: (status == 503).then_some(SOON),
            end: RequestEnd::Failed,
            limit: None,
        }
    }

    /// The router has nowhere to send it.
    pub(crate) fn turned(turned: &Turned, deadline: Option<Duration>) -> Self {
        let message = turned.to_string();
        let (status, retry_after) = match turned {
            Turned::Full(Refused::Exceeded { scope, retry_after, .. }) => {
                // The limit of one class is its own; that of all is the fleet's.
                let status = if scope == homing_scheduler::queue::EVERYBODY {
                    503
                } else {
                    429
                };
                let after = Duration::try_from_secs_f64(retry_after.0 / 1e3).unwrap_or(SOON);
                (status, Some(after))
            }
            Turned::Apart(apart) if apart.retry() == homing_disagg::Retry::Never => (400, None),
            Turned::Full(Refused::Known(_)) => (409, None),
            Turned::Nowhere(Refusal::NoWorkerNamed) | Turned::Full(Refused::NoSuchClass(_)) => (400, None),
            Turned::Expired(_) if deadline.is_some() => (504, None),
            Turned::Nowhere(
                Refusal::NobodyEligible(_) | Refusal::PinnedWorker { .. } | Refusal::PolicyChoseNobody(_),
            )
            | Turned::Apart(_)
            | Turned::NoSuchRank(_)
            | Turned::Unbookable(_)
            | Turned::Loads { .. }
            | Turned::Expired(_) => (503, Some(SOON)),
        };
        Self {
            problem: Problem::new(status, message),
            retry_after,
            end: if status == 400 {
                RequestEnd::Wrong
            } else {
                RequestEnd::Refused
            },
            limit: None,
        }
    }

    /// Whole seconds for the header, at least one.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs_f64().ceil().max(1.0) as u64)
    }
}
