//! How is `/v1/responses` answered? A chat in other words, and a stream of numbered events.
//!
//! Responses are not kept: one cannot be asked for again, nor continued by its id.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{Extras, Wishes, messages, parse};
use crate::completions::{broken, events};
use crate::problem::{Problem, json_answer};
use crate::speech::Speech;
use crate::tokenizer::ChatEnd;

#[derive(Deserialize)]
struct Body {
    input: Value,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    tools: Option<Value>,
    metadata: Option<Value>,
    #[serde(flatten)]
    wishes: Wishes,
}

/// What all words of a response have in common.
struct Told {
    id: String,
    item: String,
    created: u64,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    metadata: Option<Value>,
    tools: Option<Value>,
    temperature: f64,
    top_p: f64,
}

/// `/v1/responses`.
pub(crate) async fn responses(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: Body = parse(body)?;
    let input = match body.input {
        Value::String(text) => json!([{"role": "user", "content": text}]),
        input => input,
    };
    let told = Told {
        id: format!("resp_{}", envelope.id),
        item: format!("msg_{}", envelope.id),
        created: crate::core::unix_seconds() as u64,
        instructions: body.instructions,
        max_output_tokens: body.max_output_tokens,
        metadata: body.metadata,
        tools: body.tools,
        temperature: body.wishes.temperature.unwrap_or(1.0),
        top_p: body.wishes.top_p.unwrap_or(1.0),
    };
    let mut all: Vec<Value> = told
        .instructions
        .iter()
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    all.extend(messages(&input)?.iter().cloned());
    let wishes = Wishes {
        max_completion_tokens: told.max_output_tokens,
        ..body.wishes
    };
    let prompt = app.settings.codec.chat(&all, told.tools.as_ref(), ChatEnd::Answer)?;
    let extras = Extras {
        rank: envelope.rank,
        ..Extras::default()
    };
    let mut speech = Speech::begin(app, wishes.ask(app, vec![prompt], extras)?).await?;
    if speech.ask.stream {
        return Ok(stream(speech, told));
    }
    speech.whole().await?;
    Ok(json_answer(StatusCode::OK, &told.whole(&speech)))
}

/// `/v1/responses/ID`, and what can be done to one: none is kept.
pub(crate) async fn kept(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    Problem::NoResponse(id).answer(app.dialect())
}

impl Told {
    /// The response as it is when it begins.
    fn begun(&self, model: &str) -> Value {
        let tools = self.tools.as_ref().filter(|tools| !tools.is_null());
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "model": model, "status": "in_progress",
            "incomplete_details": null, "output": [], "usage": null,
            "instructions": self.instructions, "metadata": self.metadata,
            "max_output_tokens": self.max_output_tokens, "temperature": self.temperature, "top_p": self.top_p,
            "tools": tools.unwrap_or(&json!([])), "tool_choice": if tools.is_some() { "auto" } else { "none" },
            "parallel_tool_calls": true, "background": false, "max_tool_calls": null, "previous_response_id": null,
            "prompt": null, "reasoning": null, "service_tier": "auto", "text": null, "top_logprobs": null,
            "truncation": "disabled", "user": null, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "kv_transfer_params": null, "ec_transfer_params": null, "input_messages": null, "output_messages": null,
        })
    }

    /// The response as it is when it has ended.
    fn whole(&self, speech: &Speech) -> Value {
        let speaker = &speech.speakers[0];
        let full = speaker.end.as_ref().is_some_and(|end| end.reason == "length");
        let mut response = self.begun(&speech.ask.model);
        response["status"] = json!(if full { "incomplete" } else { "completed" });
        response["incomplete_details"] = json!(full.then(|| json!({"reason": "max_output_tokens"})));
        response["output"] = json!([self.message(&[part(&speaker.text, &Value::Null)], "completed")]);
        response["usage"] = json!({
            "input_tokens": speech.prompt_tokens(),
            "input_tokens_details": {
                "cached_tokens": speech.cached(), "cache_write_tokens": speech.newly_cached(),
                "input_tokens_per_turn": [], "cached_tokens_per_turn": [],
            },
            "output_tokens": speech.generated(),
            "output_tokens_details": {
                "reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": speech.prompt_tokens() + speech.generated(),
        });
        response
    }

    fn message(&self, content: &[Value], status: &str) -> Value {
        json!({
            "id": self.item, "type": "message", "role": "assistant", "status": status, "content": content, "phase": null,
        })
    }

    /// An event about the one part of the one message.
    fn about(&self, name: &'static str, more: Value) -> (&'static str, Value) {
        let mut event = json!({"item_id": self.item, "output_index": 0, "content_index": 0});
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        (name, event)
    }

    fn begin(&self, speech: &Speech) -> Vec<(&'static str, Value)> {
        let response = self.begun(&speech.ask.model);
        vec![
            ("response.created", json!({ "response": response })),
            ("response.in_progress", json!({ "response": response })),
            (
                "response.output_item.added",
                json!({"item": self.message(&[], "in_progress"), "output_index": 0}),
            ),
            self.about("response.content_part.added", json!({"part": part("", &json!([]))})),
        ]
    }

    fn end(&self, speech: &Speech) -> Vec<(&'static str, Value)> {
        let text = &speech.speakers[0].text;
        let whole = part(text, &Value::Null);
        let item = self.message(std::slice::from_ref(&whole), "completed");
        vec![
            self.about("response.output_text.done", json!({"text": text, "logprobs": []})),
            self.about("response.content_part.done", json!({ "part": whole })),
            ("response.output_item.done", json!({"item": item, "output_index": 0})),
            ("response.completed", json!({"response": self.whole(speech)})),
        ]
    }
}

fn part(text: &str, logprobs: &Value) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

/// A stream that is under way.
struct Streaming {
    speech: Speech,
    told: Told,
    stage: Stage,
    number: u64,
}

enum Stage {
    Beginning,
    Speaking,
    Over,
}

fn stream(speech: Speech, told: Told) -> Response {
    let streaming = Streaming {
        speech,
        told,
        stage: Stage::Beginning,
        number: 0,
    };
    events(futures_util::stream::unfold(streaming, |mut streaming| async move {
        let piece = streaming.next().await?;
        Some((piece, streaming))
    }))
}

impl Streaming {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        let told = match self.stage {
            Stage::Over => return None,
            Stage::Beginning => {
                self.stage = Stage::Speaking;
                self.told.begin(&self.speech)
            }
            Stage::Speaking => match self.speech.next().await {
                Err(_) => {
                    self.stage = Stage::Over;
                    return Some(Err(broken().await));
                }
                Ok(Some((_, delta))) if delta.text.is_empty() => Vec::new(),
                Ok(Some((_, delta))) => {
                    let more = json!({"delta": delta.text, "logprobs": []});
                    vec![self.told.about("response.output_text.delta", more)]
                }
                Ok(None) => {
                    self.stage = Stage::Over;
                    self.told.end(&self.speech)
                }
            },
        };
        let number = |(name, mut event): (&str, Value)| {
            event["type"] = json!(name);
            event["sequence_number"] = json!(self.number);
            self.number += 1;
            format!("event: {name}\ndata: {event}\n\n")
        };
        Some(Ok(told.into_iter().map(number).collect::<String>().into()))
    }
}
