//! What is asked of the engine? The fields that completions and chats share, and their meaning.

use homing_domain::{AdapterName, CacheSalt, DpRank, Tokens};
use homing_engine::{Ending, Placement, Request, RequestNo};
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::problem::Problem;
use crate::tokenizer;

/// Prompts times answers of one request.
pub(crate) const MOST_PARTS: usize = 1_024;
/// Texts that end an answer, and tokens that do.
const MOST_STOPS: usize = 128;
/// The longest text that ends an answer, in bytes.
const LONGEST_STOP: usize = 4_096;

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
    pub(crate) include_usage: Option<bool>,
    pub(crate) continuous_usage_stats: Option<bool>,
}

/// How an answer is to be made. Fields that change nothing here (temperature and so on) are accepted and not looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wishes {
    pub(crate) model: Option<String>,
    pub(crate) max_tokens: Option<i64>,
    pub(crate) max_completion_tokens: Option<i64>,
    pub(crate) stop: Option<OneOrMany>,
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    pub(crate) include_stop_str_in_output: Option<bool>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) n: Option<i64>,
    pub(crate) seed: Option<i64>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    pub(crate) return_token_ids: Option<bool>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) echo: Option<bool>,
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
}

impl Prompts {
    pub(crate) fn tokens(self) -> Result<Vec<Vec<u32>>, Problem> {
        let prompts = match self {
            Self::Text(text) => vec![tokenizer::encode(&text)],
            Self::Tokens(tokens) => vec![tokens],
            Self::Texts(texts) => texts.iter().map(|text| tokenizer::encode(text)).collect(),
            Self::Lists(lists) => lists,
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(Problem::bad("The decoder prompt cannot be empty"));
        }
        let outside = |token: &&u32| **token >= tokenizer::VOCABULARY;
        if let Some(token) = prompts.iter().flatten().find(outside) {
            return Err(Problem::bad(format!("Token id {token} is out of vocabulary")));
        }
        Ok(prompts)
    }
}

impl Wishes {
    /// What is asked of the engine. `default` is the length of answers that do not say how long they may be.
    pub(crate) fn ask(
        self,
        app: &App,
        prompts: Vec<Vec<u32>>,
        default: Option<u32>,
        rank: Option<DpRank>,
    ) -> Result<Ask, Problem> {
        let adapter = app.adapter(self.model.as_deref())?;
        let n = positive("n", self.n.unwrap_or(1))? as usize;
        if prompts.len().saturating_mul(n) > MOST_PARTS {
            return Err(Problem::bad(format!(
                "a request may have {MOST_PARTS} answers and no more"
            )));
        }
        let asked = self.max_completion_tokens.or(self.max_tokens);
        let asked = asked
            .map(|tokens| positive("max_tokens", tokens))
            .transpose()?
            .or(default);
        let stops = self.stops()?;
        let stop_tokens = self.stop_token_ids.clone().unwrap_or_default();
        let seed = self.seed.map_or(app.settings.mock.seed, i64::cast_unsigned);
        let about = app.settings.mock.answer_tokens;
        let ending = if about == 0 || self.ignore_eos.unwrap_or(false) {
            Ending::AtLength
        } else {
            Ending::About(about)
        };
        let mut requests = Vec::with_capacity(prompts.len() * n);
        for prompt in &prompts {
            let max_tokens = room(app, prompt.len(), asked)?;
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
                });
            }
        }
        let options = self.stream_options.unwrap_or_default();
        Ok(Ask {
            requests,
            prompts,
            n,
            stops,
            keep_stop: self.include_stop_str_in_output.unwrap_or(false),
            model: self.model.unwrap_or_else(|| app.settings.model.to_string()),
            ids: self.return_token_ids.unwrap_or(false),
            echo: self.echo.unwrap_or(false),
            stream: self.stream.unwrap_or(false),
            usage: options.include_usage.unwrap_or(false),
            usage_always: options.continuous_usage_stats.unwrap_or(false),
        })
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
    if left == 0 || asked.is_some_and(|asked| asked as usize > left) {
        let wanted = asked.map_or(String::new(), |asked| format!(" and {asked} output tokens"));
        return Err(Problem::bad(format!(
            "This model's maximum context length is {limit} tokens. However, your request has {prompt} input \
             tokens{wanted}. Please reduce the length of the input messages."
        )));
    }
    Ok(asked.unwrap_or(left as u32))
}

fn positive(param: &'static str, number: i64) -> Result<u32, Problem> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| Problem::Bad {
            message: format!("{param} must be at least 1, got {number}."),
            param: Some(param),
        })
}

/// Reads a body into what it should be.
pub(crate) fn parse<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::bad(format!("the request cannot be understood: {error}")))
}

/// The messages of a chat.
pub(crate) fn messages(messages: &Value) -> Result<&[Value], Problem> {
    match messages.as_array() {
        Some(messages) if !messages.is_empty() && messages.iter().all(Value::is_object) => Ok(messages),
        _ => Err(Problem::Bad {
            message: "messages must be a list of messages, and not empty".to_owned(),
            param: Some("messages"),
        }),
    }
}
