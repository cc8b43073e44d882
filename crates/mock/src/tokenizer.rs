//! Which tokens is a text? The tokenizer of a model's folder, or the built-in one: a token for each byte.
//!
//! Of the built-in one, ids 0 to 255 are bytes. Then come the two marks around a chat message, the end of a text, and the marks
//! that stand for parts of images. All others up to [`VOCABULARY`] are accepted in prompts and shown by their number: they mean
//! nothing.
//!
//! **Invariant:** the tokens of a text give the text back.
//!
//! Messages of a chat stand between the same two marks whatever the model, unless the chat template of the folder is to be followed.

use std::sync::Arc;

use homing_engine::Vocabulary;
use homing_tokenize::{Incremental, Marks, PromptError, Prompter, Tokenizer};
use serde_json::{Value, json};

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

/// Text to tokens and back: the built-in way, or that of a model.
#[derive(Clone, Debug)]
pub enum Codec {
    /// A token for each byte.
    Bytes,
    /// What a folder of a model says.
    Model(Arc<Tokenizer>),
    /// The same, and chats are put together by the folder's template.
    Templated(Arc<Prompter>),
}

/// How a chat ends that is put together for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatEnd {
    /// With the beginning of an answer.
    #[default]
    Answer,
    /// With the end of the last message.
    Message,
    /// In the middle of the last message, which is to be continued.
    Open,
}

/// The text of tokens that come one by one.
#[derive(Clone, Debug)]
pub struct Decoding {
    codec: Codec,
    pending: Incremental,
}

impl Codec {
    /// The tokenizer of the folder, if there is one.
    fn model(&self) -> Option<&Tokenizer> {
        match self {
            Self::Bytes => None,
            Self::Model(model) => Some(model),
            Self::Templated(prompter) => Some(prompter.tokenizer()),
        }
    }

    /// The tokens of a text, with the marks that a prompt has.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        match self.model() {
            None => Ok(bytes(text)),
            Some(model) => Ok(model.encode(text, Marks::Added)?),
        }
    }

    /// The tokens of a text as it is.
    pub fn plain(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        match self.model() {
            None => Ok(bytes(text)),
            Some(model) => Ok(model.encode(text, Marks::None)?),
        }
    }

    /// The text of tokens. Bytes that are no UTF-8 are shown as such.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match self.model() {
            None => decode_bytes(tokens),
            Some(model) => model.decode(tokens),
        }
    }

    /// One token as a text.
    pub fn name(&self, token: u32) -> String {
        match self.model() {
            None => byte_name(token),
            Some(model) => model.name(token).unwrap_or_else(|| format!("<|{token}|>")),
        }
    }

    /// For tokens that come one by one.
    pub fn decoding(&self) -> Decoding {
        Decoding {
            codec: self.clone(),
            pending: Incremental::default(),
        }
    }

    /// Ids in prompts are below this.
    pub fn size(&self) -> u32 {
        self.model().map_or(VOCABULARY, Tokenizer::size)
    }

    /// The token that ends an answer.
    pub fn end(&self) -> u32 {
        self.model().map_or(END, |model| model.end().unwrap_or(model.size()))
    }

    /// What an engine says: what can be printed, or all words that are no marks.
    pub fn vocabulary(&self) -> Vocabulary {
        let (first, words) = match self.model() {
            None => (u32::from(b' '), u32::from(b'~' - b' ') + 1),
            Some(model) => {
                let plain = model.plain();
                (plain.start, plain.end - plain.start)
            }
        };
        Vocabulary {
            first,
            words,
            end: self.end(),
        }
    }

    /// Puts a chat together: each message between its marks, tools before all, and the beginning of the answer.
    ///
    /// **Invariant:** an open message of the assistant is, token by token, the beginning of an answer and then its text.
    pub fn chat(&self, messages: &[Value], tools: Option<&Value>, end: ChatEnd) -> Result<Vec<u32>, PromptError> {
        if let Self::Templated(prompter) = self {
            return Ok(prompter.chat(&templated(messages, tools, end))?.tokens);
        }
        let mut chat = Chat {
            codec: self,
            tokens: Vec::new(),
        };
        if let Some(tools) = tools.filter(|tools| !tools.is_null()) {
            chat.begin("tools")?;
            chat.text(&tools.to_string())?;
            chat.end()?;
        }
        for (place, one) in messages.iter().enumerate() {
            chat.begin(one["role"].as_str().unwrap_or("user"))?;
            chat.content(&one["content"])?;
            if end != ChatEnd::Open || place + 1 < messages.len() {
                chat.end()?;
            }
        }
        if end == ChatEnd::Answer {
            chat.begin("assistant")?;
        }
        Ok(chat.tokens)
    }
}

impl Decoding {
    /// The text that is whole with this token.
    pub fn push(&mut self, token: u32) -> String {
        match self.codec.model() {
            None if token == END => String::new(),
            None => byte_name(token),
            Some(model) => self.pending.push(model, token),
        }
    }

    /// The text that was kept back until the end.
    pub fn finish(&mut self) -> String {
        match self.codec.model() {
            None => String::new(),
            Some(model) => self.pending.finish(model),
        }
    }

    /// Whether this token ends a text.
    pub fn ends_with(&self, token: u32) -> bool {
        token == self.codec.end()
    }

