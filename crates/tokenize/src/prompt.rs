//! Which tokens does the engine see for this request?

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use minijinja::Value as Seen;
use serde_json::{Value, json};

use crate::anthropic::{self, LaterSystem};
use crate::chat::{self, Ask, Ending, Message, Placed};
use crate::completion::{self, Given};
use crate::encode::{CacheUse, Encoder, Encoding};
use crate::error::{LoadError, PromptError};
use crate::folder::Folder;
use crate::library::Library;
use crate::options::{ContentFormat, Dialect, PromptOptions};
use crate::responses;
use crate::template::Template;
use crate::tokenizer::{Marks, Tokenizer};
use crate::truncate::Truncate;

/// What stands for parts that are no text while it is found out what comes before them. No text of a client should have them;
/// if it has, fewer tokens are known.
const STAND_INS: [&str; 2] = ["\u{f8ff}homing:media\u{f8ff}", "<homing:media>"];

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

impl Media {
    /// What engines call it in a part.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Embedding => "text",
        }
    }
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

/// What is known about a chat template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatTemplate {
    /// There is one, which takes contents in this form.
    Known(ContentFormat),
    /// There is none that counts, and why.
    None(String),
}

/// How prompts are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// How texts become tokens.
    pub encoding: Encoding,
    /// The template of chats without tools.
    pub template: ChatTemplate,
    /// The template of chats with tools.
    pub template_with_tools: ChatTemplate,
}

impl fmt::Display for Description {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Encoding { cache, words } = self.encoding;
        write!(
            out,
            "cache of segments: {cache}; word by word: {words}; chats: {}",
            self.template
        )?;
        if self.template == self.template_with_tools {
            return Ok(());
        }
        write!(out, "; chats with tools: {}", self.template_with_tools)
    }
}

impl fmt::Display for ChatTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(ContentFormat::Parts) => out.write_str("a template that takes parts"),
            Self::Known(_) => out.write_str("a template that takes texts"),
            Self::None(why) => write!(out, "none, as {why}"),
        }
    }
}

/// Makes prompts as an engine does. Shared by reference between threads.
#[derive(Debug)]
pub struct Prompter {
    encoder: Encoder,
    library: Library,
    /// Names of special tokens, for templates.
    special: Vec<(String, String)>,
    /// Whether what the system says later comes first in bodies of `/v1/messages`.
    system_first: bool,
    /// What a request without thinking asks for in bodies of `/v1/messages`. Found out when it is first needed.
    disabled_effort: OnceLock<&'static str>,
    options: PromptOptions,
}

impl Prompter {
    /// Reads a model's folder: `tokenizer.json`, `tokenizer_config.json`, templates, `config.json` if there.
    pub fn load(folder: &Path, options: PromptOptions) -> Result<Self, LoadError> {
        let read = Folder::read(folder)?;
        let library = Library::new(&read, &options);
        let special = read.special.clone();
        let encoder = Encoder::new(Tokenizer::of(read, folder)?, options.cache_bytes);
        Ok(Self {
            encoder,
            system_first: library.wants_system_first(),
            disabled_effort: OnceLock::new(),
            library,
            special,
            options,
        })
    }

    /// The prompt of a body of `/v1/chat/completions`, or of `/tokenize` with messages.
    pub fn chat(&self, body: &Value) -> Result<Prompt, PromptError> {
        if let Some(tokens) = Ask::tokens(body)? {
            return Ok(Prompt { tokens, cut: None });
        }
        self.ask(&Ask::read(body, &self.options)?)
    }

    /// The prompts of a body of `/v1/completions`: one, or as many as it has.
    pub fn completion(&self, body: &Value) -> Result<Vec<Prompt>, PromptError> {
        let (given, truncate) = completion::prompts(body)?;
        let prompt = |given| {
            let tokens = match given {
                Given::Text(text) => self.tokens(text, truncate)?,
                Given::Tokens(mut tokens) => {
                    truncate.apply(&mut tokens, (0, 0), &self.options)?;
                    tokens
                }
            };
            Ok(Prompt { tokens, cut: None })
        };
        given.into_iter().map(prompt).collect()
    }

    /// The prompt of a body of `/v1/messages`.
    pub fn messages(&self, body: &Value) -> Result<Prompt, PromptError> {
        if self.options.dialect == Dialect::Sglang {
            return Err(PromptError::NotMirrored("messages in SGLang"));
        }
        let later = if self.system_first {
            LaterSystem::First
        } else {
            LaterSystem::Stays
        };
        let effort = self.disabled_effort.get_or_init(|| self.effort_without_thinking());
        self.chat(&anthropic::chat(body, later, effort)?)
    }

