//! What all requests share, and the way of each from its arrival to its answer.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use homing_config::Config;
use homing_disagg::Require;
use homing_discovery::{Outcome, Pass, Room};
use homing_domain::{KeyHasher, RequestId};
use homing_platform::{BodyBudget, BodyOwner, ClientAddress};
use homing_protocol::{Ask, Endpoint, Family, Form, Hints, Limits, Plan, Switch};
use homing_router::Question;
use homing_telemetry::{Asker, Metrics, RequestEnd};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode};
use serde_json::json;

use crate::account::{Account, Ending};
use crate::asking::Asking;
use crate::bodies;
use crate::budget::Budget;
use crate::case::{self, Arrived, Case};
use crate::clock::Clock;
use crate::exporter::Exporter;
use crate::handing;
use crate::headers;
use crate::isolation;
use crate::kept::{self, Kept};
use crate::keyring::{Key, Keyring, Tab, Who};
use crate::lane::Lane;
use crate::log::RequestLog;
use crate::models;
use crate::outward::{ClientKey, Outward};
use crate::pool::Pool;
use crate::reading::heard_of;
use crate::record::{Record, Records};
use crate::refusal::Refuse;
use crate::relay::{Relay, Reply};
use crate::said::{Answered, json_answer, name, plain, receipts, refused};
use crate::sending::{Answer, Arriving, Laid, Sending};
use crate::spans::Traced;
use crate::table::Table;
use crate::tokens::Prompters;
use crate::trip::{NoAnswer, Trip};
use crate::truth::Drift;
use crate::worker::Worker;
use homing_platform::head::Fault;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// May be replaced while requests are under way.
    pub(crate) config: ArcSwap<Config>,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) prompters: Arc<Prompters>,
    pub(crate) asking: Asking,
    pub(crate) kept: Kept,
    pub(crate) records: Records,
    pub(crate) drift: Drift,
    pub(crate) log: Option<RequestLog>,
    /// Where spans go, if there are traces.
    pub(crate) exporter: Option<Exporter>,
    pub(crate) budget: Budget,
    /// Memory for the bodies of requests.
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) ending: AtomicBool,
    pub(crate) ring: Arc<Keyring>,
    pub(crate) outward: Outward,
}

