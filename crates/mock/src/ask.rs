//! What is asked of the engine? The fields that completions and chats share, and their meaning.

use std::sync::Arc;

use homing_domain::{AdapterName, CacheSalt, DpRank, Tokens};
use homing_engine::{Ending, Handover, Placement, Request, RequestNo};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::kv::{Plan, Terms};
use crate::logprobs::{self, Logprobs};
use crate::problem::Problem;
use crate::tokenizer::Codec;
use crate::tools::Call;
use crate::wire::or_default;

/// Prompts times answers of one request.
pub(crate) const MOST_PARTS: usize = 1_024;
/// Texts that end an answer, and tokens that do.
const MOST_STOPS: usize = 128;
/// The longest text that ends an answer, in bytes.
const LONGEST_STOP: usize = 4_096;
/// Fields of a body that are tried to find the one that is wrong.
const MOST_FIELDS_TRIED: usize = 64;

/// One or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// A prompt, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

/// What a stream is to have besides.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamOptions {
    #[serde(deserialize_with = "or_default")]
    pub(crate) include_usage: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) continuous_usage_stats: bool,
}

/// How an answer is to be made. Fields that change nothing here are accepted, and of some it is checked that they make sense.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of its own, as the API has them"
)]
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wishes {
    pub(crate) model: Option<String>,
    pub(crate) max_tokens: Option<i64>,
    pub(crate) max_completion_tokens: Option<i64>,
    pub(crate) stop: Option<OneOrMany>,
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) include_stop_str_in_output: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ignore_eos: bool,
    pub(crate) n: Option<i64>,
    pub(crate) seed: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) stream: bool,
    pub(crate) stream_options: Option<StreamOptions>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) return_token_ids: bool,
    pub(crate) cache_salt: Option<String>,
    pub(crate) priority: Option<i32>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) echo: bool,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    #[serde(flatten)]
    pub(crate) terms: Terms,
}

/// What only some of the ways to ask have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The length of answers that do not say how long they may be.
    pub(crate) default_length: Option<u32>,
    pub(crate) rank: Option<DpRank>,
    pub(crate) logprobs: Option<Logprobs>,
    pub(crate) call: Option<Call>,
}

/// Requests for the engine, and what is to be known to put their answers together.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of its own, as the API has them"
)]
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) requests: Vec<Request>,
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Answers to each prompt.
    pub(crate) n: usize,
    pub(crate) stops: Vec<String>,
    pub(crate) keep_stop: bool,
    pub(crate) model: String,
    pub(crate) ids: bool,
    pub(crate) echo: bool,
    pub(crate) stream: bool,
    pub(crate) usage: bool,
    pub(crate) usage_always: bool,
    pub(crate) logprobs: Option<Logprobs>,
    pub(crate) call: Option<Call>,
    /// The tokens of its arguments.
    pub(crate) script: Option<Arc<[u32]>>,
    /// What is to be done with its KV.
    pub(crate) plan: Plan,
}

