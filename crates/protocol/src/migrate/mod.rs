//! Can an answer that broke off be continued elsewhere, and how?
//!
//! Another worker is asked to go on from what the client has seen, and its stream is made the continuation of the first: same id,
//! no second beginning, tokens counted together. Three ways, the first that can be gone is taken:
//!
//! 1. *Again*: the client has seen no text yet. The same request once more.
//! 2. *Tokens*: the ids of prompt and answer are known, because they were asked for ([`crate::edit::Wanted`]). They become the prompt
//!    of a completion. This continues exactly what was computed, chats included: a chat goes on as a completion, which the seam
//!    puts back into a chat's words.
//! 3. *Text*: what was said is put behind the prompt's text, or behind the messages as one to be continued
//!    (`continue_final_message`). The worker makes tokens of it anew, which may be others than those that were generated.
//!
//! **Invariant:** what the client sees is what it has seen, and then what the second worker says after that: nothing is repeated, and
//! nothing is left out.
//!
//! **Invariant:** what cannot be continued faithfully is refused with a reason ([`WhyNot`]), before or in the middle.
//!
//! The steps for whoever relays a stream: keep a [`SoFar`], tell it what is heard of every event ([`crate::heard::Ear`] with
//! [`crate::heard::Attention::Words`]) before it is edited; when the worker dies, [`SoFar::resume`]; send [`Resumed::sent`] elsewhere,
//! listen with a new ear for [`Resumed::ask`]'s endpoint and a new splitter, and pass each event through the new editor and then the
//! seam. The same [`SoFar`] hears the new stream, and can be resumed again.
//!
//! Equality with an undisturbed run is claimed for greedy decoding only. It does not know of pinned workers, limits or budgets:
//! those are for whoever asks.

mod body;
mod seam;
mod so_far;
mod stops;

use bytes::Bytes;
use thiserror::Error;

use crate::ask::{Ask, Delivery, Feature, Prompt};
use crate::edit::{Editor, Wanted};
use crate::endpoint::Endpoint;

pub use seam::Seam;
pub use so_far::SoFar;

/// Why an answer cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WhyNot {
    /// The endpoint has no such thing.
    #[error("answers of this endpoint cannot be continued")]
    Endpoint,
    /// The answer is not streamed: nothing was seen of it, and it can be asked for again.
    #[error("the answer is not a stream")]
    NotStreamed,
    /// More than one answer, or more than one prompt.
    #[error("there are several answers")]
    SeveralAnswers,
    /// The prompt has a form that cannot be continued.
    #[error("the prompt cannot be continued")]
    Prompt,
    /// A feature whose state would be lost.
    #[error("the request uses {}", .0.name())]
    Feature(Feature),
    /// The answer reasons, and reasoning cannot be handed over.
    #[error("the answer has reasoning")]
    Reasoning,
    /// The answer calls a tool.
    #[error("the answer calls a tool")]
    Tool,
    /// It is longer than we keep.
    #[error("the answer so far is longer than what is kept of it")]
    TooLong,
    /// It had ended.
    #[error("the answer had ended")]
    Ended,
    /// Text is kept back for texts that end the answer, and the prompt is given as tokens: what was kept back is not known.
    #[error("what the engine kept back for stop texts is not known")]
    KeptBack,
    /// The second worker says something else than the first one said.
    #[error("the other worker gave another answer")]
    Diverged,
}

impl WhyNot {
    /// A word for it, of a closed list: for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::NotStreamed => "not_streamed",
            Self::SeveralAnswers => "several_answers",
            Self::Prompt => "prompt",
            Self::Feature(feature) => feature.name(),
            Self::Reasoning => "open_reasoning",
            Self::Tool => "tool",
            Self::TooLong => "too_long",
            Self::Ended => "ended",
            Self::KeptBack => "kept_back",
            Self::Diverged => "diverged",
        }
    }
}

/// Features whose state would be lost with the worker.
const BLOCKING: [Feature; 21] = [
    Feature::Tools,
    Feature::Images,
    Feature::Audio,
    Feature::Video,
    Feature::Files,
    Feature::Logprobs,
    Feature::PromptLogprobs,
    Feature::Grammar,
    Feature::Penalties,
    Feature::Reasoning,
    Feature::Echo,
    Feature::Suffix,
    Feature::BeamSearch,
    Feature::PreviousResponse,
    Feature::Background,
    Feature::KvTransfer,
    Feature::TruncatePrompt,
    Feature::PromptEmbeds,
    Feature::TokenIds,
    Feature::Extension,
    Feature::Store,
];

/// Whether answers to a request can be continued elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Continuation;

