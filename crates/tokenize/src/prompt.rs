//! Which tokens does the engine see for this request?

use std::path::Path;

use serde_json::Value;

use crate::error::{LoadError, PromptError};
use crate::options::PromptOptions;
use crate::tokenizer::{Marks, Tokenizer};

/// What a part of a message is that has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// An image.
    Image,
    /// A sound.
    Audio,
    /// A video.
    Video,
    /// Something that was embedded before it was sent.
    Embedding,
}

/// Why a prompt is not whole: from here on its tokens are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// What stands there.
    pub media: Media,
    /// In which message, counted from 0.
    pub message: usize,
}

/// The tokens that an engine sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// All of them, or those before the cut.
    pub tokens: Vec<u32>,
    /// Where it is cut; whole if nowhere.
    pub cut: Option<Cut>,
}

/// Makes prompts as an engine does. Shared by reference between threads.
#[derive(Debug)]
pub struct Prompter {
    tokenizer: Tokenizer,
    options: PromptOptions,
}

impl Prompter {
    /// Reads a model's folder: `tokenizer.json`, `tokenizer_config.json`, templates, `config.json` if there.
    pub fn load(folder: &Path, options: PromptOptions) -> Result<Self, LoadError> {
        let tokenizer = Tokenizer::load(folder)?;
        Ok(Self { tokenizer, options })
    }

    /// The prompt of a body of `/v1/chat/completions`, or of `/tokenize` with messages.
    pub fn chat(&self, body: &Value) -> Result<Prompt, PromptError> {
        let _ = (body, &self.options);
        Err(PromptError::NotMirrored("chats"))
    }

    /// The prompts of a body of `/v1/completions`: one, or as many as it has.
    pub fn completion(&self, body: &Value) -> Result<Vec<Prompt>, PromptError> {
        let _ = body;
        Err(PromptError::NotMirrored("completions"))
    }

    /// The prompt of a body of `/v1/messages`.
    pub fn messages(&self, body: &Value) -> Result<Prompt, PromptError> {
        let _ = body;
        Err(PromptError::NotMirrored("messages"))
    }

    /// The prompt of a body of `/v1/responses`.
    pub fn responses(&self, body: &Value) -> Result<Prompt, PromptError> {
        let _ = body;
        Err(PromptError::NotMirrored("responses"))
    }

    /// The tokens of a text.
    pub fn text(&self, text: &str, marks: Marks) -> Result<Vec<u32>, PromptError> {
        Ok(self.tokenizer.encode(text, marks)?)
    }

    /// What it encodes with.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }
}
