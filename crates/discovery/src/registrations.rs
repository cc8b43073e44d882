//! Which workers told of themselves?
//!
//! ```text
//! PUT    /admin/workers/NAME   {"url": "http://10.0.0.1:8000", "events": "tcp://10.0.0.1:5557", "lease": "15s"}
//! GET    /admin/workers/NAME
//! DELETE /admin/workers/NAME
//! GET    /admin/workers
//! ```
//!
//! The keys are those of a worker in the settings, `label` excepted, which is the object `labels`. A `PUT` is repeated before the
//! lease is over; one that says the same changes nothing but the time. The table is in memory: after a restart it fills within a
//! third of a lease.
//!
//! **Invariant:** a body is read up to [`MAX_BODY`] bytes, and what cannot be understood changes nothing.
//!
//! Tokens are not looked at here: who serves the routes knows them, and puts the [`Registrar`] into each request. What its token allows,
//! by name, role and address, is looked at here.
//!
//! **Invariant:** a name belongs to the token that registered it first, until its lease ends or the same token takes it back.
//!
//! **Invariant:** what is registered opens nothing on this machine, and has only addresses that the rules allow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use homing_config::worker::{WorkerKey, WorkerProblem};
use homing_config::{AddressRules, Config, WorkerDefaults, WorkerSpec, quantity, role_name, words};
use homing_domain::{Role, excerpt_to};
use homing_profile::Time;
use homing_telemetry::Metrics;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::Notify;

use crate::addresses::{AddressCheck, AddressProblem};
use crate::leases::{Claim, Lease, LeaseProblem, Leases, Put, Takeover};
use crate::registrar::{Registrar, RegistrarKind};
use crate::source::{Absence, NobodyListens, Origin, Source, SourceKind, Tell, Telling, Told};

/// The longest body of a registration, in bytes.
pub const MAX_BODY: usize = 16 << 10;
/// The shortest lease.
pub const LEAST_LEASE: Duration = Duration::from_millis(100);
/// The longest name, in bytes.
pub const MAX_NAME: usize = 128;
/// The key that says how long a registration holds.
const LEASE: &str = "lease";
/// The key of labels.
const LABELS: &str = "labels";
/// The longest message of an error, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// How much of an error is logged.
const MAX_LOGGED: usize = 512;

/// What registrations may be.
#[derive(Clone, Debug)]
pub struct RegistrationsConfig {
    /// How long one holds that does not say it.
    pub lease: Duration,
    /// The longest that one may hold.
    pub longest: Duration,
    /// What holds for workers that do not say it themselves.
    pub defaults: WorkerDefaults,
    /// Which addresses they may have.
    pub rules: Arc<AddressRules>,
    /// How long looking up a name may take.
    pub lookup_timeout: Duration,
}

/// Workers that told of themselves. Copies are of the same table.
#[derive(Clone, Debug)]
pub struct Registrations {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: RegistrationsConfig,
    addresses: AddressCheck,
    /// Held for as long as a map is looked at, and never across a wait.
    leases: Mutex<Leases>,
    /// Told when a worker came, changed or went, or when the next end moved.
    changed: Notify,
    began: Instant,
    metrics: Arc<Metrics>,
}

/// Why a registration was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationProblem {
    /// The name is none.
    #[error("a name must be {}, of at most {MAX_NAME} bytes", words::EXPECTED)]
    Name,
    /// The body is not an object of JSON.
    #[error("the body must be a JSON object with `url` and other keys of a worker: {0}")]
    Body(String),
    /// A key has a value that is none.
    #[error("`{0}` must be a text or a number, without a comma")]
    Value(String),
    /// The lease is none.
    #[error("`lease` must be a time from {LEAST_LEASE:?} to {0:?}, such as \"15s\"")]
    Lease(Duration),
    /// The worker is none.
    #[error("{}", in_words(.0))]
    Worker(Vec<WorkerProblem>),
    /// It does not go with the others.
    #[error(transparent)]
    Refused(#[from] LeaseProblem),
    /// The token is for other names.
    #[error("the token may not register `{0}`")]
    NameNotAllowed(String),
    /// The token is for other roles.
    #[error("the token may not register workers of role `{}`", role_name(*.0))]
    RoleNotAllowed(Role),
    /// A registered worker is at the root of its address.
    #[error("`url` must have no path: an operator can name a worker below a path, in flags or the settings file")]
    Path,
    /// An address is not allowed.
    #[error("an address is not allowed: {0}")]
    Address(#[from] AddressProblem),
    /// Nobody has this name.
    #[error("no worker is registered as `{0}`")]
    Unknown(String),
}

fn in_words(problems: &[WorkerProblem]) -> String {
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    words.join("; ")
}

impl RegistrationsConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        Self {
            lease: config.discovery.lease,
            longest: config.discovery.lease_most,
            defaults: config.worker_defaults(),
            rules: Arc::new(AddressRules {
                allow: config.discovery.register_allow.clone(),
                deny: config.discovery.register_deny.clone(),
                own_listeners: Vec::new(),
            }),
            lookup_timeout: config.discovery.dns_timeout,
        }
    }
}

