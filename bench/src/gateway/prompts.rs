//! What is asked? Conversations that grow, as text that a real tokenizer takes apart or as token ids.
//!
//! Text is drawn sentence by sentence from this project's own pages, with words among it that no page has, so that it is like what
//! people write and no cache of words knows all of it.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use homing_tokenize::{Clock, Dialect, Marks, PromptOptions, Prompter};
use serde_json::{Value, json};

use super::Failure;
use crate::rng::Rng;

/// What clients call the model.
pub const MODEL: &str = "bench";
/// Every so many words one is made up.
const MADE_UP: usize = 12;
/// Token ids of prompts without text are below this.
const VOCABULARY: usize = 100_000;

const PAGES: [&str; 4] = [
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../../../docs/engines.md"),
    include_str!("../../../docs/policies.md"),
    include_str!("../../../docs/wire-formats.md"),
];

/// The tokens of all prompts, by number. Written before a prompt is sent, read by workers, which are told the number.
pub type Known = Arc<RwLock<Vec<Arc<[u32]>>>>;

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Job {
    /// Head and body.
    pub bytes: Arc<[u8]>,
}

/// Makes requests.
pub struct Prompts {
    speech: Option<Speech>,
    known: Known,
    rng: Rng,
}

struct Speech {
    prompter: Prompter,
    sentences: Vec<&'static str>,
    bytes_per_token: f64,
}

/// A conversation so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<Value>,
    ids: Vec<u32>,
}

impl Prompts {
    /// With a folder of a model: chats. Without: token ids.
    pub fn new(tokenizer: Option<&Path>, known: Known) -> Result<Self, Failure> {
        let speech = tokenizer.map(Speech::new).transpose()?;
        Ok(Self {
            speech,
            known,
            rng: Rng::new(7),
        })
    }

    /// Lets a conversation grow by about so many tokens, in messages of about so many.
    pub fn grow(&mut self, conversation: &mut Conversation, tokens: usize, message: usize) {
        let Some(speech) = &self.speech else {
            let ids = (0..tokens).map(|_| self.rng.below(VOCABULARY) as u32);
            conversation.ids.extend(ids);
            return;
        };
        // The last message is the user's, so as many come as end with one.
        let mut count = (tokens / message).max(1);
        if !conversation.messages.is_empty() && count % 2 == 1 {
            count += 1;
        }
        if conversation.messages.is_empty() && count % 2 == 1 {
            count += 1;
        }
        for _ in 0..count {
            let role = match conversation.messages.len() {
                0 => "system",
                place if place % 2 == 1 => "user",
                _ => "assistant",
            };
            let text = speech.text(&mut self.rng, tokens / count);
            conversation.messages.push(json!({"role": role, "content": text}));
        }
    }

    /// The request that asks what comes next, to be answered with so many pieces.
    pub fn job(&mut self, conversation: &Conversation, pieces: usize) -> Result<Job, Failure> {
        let mut known = self.known.write().map_err(|_| "a thread panicked")?;
        let number = known.len();
        let mut body = json!({"model": MODEL, "max_tokens": pieces, "temperature": 0, "stream": true, "bench": number});
        let (path, tokens) = match &self.speech {
            Some(speech) => {
                body["messages"] = Value::Array(conversation.messages.clone());
                ("/v1/chat/completions", speech.prompter.chat(&body)?.tokens)
            }
            None => {
                body["prompt"] = json!(conversation.ids);
                ("/v1/completions", conversation.ids.clone())
            }
        };
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\nauthorization: Bearer none\r\naccept: */*\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let job = Job {
            bytes: [head.as_bytes(), body.as_bytes()].concat().into(),
        };
        known.push(tokens.into());
        Ok(job)
    }
}

impl Speech {
    fn new(folder: &Path) -> Result<Self, Failure> {
        let seconds = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        let prompter = Prompter::load(folder, PromptOptions::new(Dialect::Vllm, Clock::new(seconds)))?;
        let sentences = PAGES.iter().flat_map(|page| page.split_inclusive(['.', '\n', ';']));
        let sentences = sentences.filter(|sentence| sentence.len() > 20).collect();
        let mut speech = Self {
            prompter,
            sentences,
            bytes_per_token: 4.0,
        };
        let sample = speech.text(&mut Rng::new(1), 8_000);
        let tokens = speech.prompter.text(&sample, Marks::None)?;
        speech.bytes_per_token = sample.len() as f64 / tokens.len() as f64;
        Ok(speech)
    }

    fn text(&self, rng: &mut Rng, tokens: usize) -> String {
        let bytes = (tokens as f64 * self.bytes_per_token) as usize;
        let mut text = String::with_capacity(bytes + 256);
        let mut words = 0;
        while text.len() < bytes {
            for word in self.sentences[rng.below(self.sentences.len())].split_inclusive(' ') {
                text.push_str(word);
                words += 1;
                if words % MADE_UP == 0 {
                    let letters = rng.between(3, 10);
                    text.extend((0..letters).map(|_| char::from(b'a' + rng.below(26) as u8)));
                    text.push(' ');
                }
            }
            text.push(' ');
        }
        text.truncate(text.floor_char_boundary(bytes));
        text
    }
}
