//! Which tokens is a text? What a folder of a model says.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::error::{EncodeError, LoadError};

/// The longest file that is read.
const LONGEST_FILE: u64 = 256 << 20;
const WORDS: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";
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
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` if it is there.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        if !folder.is_dir() {
            return Err(LoadError::NoFolder(folder.to_owned()));
        }
        let file = folder.join(WORDS);
        let inner: tokenizers::Tokenizer = read(&file)?.parse().map_err(|error| LoadError::Wrong {
            file: file.clone(),
            why: format!("{error}"),
        })?;
        let settings = folder.join(SETTINGS);
        let end = if settings.is_file() {
            let parsed: Value = serde_json::from_str(&read(&settings)?).map_err(|error| LoadError::Wrong {
                file: settings,
                why: error.to_string(),
            })?;
            word(&parsed["eos_token"])
        } else {
            None
        };
        Self::new(inner, end.as_deref()).ok_or(LoadError::Empty(file))
    }

    fn new(inner: tokenizers::Tokenizer, end: Option<&str>) -> Option<Self> {
        let size = inner.get_vocab(true).into_values().max()?.checked_add(1)?;
        let end = end.and_then(|end| inner.token_to_id(end));
        let end = end.or_else(|| USUAL_ENDS.iter().find_map(|end| inner.token_to_id(end)));
        let plain = longest_gap(inner.get_added_tokens_decoder().into_keys(), size);
        Some(Self {
            inner,
            size,
            end,
            plain,
        })
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, marks: Marks) -> Result<Vec<u32>, EncodeError> {
        let encoded = self.inner.encode_fast(text, marks == Marks::Added);
        let encoded = encoded.map_err(|error| EncodeError(error.to_string()))?;
        Ok(encoded.get_ids().to_vec())
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

fn read(file: &Path) -> Result<String, LoadError> {
    let bytes = homing_config::length_of(file).map_err(|error| LoadError::Unreadable(error.to_string()))?;
    if bytes > LONGEST_FILE {
        return Err(LoadError::TooLong {
            file: file.to_owned(),
            bytes,
            limit: LONGEST_FILE,
        });
    }
    let text = homing_config::read_text(file).map_err(|error| LoadError::Unreadable(error.to_string()))?;
    Ok(text.text)
}

/// A token in the settings: its name, or an object with it.
fn word(value: &Value) -> Option<String> {
    let name = value.as_str().or_else(|| value["content"].as_str())?;
    Some(name.to_owned())
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
