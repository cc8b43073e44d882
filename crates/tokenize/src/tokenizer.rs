//! Which tokens is a text? What a folder of a model says.

use std::ops::Range;
use std::path::Path;

use crate::error::{EncodeError, LoadError};
use crate::folder::Folder;

/// Which tokens end a text, where the settings do not say it.
const USUAL_ENDS: [&str; 6] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
];

/// Whether the marks that a model wants around a text are put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Yes, as for a prompt.
    Added,
    /// No: the text as it is.
    None,
}

/// Text to tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Ids are below this.
    size: u32,
    end: Option<u32>,
    plain: Range<u32>,
    marks: (usize, usize),
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` if it is there.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        Self::of(Folder::read(folder)?, folder)
    }

    /// The tokenizer of a folder that was read.
    pub(crate) fn of(read: Folder, folder: &Path) -> Result<Self, LoadError> {
        let end = read.named("eos_token").map(str::to_owned);
        Self::new(read.tokenizer, end.as_deref()).ok_or_else(|| LoadError::Empty(folder.to_owned()))
    }

    fn new(inner: tokenizers::Tokenizer, end: Option<&str>) -> Option<Self> {
        let size = inner.get_vocab(true).into_values().max()?.checked_add(1)?;
        let end = end.and_then(|end| inner.token_to_id(end));
        let end = end.or_else(|| USUAL_ENDS.iter().find_map(|end| inner.token_to_id(end)));
        let plain = longest_gap(inner.get_added_tokens_decoder().into_keys(), size);
        let marks = marks_around(&inner);
        Some(Self {
            inner,
            size,
            end,
            plain,
            marks,
        })
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, marks: Marks) -> Result<Vec<u32>, EncodeError> {
        let encoded = self.inner.encode_fast(text, marks == Marks::Added);
        let encoded = encoded.map_err(|error| EncodeError(error.to_string()))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// What it is made of.
    pub(crate) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    /// How many marks are put before and behind a text.
    pub fn marks(&self) -> (usize, usize) {
        self.marks
    }

    /// The text of tokens, special ones by their names. Those that stand for nothing are left out.
    pub fn decode(&self, tokens: &[u32]) -> String {
        // It fails for decoders that want other tokens than these, which then have no text.
        self.inner.decode(tokens, false).unwrap_or_default()
    }

    /// The text of tokens without special ones, as answers are shown.
    pub fn decode_plain(&self, tokens: &[u32]) -> String {
        self.inner.decode(tokens, true).unwrap_or_default()
    }

    /// How a token is written in the vocabulary.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// The token of this name: for special tokens, which `encode` finds in texts, too.
    pub fn token(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// Ids are below this.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The token that ends a text, if the model has one.
    pub fn end(&self) -> Option<u32> {
        self.end
    }

    /// The longest range of ids that are no special tokens.
    pub fn plain(&self) -> Range<u32> {
        self.plain.clone()
    }
}

/// How many tokens are put before and behind a text, by the example of one.
fn marks_around(inner: &tokenizers::Tokenizer) -> (usize, usize) {
    let ids = |marks| inner.encode_fast("a", marks).map(|encoded| encoded.get_ids().to_vec());
    let (Ok(plain), Ok(marked)) = (ids(false), ids(true)) else {
        return (0, 0);
    };
    if plain.is_empty() {
        return (0, 0);
    }
    let before = marked.windows(plain.len()).position(|some| some == plain);
    before.map_or((0, 0), |before| (before, marked.len() - before - plain.len()))
}

/// The longest range below `size` without any of these.
fn longest_gap(taken: impl Iterator<Item = u32>, size: u32) -> Range<u32> {
    let mut taken: Vec<u32> = taken.filter(|id| *id < size).collect();
    taken.sort_unstable();
    taken.push(size);
    let (mut from, mut longest) = (0, 0..0);
    for id in taken {
        if id.saturating_sub(from) > longest.end - longest.start {
            longest = from..id;
        }
        from = id + 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_found() {
        assert_eq!(longest_gap([].into_iter(), 10), 0..10);
        assert_eq!(longest_gap([0, 1, 9].into_iter(), 10), 2..9);
        assert_eq!(longest_gap([7, 50].into_iter(), 10), 0..7);
        assert_eq!(longest_gap([0, 1, 2].into_iter(), 3), 0..0);
    }
}
