//! Which tokens is a text? The built-in tokenizer: one token for each byte, and a few that stand for no text.
//!
//! Ids 0 to 255 are bytes. Then come the two marks around a chat message, the end of a text, and the marks that stand for parts
//! of images. All others up to [`VOCABULARY`] are accepted in prompts and shown by their number: they mean nothing.
//!
//! **Invariant:** the tokens of a text give the text back.

use serde_json::Value;

/// Before a message of a chat.
pub const MESSAGE_START: u32 = 256;
/// After a message of a chat.
pub const MESSAGE_END: u32 = 257;
/// Ends an answer.
pub const END: u32 = 258;
/// Ids from here on stand for parts of images.
pub const IMAGES: u32 = 100_000;
/// How many of them there are.
pub const IMAGE_IDS: u32 = 50_000;
/// Tokens that an image takes.
pub const IMAGE_TOKENS: u32 = 64;
/// Ids are below this.
pub const VOCABULARY: u32 = 151_936;

/// The tokens of a text.
pub fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// The text of tokens. Bytes that are no UTF-8 are shown as such.
pub fn decode(tokens: &[u32]) -> String {
    let mut text = String::new();
    let mut bytes = Vec::new();
    for &token in tokens {
        if let Ok(byte) = u8::try_from(token) {
            bytes.push(byte);
            continue;
        }
        text.push_str(&String::from_utf8_lossy(&bytes));
        bytes.clear();
        text.push_str(&name(token));
    }
    text.push_str(&String::from_utf8_lossy(&bytes));
    text
}

/// One token as a text.
pub fn name(token: u32) -> String {
    match (token, u8::try_from(token)) {
        (MESSAGE_START, _) => "<|im_start|>".to_owned(),
        (MESSAGE_END, _) => "<|im_end|>".to_owned(),
        (END, _) => "<|endoftext|>".to_owned(),
        (_, Ok(byte)) => String::from_utf8_lossy(&[byte]).into_owned(),
        _ => format!("<|{token}|>"),
    }
}

/// Puts a chat together: each message between its marks, tools before all, and the beginning of the answer.
pub fn chat(messages: &[Value], tools: Option<&Value>, add_generation_prompt: bool) -> Vec<u32> {
    let mut tokens = Vec::new();
    if let Some(tools) = tools.filter(|tools| !tools.is_null()) {
        message(&mut tokens, "tools", &Value::String(tools.to_string()));
    }
    for one in messages {
        let role = one["role"].as_str().unwrap_or("user");
        message(&mut tokens, role, &one["content"]);
    }
    if add_generation_prompt {
        tokens.push(MESSAGE_START);
        tokens.extend(encode("assistant\n"));
    }
    tokens
}

fn message(tokens: &mut Vec<u32>, role: &str, content: &Value) {
    tokens.push(MESSAGE_START);
    tokens.extend(encode(role));
    tokens.push(u32::from(b'\n'));
    match content {
        Value::String(text) => tokens.extend(encode(text)),
        Value::Array(parts) => parts.iter().for_each(|one| part(tokens, one)),
        _ => {}
    }
    tokens.push(MESSAGE_END);
    tokens.push(u32::from(b'\n'));
}

fn part(tokens: &mut Vec<u32>, part: &Value) {
    match part {
        Value::String(text) => tokens.extend(encode(text)),
        _ => match part["text"].as_str() {
            Some(text) => tokens.extend(encode(text)),
            // Whatever else it is, equal ones are equal and others are not.
            None => tokens.extend(image(&part.to_string())),
        },
    }
}

fn image(content: &str) -> impl Iterator<Item = u32> {
    let digest = homing_domain::Digest::of(content.as_bytes()).0;
    (0..IMAGE_TOKENS).map(move |place| {
        let mixed = digest
            .wrapping_add(u64::from(place))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        IMAGES + ((mixed >> 32) % u64::from(IMAGE_IDS)) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_comes_back() {
        for text in ["", "hello", "äöü €", "\0\n"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode(&[104, 105, END, 5_000]), "hi<|endoftext|><|5000|>");
    }

    #[test]
    fn a_chat_begins_like_the_chat_before_it() {
        let first = [json!({"role": "user", "content": "hi"})];
        let both = [first[0].clone(), json!({"role": "assistant", "content": "yes"})];
        let (short, long) = (chat(&first, None, false), chat(&both, None, true));
        assert!(long.starts_with(&short));
        assert_eq!(decode(&short), "<|im_start|>user\nhi<|im_end|>\n");
    }

    #[test]
    fn images_are_told_apart_by_their_content() {
        let with = |url: &str| {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            chat(
                &[json!({"role": "user", "content": [{"type": "text", "text": "see"}, image]})],
                None,
                true,
            )
        };
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
        assert!(with("a").iter().all(|token| *token < VOCABULARY));
    }

    #[test]
    fn tools_are_part_of_the_prompt() {
        let messages = [json!({"role": "user", "content": "hi"})];
        let tools = json!([{"type": "function"}]);
        assert_ne!(chat(&messages, Some(&tools), true), chat(&messages, None, true));
        assert_eq!(chat(&messages, Some(&Value::Null), true), chat(&messages, None, true));
    }
}
