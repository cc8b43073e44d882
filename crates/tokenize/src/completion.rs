//! Which prompts does a body of `/v1/completions` have?

use serde_json::{Map, Value as Json};

use crate::chat::{get, object, wrong};
use crate::error::PromptError;
use crate::truncate::Truncate;

/// A prompt of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given<'a> {
    /// A text.
    Text(&'a str),
    /// Tokens.
    Tokens(Vec<u32>),
}

/// The prompts of a body, and how they are truncated.
pub(crate) fn prompts(body: &Json) -> Result<(Vec<Given<'_>>, Truncate), PromptError> {
    let body = object(body, "the body")?;
    for (field, what) in [("prompt_embeds", "prompts of embeddings"), ("suffix", "suffixes")] {
        if get(body, field).is_some() {
            return Err(PromptError::NotMirrored(what));
        }
    }
    let mut truncate = Truncate::read(body, true)?;
    if !body.contains_key("max_tokens") {
        // An answer has a length here even if none is asked for.
        truncate = truncate.with_answer();
    }
    Ok((given(body)?, truncate))
}

fn given(body: &Map<String, Json>) -> Result<Vec<Given<'_>>, PromptError> {
    match get(body, "prompt") {
        Some(Json::String(text)) => Ok(vec![Given::Text(text)]),
        Some(Json::Array(list)) if list.first().is_some_and(Json::is_number) => Ok(vec![Given::Tokens(tokens(list)?)]),
        Some(Json::Array(list)) if !list.is_empty() => list.iter().map(one).collect(),
        _ => Err(wrong("prompt", "is neither a text nor a list of texts or tokens")),
    }
}

fn one(prompt: &Json) -> Result<Given<'_>, PromptError> {
    match prompt {
        Json::String(text) => Ok(Given::Text(text)),
        Json::Array(list) => Ok(Given::Tokens(tokens(list)?)),
        _ => Err(wrong("prompt", "has something that is neither a text nor tokens")),
    }
}

/// A list of tokens.
pub(crate) fn tokens(list: &[Json]) -> Result<Vec<u32>, PromptError> {
    let token = |token: &Json| token.as_u64().and_then(|token| u32::try_from(token).ok());
    let tokens: Option<Vec<u32>> = list.iter().map(token).collect();
    tokens.ok_or_else(|| wrong("prompt", "has tokens that are no numbers"))
}
