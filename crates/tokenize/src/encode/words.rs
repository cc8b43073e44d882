//! Which tokens is a text without added tokens? Word by word, each word once.
//!
//! What a tokenizer's model makes of a word never changes, and most words come again. So texts are parted into words
//! ([`Pieces`]), and what the model said about a word is kept. The model itself is that of the tokenizer.
//!
//! **Invariant:** the tokens are those of the tokenizer; where that is not certain from its description there are no [`Words`].
//!
//! Cost: about 60 ns for a known word. At most [`SHARDS`] times [`SHARD_WORDS`] words are known; a full shard is emptied.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;
use smallvec::SmallVec;
use tokenizers::models::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, NormalizedString, Normalizer, NormalizerWrapper};
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

use super::pieces::{Pairs, Pieces};
use crate::error::EncodeError;

/// In how many parts known words are kept, so that threads seldom meet.
const SHARDS: usize = 64;
/// How many words a part has at most.
const SHARD_WORDS: usize = 8_192;
/// The longest word that is kept, in bytes.
const LONGEST_WORD: usize = 128;
/// What stands for a space in vocabularies that have no bytes.
const SPACE: &str = "▁";

type Known = HashMap<Box<str>, SmallVec<[u32; 4]>, ahash::RandomState>;

/// What happens to a text before it is parted.
#[derive(Debug)]
enum Before {
    Nothing,
    /// Characters are composed.
    Composed(Box<NormalizerWrapper>),
    /// Spaces are written otherwise; this comes first.
    Spaces(String),
}

/// Encodes texts word by word.
#[derive(Debug)]
pub(super) struct Words {
    pieces: Pieces,
    before: Before,
    /// Whether the model wants bytes as letters.
    bytes: bool,
    hasher: ahash::RandomState,
    known: Vec<Mutex<Known>>,
}

impl Words {
    /// For tokenizers of known kinds; for others it says why not.
    pub fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, &'static str> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return Err("the model has no merges");
        };
        if model.dropout.is_some_and(|dropout| dropout > 0.0) {
            return Err("the model leaves out merges by chance");
        }
        let pre = described(tokenizer.get_pre_tokenizer());
        let normalizer = described(tokenizer.get_normalizer());
        let (pieces, before, bytes) = match Pieces::of_patterns(&pre) {
            Some(pieces) => (pieces, before_bytes(tokenizer, &normalizer)?, true),
            None if goes_on(&pre) => (Pieces::Pairs(whole_text(model)?), spaces(&normalizer)?, false),
            None => return Err("the way it parts texts is not known"),
        };
        Ok(Self {
            pieces,
            before,
            bytes,
            hasher: ahash::RandomState::new(),
            known: (0..SHARDS).map(|_| Mutex::default()).collect(),
        })
    }

    /// Appends the tokens of a text.
    pub fn encode(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        tokens: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let text = self.before(text)?;
        self.pieces.each(&text, |word| self.word(tokenizer, word, tokens))
    }

    fn before<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, EncodeError> {
        match &self.before {
            Before::Nothing => Ok(Cow::Borrowed(text)),
            Before::Composed(_) if text.is_ascii() => Ok(Cow::Borrowed(text)),
            Before::Composed(_) if is_nfc_quick(text.chars()) == IsNormalized::Yes => Ok(Cow::Borrowed(text)),
            Before::Composed(normalizer) => {
                let mut composed = NormalizedString::from(text);
                let done = normalizer.normalize(&mut composed);
                done.map_err(|error| EncodeError(error.to_string()))?;
                Ok(Cow::Owned(composed.get().to_owned()))
            }
            Before::Spaces(first) if text.is_empty() || first.is_empty() && !text.contains(' ') => {
                Ok(Cow::Borrowed(text))
            }
            Before::Spaces(first) => {
                let mut written = String::with_capacity(first.len() + text.len() * 2);
                written.push_str(first);
                for (index, word) in text.split(' ').enumerate() {
                    written.push_str(if index > 0 { SPACE } else { "" });
                    written.push_str(word);
                }
                Ok(Cow::Owned(written))
            }
        }
    }

    fn word(&self, tokenizer: &tokenizers::Tokenizer, word: &str, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        let shard = &self.known[self.hasher.hash_one(word) as usize % SHARDS];
        // A lock is poisoned by a panic only, and the words in it are still right.
        let lock = || shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = lock().get(word) {
            tokens.extend_from_slice(known);
            return Ok(());
        }
        let letters = if self.bytes {
            Cow::Owned(as_letters(word))
        } else {
            Cow::Borrowed(word)
        };
        let found = tokenizer.get_model().tokenize(&letters);
        let found = found.map_err(|error| EncodeError(error.to_string()))?;
        let found: SmallVec<[u32; 4]> = found.into_iter().map(|token| token.id).collect();
        tokens.extend_from_slice(&found);
        if word.len() <= LONGEST_WORD {
            let mut known = lock();
            if known.len() >= SHARD_WORDS {
                known.clear();
            }
            known.insert(word.into(), found);
        }
        Ok(())
    }
}

