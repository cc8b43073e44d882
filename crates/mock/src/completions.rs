//! How are completions and chats answered, at once and in pieces?

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{Ask, Prompts, Wishes, messages, parse};
use crate::core::{Answer, News};
use crate::problem::{Problem, json_answer};
use crate::speaker::{Delta, Speaker, Stops};
use crate::tokenizer;

/// The length of completions that do not say theirs.
const DEFAULT_LENGTH: u32 = 16;

#[derive(Deserialize)]
struct CompletionBody {
    prompt: Prompts,
    #[serde(flatten)]
    wishes: Wishes,
}

#[derive(Deserialize)]
struct ChatBody {
    #[serde(default)]
    messages: Value,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    add_generation_prompt: Option<bool>,
    #[serde(flatten)]
    wishes: Wishes,
}

/// What is asked, being answered.
pub(crate) struct Speech {
    pub(crate) ask: Ask,
    pub(crate) speakers: Vec<Speaker>,
    answer: Answer,
    /// Cut after so many tokens; 0: never.
    cut_after: u32,
    heard: u32,
}

/// Whose words an answer is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Completion,
    Chat,
}

/// What all pieces of an answer begin with.
struct Head {
    id: String,
    created: u64,
    manner: Manner,
}

/// `/v1/completions`.
pub(crate) async fn completion(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: CompletionBody = parse(body)?;
    let prompts = body.prompt.tokens()?;
    let ask = body.wishes.ask(app, prompts, Some(DEFAULT_LENGTH), envelope.rank)?;
    respond(app, ask, Head::new(Manner::Completion, "cmpl", &envelope)).await
}

/// `/v1/chat/completions`.
pub(crate) async fn chat(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: ChatBody = parse(body)?;
    let begin = body.add_generation_prompt.unwrap_or(true);
    let prompt = tokenizer::chat(messages(&body.messages)?, body.tools.as_ref(), begin);
    let ask = body.wishes.ask(app, vec![prompt], None, envelope.rank)?;
    respond(app, ask, Head::new(Manner::Chat, "chatcmpl", &envelope)).await
}

async fn respond(app: &Arc<App>, ask: Ask, head: Head) -> Result<Response, Problem> {
    let mut speech = Speech::begin(app, ask)?;
    if speech.ask.stream {
        return Ok(stream(speech, head));
    }
    speech.whole().await?;
    Ok(json_answer(StatusCode::OK, &head.whole(&speech)))
}

impl Speech {
    /// Puts the requests in.
    pub(crate) fn begin(app: &Arc<App>, mut ask: Ask) -> Result<Self, Problem> {
        let requests = std::mem::take(&mut ask.requests);
        let speakers = vec![Speaker::default(); requests.len()];
        Ok(Self {
            answer: app.core.submit(requests)?,
            ask,
            speakers,
            cut_after: app.core.faults.now().cut_after,
            heard: 0,
        })
    }

    /// Waits until something new can be given out, and says of whom. `None`: everything was.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Delta)>, Problem> {
        loop {
            if self.speakers.iter().all(|speaker| speaker.end.is_some()) {
                return Ok(None);
            }
            // Nobody is left to speak, and not all have ended: the engine is gone.
            let heard = self.answer.next().await.ok_or(Problem::Cut)?;
            let part = heard.part as usize;
            let stops = Stops {
                texts: &self.ask.stops,
                keep: self.ask.keep_stop,
            };
            let Some(speaker) = self.speakers.get_mut(part).filter(|speaker| speaker.end.is_none()) else {
                continue;
            };
            match heard.news {
                News::Lost | News::Computed => return Err(Problem::Cut),
                News::Admitted { cached } => speaker.cached = cached,
                News::Token(token, finish) => {
                    self.heard += 1;
                    if self.cut_after > 0 && self.heard > self.cut_after {
                        return Err(Problem::Cut);
                    }
                    speaker.hear(token, finish, stops);
                    if speaker.end.is_some() {
                        self.answer.end(heard.part);
                    }
                    let delta = speaker.delta(stops);
                    if speaker.end.is_some() || !delta.text.is_empty() {
                        return Ok(Some((part, delta)));
                    }
                }
            }
        }
    }

    /// Waits until everything is said.
    pub(crate) async fn whole(&mut self) -> Result<(), Problem> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.ask.prompts.iter().map(Vec::len).sum()
    }

    pub(crate) fn generated(&self) -> usize {
        self.speakers.iter().map(|speaker| speaker.tokens.len()).sum()
    }

    pub(crate) fn cached(&self) -> u32 {
        // Of several answers to one prompt, the first counts: the others find what it left.
        self.speakers
            .iter()
            .step_by(self.ask.n)
            .map(|speaker| speaker.cached)
            .sum()
    }

    /// What was used so far.
    pub(crate) fn usage(&self) -> Value {
        let (prompt, generated) = (self.prompt_tokens(), self.generated());
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": self.cached()},
        })
    }

    fn prompt_of(&self, part: usize) -> &[u32] {
        self.ask.prompts.get(part / self.ask.n).map_or(&[], Vec::as_slice)
    }
}

