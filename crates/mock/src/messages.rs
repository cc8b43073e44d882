//! How is `/v1/messages` answered? A chat in the words of Anthropic's API.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{Ask, Extras, OneOrMany, Wishes, messages as checked, parse};
use crate::completions::{broken, events};
use crate::problem::{Problem, json_answer};
use crate::speech::Speech;
use crate::tokenizer::ChatEnd;

#[derive(Deserialize)]
struct Body {
    messages: Value,
    max_tokens: i64,
    system: Option<Value>,
    tools: Option<Value>,
    stop_sequences: Option<Vec<String>>,
    #[serde(flatten)]
    wishes: Wishes,
}

/// `/v1/messages`.
pub(crate) async fn messages(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: Body = parse(body)?;
    let id = format!("chatcmpl-{}", envelope.id);
    let wrong = |problem| Problem::InMessages(Box::new(problem));
    let ask = body.ask(app, &envelope).map_err(wrong)?;
    let mut speech = Speech::begin(app, ask).await.map_err(wrong)?;
    if speech.ask.stream {
        return Ok(stream(speech, &id));
    }
    speech.whole().await?;
    let speaker = &speech.speakers[0];
    let mut message = json!({
        "id": id, "type": "message", "role": "assistant", "model": speech.ask.model,
        "content": [{"type": "text", "text": speaker.text}],
        "stop_reason": stop_reason(&speech),
        "usage": usage(&speech),
    });
    if let Some(text) = stop_sequence(&speech) {
        message["stop_sequence"] = text;
    }
    Ok(json_answer(StatusCode::OK, &message))
}

impl Body {
    fn ask(self, app: &App, envelope: &Envelope) -> Result<Ask, Problem> {
        let mut all: Vec<Value> = self
            .system
            .iter()
            .map(|text| json!({"role": "system", "content": text}))
            .collect();
        all.extend(checked(&self.messages)?.iter().cloned());
        let wishes = Wishes {
            max_tokens: Some(self.max_tokens),
            stop: self.stop_sequences.map(OneOrMany::Many),
            ..self.wishes
        };
        let prompt = app.settings.codec.chat(&all, self.tools.as_ref(), ChatEnd::Answer)?;
        let extras = Extras {
            rank: envelope.rank,
            ..Extras::default()
        };
        wishes.ask(app, vec![prompt], extras)
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

/// The text that ended it, if one did.
fn stop_sequence(speech: &Speech) -> Option<Value> {
    let end = speech.speakers[0].end.as_ref()?;
    Some(end.by.clone()).filter(Value::is_string)
}

/// The three kinds of input add up to the prompt.
fn usage(speech: &Speech) -> Value {
    let (read, created) = (speech.cached() as usize, speech.newly_cached());
    json!({
        "input_tokens": speech.prompt_tokens().saturating_sub(read + created),
        "output_tokens": speech.generated(),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": created,
    })
}

fn stream(speech: Speech, id: &str) -> Response {
    let message = json!({
        "id": id, "type": "message", "role": "assistant", "model": speech.ask.model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": speech.prompt_tokens(), "output_tokens": 0},
    });
    let begin = told(&[
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ]);
    let state = (speech, Stage::Begin(begin));
    events(futures_util::stream::unfold(state, |(mut speech, stage)| async move {
        let (piece, next) = match stage {
            Stage::Over => return None,
            Stage::Begin(begin) => (Ok(begin), Stage::Speaking),
            Stage::Speaking => match speech.next().await {
                Err(_) => (Err(broken().await), Stage::Over),
                Ok(Some((_, delta))) if delta.text.is_empty() => (Ok(Bytes::new()), Stage::Speaking),
                Ok(Some((_, delta))) => {
                    let delta = json!({"type": "text_delta", "text": delta.text});
                    let event = json!({"type": "content_block_delta", "index": 0, "delta": delta});
                    (Ok(told(&[event])), Stage::Speaking)
                }
                Ok(None) => (Ok(end(&speech)), Stage::Over),
            },
        };
        Some((piece, (speech, next)))
    }))
}

fn end(speech: &Speech) -> Bytes {
    let delta = json!({"stop_reason": stop_reason(speech), "stop_sequence": stop_sequence(speech)});
    told(&[
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": delta, "usage": usage(speech)}),
        json!({"type": "message_stop"}),
    ])
}

enum Stage {
    Begin(Bytes),
    Speaking,
    Over,
}

/// Events, each by the name of its type.
fn told(events: &[Value]) -> Bytes {
    let line = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        )
    };
    events.iter().map(line).collect::<String>().into()
}
