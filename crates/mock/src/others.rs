//! How are the less common questions answered? Embeddings, responses and messages.
//!
//! Responses and messages are chats in other words. Of their streams, the events that carry text and usage are there.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use homing_domain::{Digest, Tokens};
use homing_engine::{Placement, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{MOST_PARTS, Prompts, Wishes, messages as checked, parse};
use crate::completions::{Speech, broken, events};
use crate::core::News;
use crate::problem::{Problem, json_answer};
use crate::tokenizer;

/// Numbers of an embedding.
const DIMENSIONS: u64 = 64;

#[derive(Deserialize)]
struct EmbeddingBody {
    model: Option<String>,
    input: Prompts,
    encoding_format: Option<String>,
}

/// `/v1/embeddings`: prompts are computed, nothing is generated; the numbers depend on the tokens only.
pub(crate) async fn embeddings(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: EmbeddingBody = parse(body)?;
    let prompts = body.input.tokens()?;
    if prompts.len() > MOST_PARTS {
        return Err(Problem::bad(format!(
            "a request may have {MOST_PARTS} inputs and no more"
        )));
    }
    let adapter = app.adapter(body.model.as_deref())?;
    let request = |prompt: &Vec<u32>| Request {
        adapter: adapter.clone(),
        max_tokens: Tokens(0),
        placement: envelope.rank.map_or(Placement::Any, Placement::On),
        ..Request::plain(0, prompt.as_slice(), 0)
    };
    let mut answer = app.core.submit(prompts.iter().map(request).collect())?;
    let mut missing = prompts.len();
    while missing > 0 {
        match answer.next().await.ok_or(Problem::Cut)?.news {
            News::Computed => missing -= 1,
            News::Lost => return Err(Problem::Cut),
            News::Admitted { .. } | News::Token(..) => {}
        }
    }
    let base64 = body.encoding_format.as_deref() == Some("base64");
    let data: Vec<Value> = prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| {
            let numbers = embedding(prompt);
            let embedding = if base64 {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                json!(in_base64(&bytes))
            } else {
                json!(numbers)
            };
            json!({"index": index, "object": "embedding", "embedding": embedding})
        })
        .collect();
    let tokens: usize = prompts.iter().map(Vec::len).sum();
    let answer = json!({
        "id": format!("embd-{}", envelope.id),
        "object": "list",
        "created": crate::core::unix_seconds() as u64,
        "model": body.model.unwrap_or_else(|| app.settings.model.to_string()),
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null},
    });
    Ok(json_answer(StatusCode::OK, &answer))
}

fn embedding(prompt: &[u32]) -> Vec<f32> {
    let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
    let digest = Digest::of(&bytes).0;
    let number = |place: u64| {
        let mixed = (digest ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 40) as f32 / (1_u32 << 23) as f32) - 1.0
    };
    let numbers: Vec<f32> = (0..DIMENSIONS).map(number).collect();
    let length = numbers
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt()
        .max(f32::MIN_POSITIVE);
    numbers.iter().map(|number| number / length).collect()
}

fn in_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= three.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[derive(Deserialize)]
struct ResponsesBody {
    input: Value,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    tools: Option<Value>,
    #[serde(flatten)]
    wishes: Wishes,
}

/// `/v1/responses`.
pub(crate) async fn responses(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: ResponsesBody = parse(body)?;
    let input = match body.input {
        Value::String(text) => json!([{"role": "user", "content": text}]),
        input => input,
    };
    let mut all: Vec<Value> = body
        .instructions
        .iter()
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    all.extend(checked(&input)?.iter().cloned());
    let wishes = Wishes {
        max_completion_tokens: body.max_output_tokens,
        ..body.wishes
    };
    let prompt = tokenizer::chat(&all, body.tools.as_ref(), true);
    let ask = wishes.ask(app, vec![prompt], None, envelope.rank)?;
    let id = format!("resp_{}", envelope.id);
    tell(
        app,
        ask,
        Told::Responses {
            id,
            created: crate::core::unix_seconds() as u64,
        },
    )
    .await
}

#[derive(Deserialize)]
struct MessagesBody {
    messages: Value,
    system: Option<Value>,
    tools: Option<Value>,
    stop_sequences: Option<Vec<String>>,
    #[serde(flatten)]
    wishes: Wishes,
}

/// `/v1/messages`.
pub(crate) async fn messages(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: MessagesBody = parse(body)?;
    let mut all: Vec<Value> = body
        .system
        .iter()
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    all.extend(checked(&body.messages)?.iter().cloned());
    let wishes = Wishes {
        stop: body.stop_sequences.map(crate::ask::OneOrMany::Many),
        ..body.wishes
    };
    let prompt = tokenizer::chat(&all, body.tools.as_ref(), true);
    let ask = wishes.ask(app, vec![prompt], None, envelope.rank)?;
    tell(
        app,
        ask,
        Told::Messages {
            id: format!("msg_{}", envelope.id),
        },
    )
    .await
}

/// Whose words an answer is put in.
enum Told {
    Responses { id: String, created: u64 },
    Messages { id: String },
}