impl Registrations {
    /// An empty table.
    pub fn new(config: RegistrationsConfig, metrics: &Arc<Metrics>) -> Self {
        Self {
            shared: Arc::new(Shared {
                addresses: AddressCheck::new(config.rules.clone(), config.lookup_timeout),
                config,
                leases: Mutex::new(Leases::default()),
                changed: Notify::new(),
                began: Instant::now(),
                metrics: metrics.clone(),
            }),
        }
    }

    /// `GET /admin/workers`, and `PUT`, `GET` and `DELETE` of `/admin/workers/{name}`. A request that changes something needs a
    /// [`Registrar`] among its extensions; without one the answer is 500.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/admin/workers", get(list))
            .route("/admin/workers/{name}", get(show).put(put).delete(remove))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(self.clone())
    }

    /// Tells who is registered. One source per table is enough.
    pub fn source(&self) -> Box<dyn Source> {
        Box::new(Registered {
            shared: self.shared.clone(),
        })
    }

    /// Takes a registration: the body of a `PUT`.
    pub async fn put(
        &self,
        registrar: &Registrar,
        name: &str,
        body: &[u8],
    ) -> Result<(Put, Lease), RegistrationProblem> {
        let outcome = self.try_put(registrar, name, body).await;
        let (token, peer) = (&registrar.token.name, registrar.peer);
        let name = logged(name);
        match &outcome {
            Ok((Put::Registered, lease)) => {
                tracing::info!(worker = name, token, %peer, url = %lease.spec.url, "worker registered");
            }
            Ok((Put::Changed, lease)) => {
                tracing::info!(worker = name, token, %peer, url = %lease.spec.url, "worker registered with different properties");
            }
            Ok((Put::Renewed, _)) => tracing::debug!(worker = name, token, %peer, "registration renewed"),
            Err(problem) => self.refuse(registrar, &name, problem),
        }
        outcome
    }

    async fn try_put(
        &self,
        registrar: &Registrar,
        name: &str,
        body: &[u8],
    ) -> Result<(Put, Lease), RegistrationProblem> {
        check_name(registrar, name)?;
        let (spec, holds) = self.shared.config.read(registrar, body)?;
        if !registrar.token.allows_role(spec.role) {
            return Err(RegistrationProblem::RoleNotAllowed(spec.role));
        }
        let claim = Claim {
            name: name.to_owned(),
            owner: registrar.token.name.as_str().into(),
            takeover: takeover(registrar),
            spec: Arc::new(spec),
            holds,
        };
        let is_renewal = {
            let leases = self.shared.lock();
            leases.check_owner(self.shared.now(), name, &claim.owner, claim.takeover)?;
            leases.is_renewal(&claim)
        };
        // A renewal names the addresses that were judged before.
        if !is_renewal {
            self.shared.addresses.check(&claim.spec, &registrar.token).await?;
        }
        let mut leases = self.shared.lock();
        let now = self.shared.now();
        let (put, lease) = leases.put(now, claim)?;
        self.shared.metrics.discovery.held_leases.set(leases.len() as u64);
        drop(leases);
        // One that holds for longer is nobody's news: who waits for its end looks again then.
        if put != Put::Renewed {
            self.shared.changed.notify_one();
        }
        Ok((put, lease))
    }

    /// Takes a registration back.
    pub fn remove(&self, registrar: &Registrar, name: &str) -> Result<Lease, RegistrationProblem> {
        let outcome = self.try_remove(registrar, name);
        let (token, peer) = (&registrar.token.name, registrar.peer);
        let name = logged(name);
        match &outcome {
            Ok(_) => tracing::info!(worker = name, token, %peer, "registration removed"),
            Err(problem) => self.refuse(registrar, &name, problem),
        }
        outcome
    }

    fn try_remove(&self, registrar: &Registrar, name: &str) -> Result<Lease, RegistrationProblem> {
        check_name(registrar, name)?;
        let mut leases = self.shared.lock();
        let owner = registrar.token.name.as_str();
        leases.check_owner(self.shared.now(), name, owner, takeover(registrar))?;
        let gone = leases.remove(name);
        self.shared.metrics.discovery.held_leases.set(leases.len() as u64);
        drop(leases);
        self.shared.changed.notify_one();
        gone.ok_or_else(|| RegistrationProblem::Unknown(name.to_owned()))
    }

    fn refuse(&self, registrar: &Registrar, name: &str, problem: &RegistrationProblem) {
        self.shared.metrics.discovery.refused_registrations.add(1);
        let (token, peer) = (&registrar.token.name, registrar.peer);
        let why = logged(&problem.to_string());
        tracing::warn!(worker = name, token, %peer, why, "registration refused");
    }
}

