//! What all requests share, and the way of each from its arrival to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use homing_config::Config;
use homing_domain::{KeyHasher, RequestId};
use homing_protocol::{Ask, Endpoint, Family, Form, Hints, Limits, Plan, Switch};
use homing_router::Question;
use homing_telemetry::{Metrics, RequestEnd};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode};
use serde_json::json;

use crate::account::{Account, Ending, Entry};
use crate::asking::Asking;
use crate::budget::Budget;
use crate::case::{self, Arrived, Case};
use crate::clock::Clock;
use crate::headers;
use crate::kept::{self, Kept};
use crate::lane::Lane;
use crate::log::RequestLog;
use crate::models;
use crate::pool::Pool;
use crate::reading::heard_of;
use crate::record::{Begun, Record, Records};
use crate::refusal::Refuse;
use crate::relay::{Relay, Reply};
use crate::said::{Answered, json_answer, name, plain, receipts, refused};
use crate::table::Table;
use crate::tokens::{From, Prompters};
use crate::trip::{Answer, Arriving, NoAnswer, Trip};
use crate::truth::Drift;

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
    pub(crate) budget: Budget,
    pub(crate) ending: AtomicBool,
}

impl Gateway {
    /// Whether it takes requests: it does not end, and somebody serves.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ending.load(Relaxed) && !self.table.load().workers.is_empty()
    }

    /// The answer to one request. Every request gets one.
    pub(crate) async fn answer(self: &Arc<Self>, pool: &Arc<Pool>, request: Request<Incoming>) -> Answered {
        let path = request.uri().path();
        if request.method() == hyper::Method::GET {
            match path {
                "/v1/models" => return models::list(&self.table.load()),
                "/health" | "/live" => return plain(StatusCode::OK, "ok\n"),
                "/ready" if self.is_ready() => return plain(StatusCode::OK, "ready\n"),
                "/ready" => return plain(StatusCode::SERVICE_UNAVAILABLE, "no worker takes requests\n"),
                _ => {}
            }
            if let Some(name) = path.strip_prefix("/v1/models/") {
                return models::one(&self.table.load(), name);
            }
        }
        let id = RequestId::new(format!("{:032x}", fastrand::u128(..)).as_str());
        if let Some(response) = kept::asked(request.method(), path) {
            let answered = self.kept(pool, request, &response, &id).await;
            return answered.unwrap_or_else(|refuse| self.refuse(&refuse, Family::OpenAi, &id));
        }
        let endpoint = match Endpoint::of(request.method().as_str(), path) {
            Ok(endpoint) => endpoint,
            Err(not) => {
                let refuse = Refuse::wrong(not.status(), not.to_string());
                return self.refuse(&refuse, Family::OpenAi, &id);
            }
        };
        self.budget.earn();
        let answered = match self.read(request, endpoint, &id).await {
            Ok(arrived) => self.serve(pool, arrived).await,
            Err(refuse) => Err(refuse),
        };
        answered.unwrap_or_else(|refuse| self.refuse(&refuse, endpoint.family(), &id))
    }

    /// Reads all of a request.
    async fn read(&self, request: Request<Incoming>, endpoint: Endpoint, id: &RequestId) -> Result<Arrived, Refuse> {
        let (head, body) = request.into_parts();
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        let config = self.config.load();
        let limits = &config.serve;
        let most = usize::try_from(limits.bodies.request).unwrap_or(usize::MAX);
        let all = tokio::time::timeout(limits.times.request, Limited::new(body, most).collect()).await;
        let body = match all {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(Refuse::wrong(413, format!("the request has more than {most} bytes")));
            }
            Ok(Err(error)) => return Err(Refuse::wrong(400, format!("the request cannot be read: {error}"))),
            Err(_) => {
                let why = format!("the request was not complete after {:?}", limits.times.request);
                return Err(Refuse::wrong(408, why));
            }
        };
        Ok(Arrived {
            began: Instant::now(),
            id: id.clone(),
            endpoint,
            target,
            headers: head.headers,
            body,
        })
    }

    async fn serve(self: &Arc<Self>, pool: &Arc<Pool>, arrived: Arrived) -> Result<Answered, Refuse> {
        let table = self.table.load_full();
        let limits = Limits {
            bytes: arrived.body.len().max(1),
            ..Limits::default()
        };
        // What is in a form is not looked at.
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
        let hints = Hints::read(given, Some((&ask, body))).map_err(|bad| Refuse::wrong(400, bad.to_string()))?;
        let (model, served) = case::served(&table, &ask)?;
        let case = Case {
            gateway: self,
            table: &table,
            arrived: &arrived,
            ask: &ask,
            hints: &hints,
            model,
            served,
        };
        let known = case.tokens(pool).await;
        let tokenized = Instant::now();
        let (lane, question) = case.question(&known)?;
        let record = Arc::new(Record::new(Begun {
            id: arrived.id.clone(),
            endpoint: arrived.endpoint.name(),
            model: model.into(),
            session: question.session.clone(),
            tenant: hints.tenant.as_deref().map(Into::into),
            prompt_tokens: known.count,
            tokens_from: known.from.name(),
            unknown: known.why.clone(),
        }));
        self.metrics.gateway.decide_duration.observe(tokenized.elapsed());
        if hints.dry_run == Switch::On {
            return self.dry_run(&lane, &question, &record);
        }
        let entry = Entry {
            keys: question.keys.clone(),
            block: lane.subject.block_size,
            adapter: served.adapter.clone(),
            priority: question.priority,
            deadline: hints.deadline,
        };
        let account = Account::open(self, record.clone(), entry, arrived.began);
        let (wanted, feature) = (case.wanted(), case.feature());
        let plan = Plan::new(&ask, wanted);
        let ask = Arc::new(ask);
        let counted = (known.why.is_none() && known.from != From::Nobody).then_some(known.count);
        let sent = match arrived.endpoint.form() {
            Form::Json => plan.body(&ask, &arrived.body),
            Form::Multipart => arrived.body.clone(),
        };
        let id = arrived.id.as_str();
        let trip = Box::new(Trip {
            gateway: self.clone(),
            pool: pool.clone(),
            counted,
            prompt: counted,
            feature,
            asked: ask.clone(),
            original: arrived.body,
            ask,
            context: served.max_len,
            wanted,
            target: arrived.target,
            headers: arrived.headers,
            sent,
            plan,
            lane,
            question,
            record,
            // Hexadecimal digits are.
            id: HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("")),
            deadline: hints.deadline,
            until: arrived.began + self.config.load().serve.times.total,
            tries: 0,
        });
        Ok(self.carry(trip, account, hints.explain).await)
    }

    /// Carries a request to a worker and its answer back.
    async fn carry(self: &Arc<Self>, mut trip: Box<Trip>, account: Account, explain: Switch) -> Answered {
        let (record, family) = (trip.record.clone(), trip.ask.endpoint.family());
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
                let mut response = Response::new(Reply::whole(body));
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
        let decision = lane
            .consider(question)
            .map_err(|refusal| Refuse::turned(&refusal.into(), None))?;
        let table = self.table.load();
        let worker = table
            .workers
            .get(&decision.chosen.rank.worker)
            .map(|worker| worker.name.to_string());
        let decision: serde_json::Value = serde_json::from_str(&decision.to_json()).unwrap_or_default();
        let said = json!({
            "id": record.id.as_str(),
            "model": &*record.model,
            "prompt_tokens": record.prompt_tokens,
            "tokens_from": record.tokens_from,
            "unknown": record.unknown,
            "worker": worker,
            "decision": decision,
        });
        self.metrics.gateway.ended_requests.of(RequestEnd::Served).add(1);
        let mut response = json_answer(StatusCode::OK, &said);
        name(response.headers_mut(), record);
        Ok(response)
    }

    fn refuse(&self, refuse: &Refuse, family: Family, id: &RequestId) -> Answered {
        self.metrics.gateway.ended_requests.of(refuse.end).add(1);
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
    let heard = head.status.is_success().then(|| heard_of(&trip.ask, &body));
    let usage = heard.as_ref().and_then(|heard| heard.usage);
    if let Some(response) = heard.and_then(|heard| heard.response) {
        trip.gateway.kept.remember(&response, flight.worker.id);
    }
    account.first_token();
    let output = usage.map_or(0, |usage| usage.completion);
    flight.served(usage, output);
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
