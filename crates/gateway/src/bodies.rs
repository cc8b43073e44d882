//! Reads bodies of requests within the memory that there is for them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use homing_config::Serve;
use homing_config::serve::Bodies;
use homing_platform::server::error_response;
use homing_platform::{BodyBudget, BodyError, BodyLimits, BodyOwner, BudgetExceeded, ClientAddress};
use homing_telemetry::Metrics;

use crate::gateway::Gateway;
use crate::keyring::Key;
use crate::refusal::Refuse;

/// A body can take this many times its length: while its buffer grows, and where what is sent to a worker differs from it.
const MAX_COPIES: u64 = 2;
/// What one client may hold when nothing else is held, as a part of the budget: see [`homing_platform::budget`].
const LARGEST_SHARE: u64 = 2;

/// The longest body of a request of an operator. Handlers have limits of their own below it.
const LARGEST_FOR_OPERATORS: u64 = 1 << 20;

/// The budget of a gateway.
pub(crate) fn body_budget(bodies: &Bodies, metrics: &Arc<Metrics>) -> Arc<BodyBudget> {
    let budget = BodyBudget::new(bodies.budget_bytes, metrics);
    let always_fits = budget.capacity_bytes() / LARGEST_SHARE / MAX_COPIES;
    if bodies.request > always_fits {
        tracing::warn!(
            budget_bytes = budget.capacity_bytes(),
            max_request_bytes = bodies.request,
            "requests above {always_fits} bytes can be refused for want of memory: raise `serve.body-budget-bytes` or lower \
             `serve.max-request-bytes`"
        );
    }
    budget
}

/// Whose share of the budget a request counts against.
pub(crate) fn owner(key: Option<&Key>, client: IpAddr) -> BodyOwner {
    key.map_or(BodyOwner::Address(client), |key| BodyOwner::Tenant(key.tenant.clone()))
}

/// The address that a request is counted for.
pub(crate) fn client(extensions: &Extensions) -> IpAddr {
    let address = extensions.get::<ClientAddress>();
    // Only tests ask without a connection.
    address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.0)
}

/// The limits of a request for a model.
pub(crate) fn limits(serve: &Serve) -> BodyLimits {
    BodyLimits {
        max_bytes: serve.bodies.request,
        timeout: serve.times.request,
        min_bytes_per_second: serve.bodies.min_upload_bytes_per_second,
        window: serve.bodies.upload_window,
    }
}

/// Counts what is sent to a worker, unless it is what came.
pub(crate) fn held(
    budget: &Arc<BodyBudget>,
    owner: BodyOwner,
    came: &Bytes,
    sent: Bytes,
) -> Result<Bytes, BudgetExceeded> {
    if came.as_ptr() == sent.as_ptr() {
        return Ok(sent);
    }
    budget.hold(owner, sent)
}

/// Reads the body of a request to the route API, before its handler asks for it.
pub(crate) async fn read_for_routes(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let limits = limits(&gateway.config.load().serve);
    match read(&gateway, request, &limits).await {
        Ok(request) => next.run(request).await,
        Err(error) => crate::advice::answered(Err(error.into())),
    }
}

/// The same for a request of an operator or of a worker that registers.
pub(crate) async fn read_for_operators(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let limits = BodyLimits {
        max_bytes: LARGEST_FOR_OPERATORS,
        ..limits(&gateway.config.load().serve)
    };
    match read(&gateway, request, &limits).await {
        Ok(request) => next.run(request).await,
        Err(error) => {
            let mut response = error_response(error.status(), &error.to_string());
            if matches!(error, BodyError::Budget(_)) {
                let soon = HeaderValue::from_static("1");
                response.headers_mut().insert(header::RETRY_AFTER, soon);
            }
            response
        }
    }
}

async fn read(gateway: &Gateway, request: Request, limits: &BodyLimits) -> Result<Request, BodyError> {
    let (head, body) = request.into_parts();
    let owner = BodyOwner::Address(client(&head.extensions));
    let body = gateway.bodies.read(body, owner, limits).await?;
    Ok(Request::from_parts(head, body.into()))
}

impl From<BodyError> for Refuse {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Budget(exceeded) => exceeded.into(),
            BodyError::TooLarge(_) | BodyError::Timeout(_) | BodyError::TooSlow { .. } | BodyError::Broken(_) => {
                Self::wrong(error.status(), error.to_string())
            }
        }
    }
}

impl From<BudgetExceeded> for Refuse {
    fn from(exceeded: BudgetExceeded) -> Self {
        Self::unavailable(exceeded.message())
    }
}