    /// One token as a text.
    pub fn name(&self, token: u32) -> String {
        self.codec.name(token)
    }
}

/// A chat that is being put together.
struct Chat<'a> {
    codec: &'a Codec,
    tokens: Vec<u32>,
}

impl Chat<'_> {
    fn begin(&mut self, role: &str) -> Result<(), PromptError> {
        self.mark(MESSAGE_START)?;
        self.text(role)?;
        self.text("\n")
    }

    fn content(&mut self, content: &Value) -> Result<(), PromptError> {
        match content {
            Value::String(text) => self.text(text),
            Value::Array(parts) => parts.iter().try_for_each(|one| self.part(one)),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), PromptError> {
        self.mark(MESSAGE_END)?;
        self.text("\n")
    }

    fn part(&mut self, part: &Value) -> Result<(), PromptError> {
        if let Some(text) = part.as_str().or_else(|| part["text"].as_str()) {
            return self.text(text);
        }
        // Whatever else it is, equal ones are equal and others are not.
        let first = self.codec.model().map_or(IMAGES, Tokenizer::size);
        self.tokens.extend(image(&part.to_string(), first));
        Ok(())
    }

    /// One of the marks around a message. Models that have none of their own get the text of it.
    fn mark(&mut self, mark: u32) -> Result<(), PromptError> {
        match self.codec.model() {
            None => self.tokens.push(mark),
            Some(model) => match model.token(&byte_name(mark)) {
                Some(token) => self.tokens.push(token),
                None => self.text(&byte_name(mark))?,
            },
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), PromptError> {
        self.tokens.extend(self.codec.plain(text)?);
        Ok(())
    }
}

/// The body that asks for such a chat.
fn templated(messages: &[Value], tools: Option<&Value>, end: ChatEnd) -> Value {
    let mut body = json!({
        "messages": messages,
        "add_generation_prompt": end == ChatEnd::Answer,
        "continue_final_message": end == ChatEnd::Open,
    });
    if let Some(tools) = tools.filter(|tools| !tools.is_null()) {
        body["tools"] = tools.clone();
    }
    body
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn decode_bytes(tokens: &[u32]) -> String {
    let mut text = String::new();
    let mut bytes = Vec::new();
    for &token in tokens {
        if let Ok(byte) = u8::try_from(token) {
            bytes.push(byte);
            continue;
        }
        text.push_str(&String::from_utf8_lossy(&bytes));
        bytes.clear();
        text.push_str(&byte_name(token));
    }
    text.push_str(&String::from_utf8_lossy(&bytes));
    text
}

fn byte_name(token: u32) -> String {
    match (token, u8::try_from(token)) {
        (MESSAGE_START, _) => "<|im_start|>".to_owned(),
        (MESSAGE_END, _) => "<|im_end|>".to_owned(),
        (END, _) => "<|endoftext|>".to_owned(),
        (_, Ok(byte)) => String::from_utf8_lossy(&[byte]).into_owned(),
        _ => format!("<|{token}|>"),
    }
}

fn image(content: &str, first: u32) -> impl Iterator<Item = u32> {
    let digest = homing_domain::Digest::of(content.as_bytes()).0;
    (0..IMAGE_TOKENS).map(move |place| {
        let mixed = digest
            .wrapping_add(u64::from(place))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        first + ((mixed >> 32) % u64::from(IMAGE_IDS)) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat(messages: &[Value], tools: Option<&Value>, end: ChatEnd) -> Vec<u32> {
        Codec::Bytes.chat(messages, tools, end).unwrap()
    }

    #[test]
    fn a_text_comes_back() {
        for text in ["", "hello", "äöü €", "\0\n"] {
            assert_eq!(Codec::Bytes.decode(&Codec::Bytes.encode(text).unwrap()), text);
        }
        assert_eq!(Codec::Bytes.decode(&[104, 105, END, 5_000]), "hi<|endoftext|><|5000|>");
    }

    #[test]
    fn a_chat_begins_like_the_chat_before_it() {
        let first = [json!({"role": "user", "content": "hi"})];
        let both = [first[0].clone(), json!({"role": "assistant", "content": "yes"})];
        let (short, long) = (chat(&first, None, ChatEnd::Message), chat(&both, None, ChatEnd::Answer));
        assert!(long.starts_with(&short));
        assert_eq!(Codec::Bytes.decode(&short), "<|im_start|>user\nhi<|im_end|>\n");
    }

    #[test]
    fn an_open_message_goes_on_where_an_answer_would() {
        let first = [json!({"role": "user", "content": "hi"})];
        let begun = [first[0].clone(), json!({"role": "assistant", "content": " ye"})];
        let answer = chat(&first, None, ChatEnd::Answer);
        assert_eq!(chat(&begun, None, ChatEnd::Open), [&answer[..], &bytes(" ye")].concat());
    }

    #[test]
    fn images_are_told_apart_by_their_content() {
        let with = |url: &str| {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            chat(
                &[json!({"role": "user", "content": [{"type": "text", "text": "see"}, image]})],
                None,
                ChatEnd::Answer,
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
        assert_ne!(
            chat(&messages, Some(&tools), ChatEnd::Answer),
            chat(&messages, None, ChatEnd::Answer)
        );
        assert_eq!(
            chat(&messages, Some(&Value::Null), ChatEnd::Answer),
            chat(&messages, None, ChatEnd::Answer)
        );
    }
}