/// A part of a tokenizer as it stands in its file.
pub(super) fn described<T: serde::Serialize>(part: Option<&T>) -> Value {
    part.and_then(|part| serde_json::to_value(part).ok())
        .unwrap_or(Value::Null)
}

/// Whether a normaliser changes nothing.
pub(super) fn does_nothing(normalizer: &Value) -> bool {
    let list = normalizer["normalizers"].as_array();
    normalizer.is_null() || normalizer["type"] == "Sequence" && list.is_some_and(Vec::is_empty)
}

fn before_bytes(tokenizer: &tokenizers::Tokenizer, normalizer: &Value) -> Result<Before, &'static str> {
    match tokenizer.get_normalizer() {
        _ if does_nothing(normalizer) => Ok(Before::Nothing),
        Some(composing @ NormalizerWrapper::NFC(_)) => Ok(Before::Composed(Box::new(composing.clone()))),
        _ => Err("the way it normalises texts is not known"),
    }
}

/// Whether a text is not parted at all: by nothing, or at spaces of which there are none left.
fn goes_on(pre: &Value) -> bool {
    pre.is_null() || pre["type"] == "Split" && pre["pattern"]["String"] == " " && pre["invert"] == false
}

/// How spaces are written, and what is put before a text.
fn spaces(normalizer: &Value) -> Result<Before, &'static str> {
    let alone = [normalizer.clone()];
    let steps = normalizer["normalizers"].as_array().map_or(&alone[..], Vec::as_slice);
    let mut first = "";
    let mut rest = steps;
    if let Some((step, behind)) = steps.split_first()
        && step["type"] == "Prepend"
    {
        first = step["prepend"].as_str().unwrap_or_default();
        rest = behind;
    }
    match rest {
        [step] if step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == SPACE => {
            Ok(Before::Spaces(first.to_owned()))
        }
        _ => Err("the way it normalises texts is not known"),
    }
}

/// The pairs of a model that merges over whole texts, if it can be parted between others.
fn whole_text(model: &BPE) -> Result<Pairs, &'static str> {
    let some = |affix: &Option<String>| affix.as_ref().is_some_and(|affix| !affix.is_empty());
    if some(&model.continuing_subword_prefix) || some(&model.end_of_word_suffix) {
        return Err("the model marks where words begin or end");
    }
    if model.ignore_merges {
        return Err("the model looks for whole texts in its vocabulary");
    }
    let vocabulary = model.get_vocab();
    // A character without a token must become bytes: several of them that are unknown would become one token.
    let has = |byte: u8| {
        vocabulary.contains_key(&format!("<0x{byte:02X}>"))
            || byte.is_ascii() && vocabulary.contains_key(&char::from(byte).to_string())
    };
    if !model.byte_fallback || !(0..=255).all(has) {
        return Err("the model has characters without tokens");
    }
    if vocabulary.keys().any(|word| word.len() > 6 && word.contains("<0x")) {
        return Err("the model merges bytes");
    }
    Ok(Pairs::new(vocabulary.keys().map(String::as_str)))
}

/// Bytes as letters, the way byte-level tokenizers write them: printable ones as they are, the others from U+0100 on.
fn as_letters(word: &str) -> String {
    let mut letters = String::with_capacity(word.len() * 2);
    for byte in word.bytes() {
        letters.push(match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            0..=0x20 => offset(u32::from(byte)),
            0x7f..=0xa0 => offset(33 + u32::from(byte) - 0x7f),
            0xad => offset(67),
        });
    }
    letters
}

fn offset(number: u32) -> char {
    char::from_u32(0x100 + number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_letters() {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let all: String = (0..=127_u8)
            .map(char::from)
            .chain(('\u{80}'..='\u{7ff}').step_by(7))
            .collect();
        let letters = as_letters(&all);
        assert!(letters.chars().all(|letter| alphabet.contains(&letter)));
        assert_eq!(as_letters("a b\n\u{7f}é\u{ad}"), "aĠbĊġÃ©ÂŃ");
    }
}
