//! How likely was a token? Made up: a function of the token, in the form that clients expect.
//!
//! It does not answer for the tokens of prompts.

use homing_domain::Digest;
use serde_json::{Map, Value, json};

use crate::speaker::{Delta, Speaker};
use crate::tokenizer::Codec;

/// The most other tokens that may be asked for, as vLLM has it.
pub(crate) const MOST: u32 = 20;

/// What is asked for: how many of the likeliest tokens, besides the one that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logprobs {
    pub(crate) top: u32,
}

impl Logprobs {
    /// As completions have it: lists side by side.
    pub(crate) fn of_completion(self, codec: &Codec, speaker: &Speaker, delta: &Delta) -> Value {
        let tokens: Vec<String> = delta.tokens.iter().map(|token| codec.decode(&[*token])).collect();
        let logprobs: Vec<f64> = delta.tokens.iter().map(|token| logprob(*token)).collect();
        let top = delta.tokens.iter().map(|&token| {
            let likely = self.likely(codec, token);
            let named = likely.map(|token| (codec.decode(&[token]), json!(logprob(token))));
            Value::Object(named.collect::<Map<_, _>>())
        });
        json!({
            "text_offset": speaker.offsets(delta),
            "token_logprobs": logprobs,
            "tokens": tokens,
            "top_logprobs": top.collect::<Vec<_>>(),
        })
    }

    /// As chats have it: an object for each token.
    pub(crate) fn of_chat(self, codec: &Codec, delta: &Delta) -> Value {
        let content = delta.tokens.iter().map(|&token| {
            let mut one = entry(codec, token);
            let top = self.likely(codec, token).take(self.top as usize);
            one["top_logprobs"] = top.map(|token| entry(codec, token)).collect();
            one
        });
        json!({ "content": content.collect::<Vec<_>>() })
    }

    /// The token itself, and as many more as are asked for.
    fn likely(self, codec: &Codec, token: u32) -> impl Iterator<Item = u32> {
        let said = codec.vocabulary();
        let place = u64::from(token.saturating_sub(said.first));
        let other = move |step: u32| said.first + ((place + u64::from(step)) % u64::from(said.words)) as u32;
        std::iter::once(token).chain((1..self.top.max(1)).map(other))
    }
}

fn entry(codec: &Codec, token: u32) -> Value {
    let text = codec.decode(&[token]);
    json!({"token": text, "logprob": logprob(token), "bytes": text.as_bytes()})
}

fn logprob(token: u32) -> f64 {
    let drawn = Digest::of(&token.to_le_bytes()).0 % 1_000;
    -0.001 - drawn as f64 / 500.0
}
