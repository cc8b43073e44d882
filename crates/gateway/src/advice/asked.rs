//! What does a proxy ask? A prompt as tokens, or as OpenAI's bodies have it, with what else decides where it goes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use homing_domain::{Media, MediaId, RequestId, Tokens};
use homing_protocol::{Ask, Endpoint, Hints, Limits, Prompt, Switch, json};
use hyper::HeaderMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::case::Arrived;
use crate::gateway::Gateway;
use crate::isolation::BodyEdits;
use crate::refusal::Refuse;

/// Images and sounds of one prompt.
const MOST_MEDIA: usize = 4096;

/// A prompt, and what is asked about it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) arrived: Arrived,
    pub(super) ask: Ask,
    pub(super) hints: Hints,
    /// Its tokens, if they were told.
    pub(super) tokens: Option<Vec<u32>>,
    pub(super) media: Vec<Media>,
    /// Whether the decision is booked at once.
    pub(super) book: Switch,
    /// For how long a booking stands that nobody speaks of.
    pub(super) lease: Option<Duration>,
}

/// Books a decision.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Book {
    /// The worker that it was sent to, if it is another one.
    pub(super) worker: Option<String>,
    /// The rank of that worker.
    pub(super) rank: Option<u16>,
    /// Tokens that are in its cache, if that is known better.
    pub(super) cached_tokens: Option<u32>,
}

/// Tokens came.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    /// So many in all.
    pub(super) tokens: u32,
}