fn check_name(registrar: &Registrar, name: &str) -> Result<(), RegistrationProblem> {
    if !words::is_word(name) || name.len() > MAX_NAME {
        return Err(RegistrationProblem::Name);
    }
    if !registrar.token.allows_name(name) {
        return Err(RegistrationProblem::NameNotAllowed(name.to_owned()));
    }
    Ok(())
}

fn takeover(registrar: &Registrar) -> Takeover {
    match registrar.kind {
        RegistrarKind::Operator => Takeover::Allowed,
        RegistrarKind::Worker => Takeover::Refused,
    }
}

/// What others wrote, as it is logged: on one line, and not endless.
fn logged(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).take(MAX_LOGGED).collect()
}

impl RegistrationsConfig {
    /// The worker that a body describes, and for how long.
    fn read(&self, registrar: &Registrar, body: &[u8]) -> Result<(WorkerSpec, Duration), RegistrationProblem> {
        let body: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| RegistrationProblem::Body(error.to_string()))?;
        let holds = match body.get(LEASE) {
            None | Some(Value::Null) => self.lease,
            Some(lease) => self.lease(lease)?,
        };
        let mut text = String::new();
        let mut add = |key: &str, value: &Value| {
            let value = match value {
                Value::String(value) => value.clone(),
                Value::Number(value) => value.to_string(),
                _ => return Err(RegistrationProblem::Value(key.to_owned())),
            };
            // The text below is split at commas.
            if value.contains(',') || key.contains([',', '=']) {
                return Err(RegistrationProblem::Value(key.to_owned()));
            }
            text = match (key, text.as_str()) {
                ("url", rest) => format!("url={value}{rest}"),
                (key, rest) => format!("{rest},{key}={value}"),
            };
            Ok(())
        };
        for (key, value) in &body {
            match (key.as_str(), value) {
                (LEASE, _) | (_, Value::Null) => {}
                (LABELS, Value::Object(labels)) => {
                    for (key, value) in labels {
                        let Value::String(value) = value else {
                            return Err(RegistrationProblem::Value(format!("{LABELS}.{key}")));
                        };
                        add(WorkerKey::Label.name(), &Value::String(format!("{key}={value}")))?;
                    }
                }
                (key, value) => add(key, value)?,
            }
        }
        let defaults = self.defaults.scoped(registrar.scope());
        let worker = WorkerSpec::parse(&text, &defaults).map_err(RegistrationProblem::Worker)?;
        if !worker.url.path().is_empty() {
            return Err(RegistrationProblem::Path);
        }
        Ok((worker, holds))
    }

    fn lease(&self, lease: &Value) -> Result<Duration, RegistrationProblem> {
        let millis = match lease {
            Value::String(text) => quantity::millis(text),
            Value::Number(seconds) => quantity::millis(&seconds.to_string()),
            _ => None,
        };
        let lease = millis.map(Duration::from_millis);
        lease
            .filter(|lease| (LEAST_LEASE..=self.longest).contains(lease))
            .ok_or(RegistrationProblem::Lease(self.longest))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Leases> {
        // Nothing that is done under the lock can leave the table half done.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

struct Registered {
    shared: Arc<Shared>,
}

impl Registered {
    async fn watch(self, tell: Tell) -> Result<(), NobodyListens> {
        let shared = &self.shared;
        let mut told: Option<Vec<Arc<WorkerSpec>>> = None;
        loop {
            let changed = shared.changed.notified();
            let (workers, next) = {
                let mut leases = shared.lock();
                for name in leases.expire(shared.now()) {
                    shared.metrics.discovery.expired_leases.add(1);
                    tracing::warn!("the registration of `{name}` was not renewed in time");
                }
                shared.metrics.discovery.held_leases.set(leases.len() as u64);
                let workers: Vec<_> = leases.iter().map(|(_, lease)| lease.spec.clone()).collect();
                (workers, leases.next_end())
            };
            if told.as_ref() != Some(&workers) {
                told = Some(workers.clone());
                let absence = Absence::Meant;
                tell.tell(Told::Set { workers, absence }).await?;
            }
            let end = async {
                match next {
                    Some(end) => tokio::time::sleep_until((shared.began + Duration::from_nanos(end.0)).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = end => {}
            }
        }
    }
}

impl Source for Registered {
    fn origin(&self) -> Origin {
        Origin::new(SourceKind::Registration, "registered over HTTP")
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        Box::pin(async move {
            // It ends when nobody listens.
            let _ = self.watch(tell).await;
        })
    }
}

async fn put(
    State(table): State<Registrations>,
    Extension(registrar): Extension<Registrar>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    match table.put(&registrar, &name, &body).await {
        Err(problem) => refused(&problem),
        Ok((put, lease)) => {
            let (status, outcome) = match put {
                Put::Registered => (StatusCode::CREATED, "registered"),
                Put::Renewed => (StatusCode::OK, "renewed"),
                Put::Changed => (StatusCode::OK, "changed"),
            };
            let mut answer = shown(&table, &name, &lease);
            answer["outcome"] = outcome.into();
            (status, Json(answer)).into_response()
        }
    }
}

async fn remove(
    State(table): State<Registrations>,
    Extension(registrar): Extension<Registrar>,
    Path(name): Path<String>,
) -> Response {
    match table.remove(&registrar, &name) {
        Ok(lease) => Json(shown(&table, &name, &lease)).into_response(),
        Err(problem @ RegistrationProblem::Refused(LeaseProblem::OtherOwner { .. })) => {
            answer(StatusCode::FORBIDDEN, &problem)
        }
        Err(problem) => refused(&problem),
    }
}

async fn show(State(table): State<Registrations>, Path(name): Path<String>) -> Response {
    let lease = table.shared.lock().get(&name).cloned();
    match lease {
        Some(lease) => Json(shown(&table, &name, &lease)).into_response(),
        None => refused(&RegistrationProblem::Unknown(name)),
    }
}

async fn list(State(table): State<Registrations>) -> Response {
    let leases: Vec<(String, Lease)> = {
        let leases = table.shared.lock();
        leases
            .iter()
            .map(|(name, lease)| (name.to_owned(), lease.clone()))
            .collect()
    };
    let workers: Vec<Value> = leases.iter().map(|(name, lease)| shown(&table, name, lease)).collect();
    Json(json!({ "workers": workers })).into_response()
}

fn shown(table: &Registrations, name: &str, lease: &Lease) -> Value {
    let left = lease.until.since(table.shared.now()).0.round() as u64;
    json!({
        "name": name,
        "token": &*lease.owner,
        "worker": lease.spec.to_string(),
        "lease_ms": u64::try_from(lease.holds.as_millis()).unwrap_or(u64::MAX),
        "left_ms": left,
    })
}

fn refused(problem: &RegistrationProblem) -> Response {
    let status = match problem {
        RegistrationProblem::Unknown(_) => StatusCode::NOT_FOUND,
        RegistrationProblem::Refused(LeaseProblem::SameAddress { .. } | LeaseProblem::OtherOwner { .. }) => {
            StatusCode::CONFLICT
        }
        RegistrationProblem::NameNotAllowed(_)
        | RegistrationProblem::RoleNotAllowed(_)
        | RegistrationProblem::Address(_) => StatusCode::FORBIDDEN,
        RegistrationProblem::Refused(LeaseProblem::Full) => StatusCode::SERVICE_UNAVAILABLE,
        RegistrationProblem::Name
        | RegistrationProblem::Path
        | RegistrationProblem::Body(_)
        | RegistrationProblem::Value(_)
        | RegistrationProblem::Lease(_)
        | RegistrationProblem::Worker(_) => StatusCode::BAD_REQUEST,
    };
    answer(status, problem)
}

fn answer(status: StatusCode, problem: &RegistrationProblem) -> Response {
    let message = problem.to_string();
    (
        status,
        Json(json!({ "error": excerpt_to(&message, MAX_MESSAGE_BYTES) })),
    )
        .into_response()
}
