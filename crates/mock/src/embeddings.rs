//! What is the embedding of a prompt? Numbers that depend on its tokens only.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use homing_domain::{Digest, Tokens};
use homing_engine::{Placement, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{MOST_PARTS, Prompts, parse};
use crate::kv::Errand;
use crate::problem::{Problem, json_answer};
use crate::state::News;

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
    let prompts = body.input.tokens(&app.settings.codec)?;
    if prompts.len() > MOST_PARTS {
        return Err(Problem::bad(format!(
            "a request may have {MOST_PARTS} inputs and no more"
        )));
    }
    let adapter = app.adapter(body.model.as_deref()).map_err(|problem| match problem {
        Problem::NoModel(name) => Problem::NoSuch(format!("The model `{name}` does not exist.")),
        other => other,
    })?;
    let request = |prompt: &Vec<u32>| Request {
        adapter: adapter.clone(),
        max_tokens: Tokens(0),
        placement: envelope.rank.map_or(Placement::Any, Placement::On),
        ..Request::plain(0, prompt.as_slice(), 0)
    };
    let mut answer = app
        .core
        .submit(prompts.iter().map(request).collect(), 1, Errand::None)?;
    let mut missing = prompts.len();
    while missing > 0 {
        match answer.next().await.ok_or(Problem::Cut)?.news {
            News::Computed => missing -= 1,
            News::Lost | News::Missed => return Err(Problem::Cut),
            News::Admitted { .. } | News::Token(..) | News::Staged(_) => {}
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
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null,
                  "completion_tokens_details": null},
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
