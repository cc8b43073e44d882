//! What does an event or a whole answer say?
use crate::endpoint::Endpoint;
use crate::sse::Event;

/// How much is listened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Whether there is content, how it ended, usage, errors.
    Facts,
    /// Also every word and token: what a migration needs.
    Words,
}

/// Tokens as the engine counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, cached ones included.
    pub prompt: u64,
    /// Of the answer.
    pub completion: u64,
    /// Of the prompt, from the cache. `None` where the engine does not tell.
    pub cached: Option<u64>,
    /// Of the answer, for reasoning.
    pub reasoning: Option<u64>,
}

/// What an event said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// It brings a part of the answer: text, reasoning, tool arguments.
    pub content: bool,
    /// It brings reasoning.
    pub reasoning: bool,
    /// It brings a call of a tool.
    pub tool: bool,
    /// It is the end of the stream (`[DONE]`, `message_stop`, `response.completed`...).
    pub done: bool,
    /// Why the answer ended.
    pub finish: Option<String>,
    /// What was used.
    pub usage: Option<Usage>,
    /// An error instead of an answer.
    pub error: Option<EngineError>,
    /// Every word. Only with [`Attention::Words`].
    pub words: Option<Box<Words>>,
}

/// What is said, word by word.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The answer's id.
    pub id: Option<String>,
    /// When it was made.
    pub created: Option<u64>,
    /// The model as the engine names it.
    pub model: Option<String>,
    /// The new text.
    pub text: String,
    /// The new tokens, where they are told.
    pub tokens: Option<Vec<u32>>,
    /// The tokens of the prompt, where they are told.
    pub prompt_tokens: Option<Vec<u32>>,
    /// The role, where it is told.
    pub role: Option<String>,
}

/// An error that an engine tells in a body or in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineError {
    /// Its words.
    pub message: String,
    /// Its type.
    pub kind: Option<String>,
    /// Its code, where it is a number: a status.
    pub code: Option<u16>,
}

/// Listens to the answer to one request.
#[derive(Clone, Debug)]
pub struct Ear {
    endpoint: Endpoint,
    attention: Attention,
    /// Events that brought content.
    chunks: u64,
}

impl Ear {
    /// Listens to an answer of this endpoint.
    pub fn new(endpoint: Endpoint, attention: Attention) -> Self {
        Self {
            endpoint,
            attention,
            chunks: 0,
        }
    }
    /// What an event says.
    pub fn event(&mut self, _event: &Event) -> Heard {
        let _ = (self.endpoint, self.attention);
        Heard::default()
    }
    /// What an answer in one piece says.
    pub fn whole(&mut self, _body: &[u8]) -> Heard {
        Heard::default()
    }
    /// Events that brought content so far: about as many as tokens.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }
}
