//! What all requests share, and the way of each from its arrival to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use homing_config::Config;
use homing_domain::{AdapterName, BlockKey, CacheSalt, KeyHasher, Prompt as Keyed, RequestId, Tokens, WorkerId};
use homing_profile::{Millis, Time};
use homing_protocol::{Ask, Continuation, Endpoint, Family, Feature as Asks, Form, Hints, Limits, MaxOutput, Plan, Switch, Wanted};
use homing_router::Question;
use homing_scheduler::queue::Tenant;
use homing_scheduler::{CacheUse, Label, Overrides, Pin, Wanted as Who};
use homing_telemetry::{Metrics, RequestEnd, TokenSource};
use homing_wire::Dialect;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::json;

use crate::account::{Account, Ending, Entry};
use crate::asking::Asking;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::headers;
use crate::lane::Lane;
use crate::log::RequestLog;
use crate::models;
use crate::pool::Pool;
use crate::record::{Begun, Record, Records};
use crate::refusal::Refuse;
use crate::relay::{Relay, Reply};
use crate::table::{Served, Table};
use crate::tokens::{self, From, Known, Prompters};
use crate::trip::{Answer, Arriving, NoAnswer, Trip, usage_of};
use crate::truth::{Drift, Feature};

/// The longest decision that fits into a header.
const LONGEST_HEADER: usize = 6 << 10;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// May be replaced while requests are under way.
    pub(crate) config: ArcSwap<Config>,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) prompters: Prompters,
    pub(crate) asking: Asking,
    pub(crate) records: Records,
    pub(crate) drift: Drift,
    pub(crate) log: Option<RequestLog>,
    pub(crate) budget: Budget,
    pub(crate) ending: AtomicBool,
}

/// A request that was read and understood.
struct Arrived {
    began: Instant,
    id: RequestId,
    endpoint: Endpoint,
    target: String,
    headers: hyper::HeaderMap,
    body: Bytes,
}