impl Gateway {
    /// Whether it takes requests: it does not end, and somebody serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.not_ready().is_none()
    }

    /// Why it takes no requests, in words; `None` if it does.
    pub(crate) fn not_ready(&self) -> Option<String> {
        if self.ending.load(Relaxed) {
            return Some("it was told to end, and takes nothing new".to_owned());
        }
        let table = self.table.load();
        if !table.workers.is_empty() {
            let require = handing::require(&self.config.load().disagg);
            let mut lanes = table.models.values().flat_map(|served| &served.lanes);
            if require == Require::No || lanes.any(|lane| lane.is_ready(require)) {
                return None;
            }
            return Some("prefill and decode workers are required, and no model has both".to_owned());
        }
        Some(match self.metrics.discovery.known_workers.get() {
            0 => "no worker was told of".to_owned(),
            1 => "one worker was told of, and has not said yet what it is".to_owned(),
            told => format!("{told} workers were told of, and none of them has said yet what it is"),
        })
    }

    /// The answer to one request, without the id that its client gave it.
    pub(crate) async fn answer_request(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        mut request: Request<Incoming>,
        client: IpAddr,
    ) -> Answered {
        let path = request.uri().path();
        if request.method() == hyper::Method::GET {
            match path {
                "/health" | "/live" | "/health/live" => return plain(StatusCode::OK, "ok\n"),
                "/ready" | "/health/ready" => {
                    return match self.not_ready() {
                        None => plain(StatusCode::OK, "ready\n"),
                        // Who has no key is not told how many workers there are.
                        Some(_) if self.ring.is_asked() => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
                        Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
                    };
                }
                _ => {}
            }
        }
        let id = RequestId::new(format!("{:032x}", fastrand::u128(..)).as_str());
        let endpoint = Endpoint::of(request.method().as_str(), path);
        let key = match self.admit(&request) {
            Ok(key) => key,
            Err(refuse) => {
                let family = endpoint.map_or(Family::OpenAi, Endpoint::family);
                return self.refuse(&refuse, family, &id);
            }
        };
        if request.method() == hyper::Method::GET {
            if path == "/v1/models" {
                return models::list(&self.table.load(), handing::require(&self.config.load().disagg));
            }
            if let Some(name) = path.strip_prefix("/v1/models/") {
                return models::one(&self.table.load(), name, handing::require(&self.config.load().disagg));
            }
        }
        if let Some(response) = kept::asked(request.method(), path) {
            request.extensions_mut().insert(ClientAddress(client));
            let answered = self.kept(pool, request, &response, &id, key.as_deref()).await;
            return answered.unwrap_or_else(|refuse| self.refuse(&refuse, Family::OpenAi, &id));
        }
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(not) => {
                let refuse = Refuse::wrong(not.status(), not.to_string());
                return self.refuse(&refuse, Family::OpenAi, &id);
            }
        };
        self.budget.earn();
        let owner = bodies::owner(key.as_deref(), client);
        let answered = match self.read(request, endpoint, &id, key, &owner).await {
            Ok(arrived) => self.serve(pool, arrived, owner).await,
            Err(refuse) => Err(refuse),
        };
        answered.unwrap_or_else(|refuse| self.refuse(&refuse, endpoint.family(), &id))
    }

    /// Lets a request in whose key is known and has something left.
    fn admit(&self, request: &Request<Incoming>) -> Result<Option<Arc<Key>>, Refuse> {
        match self.ring.who(request.headers()) {
            Who::Anybody => Ok(None),
            Who::Known(key) => {
                key.begin(Instant::now())?;
                Ok(Some(key))
            }
            Who::Unknown(why) => {
                self.metrics.gateway.unauthorized_requests.of(Asker::Client).add(1);
                Err(Refuse::unauthorized(why))
            }
        }
    }

    /// What may be kept and logged of why something failed: what engines say can repeat prompts.
    pub(crate) fn told<'a>(&self, why: &'a str) -> Cow<'a, str> {
        const SAID: &str = "said: ";
        let kept = self.config.load().serve.records.engine_words.is_on() || !why.starts_with(SAID);
        if kept { why.into() } else { "said that it failed".into() }
    }

    /// Reads all of a request.
    async fn read(
        &self,
        request: Request<Incoming>,
        endpoint: Endpoint,
        id: &RequestId,
        key: Option<Arc<Key>>,
        owner: &BodyOwner,
    ) -> Result<Arrived, Refuse> {
        let (mut head, body) = request.into_parts();
        self.outward.prepare(&mut head.headers, ClientKey::of(key.as_deref()));
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let target = Endpoint::target(target).into_owned();
        let limits = bodies::limits(&self.config.load().serve);
        let body = self.bodies.read(body, owner.clone(), &limits).await?;
        Ok(Arrived {
            began: Instant::now(),
            id: id.clone(),
            endpoint,
            target,
            headers: head.headers,
            body,
            key,
        })
    }

    /// What a request asks, and what its client wants besides.
    fn understand(&self, arrived: &mut Arrived) -> Result<(Ask, Hints), Refuse> {
        let limits = Limits {
            bytes: arrived.body.len().max(1),
            ..Limits::default()
        };
        // Of a form only the names of its parts are read, by `isolate`.
        let body: &[u8] = match arrived.endpoint.form() {
            Form::Json => &arrived.body,
            Form::Multipart => b"{}",
        };
        let mut ask =
            Ask::read(arrived.endpoint, body, limits).map_err(|bad| Refuse::wrong(bad.status(), bad.to_string()))?;
        if arrived.endpoint.form() == Form::Multipart {
            ask.model = case::model_of_form(&arrived.body);
        }
        let given = arrived
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let mut hints = Hints::read(given, Some((&ask, body))).map_err(|bad| Refuse::wrong(400, bad.to_string()))?;
        if let Some(key) = &arrived.key {
            key.overrule(&mut hints);
        }
        isolation::check_pin(&hints, arrived.key.as_deref())?;
        self.isolate(arrived, &mut ask, &hints)?;
        if let Some(previous) = &ask.previous_response {
            self.may_see(previous, arrived.key.as_deref())?;
        }
        Ok((ask, hints))
    }

    async fn serve(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        mut arrived: Arrived,
        owner: BodyOwner,
    ) -> Result<Answered, Refuse> {
        let table = self.table.load_full();
        let received = arrived.body.clone();
        let (ask, hints) = self.understand(&mut arrived)?;
        arrived.body = bodies::held(&self.bodies, owner.clone(), &received, arrived.body)?;
        drop(received);
        let (model, served) = case::served(&table, &ask)?;
        let case = Case {
            gateway: self,
            table: &table,
            arrived: &arrived,
            ask: &ask,
            hints: &hints,
            model,
            served,
            media: &[],
        };
        let known = case.tokens(pool).await;
        let tokenized = Instant::now();
        let (lane, mut question) = case.question(&known)?;
        case.divide(&lane, &mut question)?;
        let record = case.record(arrived.endpoint.name(), &known, &question, tokenized);
        if hints.dry_run == Switch::On {
            return self.dry_run(&lane, &question, &record);
        }
        let tab = Tab::open(arrived.key.clone(), known.count)?;
        let entry = case.entry(&lane, &question, tab);
        let account = Account::open(self, record.clone(), entry, arrived.began);
        let (wanted, feature) = (case.wanted(), case.feature());
        let plan = Plan::new(&ask, wanted);
        let ask = Arc::new(ask);
        let counted = known.counted();
        let sent = match arrived.endpoint.form() {
            Form::Json => bodies::held(&self.bodies, owner, &arrived.body, plan.body(&ask, &arrived.body))?,
            Form::Multipart => arrived.body.clone(),
        };
        let id = arrived.id.as_str();
        let adapter = question.adapter.clone();
        let trip = Box::new(Trip {
            way: Sending {
                gateway: self.clone(),
                pool: pool.clone(),
                ask: ask.clone(),
                target: arrived.target,
                headers: arrived.headers,
                sent,
                record,
                // Hexadecimal digits are.
                id: HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("")),
                counted,
                feature,
                adapter,
                until: arrived.began + self.config.load().serve.times.total,
                laid: Laid::ToIt,
            },
            asked: ask,
            original: arrived.body,
            plan,
            lane,
            question,
            prompt: counted,
            context: served.max_len,
            wanted,
            deadline: hints.deadline,
            tries: 0,
        });
        Ok(self.carry(trip, account, hints.explain).await)
    }

    /// What became of a request at a worker, for its health.
    pub(crate) fn outcome(&self, worker: &Worker, pass: Pass, outcome: Outcome) {
        let (out, all) = self.table.load().out();
        let most = self.config.load().health.most_out;
        worker.outcome(self.clock.now(), pass, outcome, Room::of(out, all, most));
    }

    /// The trace that a request belongs to, if there are traces.
    pub(crate) fn traced(&self, arrived: &Arrived) -> Option<Traced> {
        self.exporter.as_ref()?;
        let header = arrived.headers.get(headers::TRACEPARENT);
        let header = header.and_then(|header| header.to_str().ok());
        Some(Traced::begin(header, self.config.load().traces.share))
    }

    /// Carries a request to a worker and its answer back.
    async fn carry(self: &Arc<Self>, mut trip: Box<Trip>, account: Account, explain: Switch) -> Answered {
        let (record, family) = (trip.way.record.clone(), trip.way.ask.endpoint.family());
        match trip.begin().await {
            Ok(answer) => {
                let mut response = Response::new(Reply::Whole(None));
                *response.status_mut() = answer.head.status;
                *response.headers_mut() = headers::to_client(&answer.head.headers);
                receipts(response.headers_mut(), &record, &answer, explain);
                *response.body_mut() = reply(trip, account, answer);
                response
            }
            Err(NoAnswer::Said(head, body)) => {
                close(account, RequestEnd::Failed, head.status.as_u16());
                let mut response = Response::new(Reply::whole(self.filtered(&head.headers, body)));
                *response.status_mut() = head.status;
                *response.headers_mut() = headers::to_client(&head.headers);
                name(response.headers_mut(), &record);
                response
            }
            Err(NoAnswer::Refused(refuse)) => {
                close(account, refuse.end, refuse.problem.status);
                refused(&refuse, family, record.id.as_str())
            }
        }
    }

    /// What would be decided, instead of an answer.
    fn dry_run(&self, lane: &Lane, question: &Question, record: &Record) -> Result<Answered, Refuse> {
        let table = self.table.load();
        let named = |worker| {
            table
                .workers
                .get(&worker)
                .map(|worker: &Arc<Worker>| worker.name.to_string())
        };
        if question.apart.is_some() {
            let routed = lane
                .router
                .consider_apart(lane.now(), question)
                .map_err(|turned| Refuse::turned(&turned, None))?;
            let prefill = routed.halves.as_ref().and_then(|halves| halves.prefill.as_ref());
            let prefill = prefill.and_then(|prefill| named(prefill.decision.chosen.rank.worker));
            let worker = named(routed.decision.chosen.rank.worker);
            return Ok(self.said_dry(record, worker.as_deref(), prefill.as_deref(), &routed.to_json()));
        }
        let decision = lane
            .consider(question)
            .map_err(|refusal| Refuse::turned(&refusal.into(), None))?;
        let worker = named(decision.chosen.rank.worker);
        Ok(self.said_dry(record, worker.as_deref(), None, &decision.to_json()))
    }

    fn said_dry(&self, record: &Record, worker: Option<&str>, prefill: Option<&str>, decision: &str) -> Answered {
        let decision: serde_json::Value = serde_json::from_str(decision).unwrap_or_default();
        let said = json!({
            "id": record.id.as_str(),
            "model": &*record.model,
            "prompt_tokens": record.prompt_tokens,
            "tokens_from": record.tokens_from,
            "unknown": record.unknown,
            "worker": worker,
            "prefill_worker": prefill,
            "decision": decision,
        });
        self.metrics.gateway.ended_requests.of(RequestEnd::Served).add(1);
        let mut response = json_answer(StatusCode::OK, &said);
        name(response.headers_mut(), record);
        response
    }

    /// The answer to a request whose head did not pass.
    pub(crate) fn refuse_head(&self, fault: Fault) -> Answered {
        let id = RequestId::new(format!("{:032x}", fastrand::u128(..)).as_str());
        self.refuse(&Refuse::wrong(fault.status(), fault.message()), Family::OpenAi, &id)
    }

    fn refuse(&self, refuse: &Refuse, family: Family, id: &RequestId) -> Answered {
        self.metrics.gateway.ended_requests.of(refuse.end).add(1);
        if let Some(limit) = refuse.limit {
            self.metrics.gateway.limited_requests.of(limit).add(1);
        }
        refused(refuse, family, id.as_str())
    }
}