impl Continuation {
    /// Whether an answer to this can be continued, as far as the request tells.
    pub fn possible(ask: &Ask) -> Result<(), WhyNot> {
        if !matches!(ask.endpoint, Endpoint::ChatCompletions | Endpoint::Completions) {
            return Err(WhyNot::Endpoint);
        }
        if ask.delivery != Delivery::Streamed {
            return Err(WhyNot::NotStreamed);
        }
        if ask.best_of > 1 {
            return Err(WhyNot::SeveralAnswers);
        }
        match (ask.endpoint, ask.prompt) {
            (Endpoint::ChatCompletions, Prompt::Messages(_))
            | (Endpoint::Completions, Prompt::Text(_) | Prompt::Tokens(_)) => {}
            (Endpoint::Completions, Prompt::Texts { .. } | Prompt::TokenLists { .. }) => {
                return Err(WhyNot::SeveralAnswers);
            }
            _ => return Err(WhyNot::Prompt),
        }
        match ask.features.first_of(&BLOCKING) {
            Some(feature) => Err(WhyNot::Feature(feature)),
            None => Ok(()),
        }
    }
}

/// What is known of where the answer goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// What is to be learnt there beyond what the client asked for.
    pub wanted: Wanted,
    /// The name of the model there, where it is another one.
    pub model: Option<String>,
    /// Tokens that prompt and answer may have together there. Without it, a chat without a limit of its own goes on by its text.
    pub context: Option<u32>,
    /// Tokens of the prompt that the client sent, where they were counted: for the usage of an answer that ends across the seam.
    pub prompt: Option<u64>,
}

/// A request that continues an answer.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// What is asked now, for whoever decides where. Its endpoint is not always that of the first request.
    pub ask: Ask,
    /// The body that it was read from.
    pub body: Bytes,
    /// The body to send to the endpoint's path.
    pub sent: Bytes,
    /// What takes out of the new stream what was added. It comes before the seam.
    pub editor: Editor,
    /// What makes the new stream the continuation of the first.
    pub seam: Seam,
    /// How it goes on.
    pub way: Way,
}

/// How an answer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the beginning: the client has seen nothing.
    Again,
    /// From the ids of all tokens.
    Tokens,
    /// From the text.
    Text,
}

impl Way {
    /// A word for it, of a closed list: for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Again => "again",
            Self::Tokens => "tokens",
            Self::Text => "text",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Limits;

    #[test]
    fn what_can_be_continued_is_told_by_the_request() {
        let chat = Endpoint::ChatCompletions;
        let completions = Endpoint::Completions;
        for (endpoint, fields, reason) in [
            (chat, r#""messages":[{"role":"user","content":"a"}]"#, None),
            (
                chat,
                r#""messages":[],"temperature":0,"seed":1,"stop":"x","ignore_eos":true,"logit_bias":{"5":1}"#,
                None,
            ),
            (completions, r#""prompt":"a","min_tokens":3"#, None),
            (completions, r#""prompt":[1,2]"#, None),
            (completions, r#""prompt":["a"]"#, Some("several_answers")),
            (completions, r#""prompt":"a","n":2"#, Some("several_answers")),
            (completions, r#""prompt":"a","best_of":2"#, Some("several_answers")),
            (completions, r#""prompt":"a","echo":true"#, Some("echo")),
            (completions, r#""prompt":"a","logprobs":1"#, Some("logprobs")),
            (
                completions,
                r#""prompt":"a","return_token_ids":true"#,
                Some("token_ids"),
            ),
            (chat, r#""messages":[],"tools":[{}]"#, Some("tools")),
            (
                chat,
                r#""messages":[],"response_format":{"type":"json_object"}"#,
                Some("grammar"),
            ),
            (chat, r#""messages":[],"presence_penalty":1"#, Some("penalties")),
            (chat, r#""messages":[],"reasoning_effort":"high""#, Some("reasoning")),
            (
                chat,
                r#""messages":[{"content":[{"type":"image_url"}]}]"#,
                Some("images"),
            ),
            (chat, r#""prompt":"a""#, Some("prompt")),
            (Endpoint::Messages, r#""messages":[]"#, Some("endpoint")),
            (Endpoint::Responses, r#""input":"a""#, Some("endpoint")),
        ] {
            let body = format!("{{\"stream\":true,{fields}}}");
            let ask = Ask::read(endpoint, body.as_bytes(), Limits::default()).unwrap();
            assert_eq!(Continuation::possible(&ask).err().map(WhyNot::name), reason, "{fields}");
        }
        let whole = Ask::read(chat, br#"{"messages":[]}"#, Limits::default()).unwrap();
        assert_eq!(Continuation::possible(&whole), Err(WhyNot::NotStreamed));
    }
}
