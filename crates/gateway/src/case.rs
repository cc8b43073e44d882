//! What is the router asked for a request? Its model, its tokens, and what its client wants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homing_domain::{CacheSalt, DpRank, Media, Prompt as Keyed, RequestId, Role, Tokens, WorkerId, excerpt};
use homing_load::PromptWork;
use homing_profile::{Millis, Time};
use homing_protocol::transfer;
use homing_protocol::{
    Ask, Continuation, Endpoint, Feature as Asks, Hints, MaxOutput, Problem, Switch, Wanted, WhyWhole,
};
use homing_router::{Apart, Naming, Question};
use homing_scheduler::queue::Tenant;
use homing_scheduler::{CacheUse, Label, Overrides, Phase, Pin, Reuse, Wanted as Who};
use homing_telemetry::{RequestEnd, TokenSource};
use homing_wire::Dialect;
use hyper::HeaderMap;

use crate::account::Entry;
use crate::gateway::Gateway;
use crate::handing;
use crate::keyring::{Key, Tab};
use crate::lane::Lane;
use crate::pool::Pool;
use crate::record::{Begun, Parts, Record};
use crate::refusal::Refuse;
use crate::table::{Served, Table};
use crate::tokens::{self, From, Known};
use crate::truth::Feature;
use crate::worker::Worker;

/// A request that was read.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) began: Instant,
    pub(crate) id: RequestId,
    pub(crate) endpoint: Endpoint,
    /// Path and query.
    pub(crate) target: String,
    /// As workers may see them.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Who asks, where somebody must say so.
    pub(crate) key: Option<Arc<Key>>,
}

/// A request that was understood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) gateway: &'a Arc<Gateway>,
    pub(crate) table: &'a Table,
    pub(crate) arrived: &'a Arrived,
    pub(crate) ask: &'a Ask,
    pub(crate) hints: &'a Hints,
    /// The name that the client uses, or would use.
    pub(crate) model: &'a str,
    pub(crate) served: &'a Served,
    /// What is in the prompt that no token tells apart, where it is known.
    pub(crate) media: &'a [Media],
    /// The worker that stores the response which it continues.
    pub(crate) stored_at: Option<WorkerId>,
}

/// What a request asks for.
pub(crate) fn served<'a>(table: &'a Table, ask: &Ask) -> Result<(&'a str, &'a Served), Refuse> {
    if table.workers.is_empty() {
        return Err(Refuse::unavailable("no worker takes requests yet"));
    }
    table.find(ask.model.as_deref()).ok_or_else(|| match &ask.model {
        Some(model) => {
            let message = format!(
                "the model `{}` does not exist; there are {}",
                excerpt(model),
                table.names()
            );
            Refuse {
                problem: Problem {
                    param: Some("model".to_owned()),
                    code: Some("model_not_found"),
                    ..Problem::new(404, message)
                },
                retry_after: None,
                end: RequestEnd::Wrong,
                limit: None,
            }
        }
        None => Refuse::wrong(400, format!("`model` is needed, because there are {}", table.names())),
    })
}

/// The model that a form with files asks for: a field of its own, of one line.
pub(crate) fn model_of_form(body: &[u8]) -> Option<String> {
    const FIELD: &[u8] = b"name=\"model\"\r\n\r\n";
    /// Names are shorter.
    const LONGEST: usize = 1024;
    let at = body.windows(FIELD.len()).position(|window| window == FIELD)?;
    let value = &body[at + FIELD.len()..];
    let end = value.iter().take(LONGEST).position(|byte| *byte == b'\r')?;
    std::str::from_utf8(&value[..end]).ok().map(str::to_owned)
}

