//! Which tokens is a text, and which text are tokens? As the engine does it, from the files of its model.
//!
//! - [`Tokenizer`]: read from a folder with a `tokenizer.json`; encodes and decodes; start here;
//! - [`Incremental`]: the text of tokens that come one by one;
//! - [`LoadError`], [`EncodeError`]: what can go wrong.
//!
//! **Invariant:** pieces of text that were given out one by one are together the text of all tokens, and none of them ends
//! within a character.
//!
//! Cost: a tokenizer of 150,000 words takes about half a second to read and some tens of megabytes; it is shared by reference.
//!
//! It knows no chat templates, and makes no connection: what is not in the folder is not there.

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
