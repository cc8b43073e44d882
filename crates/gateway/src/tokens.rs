//! Which tokens does the engine see for this request?
//!
//! From the tokenizer and chat template in a local folder; else from a worker, which is asked within a time limit; else not at all, and
//! then the request is routed by load, and its record says why. Token ids in the request are taken as they are.
//!
//! **Invariant:** what is not known is never guessed: keys are made of tokens that the engine sees, or there are none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use homing_protocol::{Ask, Endpoint, Prompt, json};
use homing_tokenize::{Clock, Dialect, LoadError, Media, PromptError, PromptOptions, Prompter};
use homing_wire::Dialect as Engine;
use serde_json::Value;

/// Bodies longer than this are tokenized on a thread of their own, so that streams go on meanwhile.
pub(crate) const LONG: usize = 32 << 10;
/// About how many bytes of a body are a token, where only the load is wanted.
const BYTES_PER_TOKEN: usize = 4;

/// What is known of a prompt.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its tokens, or those before something that has none.
    pub(crate) tokens: Vec<u32>,
    /// How many there are in all; a guess if `tokens` are not all.
    pub(crate) count: u32,
    pub(crate) from: From,
    /// Why less is known than could be.
    pub(crate) why: Option<String>,
}

/// How tokens are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The request has them.
    Request,
    /// From a local tokenizer.
    Tokenizer,
    /// A worker said so.
    Worker,
    /// They are not.
    Nobody,
}

impl From {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Tokenizer => "tokenizer",
            Self::Worker => "worker",
            Self::Nobody => "nobody",
        }
    }
}

impl Known {
    fn all(tokens: Vec<u32>, from: From) -> Self {
        Self {
            count: u32::try_from(tokens.len()).unwrap_or(u32::MAX),
            tokens,
            from,
            why: None,
        }
    }

    /// How many there are, if all of them are known.
    pub(crate) fn counted(&self) -> Option<u32> {
        (self.why.is_none() && self.from != From::Nobody).then_some(self.count)
    }

    /// The request told them.
    pub(crate) fn told(tokens: Vec<u32>) -> Self {
        Self::all(tokens, From::Request)
    }

    /// Nothing is known but about how long it is.
    pub(crate) fn nothing(body: usize, why: impl Into<Option<String>>) -> Self {
        Self {
            tokens: Vec::new(),
            count: guess(body),
            from: From::Nobody,
            why: why.into(),
        }
    }
}