impl Prompts {
    pub(crate) fn is_empty_text(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    pub(crate) fn tokens(self, codec: &Codec) -> Result<Vec<Vec<u32>>, Problem> {
        let prompts = match self {
            Self::Text(text) => vec![codec.encode(&text)?],
            Self::Tokens(tokens) => vec![tokens],
            Self::Texts(texts) => texts.iter().map(|text| codec.encode(text)).collect::<Result<_, _>>()?,
            Self::Lists(lists) => lists,
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(Problem::bad(
                "You must pass at least one prompt, and it cannot be empty",
            ));
        }
        let outside = |token: &&u32| **token >= codec.size();
        if let Some(token) = prompts.iter().flatten().find(outside) {
            return Err(Problem::bad(format!("Token id {token} is out of vocabulary")));
        }
        Ok(prompts)
    }
}

impl Wishes {
    /// What is asked of the engine.
    pub(crate) fn ask(self, app: &App, prompts: Vec<Vec<u32>>, extras: Extras) -> Result<Ask, Problem> {
        let adapter = app.adapter(self.model.as_deref())?;
        self.check()?;
        let n = self.n.unwrap_or(1);
        let n = usize::try_from(n).ok().filter(|n| *n > 0);
        let n = n.ok_or_else(|| Problem::bad(format!("n must be at least 1, got {}.", self.n.unwrap_or(0))))?;
        if prompts.len().saturating_mul(n) > MOST_PARTS {
            return Err(Problem::bad(format!(
                "a request may have {MOST_PARTS} answers and no more"
            )));
        }
        let asked = self.max_completion_tokens.or(self.max_tokens);
        let asked = asked
            .map(|tokens| positive("max_tokens", tokens))
            .transpose()?
            .or(extras.default_length);
        let script = match &extras.call {
            None => None,
            Some(call) => Some(Arc::<[u32]>::from(app.settings.codec.plain(&call.arguments)?)),
        };
        let stops = self.stops()?;
        let stop_tokens = self.stop_token_ids.clone().unwrap_or_default();
        let seed = self.seed.map_or(app.settings.mock.seed, i64::cast_unsigned);
        let about = app.settings.mock.answer_tokens;
        let ending = if about == 0 || self.ignore_eos || script.is_some() {
            Ending::AtLength
        } else {
            Ending::About(about)
        };
        let rank = self.terms.rank().or(extras.rank);
        let plan = self.terms.plan(app.core.kv.as_ref(), rank, app.settings.engine.ranks)?;
        let mut requests = Vec::with_capacity(prompts.len() * n);
        for prompt in &prompts {
            let max_tokens = room(app, prompt.len(), asked)?;
            let scripted = script.as_ref().map_or(u32::MAX, |all| all.len() as u32);
            let max_tokens = max_tokens.min(scripted);
            for one in 0..n as u64 {
                requests.push(Request {
                    id: RequestNo(0),
                    prompt: prompt.as_slice().into(),
                    max_tokens: Tokens(max_tokens),
                    ending,
                    stop: stop_tokens.clone(),
                    // Answers to one prompt differ.
                    seed: seed.wrapping_add(one.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    adapter: adapter.clone(),
                    salt: self
                        .cache_salt
                        .as_deref()
                        .filter(|salt| !salt.is_empty())
                        .map(CacheSalt::from),
                    priority: self.priority.unwrap_or(0),
                    placement: rank.map_or(Placement::Any, Placement::On),
                    handover: Handover::None,
                });
            }
        }
        let options = self.stream_options.unwrap_or_default();
        Ok(Ask {
            requests,
            prompts,
            n,
            stops,
            keep_stop: self.include_stop_str_in_output,
            model: self.model.unwrap_or_else(|| app.settings.model.to_string()),
            ids: self.return_token_ids,
            echo: self.echo,
            stream: self.stream,
            usage: options.include_usage,
            usage_always: options.include_usage && options.continuous_usage_stats,
            logprobs: extras.logprobs,
            call: extras.call,
            script,
            plan,
        })
    }

    /// Whether what changes nothing makes sense all the same.
    fn check(&self) -> Result<(), Problem> {
        if self.stream_options.is_some() && !self.stream {
            return Err(Problem::of(
                "stream_options",
                "Stream options can only be defined when `stream=True`.",
            ));
        }
        if let Some(temperature) = self.temperature.filter(|temperature| *temperature < 0.0) {
            let message = format!("temperature must be non-negative, got {temperature}.");
            return Err(Problem::of("temperature", message));
        }
        if let Some(top_p) = self.top_p.filter(|top_p| !(*top_p > 0.0 && *top_p <= 1.0)) {
            return Err(Problem::of("top_p", format!("top_p must be in (0, 1], got {top_p}.")));
        }
        Ok(())
    }

    fn stops(&self) -> Result<Vec<String>, Problem> {
        let stops = match self.stop.clone() {
            None => Vec::new(),
            Some(OneOrMany::One(text)) => vec![text],
            Some(OneOrMany::Many(texts)) => texts,
        };
        let tokens = self.stop_token_ids.as_ref().map_or(0, Vec::len);
        if stops.iter().any(String::is_empty) {
            return Err(Problem::bad("stop cannot contain an empty string."));
        }
        let long = stops.iter().any(|stop| stop.len() > LONGEST_STOP);
        if long || stops.len() > MOST_STOPS || tokens > MOST_STOPS {
            return Err(Problem::bad(format!(
                "stop may have {MOST_STOPS} entries of {LONGEST_STOP} bytes and no more"
            )));
        }
        Ok(stops)
    }
}

impl App {
    /// The adapter that a name of a model means; none for the model itself.
    pub(crate) fn adapter(&self, model: Option<&str>) -> Result<Option<AdapterName>, Problem> {
        match model {
            None | Some("") => Ok(None),
            Some(name) if name == self.settings.model.as_str() => Ok(None),
            Some(name) if self.core.serves(name) => Ok(Some(AdapterName::from(name))),
            Some(name) => Err(Problem::NoModel(name.to_owned())),
        }
    }
}

/// How many tokens an answer to so long a prompt may have.
fn room(app: &App, prompt: usize, asked: Option<u32>) -> Result<u32, Problem> {
    let limit = app.settings.engine.max_model_len.0 as usize;
    let left = limit.saturating_sub(prompt);
    if left == 0 {
        let message = format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains {prompt} input tokens. \
             Please reduce the length of the input prompt."
        );
        return Err(Problem::of("input_tokens", message));
    }
    match asked {
        Some(asked) if asked as usize > left => {
            let message = format!(
                "This model's maximum context length is {limit} tokens. However, your request has {prompt} input tokens \
                 and {asked} output tokens. Please request fewer output tokens."
            );
            Err(Problem::of("max_tokens", message))
        }
        asked => Ok(asked.unwrap_or(left as u32)),
    }
}

fn positive(param: &'static str, number: i64) -> Result<u32, Problem> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| Problem::of(param, format!("{param} must be at least 1, got {number}.")))
}

/// The log probabilities that are asked for, if they are and not too many of them.
pub(crate) fn logprobs(top: Option<i64>) -> Result<Option<Logprobs>, Problem> {
    let Some(top) = top else { return Ok(None) };
    match u32::try_from(top) {
        Ok(top) if top <= logprobs::MOST => Ok(Some(Logprobs { top })),
        _ => {
            let most = logprobs::MOST;
            let message = format!("Requested sample logprobs of {top}, which is greater than max allowed: {most}");
            Err(Problem::of("logprobs", message))
        }
    }
}

/// Reads a body into what it should be, or says where it is not.
pub(crate) fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let place = if body.is_empty() {
            "body".to_owned()
        } else if error.is_data() {
            misplaced::<T>(body, &error.to_string())
        } else {
            format!("body.{}", error.column())
        };
        Problem::Form {
            message: format!("1 validation error: {place}: {error}"),
            place,
        }
    })
}