fn close(account: Account, end: RequestEnd, status: u16) {
    account.close(Ending {
        end,
        status,
        usage: None,
        output: 0,
    });
}

/// The body of an answer that a worker gave.
fn reply(trip: Box<Trip>, mut account: Account, answer: Answer) -> Reply {
    if !matches!(answer.body, Arriving::Whole(_)) {
        return Reply::Stream(Box::new(Relay::new(trip, account, answer)));
    }
    let Answer { flight, head, body } = answer;
    let Arriving::Whole(body) = body else {
        return Reply::Whole(None);
    };
    let heard = head.status.is_success().then(|| heard_of(&trip.way.ask, &body));
    let usage = heard.as_ref().and_then(|heard| heard.usage);
    if let Some(response) = heard.and_then(|heard| heard.response) {
        trip.way.gateway.keeps(&response, flight.worker.id, &trip.way.record);
    }
    account.first_token();
    let output = usage.map_or(0, |usage| usage.completion);
    flight.served(usage, output);
    let body = trip.way.gateway.filtered(&head.headers, body);
    let end = if head.status.is_client_error() {
        RequestEnd::Wrong
    } else {
        RequestEnd::Served
    };
    account.close(Ending {
        end,
        status: head.status.as_u16(),
        usage,
        output,
    });
    Reply::whole(body)
}