fn guess(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// Tokenizers and templates, by model.
#[derive(Debug)]
pub(crate) struct Prompters {
    place: Option<Place>,
    loaded: Mutex<Loaded>,
}

/// By model and engine; `None` where there is no tokenizer.
type Loaded = HashMap<(String, Engine), Option<Arc<Prompter>>>;

#[derive(Debug)]
enum Place {
    /// One folder for all models.
    One(PathBuf),
    /// A folder with one for each.
    Each(PathBuf),
}

/// Why the tokenizers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// What was named is no folder.
    #[error("{0} (`serve.tokenizer`) is no folder")]
    NoFolder(PathBuf),
    /// It cannot be read.
    #[error("the tokenizer cannot be used (`serve.tokenizer`): {0}")]
    Load(#[from] LoadError),
}

impl Prompters {
    /// Looks at the folder. One for all models is read at once, so that what is wrong with it is said at the start.
    pub(crate) fn new(folder: Option<&Path>) -> Result<Self, TokenizerError> {
        let place = match folder {
            None => None,
            Some(folder) if !folder.is_dir() => return Err(TokenizerError::NoFolder(folder.to_owned())),
            Some(folder) if folder.join("tokenizer.json").is_file() => Some(Place::One(folder.to_owned())),
            Some(folder) => Some(Place::Each(folder.to_owned())),
        };
        let prompters = Self {
            place,
            loaded: Mutex::default(),
        };
        if let Some(Place::One(folder)) = &prompters.place {
            let loaded = Some(Arc::new(load(folder, Engine::Vllm)?));
            let mut all = prompters.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert((String::new(), Engine::Vllm), loaded);
        }
        Ok(prompters)
    }

    /// That of a model. Read when it is first asked for, which takes a moment.
    pub(crate) fn of(&self, model: &str, engine: Engine) -> Option<Arc<Prompter>> {
        let folder = match self.place.as_ref()? {
            Place::One(folder) => folder.clone(),
            Place::Each(folder) => {
                let name = model.replace('/', "--");
                // A name from the network is no path.
                if name.starts_with('.') || name.contains(['/', '\\', '\0']) {
                    return None;
                }
                folder.join(name)
            }
        };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match self.place.as_ref()? {
            Place::One(_) => (String::new(), engine),
            Place::Each(_) => (model.to_owned(), engine),
        };
        if let Some(prompter) = loaded.get(&key) {
            return prompter.clone();
        }
        let prompter = match load(&folder, engine) {
            Ok(prompter) => Some(Arc::new(prompter)),
            Err(error) => {
                tracing::warn!(model, %error, "has no tokenizer here: workers are asked instead");
                None
            }
        };
        loaded.insert(key, prompter.clone());
        prompter
    }
}

fn load(folder: &Path, engine: Engine) -> Result<Prompter, LoadError> {
    let seconds = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    let dialect = match engine {
        Engine::Sglang => Dialect::Sglang,
        _ => Dialect::Vllm,
    };
    Prompter::load(folder, PromptOptions::new(dialect, Clock::new(seconds)))
}

/// Token ids that the request has itself, if it has.
pub(crate) fn given(ask: &Ask, body: &[u8]) -> Option<Known> {
    let tokens = match ask.prompt {
        Prompt::Tokens(span) => json::ids(span.of(body))?,
        Prompt::TokenLists { span, .. } => json::ids(json::items(span.of(body))?.next()?)?,
        _ => return None,
    };
    let mut known = Known::told(tokens);
    if let Prompt::TokenLists { span, count } = ask.prompt
        && count > 1
    {
        known.count = known.count.max(guess(span.end - span.start));
        known.why = Some(format!("there are {count} prompts: the first decides"));
    }
    Some(known)
}

/// Tokens from a local tokenizer. Takes a while for long bodies.
pub(crate) fn local(prompter: &Prompter, endpoint: Endpoint, body: &Bytes) -> Known {
    let parsed: Value = match serde_json::from_slice(body) {
        Ok(parsed) => parsed,
        Err(error) => return Known::nothing(body.len(), Some(format!("the body cannot be read: {error}"))),
    };
    let made = match endpoint {
        Endpoint::ChatCompletions => prompter.chat(&parsed),
        Endpoint::Completions => prompter.completion(&parsed).and_then(|prompts| {
            let count = prompts.len();
            let mut prompts = prompts.into_iter();
            prompts
                .next()
                .filter(|_| count > 0)
                .ok_or(PromptError::NotMirrored("an empty list of prompts"))
        }),
        Endpoint::Messages => prompter.messages(&parsed),
        Endpoint::Responses => prompter.responses(&parsed),
        _ => Err(PromptError::NotMirrored("this endpoint")),
    };
    match made {
        Err(error) => Known::nothing(body.len(), Some(error.to_string())),
        Ok(prompt) => {
            let mut known = Known::all(prompt.tokens, From::Tokenizer);
            if let Some(cut) = prompt.cut {
                known.count = known.count.max(guess(body.len().min(LONG)));
                known.why = Some(format!(
                    "from {} in message {} on, tokens are not known",
                    media(cut.media),
                    cut.message
                ));
            }
            known
        }
    }
}

const fn media(media: Media) -> &'static str {
    match media {
        Media::Image => "an image",
        Media::Audio => "a sound",
        Media::Video => "a video",
        Media::Embedding => "an embedding",
    }
}

/// What a worker is asked to tokenize, if it can be asked for that.
pub(crate) fn question(ask: &Ask, body: &[u8], model: &str) -> Option<Bytes> {
    /// What of a chat changes its tokens.
    const CHAT: [&str; 8] = [
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "chat_template",
        "chat_template_kwargs",
        "mm_processor_kwargs",
    ];
    const TEXT: [&str; 2] = ["prompt", "add_special_tokens"];
    let fields: &[&str] = match (ask.endpoint, ask.prompt) {
        (Endpoint::ChatCompletions, Prompt::Messages(_)) => &CHAT,
        (Endpoint::Completions, Prompt::Text(_)) => &TEXT,
        _ => return None,
    };
    let mut question = format!("{{\"model\":{}", json::quoted(model)).into_bytes();
    for name in fields {
        if let Some(span) = ask.fields.get(body, name) {
            question.extend_from_slice(format!(",\"{name}\":").as_bytes());
            question.extend_from_slice(span.of(body));
        }
    }
    question.push(b'}');
    Some(question.into())
}

/// What a worker answered.
pub(crate) fn answered(body: &[u8]) -> Option<Known> {
    json::entry(body, "tokens").and_then(json::ids).map(from_worker)
}

/// Tokens that a worker told.
pub(crate) fn from_worker(tokens: Vec<u32>) -> Known {
    Known::all(tokens, From::Worker)
}
