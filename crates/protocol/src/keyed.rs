//! Where is the value of a key, without reading what stands before it?
//!
//! A key with its quotes and colon cannot occur inside a string of a JSON text: there its quotes are escaped. So one search for
//! these bytes finds a key at whatever depth, and nothing else. Engines write no space between a key and its colon.
//!
//! Cost: tens of nanoseconds for an event of some hundred bytes.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// A key that is searched for.
pub(crate) struct Key(LazyLock<Finder<'static>>);

macro_rules! keys {
    ($($name:ident = $key:literal;)*) => {
        $(pub(crate) static $name: Key = Key(LazyLock::new(|| Finder::new(concat!("\"", $key, "\":"))));)*
    };
}

keys! {
    CHOICES = "choices";
    CONTENT = "content";
    DELTA = "delta";
    FINISH_REASON = "finish_reason";
    PROMPT_TOKEN_IDS = "prompt_token_ids";
    REASONING = "reasoning";
    REASONING_CONTENT = "reasoning_content";
    TEXT = "text";
    TOKEN_IDS = "token_ids";
    TOOL_CALLS = "tool_calls";
    USAGE = "usage";
}

impl Key {
    /// Where the value of its first occurrence begins.
    #[inline]
    pub(crate) fn at(&self, text: &[u8]) -> Option<usize> {
        let key = self.0.find(text)?;
        let mut at = key + self.0.needle().len();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
            at += 1;
        }
        Some(at)
    }

    /// The text from the value of its first occurrence on.
    #[inline]
    pub(crate) fn from<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        text.get(self.at(text)?..)
    }

    /// Whether the value of its first occurrence is a text that is not empty.
    #[inline]
    pub(crate) fn says(&self, text: &[u8]) -> bool {
        self.from(text)
            .is_some_and(|value| value.starts_with(b"\"") && value.get(1) != Some(&b'"'))
    }

    /// Whether the value of its first occurrence begins with this byte.
    #[inline]
    pub(crate) fn opens(&self, text: &[u8], byte: u8) -> bool {
        self.from(text).is_some_and(|value| value.first() == Some(&byte))
    }
}