async fn tell(app: &Arc<App>, ask: crate::ask::Ask, told: Told) -> Result<Response, Problem> {
    let mut speech = Speech::begin(app, ask)?;
    if !speech.ask.stream {
        speech.whole().await?;
        return Ok(json_answer(StatusCode::OK, &told.whole(&speech)));
    }
    let begin = told.begin(&speech);
    let state = (speech, told, Stage::Begin(begin));
    Ok(events(futures_util::stream::unfold(
        state,
        |(mut speech, told, stage)| async move {
            let (piece, next) = match stage {
                Stage::Over => return None,
                Stage::Begin(begin) => (Ok(begin), Stage::Speaking),
                Stage::Speaking => match speech.next().await {
                    Err(_) => (Err(broken().await), Stage::Over),
                    Ok(Some((_, delta))) => (Ok(told.delta(&delta.text)), Stage::Speaking),
                    Ok(None) => (Ok(told.end(&speech)), Stage::Over),
                },
            };
            Some((piece, (speech, told, next)))
        },
    )))
}

enum Stage {
    Begin(Bytes),
    Speaking,
    Over,
}

impl Told {
    fn whole(&self, speech: &Speech) -> Value {
        let speaker = &speech.speakers[0];
        let (text, model) = (&speaker.text, &speech.ask.model);
        let full = speaker.end.as_ref().is_some_and(|end| end.reason == "length");
        match self {
            Self::Responses { id, created } => {
                let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": null}]);
                let message = json!({
                    "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": "completed",
                    "content": content,
                });
                json!({
                    "id": id, "object": "response", "created_at": created, "model": model,
                    "status": if full { "incomplete" } else { "completed" },
                    "incomplete_details": full.then(|| json!({"reason": "max_output_tokens"})),
                    "output": [message], "error": null, "instructions": null, "metadata": null,
                    "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0,
                    "usage": {
                        "input_tokens": speech.prompt_tokens(),
                        "input_tokens_details": {"cached_tokens": speech.cached()},
                        "output_tokens": speech.generated(),
                        "output_tokens_details": {"reasoning_tokens": 0},
                        "total_tokens": speech.prompt_tokens() + speech.generated(),
                    },
                })
            }
            Self::Messages { id } => json!({
                "id": id, "type": "message", "role": "assistant", "model": model,
                "content": [{"type": "text", "text": text}],
                "stop_reason": stop_reason(speech),
                "stop_sequence": speaker.end.as_ref().map(|end| end.by.clone()),
                "usage": messages_usage(speech),
            }),
        }
    }

    fn begin(&self, speech: &Speech) -> Bytes {
        match self {
            Self::Responses { id, .. } => {
                let response = json!({"id": id, "object": "response", "status": "in_progress", "output": []});
                named(
                    "response.created",
                    &json!({"type": "response.created", "response": response}),
                )
            }
            Self::Messages { id } => {
                let message = json!({
                    "id": id, "type": "message", "role": "assistant", "model": speech.ask.model, "content": [],
                    "stop_reason": null, "stop_sequence": null, "usage": messages_usage(speech),
                });
                let start = named("message_start", &json!({"type": "message_start", "message": message}));
                let block = json!({
                    "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
                });
                joined(&[start, named("content_block_start", &block)])
            }
        }
    }

    fn delta(&self, text: &str) -> Bytes {
        match self {
            Self::Responses { id, .. } => named(
                "response.output_text.delta",
                &json!({
                    "type": "response.output_text.delta", "item_id": format!("msg_{id}"), "output_index": 0,
                    "content_index": 0, "delta": text, "logprobs": [],
                }),
            ),
            Self::Messages { .. } => named(
                "content_block_delta",
                &json!({
                    "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
                }),
            ),
        }
    }

    fn end(&self, speech: &Speech) -> Bytes {
        match self {
            Self::Responses { .. } => {
                let completed = json!({"type": "response.completed", "response": self.whole(speech)});
                named("response.completed", &completed)
            }
            Self::Messages { .. } => {
                let delta = json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": stop_reason(speech), "stop_sequence": null},
                    "usage": messages_usage(speech),
                });
                joined(&[
                    named("content_block_stop", &json!({"type": "content_block_stop", "index": 0})),
                    named("message_delta", &delta),
                    named("message_stop", &json!({"type": "message_stop"})),
                ])
            }
        }
    }
}

fn stop_reason(speech: &Speech) -> Option<&'static str> {
    let end = speech.speakers[0].end.as_ref()?;
    Some(match end.reason {
        "length" => "max_tokens",
        _ if end.by.is_string() => "stop_sequence",
        _ => "end_turn",
    })
}

fn messages_usage(speech: &Speech) -> Value {
    let cached = speech.cached() as usize;
    json!({
        "input_tokens": speech.prompt_tokens() - cached,
        "output_tokens": speech.generated(),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    })
}

fn named(name: &str, value: &Value) -> Bytes {
    format!("event: {name}\ndata: {value}\n\n").into()
}

fn joined(pieces: &[Bytes]) -> Bytes {
    pieces.concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(in_base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn embeddings_have_length_one_and_differ() {
        let (one, other) = (embedding(&[1, 2]), embedding(&[1, 3]));
        let length: f32 = one.iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-4);
        assert_ne!(one, other);
    }
}
