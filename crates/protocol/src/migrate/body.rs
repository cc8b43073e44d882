//! What is asked of the worker that continues?

use bytes::Bytes;

use super::WhyNot;
use crate::ask::{Ask, Feature, MaxOutput, Prompt};
use crate::endpoint::Endpoint;
use crate::json::{quoted, text};
use crate::splice::Splice;

/// The length of completions that do not say theirs, in vLLM and SGLang.
const DEFAULT_COMPLETION: u32 = 16;

/// Fields of a chat that a completion does not have, or has with another meaning.
const CHAT_ONLY: [&str; 14] = [
    "messages",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "documents",
];

/// Where the next worker is to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// With these tokens, prompt and answer.
    pub(super) ids: Option<Vec<u32>>,
    /// With this text of the answer.
    pub(super) text: Option<String>,
    /// Behind so many bytes of what the client has seen.
    pub(super) at: usize,
    /// Tokens of the answer that are not generated again.
    pub(super) said: u32,
    /// Tokens of the prompt.
    pub(super) prompt: Option<u64>,
    /// The limit for an answer that has none of its own.
    pub(super) room: Option<u32>,
}

/// The body that asks for the rest.
pub(super) fn resumed(ask: &Ask, body: &Bytes, start: &Start) -> Result<Bytes, WhyNot> {
    if start.ids.is_none() && start.text.is_none() {
        return Ok(body.clone());
    }
    let mut splice = Splice::new(body, &ask.fields);
    if let Some(ids) = &start.ids {
        if ask.endpoint == Endpoint::ChatCompletions {
            for key in CHAT_ONLY {
                splice.remove(key);
            }
        }
        splice.set("prompt", list(ids));
    } else if let Some(said) = &start.text {
        match ask.prompt {
            Prompt::Text(span) => {
                let prompt = text(span.of(body)).ok_or(WhyNot::Prompt)?;
                splice.set("prompt", quoted(&(prompt.into_owned() + said)));
            }
            Prompt::Messages(_) => {
                let message = format!("{{\"role\":\"assistant\",\"content\":{}}}", quoted(said));
                splice.append("messages", message);
                splice.set("continue_final_message", "true");
                splice.set("add_generation_prompt", "false");
            }
            _ => return Err(WhyNot::Prompt),
        }
    }
    limits(&mut splice, ask, start);
    Ok(splice.finish())
}

/// What is left of the limits.
fn limits(splice: &mut Splice<'_>, ask: &Ask, start: &Start) {
    let most = match (ask.max_output, ask.endpoint) {
        (MaxOutput::Tokens(most), _) => Some(most),
        (MaxOutput::Unsaid, Endpoint::Completions) => Some(DEFAULT_COMPLETION),
        _ => None,
    };
    // A worker that told so many tokens had not ended, so there is at least one more.
    let left = most.map(|most| most.saturating_sub(start.said).max(1)).or(start.room);
    if let Some(left) = left {
        let chat = ask.endpoint == Endpoint::ChatCompletions && start.ids.is_none();
        let field = ask.max_output_field.filter(|_| chat).unwrap_or("max_tokens");
        splice.set(field, left.to_string());
    }
    if ask.has(Feature::MinTokens) {
        splice.set("min_tokens", ask.min_output.saturating_sub(start.said).to_string());
    }
}

fn list(ids: &[u32]) -> Vec<u8> {
    let mut list = String::with_capacity(ids.len() * 6 + 2);
    list.push('[');
    for (place, id) in ids.iter().enumerate() {
        if place > 0 {
            list.push(',');
        }
        list.push_str(&id.to_string());
    }
    list.push(']');
    list.into_bytes()
}