/// A request ended.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    /// How.
    #[serde(default)]
    pub(super) end: Ended,
    /// Tokens of its answer.
    pub(super) output_tokens: Option<u32>,
    /// Tokens of its prompt, as the engine counts them.
    pub(super) prompt_tokens: Option<u32>,
    /// Tokens of its prompt that came from the cache, as the engine says.
    pub(super) cached_tokens: Option<u32>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ended {
    /// It was answered.
    #[default]
    Finished,
    /// The client went away.
    Cancelled,
    /// The worker failed.
    Failed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Placed {
    id: String,
    start: u32,
    length: u32,
}

/// Fields of an object; none of an empty body.
pub(super) fn fields<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refuse> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    // A list would be taken for the fields in their order.
    if json::kind(body.trim_ascii()) != Some(json::Kind::Object) {
        return Err(Refuse::wrong(400, "the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Refuse::wrong(400, format!("the body is not understood: {error}")))
}

impl Asked {
    /// A question that has a prompt.
    pub(super) fn read(id: RequestId, headers: HeaderMap, body: Bytes) -> Result<Self, Refuse> {
        let asked = Self::read_any(id, headers, body)?;
        if !asked.has_prompt() {
            return Err(Refuse::wrong(400, "one of `tokens`, `messages` and `prompt` is needed"));
        }
        Ok(asked)
    }

    /// A question that may have none.
    pub(super) fn read_any(id: RequestId, headers: HeaderMap, body: Bytes) -> Result<Self, Refuse> {
        let limits = Limits {
            bytes: body.len().max(1),
            ..Limits::default()
        };
        let understand =
            |endpoint| Ask::read(endpoint, &body, limits).map_err(|bad| Refuse::wrong(bad.status(), bad.to_string()));
        let mut ask = understand(Endpoint::Completions)?;
        let field = |ask: &Ask, name: &str| ask.fields.get(&body, name).map(|span| span.of(&body).to_vec());
        let told = field(&ask, "tokens");
        let prompts = [
            told.is_some(),
            field(&ask, "messages").is_some(),
            field(&ask, "prompt").is_some(),
        ];
        if prompts.iter().filter(|is| **is).count() > 1 {
            let message = "only one of `tokens`, `messages` and `prompt` can be the prompt";
            return Err(Refuse::wrong(400, message));
        }
        if prompts[1] {
            ask = understand(Endpoint::ChatCompletions)?;
        }
        let tokens = told.map(|told| {
            let tokens = json::ids(&told).filter(|tokens| !tokens.is_empty());
            tokens.ok_or_else(|| Refuse::wrong(400, "`tokens` must be a list of token ids"))
        });
        let tokens = tokens.transpose()?;
        // An adapter is asked for by its name, as engines have it.
        if let Some(adapter) = field(&ask, "adapter") {
            let adapter = json::text(&adapter).ok_or_else(|| Refuse::wrong(400, "`adapter` must be a name"))?;
            ask.model = Some(adapter.into_owned());
        }
        let media = field(&ask, "media").map_or(Ok(Vec::new()), |media| placed(&media))?;
        if !media.is_empty() && tokens.is_none() {
            return Err(Refuse::wrong(400, "`media` has places in `tokens`, which are needed"));
        }
        let book = match field(&ask, "book").as_deref() {
            None | Some(b"true") => Switch::On,
            Some(b"false") => Switch::Off,
            Some(_) => return Err(Refuse::wrong(400, "`book` must be true or false")),
        };
        let lease = field(&ask, "lease_ms").map(|lease| {
            let lease = serde_json::from_slice(&lease).ok().filter(|lease| *lease > 0);
            let wrong = || Refuse::wrong(400, "`lease_ms` must be a number of milliseconds above 0");
            lease.map(Duration::from_millis).ok_or_else(wrong)
        });
        let lease = lease.transpose()?;
        let given = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let hints = Hints::read(given, Some((&ask, &body))).map_err(|bad| Refuse::wrong(400, bad.to_string()))?;
        Ok(Self {
            arrived: Arrived {
                began: Instant::now(),
                id,
                endpoint: ask.endpoint,
                target: String::new(),
                headers,
                body,
                // Whoever may ask here is asked for no key of a client.
                key: None,
            },
            ask,
            hints,
            tokens,
            media,
            book,
            lease,
        })
    }

    /// What the caller must do to the body that it sends to a worker. From now on it counts as done.
    pub(super) fn isolate(&mut self, gateway: &Gateway) -> Result<BodyEdits, Refuse> {
        gateway.isolate(&mut self.arrived, &mut self.ask, &self.hints)
    }

    /// Whether there is a prompt.
    pub(super) fn has_prompt(&self) -> bool {
        self.tokens.is_some() || !matches!(self.ask.prompt, Prompt::None)
    }
}

/// Where multimodal content lies.
fn placed(media: &[u8]) -> Result<Vec<Media>, Refuse> {
    let wrong = |why: String| Refuse::wrong(400, format!("`media` is not understood: {why}"));
    let placed: Vec<Placed> = serde_json::from_slice(media).map_err(|error| wrong(error.to_string()))?;
    if placed.len() > MOST_MEDIA {
        return Err(wrong(format!("there are more than {MOST_MEDIA}")));
    }
    let mut media: Vec<Media> = placed
        .iter()
        .map(|one| Media {
            id: MediaId::new(&one.id),
            start: Tokens(one.start),
            length: Tokens(one.length),
        })
        .collect();
    media.sort_by_key(|one| one.start.0);
    Ok(media)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Asked, String> {
        let id = RequestId::new("1");
        let asked = Asked::read_any(id, HeaderMap::new(), Bytes::copy_from_slice(body.as_bytes()));
        asked.map_err(|refuse| refuse.problem.message)
    }

    #[test]
    fn a_prompt_is_tokens_or_what_a_body_has() {
        let asked =
            read(r#"{"tokens": [1, 2], "media": [{"id": "a", "start": 1, "length": 1}], "book": false}"#).unwrap();
        assert_eq!(asked.tokens.as_deref(), Some(&[1, 2][..]));
        assert_eq!((asked.media.len(), asked.book), (1, Switch::Off));
        let asked = read(r#"{"messages": [{"role": "user", "content": "x"}], "adapter": "a", "lease_ms": 5}"#).unwrap();
        assert_eq!(asked.ask.endpoint, Endpoint::ChatCompletions);
        assert_eq!(asked.ask.model.as_deref(), Some("a"));
        assert_eq!(asked.lease, Some(Duration::from_millis(5)));
        assert!(read(r#"{"prompt": "x"}"#).unwrap().has_prompt());
        assert!(!read("{}").unwrap().has_prompt());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, word) in [
            (r#"{"tokens": [1], "prompt": "x"}"#, "only one"),
            (r#"{"tokens": [-1]}"#, "tokens"),
            (r#"{"tokens": []}"#, "tokens"),
            (r#"{"tokens": [1], "book": 1}"#, "book"),
            (r#"{"tokens": [1], "lease_ms": 0}"#, "lease_ms"),
            (r#"{"tokens": [1], "media": [1]}"#, "media"),
            (
                r#"{"prompt": "x", "media": [{"id": "a", "start": 0, "length": 1}]}"#,
                "media",
            ),
            (r#"{"tokens": [1], "adapter": 1}"#, "adapter"),
            (r#"{"tokens": [1], "homing": {"priority": "x"}}"#, "priority"),
            ("[]", ""),
        ] {
            let why = read(body).expect_err(body);
            assert!(why.contains(word), "{body}: {why}");
        }
    }
}