impl Head {
    fn new(manner: Manner, prefix: &str, envelope: &Envelope) -> Self {
        Self {
            id: format!("{prefix}-{}", envelope.id),
            created: crate::core::unix_seconds() as u64,
            manner,
        }
    }

    fn whole(&self, speech: &Speech) -> Value {
        let choice = |(part, speaker): (usize, &Speaker)| {
            let end = speaker.end.as_ref();
            let prompt = speech.prompt_of(part);
            let mut choice = json!({
                "index": part,
                "logprobs": null,
                "finish_reason": end.map(|end| end.reason),
                "stop_reason": end.map(|end| end.by.clone()),
                "token_ids": speech.ask.ids.then_some(&speaker.tokens),
            });
            match self.manner {
                Manner::Completion => {
                    let before = if speech.ask.echo {
                        tokenizer::decode(prompt)
                    } else {
                        String::new()
                    };
                    choice["text"] = json!(before + &speaker.text);
                    choice["prompt_logprobs"] = Value::Null;
                    choice["prompt_token_ids"] = json!(speech.ask.ids.then_some(prompt));
                }
                Manner::Chat => {
                    choice["message"] = json!({
                        "role": "assistant", "content": speaker.text, "refusal": null, "annotations": null,
                        "audio": null, "function_call": null, "tool_calls": [], "reasoning": null,
                    });
                }
            }
            choice
        };
        let choices: Vec<Value> = speech.speakers.iter().enumerate().map(choice).collect();
        let mut answer = json!({
            "id": self.id,
            "object": match self.manner {
                Manner::Completion => "text_completion",
                Manner::Chat => "chat.completion",
            },
            "created": self.created,
            "model": speech.ask.model,
            "choices": choices,
            "service_tier": null,
            "system_fingerprint": null,
            "usage": speech.usage(),
            "kv_transfer_params": null,
        });
        if self.manner == Manner::Chat {
            answer["prompt_logprobs"] = Value::Null;
            answer["prompt_token_ids"] = json!(speech.ask.ids.then(|| speech.prompt_of(0)));
        }
        answer
    }

    /// A piece of a stream.
    fn piece(&self, speech: &Speech, choices: &Value, usage: Option<Value>) -> Bytes {
        let mut piece = json!({
            "id": self.id,
            "object": match self.manner {
                Manner::Completion => "text_completion",
                Manner::Chat => "chat.completion.chunk",
            },
            "created": self.created,
            "model": speech.ask.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            piece["usage"] = usage;
        } else if self.manner == Manner::Completion {
            piece["usage"] = Value::Null;
        }
        event(&piece)
    }

    fn said(&self, speech: &Speech, part: usize, delta: &Delta, first: bool) -> Bytes {
        let end = speech.speakers[part].end.as_ref();
        let mut choice = json!({
            "index": part,
            "logprobs": null,
            "finish_reason": end.map(|end| end.reason),
            "stop_reason": end.map(|end| end.by.clone()),
            "token_ids": speech.ask.ids.then_some(&delta.tokens),
        });
        match self.manner {
            Manner::Completion => {
                choice["text"] = json!(delta.text);
                choice["prompt_token_ids"] = json!((speech.ask.ids && first).then(|| speech.prompt_of(part)));
            }
            Manner::Chat => choice["delta"] = json!({"content": delta.text}),
        }
        let usage = speech.ask.usage_always.then(|| speech.usage());
        self.piece(speech, &json!([choice]), usage)
    }
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
    let mut waiting = VecDeque::new();
    if head.manner == Manner::Chat {
        // The role comes first, before anything is computed.
        for part in 0..speech.speakers.len() {
            let choice = json!({
                "index": part, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null,
            });
            let mut piece = json!({
                "id": head.id, "object": "chat.completion.chunk", "created": head.created,
                "model": speech.ask.model, "choices": [choice],
            });
            if speech.ask.ids {
                piece["prompt_token_ids"] = json!(speech.prompt_of(part));
            }
            waiting.push_back(event(&piece));
        }
    }
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
            Err(_) => {
                self.over = true;
                Some(Err(broken().await))
            }
            Ok(Some((part, delta))) => {
                let first = !std::mem::replace(&mut self.begun[part], true);
                Some(Ok(self.head.said(&self.speech, part, &delta, first)))
            }
            Ok(None) => {
                self.over = true;
                if self.speech.ask.usage {
                    let usage = Some(self.speech.usage());
                    self.waiting.push_back(self.head.piece(&self.speech, &json!([]), usage));
                }
                self.waiting.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
                self.waiting.pop_front().map(Ok)
            }
        }
    }
}
