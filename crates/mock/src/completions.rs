//! How are completions and chats answered, at once and in pieces?

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use homing_config::MockDialect;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{Ask, Extras, Prompts, Wishes, logprobs, messages, parse};
use crate::problem::{Problem, json_answer};
use crate::speech::Speech;
use crate::tokenizer::ChatEnd;
use crate::tools;
use crate::wire::{or_default, or_yes, yes};
use crate::wording::{Head, Manner};

/// The length of completions that do not say theirs.
const DEFAULT_LENGTH: u32 = 16;

#[derive(Deserialize)]
struct CompletionBody {
    prompt: Option<Prompts>,
    logprobs: Option<i64>,
    #[serde(flatten)]
    wishes: Wishes,
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Value,
    tools: Option<Value>,
    tool_choice: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    logprobs: bool,
    top_logprobs: Option<i64>,
    #[serde(flatten)]
    tail: Tail,
    #[serde(flatten)]
    wishes: Wishes,
}

/// What a chat is to end with.
#[derive(Deserialize)]
pub(crate) struct Tail {
    #[serde(default = "yes", deserialize_with = "or_yes")]
    add_generation_prompt: bool,
    #[serde(default, deserialize_with = "or_default")]
    continue_final_message: bool,
}

/// `/v1/completions`.
pub(crate) async fn completion(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: CompletionBody = parse(body)?;
    let given = body.prompt.filter(|prompt| !prompt.is_empty_text());
    let given = given.ok_or_else(|| Problem::of("prompt", "A prompt must be provided and not be empty."))?;
    let prompts = given.tokens(&app.settings.codec)?;
    let extras = Extras {
        default_length: Some(DEFAULT_LENGTH),
        rank: envelope.rank,
        logprobs: logprobs(body.logprobs)?,
        call: None,
    };
    let ask = body.wishes.ask(app, prompts, extras)?;
    respond(app, ask, Head::new(app, Manner::Completion, "cmpl", &envelope)).await
}

/// `/v1/chat/completions`.
pub(crate) async fn chat(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: ChatBody = parse(body)?;
    let call = tools::forced(body.tools.as_ref(), body.tool_choice.as_ref())?;
    if app.dialect() == MockDialect::Sglang && body.wishes.stream && body.wishes.return_token_ids {
        return Err(Problem::bad("return_token_ids is not supported in streams of chats"));
    }
    let all = messages(&body.messages)?;
    let end = body.tail.end(app, all)?;
    // Without a beginning of its own, the answer is of whom the last message is.
    let role = all.last().filter(|_| end != ChatEnd::Answer);
    let role = role
        .and_then(|last| last["role"].as_str())
        .unwrap_or("assistant")
        .to_owned();
    let prompt = app.settings.codec.chat(all, body.tools.as_ref(), end)?;
    let top = body.logprobs.then(|| body.top_logprobs.unwrap_or(0));
    let extras = Extras {
        default_length: None,
        rank: envelope.rank,
        logprobs: logprobs(top)?,
        call,
    };
    let ask = body.wishes.ask(app, vec![prompt], extras)?;
    let mut head = Head::new(app, Manner::Chat, "chatcmpl", &envelope);
    head.role = role;
    respond(app, ask, head).await
}

impl Tail {
    /// How these messages end when they are put together.
    pub(crate) fn end(&self, app: &App, messages: &[Value]) -> Result<ChatEnd, Problem> {
        // SGLang begins an answer anyway, and puts the text of the message behind its beginning.
        let vllm = app.dialect() == MockDialect::Vllm;
        match (self.add_generation_prompt, self.continue_final_message) {
            (true, false) => Ok(ChatEnd::Answer),
            (false, false) => Ok(ChatEnd::Message),
            (true, true) if vllm => Err(Problem::bad(
                "`continue_final_message` and `add_generation_prompt` cannot be set both.",
            )),
            (_, true) if messages.last().is_none_or(|last| last["content"].is_null()) => {
                Err(Problem::bad("the final message has no content to continue"))
            }
            (_, true) => Ok(ChatEnd::Open),
        }
    }
}

async fn respond(app: &Arc<App>, ask: Ask, head: Head) -> Result<Response, Problem> {
    let mut speech = Speech::begin(app, ask).await?;
    if speech.ask.stream {
        return Ok(stream(speech, head));
    }
    speech.whole().await?;
    Ok(json_answer(StatusCode::OK, &head.whole(&speech)))
}

/// The end of a stream that does not end well. What was said before is on its way by then: an error overtakes what was only
/// handed to the server and not yet written.
pub(crate) async fn broken() -> std::io::Error {
    tokio::task::yield_now().await;
    std::io::Error::other("the engine is gone")
}

/// A line of a stream.
pub(crate) fn event(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// An answer in pieces, as events that a browser could read.
pub(crate) fn events(
    pieces: impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, Body::from_stream(pieces)).into_response()
}

/// A stream that is under way.
struct Streaming {
    speech: Speech,
    head: Head,
    waiting: VecDeque<Bytes>,
    /// Which answers have begun.
    begun: Vec<bool>,
    over: bool,
}

fn stream(speech: Speech, head: Head) -> Response {
    // In a chat the role comes first, before anything is computed.
    let roles = match head.manner {
        Manner::Completion => 0,
        Manner::Chat => speech.speakers.len(),
    };
    let waiting = (0..roles).map(|part| event(&head.role(&speech, part))).collect();
    let begun = vec![false; speech.speakers.len()];
    let streaming = Streaming {
        speech,
        head,
        waiting,
        begun,
        over: false,
    };
    events(futures_util::stream::unfold(streaming, |mut streaming| async move {
        let piece = streaming.next().await?;
        Some((piece, streaming))
    }))
}

impl Streaming {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if let Some(piece) = self.waiting.pop_front() {
            return Some(Ok(piece));
        }
        if self.over {
            return None;
        }
        match self.speech.next().await {
            // vLLM says in the stream why it fails.
            Err(Problem::Handover(message)) => {
                self.over = true;
                let error =
                    json!({"error": {"message": message, "type": "InternalServerError", "param": null, "code": 500}});
                self.waiting.push_back(event(&error));
                self.waiting.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            }
            Err(_) => {
                self.over = true;
                return Some(Err(broken().await));
            }
            Ok(Some((part, delta))) => {
                let first = !std::mem::replace(&mut self.begun[part], true);
                let pieces = self.head.said(&self.speech, part, &delta, first);
                self.waiting.extend(pieces.iter().map(event));
            }
            Ok(None) => {
                self.over = true;
                if self.speech.ask.usage {
                    self.waiting.push_back(event(&self.head.used(&self.speech)));
                }
                self.waiting.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            }
        }
        self.waiting.pop_front().map(Ok)
    }
}
