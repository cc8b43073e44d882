//! Keeps clients out of engines, and tenants out of each other's caches.
//!
//! - Fields that belong to engines ([`homing_protocol::engine_fields`]) are refused or removed before anything else reads the body.
//! - A cache salt gets its tenant in front of it. The same salt is used for the predicted block hashes and sent to the engine.
//! - Naming workers or ranks is a right of a key.
//! - Fields of engines are removed from answers.
//!
//! **Invariant:** with API keys, no tenant can make the engine salt of another one: the length of the tenant's name comes first, so that
//! one salt belongs to one tenant.

use bytes::Bytes;
use homing_config::{CacheIsolation, EngineFields};
use homing_domain::excerpt;
use homing_protocol::engine_fields::{self, FieldRule, FoundField, Removal};
use homing_protocol::json::{self, Kind};
use homing_protocol::{AnswerFilter, Ask, Endpoint, Form, Hints, Limits, Other, Problem, form};
use homing_telemetry::{FieldAction, RequestEnd};
use hyper::HeaderMap;
use hyper::header;

use crate::case::Arrived;
use crate::gateway::Gateway;
use crate::keyring::Key;
use crate::refusal::Refuse;

/// What becomes of a body before an engine gets it. Callers of the route API do it themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyEdits {
    /// Fields to remove, by their paths with dots.
    pub(crate) remove: Vec<String>,
    /// What `cache_salt` is to be set to.
    pub(crate) cache_salt: Option<String>,
}

impl Gateway {
    /// What is done with fields of engines.
    fn engine_fields(&self) -> EngineFields {
        match self.config.load().serve.isolation.engine_fields {
            EngineFields::Auto if self.ring.is_asked() => EngineFields::Refuse,
            EngineFields::Auto => EngineFields::Strip,
            fixed => fixed,
        }
    }

    /// Removes from a request what engines must not see, and gives it the cache salt of its tenant.
    pub(crate) fn isolate(&self, arrived: &mut Arrived, ask: &mut Ask, hints: &Hints) -> Result<BodyEdits, Refuse> {
        let mut edits = match arrived.endpoint.form() {
            Form::Json => self.isolate_object(arrived, ask)?,
            Form::Multipart => return self.isolate_form(arrived),
        };
        if self.ring.is_asked() {
            let isolation = self.config.load().serve.isolation.cache;
            let tenant = hints.tenant.as_deref().unwrap_or_default();
            ask.engine_salt = engine_salt(ask, &arrived.body, tenant, isolation)?;
            if ask.engine_salt.is_some() {
                edits.cache_salt.clone_from(&ask.engine_salt);
                let extra_key = ask.fields.get(&arrived.body, "extra_key");
                edits.remove.extend(extra_key.map(|_| "extra_key".to_owned()));
            }
        }
        Ok(edits)
    }

    fn isolate_object(&self, arrived: &mut Arrived, ask: &mut Ask) -> Result<BodyEdits, Refuse> {
        let mut found = engine_fields::find(&arrived.body, &ask.fields);
        if found.is_empty() {
            return Ok(BodyEdits::default());
        }
        let removal = match self.check_fields(&found)? {
            EngineFields::Allow => Removal::RankPins,
            _ => Removal::All,
        };
        if removal == Removal::RankPins {
            found.retain(|found| found.field.rule == FieldRule::RankPin && !found.path.contains('.'));
        }
        if !found.is_empty() {
            arrived.body = engine_fields::remove(&arrived.body, &ask.fields, removal);
            let limits = Limits {
                bytes: arrived.body.len().max(1),
                ..Limits::default()
            };
            // The route API takes the model from another field.
            let model = ask.model.take();
            *ask = Ask::read(ask.endpoint, &arrived.body, limits)
                .map_err(|bad| Refuse::wrong(bad.status(), bad.to_string()))?;
            ask.model = model;
            self.count_fields(FieldAction::Stripped);
        }
        Ok(BodyEdits {
            remove: found.into_iter().map(|found| found.path).collect(),
            cache_salt: None,
        })
    }

