//! Are folders, prompts and segments read as engines read them? By example, and on arbitrary texts.

mod folders;
mod prompts;
mod segments;
mod support;