impl Case<'_> {
    /// Workers that serve the model.
    fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        let lanes = &self.served.lanes;
        let workers = self.table.workers.values();
        workers.filter(move |worker| lanes.iter().any(|lane| Arc::ptr_eq(lane, &worker.lane)))
    }

    /// What workers are asked beyond what the client asked. SGLang refuses token ids in streams of chats.
    pub(crate) fn wanted(&self) -> Wanted {
        let chat = self.ask.endpoint == Endpoint::ChatCompletions;
        let refuses = chat && self.workers().any(|worker| worker.spec.dialect == Dialect::Sglang);
        let migrates = self.gateway.config.load().serve.retries.migrations > 0;
        match Continuation::possible(self.ask) {
            Ok(()) if migrates && !refuses => Wanted::UsageAndTokens,
            _ => Wanted::Usage,
        }
    }

    /// Which tokens the prompt has.
    pub(crate) async fn tokens(&self, pool: &Arc<Pool>) -> Known {
        let body = &self.arrived.body;
        let uses_overlap = self.served.lanes.iter().any(|lane| lane.router.uses_overlap());
        if !self.ask.endpoint.generates() || !uses_overlap {
            return Known::nothing(body.len(), None);
        }
        let known = match tokens::given(self.ask, body) {
            Some(known) => known,
            None => self.tokenized(pool).await,
        };
        let metrics = &self.gateway.metrics.gateway;
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
    async fn tokenized(&self, pool: &Arc<Pool>) -> Known {
        let body = &self.arrived.body;
        let worker = self.workers().find(|worker| !worker.is_out());
        let engine = worker.map_or(Dialect::Vllm, |worker| worker.spec.dialect);
        let base = self.served.parent.as_deref().unwrap_or(self.model);
        if let Some(prompter) = self.gateway.prompters.of(base, engine) {
            let (endpoint, body) = (self.arrived.endpoint, body.clone());
            if body.len() < tokens::LONG {
                return tokens::local(&prompter, endpoint, &body);
            }
            let size = body.len();
            let made = tokio::task::spawn_blocking(move || tokens::local(&prompter, endpoint, &body)).await;
            return made.unwrap_or_else(|_| Known::nothing(size, Some("the tokenizer panicked".to_owned())));
        }
        let unknown = |why: &str| Known::nothing(body.len(), Some(why.to_owned()));
        let Some(question) = tokens::question(self.ask, body, base) else {
            return unknown("there is no tokenizer here, and no worker tokenizes this kind of request");
        };
        let Some(worker) = worker else {
            return unknown("no worker is well enough to be asked for tokens");
        };
        let asking = &self.gateway.asking;
        match asking.tokens(pool, worker, &self.arrived.headers, question).await {
            Ok(known) => known,
            Err(why) => unknown(&why),
        }
    }

    /// What the router is asked, and which router.
    pub(crate) fn question(&self, known: &Known) -> Result<(Arc<Lane>, Question), Refuse> {
        let question = self.unkeyed(known)?;
        let lanes = &self.served.lanes;
        if let [lane] = lanes.as_slice() {
            return Ok((lane.clone(), self.keyed(question, lane, known)));
        }
        // Of several block sizes that whose best worker is the best.
        let cost = |lane: &Arc<Lane>| {
            let decided = lane.consider(&self.keyed(question.clone(), lane, known));
            decided.map_or(f64::INFINITY, |decision| decision.chosen.cost)
        };
        let best = lanes.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
        let best = best.ok_or_else(|| Refuse::unavailable("no worker serves this model now"))?;
        Ok((best.clone(), self.keyed(question, best, known)))
    }

    /// Says whether two workers may serve it, where there are workers for parts of requests.
    pub(crate) fn divide(&self, lane: &Lane, question: &mut Question) -> Result<(), Refuse> {
        let config = self.gateway.config.load();
        let require = handing::require(&config.disagg);
        if !lane.divides(require) {
            return Ok(());
        }
        if let Err(why) = transfer::divisible(self.ask) {
            // Whoever computes the prompt of such a request can serve it, if that is not one who only meets others.
            question.phase = match why {
                WhyWhole::OneToken if self.prefills_alone() => Phase::Prefill,
                _ => Phase::Alone,
            };
            return Ok(());
        }
        let prefill = self.hints.prefill_worker.as_ref();
        let prefill = prefill.map(|name| self.named(name)).transpose()?;
        let direct = config.serve.policy.split(':').next() == Some("direct");
        question.apart = Some(Box::new(Apart {
            prefill: prefill.map(|worker| Pin { worker, dp: None }),
            naming: if direct { Naming::Direct } else { Naming::Chosen },
            ..Apart::default()
        }));
        Ok(())
    }

    /// Whether there is a prefill worker that answers without another one.
    fn prefills_alone(&self) -> bool {
        let mut workers = self.workers().filter(|worker| !worker.is_out());
        workers.any(|worker| worker.spec.role == Role::Prefill && worker.spec.dialect == Dialect::Vllm)
    }

    fn named(&self, name: &str) -> Result<WorkerId, Refuse> {
        let worker = self.table.worker(name).map(|worker| worker.id);
        worker.ok_or_else(|| Refuse::wrong(400, format!("there is no worker `{}`", excerpt(name))))
    }

    /// What this router is asked.
    pub(crate) fn asked_of(&self, lane: &Lane, known: &Known) -> Result<Question, Refuse> {
        Ok(self.keyed(self.unkeyed(known)?, lane, known))
    }

    /// The question without the keys of its blocks.
    fn unkeyed(&self, known: &Known) -> Result<Question, Refuse> {
        let Some(lane) = self.served.lanes.first() else {
            return Err(Refuse::unavailable("no worker serves this model now"));
        };
        let (hints, arrived) = (self.hints, self.arrived);
        let now = self.gateway.clock.at(arrived.began);
        let prompt = Tokens(known.count.max(1));
        let model = lane.subject.model.clone();
        let mut question = Question::new(arrived.id.clone(), model, prompt, Arc::from([]));
        question.adapter.clone_from(&self.served.adapter);
        question.session = hints.session.as_ref().map(|session| session.id.as_str().into());
        question.tenant = tenant(hints.tenant.as_deref());
        question.priority = hints.priority.unwrap_or(0);
        question.deadline = hints.deadline.map(|deadline| later(now, deadline));
        question.wanted = self.who()?;
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
            work: match overrides.work {
                Some(Switch::Off) => PromptWork::None,
                _ => PromptWork::Counts,
            },
            reuse: match overrides.reuse {
                Some(Switch::Off) => Reuse::None,
                _ => Reuse::Assumed,
            },
            expected_output: hints.expected_output.map(Tokens),
            ..Overrides::default()
        };
        question.most_output = most_output(self.ask);
        Ok(question)
    }

    /// Who may serve it.
    fn who(&self) -> Result<Who, Refuse> {
        let named = |name: &String| self.named(name);
        let hints = self.hints;
        let pinned = hints.worker.as_ref().map(named).transpose()?;
        let pinned = self.stored_at.or(pinned);
        Ok(Who {
            allowed: hints.allowed.iter().map(named).collect::<Result<_, _>>()?,
            tried: hints.excluded.iter().map(named).collect::<Result<_, _>>()?,
            pinned: pinned.map(|worker| Pin { worker, dp: None }),
            dp: self.dp_rank(pinned)?,
            required: hints
                .labels
                .iter()
                .map(|(name, value)| Label::new(name, value))
                .collect(),
            preferred: Vec::new(),
        })
    }

    /// The data-parallel rank that must serve it: one of the pinned worker, or of any.
    fn dp_rank(&self, pinned: Option<WorkerId>) -> Result<Option<DpRank>, Refuse> {
        let Some(rank) = self.hints.dp_rank else {
            return Ok(None);
        };
        let has_rank = |worker: &Arc<Worker>| u32::from(worker.spec.ranks) > rank;
        let mut candidates = self
            .workers()
            .filter(|worker| pinned.is_none_or(|pinned| worker.id == pinned));
        match u16::try_from(rank) {
            Ok(dp) if candidates.any(has_rank) => Ok(Some(DpRank(dp))),
            _ => Err(Refuse {
                problem: Problem::new(
                    400,
                    format!("no worker for this request has a data-parallel rank {rank}"),
                )
                .of("data_parallel_rank"),
                retry_after: None,
                end: RequestEnd::Wrong,
                limit: None,
            }),
        }
    }

    /// The question with the keys of its blocks.
    fn keyed(&self, mut question: Question, lane: &Lane, known: &Known) -> Question {
        let salt = self.ask.salt().map(CacheSalt::new);
        let size = lane.subject.block_size;
        let mut keys = Vec::with_capacity(known.tokens.len() / size.get() as usize);
        let prompt = Keyed {
            adapter: self.served.adapter.as_ref(),
            salt: salt.as_ref(),
            media: self.media,
            ..Keyed::text(&known.tokens, size)
        };
        lane.keeper.reader().keys_of(&self.gateway.hasher, &prompt, &mut keys);
        question.keys = keys.into();
        question
    }

    /// What is kept of the request for operators. Its tokens were known at `tokenized`.
    pub(crate) fn record(
        &self,
        endpoint: &'static str,
        known: &Known,
        question: &Question,
        tokenized: Instant,
    ) -> Arc<Record> {
        let arrived = self.arrived;
        Arc::new(Record::new(Begun {
            id: arrived.id.clone(),
            endpoint,
            model: self.model.into(),
            session: question.session.clone(),
            tenant: self.hints.tenant.as_deref().map(Into::into),
            prompt_tokens: known.count,
            tokens_from: known.from.name(),
            unknown: known.why.clone(),
            began: arrived.began,
            parts: Parts {
                tokenize: tokenized - arrived.began,
                keys: tokenized.elapsed(),
            },
            trace: self.gateway.traced(arrived),
        }))
    }

    /// What is kept of it for the log.
    pub(crate) fn entry(&self, lane: &Lane, question: &Question, tab: Tab) -> Entry {
        Entry {
            keys: question.keys.clone(),
            block: lane.subject.block_size,
            adapter: self.served.adapter.clone(),
            priority: question.priority,
            deadline: self.hints.deadline,
            tab,
        }
    }

    /// Which part of the engine's rendering the prompt depends on.
    pub(crate) fn feature(&self) -> Feature {
        let has = |asks| self.ask.features.has(asks);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_tells_its_model() {
        let form = b"--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\xff\xfe\r\n\
            --x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x--\r\n";
        assert_eq!(model_of_form(form).as_deref(), Some("whisper"));
        assert_eq!(model_of_form(b"--x--"), None);
        assert_eq!(model_of_form(b"name=\"model\"\r\n\r\nno end"), None);
    }

    #[test]
    fn tenants_of_one_name_are_one() {
        assert_eq!(tenant(Some("a")), tenant(Some("a")));
        assert_ne!(tenant(Some("a")), tenant(Some("b")));
        assert_ne!(tenant(Some("a")), tenant(None));
    }
}