    /// The prompt of a body of `/v1/responses`.
    pub fn responses(&self, body: &Value) -> Result<Prompt, PromptError> {
        if self.options.dialect == Dialect::Sglang {
            return Err(PromptError::NotMirrored("responses in SGLang"));
        }
        let (chat, truncate) = responses::chat(body)?;
        if let Some(tokens) = Ask::tokens(&chat)? {
            return Ok(Prompt { tokens, cut: None });
        }
        let mut ask = Ask::read(&chat, &self.options)?;
        ask.truncate = truncate;
        self.ask(&ask)
    }

    /// The tokens of a text.
    pub fn text(&self, text: &str, marks: Marks) -> Result<Vec<u32>, PromptError> {
        Ok(self.encoder.encode(text, marks)?)
    }

    /// What it encodes with.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.encoder.tokenizer()
    }

    /// How the cache of segments did so far.
    pub fn cache_use(&self) -> CacheUse {
        self.encoder.usage()
    }

    /// How prompts are made: what is mirrored, and what is off for which reason.
    pub fn describe(&self) -> Description {
        Description {
            encoding: self.encoder.describe(),
            template: self.library.describe(false),
            template_with_tools: self.library.describe(true),
        }
    }

    /// What stands for no thinking: `none`, unless the template refuses it or makes no difference.
    fn effort_without_thinking(&self) -> &'static str {
        let prompt = |effort: &str| {
            let body = json!({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": effort});
            self.chat(&body).ok()
        };
        let Some(none) = prompt("none") else {
            return "low";
        };
        let same = ["low", "medium", "high", "xhigh", "max"]
            .into_iter()
            .any(|effort| prompt(effort).as_ref() == Some(&none));
        if same { "low" } else { "none" }
    }

    fn ask(&self, ask: &Ask<'_>) -> Result<Prompt, PromptError> {
        let template = self.library.choose(ask.template, ask.tools.is_some())?;
        let mut messages = chat::messages(ask.messages, template, self.options.dialect)?;
        let first = messages
            .iter()
            .enumerate()
            .find_map(|(index, message)| message.content.media().map(|media| (index, media)));
        if let Some((message, media)) = first {
            if ask.truncate.cuts() {
                return Err(PromptError::NotMirrored("truncation of prompts with media"));
            }
            let tokens = self.before_media(ask, template, &messages)?;
            let cut = Some(Cut { media, message });
            return Ok(Prompt { tokens, cut });
        }
        let text = self.render(ask, template, &mut messages, Placed::AsIs)?;
        let tokens = self.tokens(&text, ask.truncate)?;
        Ok(Prompt { tokens, cut: None })
    }

    /// The text of a conversation.
    fn render(
        &self,
        ask: &Ask<'_>,
        template: &Template,
        messages: &mut [Message],
        placed: Placed<'_>,
    ) -> Result<String, PromptError> {
        let continued = match ask.ending {
            Ending::Continued if !template.mentions("content") => {
                return Err(PromptError::Template(
                    "it has no content that could be continued".to_owned(),
                ));
            }
            Ending::Continued => Some(chat::mark_end(messages)?),
            Ending::Answer | Ending::Nothing => None,
        };
        let seen: Seen = messages.iter().map(|message| message.value(placed)).collect();
        let text = template.render(ask.context(&self.special, seen), &self.options.clock)?;
        match continued {
            Some(last) => chat::cut_at_mark(text, &last),
            None => Ok(text),
        }
    }

    /// The tokens before the first part that is no text: those which do not depend on what stands there.
    fn before_media(&self, ask: &Ask<'_>, template: &Template, messages: &[Message]) -> Result<Vec<u32>, PromptError> {
        let mut kept: Option<Vec<u32>> = None;
        // Where contents are parts, the template itself says what comes instead.
        let ways = if template.parts {
            [Placed::Instead(STAND_INS[0]), Placed::AsIs]
        } else {
            STAND_INS.map(Placed::Instead)
        };
        for way in ways {
            let mut text = self.render(ask, template, &mut messages.to_vec(), way)?;
            if let Placed::Instead(instead) = way {
                let Some(at) = text.find(instead) else {
                    return Err(PromptError::NotMirrored("media that the template leaves out"));
                };
                text.truncate(at + instead.len());
            }
            let tokens = self.encoder.encode(&text, ask.truncate.marks)?;
            kept = Some(match kept {
                None => tokens,
                Some(before) => {
                    let same = before
                        .iter()
                        .zip(&tokens)
                        .take_while(|(one, other)| one == other)
                        .count();
                    before[..same].to_vec()
                }
            });
        }
        Ok(kept.unwrap_or_default())
    }

    fn tokens(&self, text: &str, truncate: Truncate) -> Result<Vec<u32>, PromptError> {
        let mut tokens = self.encoder.encode(text, truncate.marks)?;
        truncate.apply(&mut tokens, self.tokenizer().marks(), &self.options)?;
        Ok(tokens)
    }
}