    fn isolate_form(&self, arrived: &mut Arrived) -> Result<BodyEdits, Refuse> {
        if self.engine_fields() == EngineFields::Allow {
            return Ok(BodyEdits::default());
        }
        let kind = arrived.headers.get(header::CONTENT_TYPE);
        let parts = form::find(kind.map(header::HeaderValue::as_bytes), &arrived.body)
            .map_err(|bad| Refuse::wrong(400, bad.to_string()))?;
        for part in &parts {
            self.check_fields(std::slice::from_ref(&part.found))?;
        }
        if !parts.is_empty() {
            arrived.body = form::remove(&arrived.body, &parts);
            self.count_fields(FieldAction::Stripped);
        }
        Ok(BodyEdits {
            remove: parts.into_iter().map(|part| part.found.path).collect(),
            cache_salt: None,
        })
    }

    /// Refuses a request with such fields, where they are refused; else what is done with them.
    fn check_fields(&self, found: &[FoundField]) -> Result<EngineFields, Refuse> {
        let mode = self.engine_fields();
        let refused = found.iter().find(|found| found.is_refusable());
        let Some(refused) = refused.filter(|_| mode == EngineFields::Refuse) else {
            return Ok(mode);
        };
        self.count_fields(FieldAction::Refused);
        let path = excerpt(&refused.path).to_string();
        let message = format!(
            "`{path}` is a field of the engine ({}), which clients must not set: remove it from the request, or have the operator \
             set `serve.engine-fields` to `strip` or `allow`",
            refused.field.effect
        );
        Err(Refuse {
            problem: Problem::new(400, message).of(path).code("engine_field"),
            retry_after: None,
            end: RequestEnd::Wrong,
            limit: None,
        })
    }

    fn count_fields(&self, action: FieldAction) {
        self.metrics.gateway.engine_fields.of(action).add(1);
    }

    /// What takes fields of engines out of an answer with these headers.
    pub(crate) fn answer_filter(&self, headers: &HeaderMap) -> Option<AnswerFilter> {
        let is_filtered = self.engine_fields() != EngineFields::Allow && has_json(headers);
        is_filtered.then(AnswerFilter::default)
    }

    /// A whole answer without fields of engines.
    pub(crate) fn filtered(&self, headers: &HeaderMap, body: Bytes) -> Bytes {
        match self.answer_filter(headers) {
            Some(_) => AnswerFilter::whole(&body),
            None => body,
        }
    }
}

/// Refuses a request that names workers or ranks although its key has no right to.
pub(crate) fn check_pin(hints: &Hints, key: Option<&Key>) -> Result<(), Refuse> {
    let (Some(pin), Some(key)) = (hints.pin(), key) else {
        return Ok(());
    };
    if key.may_pin() {
        return Ok(());
    }
    let message = format!(
        "`{pin}` names a worker or a rank, and this API key has no right to: leave it out, or have the operator set `pin = true` for \
         this key in the file of keys"
    );
    Err(Refuse {
        problem: Problem::new(403, message).of(pin).code("pin_not_allowed"),
        retry_after: None,
        end: RequestEnd::Refused,
        limit: None,
    })
}

/// The cache salt that the engine gets: that of the client, with its tenant in front.
fn engine_salt(ask: &Ask, body: &[u8], tenant: &str, isolation: CacheIsolation) -> Result<Option<String>, Refuse> {
    let mut own = String::new();
    // SGLang joins both.
    for name in ["cache_salt", "extra_key"] {
        let value = ask.field(body, name).unwrap_or(b"null");
        let text = match json::kind(value) {
            None | Some(Kind::Null) => continue,
            Some(Kind::String) => json::text(value),
            Some(_) => None,
        };
        let wrong = || Refuse::wrong(400, format!("`{name}` must be a text"));
        own.push_str(&text.ok_or_else(wrong)?);
    }
    let of_tenant = isolation == CacheIsolation::Tenant && computes_prompts(ask.endpoint);
    let is_salted = of_tenant || !own.is_empty();
    Ok(is_salted.then(|| format!("{}:{tenant}:{own}", tenant.len())))
}

