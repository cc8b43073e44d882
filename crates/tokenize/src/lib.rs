//! Which tokens does an engine see for a request, and which text are tokens? As the engine does it, from the files of its model.
//!
//! - [`Prompter`]: the tokens of chats, completions, messages and responses, through the model's chat template; start here;
//! - [`PromptOptions`]: how the engine was started, as far as it changes tokens;
//! - [`Tokenizer`]: read from a folder with a `tokenizer.json`; encodes and decodes;
//! - [`Incremental`]: the text of tokens that come one by one;
//! - [`LoadError`], [`EncodeError`], [`PromptError`]: what can go wrong.
//!
//! **Invariant:** the tokens of a request are those of the engine, or an error says why they are not known here.
//!
//! **Invariant:** pieces of text that were given out one by one are together the text of all tokens, and none of them ends
//! within a character.
//!
//! Cost: a tokenizer of 150,000 words takes about half a second to read and some tens of megabytes; it is shared by reference. Texts
//! between special tokens are remembered, so that a conversation that grows costs what is new.
//!
//! It makes no connection: what is not in the folder is not there.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod anthropic;
mod chat;
mod completion;
mod encode;
mod error;
mod folder;
mod incremental;
mod library;
mod options;
mod prompt;
mod responses;
mod template;
mod tokenizer;
mod truncate;

pub use encode::{CacheUse, Encoding, Switched};
pub use error::{EncodeError, LoadError, PromptError};
pub use incremental::Incremental;
pub use options::{
    CACHE_BYTES, Clock, ContentFormat, Dialect, IdleTools, PromptOptions, RequestTemplates, TemplateSource,
};
pub use prompt::{ChatTemplate, Cut, Description, Media, Prompt, Prompter};
pub use tokenizer::{Marks, Tokenizer};
