//! Which words are completions and chats put in? As vLLM writes them: some fields are left out where they say nothing, others
//! are null.

use homing_config::Switch;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::control::version_of;
use crate::speaker::{Delta, Speaker};
use crate::speech::Speech;

/// Whose words an answer is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Completion,
    Chat,
}

/// What all pieces of an answer begin with.
pub(crate) struct Head {
    id: String,
    created: u64,
    pub(crate) manner: Manner,
    /// Whose words they are, in a chat.
    pub(crate) role: String,
    fingerprint: String,
    /// Whether it is told how many tokens came from the cache.
    details: Switch,
}

impl Head {
    pub(crate) fn new(app: &App, manner: Manner, prefix: &str, envelope: &Envelope) -> Self {
        let dialect = app.dialect();
        Self {
            id: format!("{prefix}-{}", envelope.id),
            created: crate::core::unix_seconds() as u64,
            manner,
            role: "assistant".to_owned(),
            details: app.settings.mock.usage_details,
            fingerprint: format!("{}-{}-mock", dialect.name(), version_of(dialect)),
        }
    }

    /// The whole answer.
    pub(crate) fn whole(&self, speech: &Speech) -> Value {
        let speakers = speech.speakers.iter().enumerate();
        let choices: Vec<Value> = speakers
            .map(|(part, speaker)| self.choice(speech, part, speaker))
            .collect();
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
            "system_fingerprint": self.fingerprint,
            "usage": self.usage(speech),
            "kv_transfer_params": speech.transfer,
            "ec_transfer_params": null,
            "metrics": null,
        });
        if self.manner == Manner::Chat {
            answer["prompt_logprobs"] = Value::Null;
            answer["prompt_token_ids"] = json!(speech.ask.ids.then(|| speech.prompt_of(0)));
            answer["prompt_text"] = Value::Null;
        }
        answer
    }

    fn choice(&self, speech: &Speech, part: usize, speaker: &Speaker) -> Value {
        let end = speaker.end.as_ref();
        let prompt = speech.prompt_of(part);
        let mut choice = json!({
            "index": part,
            "logprobs": self.logprobs(speech, speaker, &speaker.everything()),
            "finish_reason": Self::finish(speech, speaker),
            "stop_reason": end.map(|end| end.by.clone()),
            "token_ids": speech.ask.ids.then_some(&speaker.tokens),
            "routed_experts": null,
        });
        match self.manner {
            Manner::Completion => {
                let before = if speech.ask.echo {
                    speech.codec.decode(prompt)
                } else {
                    String::new()
                };
                choice["text"] = json!(before + &speaker.text);
                choice["prompt_logprobs"] = Value::Null;
                choice["prompt_token_ids"] = json!(speech.ask.ids.then_some(prompt));
            }
            Manner::Chat => {
                let mut message = json!({
                    "role": self.role, "content": speaker.text, "refusal": null, "annotations": null,
                    "audio": null, "function_call": null, "reasoning": null,
                });
                if let Some(call) = &speech.ask.call {
                    message["content"] = json!("");
                    let function = json!({"name": call.name, "arguments": speaker.text});
                    message["tool_calls"] =
                        json!([{"id": self.call_id(part), "type": "function", "function": function}]);
                }
                choice["message"] = message;
            }
        }
        choice
    }

    /// The beginning of an answer in a chat.
    pub(crate) fn role(&self, speech: &Speech, part: usize) -> Value {
        let choice = json!({
            "index": part, "delta": {"role": self.role, "content": ""}, "logprobs": null, "finish_reason": null,
        });
        let mut piece = self.piece(speech, &json!([choice]));
        piece["prompt_token_ids"] = json!(speech.ask.ids.then(|| speech.prompt_of(part)));
        piece["prompt_text"] = Value::Null;
        piece
    }

    /// The pieces of a stream that tell of what is new.
    pub(crate) fn said(&self, speech: &Speech, part: usize, delta: &Delta, first: bool) -> Vec<Value> {
        let speaker = &speech.speakers[part];
        let mut choice = json!({
            "index": part,
            "logprobs": self.logprobs(speech, speaker, delta),
            "finish_reason": null,
            "token_ids": speech.ask.ids.then_some(&delta.tokens),
        });
        match self.manner {
            Manner::Completion => {
                choice["text"] = json!(delta.text);
                choice["stop_reason"] = Value::Null;
                choice["prompt_token_ids"] = json!((speech.ask.ids && first).then(|| speech.prompt_of(part)));
            }
            Manner::Chat => choice["delta"] = json!({"content": delta.text}),
        }
        let mut pieces = Vec::new();
        if let Some(call) = &speech.ask.call {
            let mut calling = |call: Value| {
                choice["delta"] = json!({"content": null, "tool_calls": [call]});
                pieces.push(self.piece(speech, &json!([choice])));
            };
            if first {
                let id = self.call_id(part);
                calling(json!({"id": id, "type": "function", "index": 0, "function": {"name": call.name}}));
            }
            if !delta.text.is_empty() {
                calling(json!({"index": 0, "function": {"arguments": delta.text}}));
            }
            choice["delta"] = json!({});
        }
        let Some(end) = &speaker.end else {
            if speech.ask.call.is_none() {
                pieces.push(self.piece(speech, &json!([choice])));
            }
            return pieces;
        };
        choice["finish_reason"] = json!(Self::finish(speech, speaker));
        choice["stop_reason"] = end.by.clone();
        let mut last = self.piece(speech, &json!([choice]));
        if let Some(transfer) = &speech.transfer {
            last["kv_transfer_params"] = transfer.clone();
        }
        if !speech.ask.usage {
            last["system_fingerprint"] = json!(self.fingerprint);
        }
        pieces.push(last);
        pieces
    }

    /// The piece of a stream that tells at its end what was used.
    pub(crate) fn used(&self, speech: &Speech) -> Value {
        let mut details = json!({"cached_tokens": speech.cached()});
        if self.manner == Manner::Chat {
            details["created_cache_tokens"] = json!(speech.newly_cached());
        }
        let mut usage = counted(speech);
        if self.details.is_on() {
            usage["prompt_tokens_details"] = details;
        }
        let mut piece = self.piece(speech, &json!([]));
        piece["usage"] = usage;
        piece["system_fingerprint"] = json!(self.fingerprint);
        piece
    }

    fn piece(&self, speech: &Speech, choices: &Value) -> Value {
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
        if speech.ask.usage_always {
            piece["usage"] = counted(speech);
            if self.manner == Manner::Chat {
                piece["usage"]["completion_tokens_details"] = Value::Null;
            }
        }
        piece
    }

    fn usage(&self, speech: &Speech) -> Value {
        let created = (self.manner == Manner::Chat).then(|| speech.newly_cached());
        let mut usage = counted(speech);
        usage["prompt_tokens_details"] = if self.details.is_on() {
            json!({"cached_tokens": speech.cached(), "created_cache_tokens": created, "multimodal_tokens": null})
        } else {
            Value::Null
        };
        usage["completion_tokens_details"] = Value::Null;
        usage
    }

    fn logprobs(&self, speech: &Speech, speaker: &Speaker, delta: &Delta) -> Option<Value> {
        let asked = speech.ask.logprobs?;
        Some(match self.manner {
            Manner::Completion => asked.of_completion(&speech.codec, speaker, delta),
            Manner::Chat => asked.of_chat(&speech.codec, delta),
        })
    }

    fn finish(speech: &Speech, speaker: &Speaker) -> Option<&'static str> {
        let reason = speaker.end.as_ref()?.reason;
        match &speech.ask.call {
            Some(call) if reason == "stop" => Some(call.finish),
            _ => Some(reason),
        }
    }

    fn call_id(&self, part: usize) -> String {
        let id = self.id.rsplit('-').next().unwrap_or_default();
        format!("chatcmpl-tool-{id}{part}")
    }
}

/// What was used so far.
fn counted(speech: &Speech) -> Value {
    let (prompt, generated) = (speech.prompt_tokens(), speech.generated());
    json!({"prompt_tokens": prompt, "total_tokens": prompt + generated, "completion_tokens": generated})
}
