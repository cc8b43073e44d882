//! Which prompts are sent, and are they the same tokens here and there?

use homing_tokenize::Prompter;
use serde_json::{Value, json};

use crate::http::{AskError, Line};
use crate::observed::{Compared, Kind, Tokenized};

/// Something of what tokenizers treat in ways of their own: spaces, numbers, capitals, accents, other scripts, code, special words.
const TEXT: &str = "Hello  World, it's 12345.678 o'clock!\n\n\tDon't — naïve café 東京 Привет 🙂\r\n    fn main() { let x = 0xff; }  <b>end</b> ";
/// Letters that a random word has.
const LETTERS: usize = 8;

/// The body that `/tokenize` is asked with, and that is rendered here.
pub(crate) fn body(kind: Kind, model: &str) -> Value {
    let messages = json!([
        {"role": "system", "content": "You are a careful assistant."},
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "content": "And in Tokyo?"},
    ]);
    match kind {
        Kind::Plain => json!({"model": model, "prompt": TEXT}),
        Kind::Chat => json!({"model": model, "messages": messages}),
        Kind::Tools => json!({"model": model, "messages": messages, "tools": [{
            "type": "function",
            "function": {
                "name": "time_in",
                "description": "What time is it there?",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "description": "Where"},
                        "seconds": {"type": "boolean"},
                    },
                    "required": ["city"],
                },
            },
        }]}),
    }
}

/// Makes tokens of a prompt here and there.
pub(crate) async fn compare(line: Line<'_>, kind: Kind, model: &str, prompter: Option<&Prompter>) -> Compared {
    let body = body(kind, model);
    let theirs = tokens(line, &body).await;
    let ours = prompter.map(|prompter| here(prompter, kind, &body));
    let outcome = match (ours, theirs) {
        (Some(Ok(ours)), Ok(theirs)) => match first_difference(&ours, &theirs) {
            None => Tokenized::Equal { tokens: ours.len() },
            Some(at) => Tokenized::Differs {
                ours: ours.len(),
                theirs: theirs.len(),
                at,
            },
        },
        (Some(Err(why)), Ok(_)) => Tokenized::NotHere(why),
        (None, Ok(theirs)) => Tokenized::OnlyThere { tokens: theirs.len() },
        (Some(Ok(_)), Err(error)) => Tokenized::NotThere(error.to_string()),
        (Some(Err(why)), Err(error)) => Tokenized::Nowhere(format!("{why}; {error}")),
        (None, Err(error)) => Tokenized::Nowhere(error.to_string()),
    };
    Compared { kind, outcome }
}

fn here(prompter: &Prompter, kind: Kind, body: &Value) -> Result<Vec<u32>, String> {
    let made = match kind {
        Kind::Plain => prompter.completion(body).map(|prompts| prompts.into_iter().next()),
        Kind::Chat | Kind::Tools => prompter.chat(body).map(Some),
    };
    let made = made.map_err(|error| error.to_string())?;
    Ok(made.unwrap_or_default().tokens)
}

/// The tokens that the engine makes.
async fn tokens(line: Line<'_>, body: &Value) -> Result<Vec<u32>, AskError> {
    let answer = line.post("/tokenize", body, None).await?;
    let tokens = answer["tokens"].as_array().map(|tokens| {
        let id = |token: &Value| token.as_u64().and_then(|id| u32::try_from(id).ok());
        tokens.iter().filter_map(id).collect()
    });
    tokens.ok_or_else(|| AskError::NoJson {
        path: "/tokenize",
        why: "there are no `tokens` in it".to_owned(),
    })
}

fn first_difference(ours: &[u32], theirs: &[u32]) -> Option<usize> {
    let same = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    (same < ours.len().max(theirs.len())).then_some(same)
}

/// A prompt that nobody has sent before. The tokens are those of random words, as the engine makes them; if it does not, low ids that every
/// vocabulary has.
pub(crate) async fn fresh(line: Line<'_>, model: &str, length: usize) -> Vec<u32> {
    let words: Vec<String> = (0..length)
        .map(|_| {
            let letters = (0..LETTERS).map(|_| fastrand::lowercase());
            letters.collect()
        })
        .collect();
    let body = json!({"model": model, "prompt": words.join(" ")});
    match tokens(line, &body).await {
        Ok(tokens) if tokens.len() >= length => tokens.into_iter().take(length).collect(),
        _ => (0..length).map(|_| fastrand::u32(100..1000)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_also_where_one_ends() {
        assert_eq!(first_difference(&[1, 2], &[1, 2]), None);
        assert_eq!(first_difference(&[1, 2], &[1, 3]), Some(1));
        assert_eq!(first_difference(&[1], &[1, 3]), Some(1));
        assert_eq!(first_difference(&[], &[]), None);
    }
}
