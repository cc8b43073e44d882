//! What does somebody see who asks over HTTP and reads the answer as it comes?

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use homing_platform::{HttpClient, HttpClientConfig, HttpResponse};
use serde_json::Value;

use super::board::Open;
use super::traffic::{Asked, Delivery};
use crate::stream::{Lines, Said};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// The header that says who answered.
const SERVED_BY: &str = "x-homing-served-by";

/// Where is asked, and for which model.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: HttpClient,
    url: String,
    model: String,
}

/// An answer.
#[derive(Debug, Default)]
pub struct Heard {
    pub text: String,
    /// From the request to the first token.
    pub first: Duration,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    output_tokens: u64,
    is_finished: bool,
    is_done: bool,
}

impl Endpoint {
    /// Asks at this address.
    pub fn new(base: &str, model: &str) -> Self {
        Self {
            client: HttpClient::new(HttpClientConfig {
                timeout: Some(PATIENCE),
                ..HttpClientConfig::default()
            }),
            url: format!("{base}/v1/chat/completions"),
            model: model.to_owned(),
        }
    }

    /// Asks, and reads the answer as it comes.
    pub async fn ask(&self, asked: &Arc<Asked>, open: &mut Open) -> anyhow::Result<Heard> {
        let began = Instant::now();
        let mut answer = self.send(asked, Delivery::Streamed).await?;
        let served_by = answer.headers().get(SERVED_BY).and_then(|name| name.to_str().ok());
        let served_by = served_by.unwrap_or_default().to_owned();
        let (mut heard, mut lines) = (Heard::default(), Lines::default());
        while let Some(piece) = answer.chunk().await.context("the stream broke off")? {
            let had_text = !heard.text.is_empty();
            lines.push(&piece, |said| heard.said(&said))?;
            if !had_text && !heard.text.is_empty() {
                heard.first = began.elapsed();
                open.begins(&served_by);
            }
        }
        ensure!(heard.is_done && heard.is_finished, "the stream ended without its end");
        ensure!(
            heard.output_tokens == u64::from(asked.tokens),
            "asked for {} tokens, got {}",
            asked.tokens,
            heard.output_tokens
        );
        Ok(heard)
    }

    /// Asks for the answer in one piece.
    pub async fn whole(&self, asked: &Asked) -> anyhow::Result<String> {
        let answer = self.send(asked, Delivery::Whole).await?.bytes().await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let text = answer["choices"][0]["message"]["content"].as_str();
        Ok(text.context("the answer has no text")?.to_owned())
    }

    async fn send(&self, asked: &Asked, delivery: Delivery) -> anyhow::Result<HttpResponse> {
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let answer = request.body(asked.body(&self.model, delivery)).send().await?;
        if !answer.status().is_success() {
            let status = answer.status();
            bail!("status {status}: {}", answer.text().await.unwrap_or_default());
        }
        Ok(answer)
    }
}

impl Heard {
    fn said(&mut self, said: &Said) {
        let piece = match said {
            Said::Done => {
                self.is_done = true;
                return;
            }
            Said::Piece(piece) => piece,
        };
        if let Some(choice) = piece["choices"].get(0) {
            self.text
                .push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            self.is_finished |= choice["finish_reason"].is_string();
        }
        let usage = &piece["usage"];
        if usage.is_object() {
            let count = |value: &Value| value.as_u64().unwrap_or_default();
            self.prompt_tokens = count(&usage["prompt_tokens"]);
            self.output_tokens = count(&usage["completion_tokens"]);
            self.cached_tokens = count(&usage["prompt_tokens_details"]["cached_tokens"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_heard_with_what_it_cost() {
        let mut heard = Heard::default();
        for piece in [
            json!({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}], "usage": null}),
            json!({"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}),
            json!({"choices": [{"delta": {"content": "b"}, "finish_reason": "length"}]}),
            json!({"choices": [], "usage": {
                "prompt_tokens": 64, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 48}
            }}),
        ] {
            heard.said(&Said::Piece(piece));
        }
        assert!(heard.is_finished && !heard.is_done);
        heard.said(&Said::Done);
        assert!(heard.is_done);
        assert_eq!(heard.text, "ab");
        assert_eq!(
            (heard.prompt_tokens, heard.cached_tokens, heard.output_tokens),
            (64, 48, 2)
        );
    }
}