/// Which field is wrong: one that is missing has its name in the error; without one that is there, the rest would do.
fn misplaced<T: for<'a> Deserialize<'a>>(body: &[u8], error: &str) -> String {
    let missing = error
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    let wrong = || {
        let fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let names: Vec<String> = fields.keys().take(MOST_FIELDS_TRIED).cloned().collect();
        names.into_iter().find(|name| {
            let mut rest = fields.clone();
            rest.remove(name);
            let left: Result<T, _> = serde_json::from_value(Value::Object(rest));
            left.map_or_else(|error| error.to_string() == format!("missing field `{name}`"), |_| true)
        })
    };
    match missing.map(str::to_owned).or_else(wrong) {
        Some(field) => format!("body.{field}"),
        None => "body".to_owned(),
    }
}

/// The messages of a chat.
pub(crate) fn messages(messages: &Value) -> Result<&[Value], Problem> {
    let form = |place: String, message: &str| Problem::Form {
        message: format!("1 validation error: {place}: {message}"),
        place,
    };
    let Some(all) = messages.as_array() else {
        return Err(form("body.messages".to_owned(), "must be a list of messages"));
    };
    if all.is_empty() {
        return Err(Problem::bad("messages cannot be empty: provide at least one message."));
    }
    match all.iter().position(|one| !one["role"].is_string()) {
        Some(place) => Err(form(format!("body.messages.{place}"), "must be a message with a role")),
        None => Ok(all),
    }
}