/// Whether an engine computes prompts, and may keep them, for requests of this endpoint.
fn computes_prompts(endpoint: Endpoint) -> bool {
    match endpoint {
        Endpoint::ChatCompletions
        | Endpoint::Completions
        | Endpoint::Responses
        | Endpoint::Messages
        | Endpoint::Embeddings
        | Endpoint::Other(Other::Rerank | Other::Score | Other::Classify | Other::Pooling) => true,
        Endpoint::CountTokens
        | Endpoint::Tokenize
        | Endpoint::Detokenize
        | Endpoint::Other(
            Other::Speech | Other::Transcription | Other::Translation | Other::ImageGeneration | Other::ImageEdit,
        ) => false,
    }
}

/// Whether an answer is JSON, or a stream of events with JSON in them.
fn has_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind == "text/event-stream" || kind.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salt(body: &str, tenant: &str, isolation: CacheIsolation) -> Result<Option<String>, u16> {
        let ask = Ask::read(Endpoint::Completions, body.as_bytes(), Limits::default()).unwrap();
        engine_salt(&ask, body.as_bytes(), tenant, isolation).map_err(|refuse| refuse.problem.status)
    }

    #[test]
    fn a_salt_belongs_to_one_tenant() {
        let of = |body: &str, tenant: &str| salt(body, tenant, CacheIsolation::Salt).unwrap();
        assert_eq!(of("{}", "acme"), None);
        assert_eq!(of(r#"{"cache_salt":""}"#, "acme"), None);
        assert_eq!(of(r#"{"cache_salt":"s"}"#, "acme").as_deref(), Some("4:acme:s"));
        assert_eq!(of(r#"{"extra_key":"s"}"#, "acme").as_deref(), Some("4:acme:s"));
        assert_eq!(
            of(r#"{"extra_key":"k","cache_salt":"s"}"#, "acme").as_deref(),
            Some("4:acme:sk")
        );
        let mut salts = Vec::new();
        for tenant in ["", "a", "a:1", "1:a", "a:1:b", "b"] {
            for own in ["b", "1:b", "1:a:b", ":b", "1:b:b", "4:acme:b"] {
                salts.push(of(&format!("{{\"cache_salt\":\"{own}\"}}"), tenant).unwrap());
            }
        }
        let all = salts.len();
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), all);
    }

    #[test]
    fn a_tenant_can_have_a_salt_of_its_own() {
        assert_eq!(
            salt("{}", "acme", CacheIsolation::Tenant),
            Ok(Some("4:acme:".to_owned()))
        );
        assert_eq!(
            salt(r#"{"cache_salt":null}"#, "b", CacheIsolation::Tenant),
            Ok(Some("1:b:".to_owned()))
        );
    }

    #[test]
    fn a_salt_that_is_no_text_is_refused() {
        for body in [
            r#"{"cache_salt":["4:acme:s"]}"#,
            r#"{"extra_key":["4:acme:s"]}"#,
            r#"{"cache_salt":5}"#,
            r#"{"cache_salt":{"a":1}}"#,
            r#"{"cache_salt":"\ud800"}"#,
        ] {
            assert_eq!(salt(body, "a", CacheIsolation::Salt), Err(400), "{body}");
        }
    }

    #[test]
    fn answers_with_json_are_filtered() {
        for (kind, is) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/event-stream", true),
            ("application/problem+json", true),
            ("audio/wav", false),
            ("text/plain", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(has_json(&headers), is, "{kind}");
        }
    }
}