/// An answer that is not an engine's.
type Answered = Response<Reply>;

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
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
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
        let ask = Ask::read(arrived.endpoint, body, limits).map_err(|bad| Refuse::wrong(bad.status(), bad.to_string()))?;
        let given = arrived.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let hints = Hints::read(given, Some((&ask, body))).map_err(|bad| Refuse::wrong(400, bad.to_string()))?;
        let (model, served) = self.model(&table, &ask)?;
        let known = self.tokens(pool, &table, &ask, &arrived, (model, served)).await;
        let question = self.question(&table, &ask, &hints, served, &arrived, &known)?;
        let decided = Instant::now();
        let lane = self.lane(served, &question, &known, &ask)?;
        let question = self.keyed(question, &lane, &known, &ask, served);
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
        self.metrics.gateway.decide_duration.observe(decided.elapsed());
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
        let wanted = self.wanted(&table, &ask, served);
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
            feature: feature(&ask),
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

    fn model<'a>(&self, table: &'a Table, ask: &Ask) -> Result<(&'a str, &'a Served), Refuse> {
        if table.workers.is_empty() {
            return Err(Refuse::unavailable("no worker takes requests yet"));
        }
        table.find(ask.model.as_deref()).ok_or_else(|| match &ask.model {
            Some(model) => Refuse {
                problem: homing_protocol::Problem {
                    param: Some("model".to_owned()),
                    code: Some("model_not_found"),
                    ..homing_protocol::Problem::new(
                        404,
                        format!("the model `{model}` does not exist; there are {}", table.names()),
                    )
                },
                retry_after: None,
                end: RequestEnd::Wrong,
            },
            None => Refuse::wrong(400, format!("`model` is needed, because there are {}", table.names())),
        })
    }

    /// What workers are asked beyond what the client asked. SGLang refuses token ids in streams of chats.
    fn wanted(&self, table: &Table, ask: &Ask, served: &Served) -> Wanted {
        let lanes = &served.lanes;
        let mut here = table.workers.values().filter(|worker| lanes.iter().any(|lane| Arc::ptr_eq(lane, &worker.lane)));
        let refuses = ask.endpoint == Endpoint::ChatCompletions && here.any(|worker| worker.spec.dialect == Dialect::Sglang);
        let migrates = self.config.load().serve.retries.migrations > 0;
        match Continuation::possible(ask) {
            Ok(()) if migrates && !refuses => Wanted::UsageAndTokens,
            _ => Wanted::Usage,
        }
    }

    /// Which tokens the prompt has.
    async fn tokens(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        table: &Table,
        ask: &Ask,
        arrived: &Arrived,
        (model, served): (&str, &Served),
    ) -> Known {
        let body = &arrived.body;
        let uses_overlap = served.lanes.iter().any(|lane| lane.router.uses_overlap());
        if !ask.endpoint.generates() || !uses_overlap {
            return Known::nothing(body.len(), None);
        }
        let began = Instant::now();
        let known = match tokens::given(ask, body) {
            Some(known) => known,
            None => self.made(pool, table, ask, arrived, (model, served)).await,
        };
        let metrics = &self.metrics.gateway;
        metrics.tokenize_duration.observe(began.elapsed());
        let source = match known.from {
            From::Request => TokenSource::Request,
            From::Tokenizer => TokenSource::Tokenizer,
            From::Worker => TokenSource::Worker,
            From::Nobody => TokenSource::Nobody,
        };
        metrics.token_sources.of(source).add(1);
        known
    }

    /// Tokens that a tokenizer makes, here or at a worker.
    async fn made(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        table: &Table,
        ask: &Ask,
        arrived: &Arrived,
        (model, served): (&str, &Served),
    ) -> Known {
        let mut workers = table.workers.values();
        let lanes = &served.lanes;
        let worker = workers.find(|worker| lanes.iter().any(|lane| Arc::ptr_eq(lane, &worker.lane)) && !worker.is_out());
        let engine = worker.map_or(Dialect::Vllm, |worker| worker.spec.dialect);
        let base = served.parent.as_deref().unwrap_or(model);
        if let Some(prompter) = self.prompters.of(base, engine) {
            let (endpoint, body) = (arrived.endpoint, arrived.body.clone());
            if body.len() < tokens::LONG {
                return tokens::local(&prompter, endpoint, &body);
            }
            let size = body.len();
            let made = tokio::task::spawn_blocking(move || tokens::local(&prompter, endpoint, &body)).await;
            return made.unwrap_or_else(|_| Known::nothing(size, Some("the tokenizer panicked".to_owned())));
        }
        let Some(question) = tokens::question(ask, &arrived.body, model) else {
            let why = "there is no tokenizer here, and no worker tokenizes this kind of request";
            return Known::nothing(arrived.body.len(), Some(why.to_owned()));
        };
        let Some(worker) = worker else {
            return Known::nothing(arrived.body.len(), Some("no worker is well enough to be asked".to_owned()));
        };
        match self.asking.tokens(pool, worker, &arrived.headers, question).await {
            Ok(known) => known,
            Err(why) => Known::nothing(arrived.body.len(), Some(why)),
        }
    }

    /// What the router is asked, but for the keys.
    fn question(
        &self,
        table: &Table,
        ask: &Ask,
        hints: &Hints,
        served: &Served,
        arrived: &Arrived,
        known: &Known,
    ) -> Result<Question, Refuse> {
        let Some(lane) = served.lanes.first() else {
            return Err(Refuse::unavailable("no worker serves this model now"));
        };
        let named = |name: &String| -> Result<WorkerId, Refuse> {
            let worker = table.worker(name).map(|worker| worker.id);
            worker.ok_or_else(|| Refuse::wrong(400, format!("there is no worker `{name}`")))
        };
        let now = self.clock.at(arrived.began);
        let mut question = Question::new(
            arrived.id.clone(),
            lane.subject.model.clone(),
            Tokens(known.count.max(1)),
            Arc::from([]),
        );
        question.adapter.clone_from(&served.adapter);
        question.session = hints.session.as_ref().map(|session| session.id.as_str().into());
        question.tenant = tenant(hints.tenant.as_deref());
        question.priority = hints.priority.unwrap_or(0);
        question.deadline = hints.deadline.map(|deadline| later(now, deadline));
        question.wanted = Who {
            allowed: hints.allowed.iter().map(named).collect::<Result<_, _>>()?,
            tried: hints.excluded.iter().map(named).collect::<Result<_, _>>()?,
            pinned: match &hints.worker {
                Some(name) => Some(Pin {
                    worker: named(name)?,
                    dp: None,
                }),
                None => None,
            },
            required: hints.labels.iter().map(|(name, value)| Label::new(name, value)).collect(),
            preferred: Vec::new(),
        };
        let overrides = &hints.overrides;
        question.overrides = Overrides {
            temperature: overrides.temperature,
            overlap_credit: overrides.overlap_credit,
            prefill_scale: overrides.prefill_scale,
            decode_weight: overrides.decode_weight,
            cache: match overrides.cache {
                Some(Switch::Off) => CacheUse::Ignored,
                _ => CacheUse::Counts,
            },
            expected_output: hints.expected_output.map(Tokens),
            ..Overrides::default()
        };
        question.most_output = most_output(ask);
        Ok(question)
    }

    /// Where it is decided. Of several block sizes that whose best worker is the best.
    fn lane(&self, served: &Served, question: &Question, known: &Known, ask: &Ask) -> Result<Arc<Lane>, Refuse> {
        let mut best: Option<(f64, &Arc<Lane>)> = None;
        for lane in &served.lanes {
            if served.lanes.len() == 1 {
                return Ok(lane.clone());
            }
            let question = self.keyed(question.clone(), lane, known, ask, served);
            let cost = lane.consider(&question).map_or(f64::INFINITY, |decision| decision.chosen.cost);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, lane));
            }
        }
        let best = best.map(|(_, lane)| lane.clone());
        best.ok_or_else(|| Refuse::unavailable("no worker serves this model now"))
    }

    /// The question with the keys of its blocks.
    fn keyed(&self, mut question: Question, lane: &Lane, known: &Known, ask: &Ask, served: &Served) -> Question {
        let salt = ask.cache_salt.as_deref().map(CacheSalt::new);
        question.keys = self.keys(lane, &known.tokens, served.adapter.as_ref(), salt.as_ref());
        question
    }

    fn keys(&self, lane: &Lane, tokens: &[u32], adapter: Option<&AdapterName>, salt: Option<&CacheSalt>) -> Arc<[BlockKey]> {
        let mut keys = Vec::with_capacity(tokens.len() / lane.subject.block_size.get() as usize);
        let prompt = Keyed {
            adapter,
            salt,
            ..Keyed::text(tokens, lane.subject.block_size)
        };
        self.hasher.keys(&prompt, &mut keys);
        keys.into()
    }

    /// What would be decided, instead of an answer.
    fn dry_run(&self, lane: &Lane, question: &Question, record: &Record) -> Result<Answered, Refuse> {
        let decision = lane.consider(question).map_err(|refusal| Refuse::turned(&refusal.into(), None))?;
        let table = self.table.load();
        let worker = table.workers.get(&decision.chosen.rank.worker).map(|worker| worker.name.to_string());
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
    let usage = head.status.is_success().then(|| usage_of(&trip.ask, &body)).flatten();
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

/// Tokens that an answer may have.
fn most_output(ask: &Ask) -> Tokens {
    /// What engines generate for `/v1/completions` if nothing is said.
    const UNSAID: u32 = 16;
    match (ask.max_output, ask.endpoint) {
        (MaxOutput::Tokens(most), _) => Tokens(most.max(1)),
        (MaxOutput::Unsaid, Endpoint::Completions) => Tokens(UNSAID),
        _ => Tokens(u32::MAX),
    }
}

/// Which part of the engine's rendering a prompt depends on.
fn feature(ask: &Ask) -> Feature {
    let has = |asks| ask.features.has(asks);
    if has(Asks::Images) || has(Asks::Audio) || has(Asks::Video) || has(Asks::Files) {
        Feature::Media
    } else if has(Asks::Tools) {
        Feature::Tools
    } else if has(Asks::Reasoning) {
        Feature::Reasoning
    } else {
        Feature::Plain
    }
}

/// A tenant's number. Two of the same number share what is theirs.
fn tenant(name: Option<&str>) -> Tenant {
    use std::hash::{Hash as _, Hasher as _};
    let Some(name) = name else { return Tenant::default() };
    let mut hasher = rustc_hash::FxHasher::default();
    name.hash(&mut hasher);
    Tenant((hasher.finish() >> 32) as u32 | 1)
}

fn later(now: Time, after: Duration) -> Time {
    now + Millis(after.as_secs_f64() * 1e3)
}

/// Names the request in its answer.
fn name(headers: &mut hyper::HeaderMap, record: &Record) {
    if let Ok(id) = HeaderValue::from_str(record.id.as_str()) {
        headers.insert(headers::REQUEST_ID, id);
    }
}

/// Says who answered, and why.
fn receipts(headers: &mut hyper::HeaderMap, record: &Record, answer: &Answer, explain: Switch) {
    name(headers, record);
    if let Ok(worker) = HeaderValue::from_str(&answer.flight.worker.name) {
        headers.insert(headers::SERVED_BY, worker);
    }
    let told = record.told();
    let Some(last) = told.tries.last() else { return };
    headers.insert(headers::CACHED_TOKENS, HeaderValue::from(last.predicted_cached));
    if explain == Switch::On {
        let decision = last.decision.to_json();
        let short = decision.len() <= LONGEST_HEADER;
        let said = if short { decision } else { format!("{{\"see\":\"/admin/decisions?id={}\"}}", record.id.as_str()) };
        if let Ok(decision) = HeaderValue::from_str(&said) {
            headers.insert(headers::DECISION, decision);
        }
    }
}

fn refused(refuse: &Refuse, family: Family, id: &str) -> Answered {
    let body = refuse.problem.body(family, id);
    let mut response = Response::new(Reply::whole(body));
    *response.status_mut() = StatusCode::from_u16(refuse.problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(headers::REQUEST_ID, id);
    }
    if let Some(seconds) = refuse.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A short text.
fn plain(status: StatusCode, text: &'static str) -> Answered {
    let mut response = Response::new(Reply::whole(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An object.
pub(crate) fn json_answer(status: StatusCode, value: &serde_json::Value) -> Answered {
    let mut response = Response::new(Reply::whole(value.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
