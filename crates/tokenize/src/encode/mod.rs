//! Which tokens is a text, and which of them are known already?
//!
//! - `added`: where added tokens stand; `cache`: tokens of what lies between them, so that a conversation that grows costs
//!   only what is new;
//! - `words`: tokens word by word, for tokenizers of known kinds; `pieces`: where words end.
//!
//! **Invariant:** the tokens are those of the tokenizer. What is cached or done word by word was decided from the tokenizer's
//! description, and compared with the tokenizer itself on texts that are hard ([`probe`]); where it is not certain, or
//! not equal, it is off, and [`Encoding`] says why.

mod added;
mod cache;
mod pieces;
mod probe;
mod words;

use std::fmt;

use added::Added;
use cache::Segments;
use words::Words;

pub use cache::CacheUse;

use crate::error::EncodeError;
use crate::tokenizer::{Marks, Tokenizer};

/// Something that makes encoding faster: on, or off for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// On.
    On,
    /// Off, and why.
    Off(&'static str),
}

impl fmt::Display for Switched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => out.write_str("on"),
            Self::Off(why) => write!(out, "off, as {why}"),
        }
    }
}

/// How texts are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Whether what lies between added tokens is cached.
    pub cache: Switched,
    /// Whether texts are encoded word by word.
    pub words: Switched,
}

/// Encodes texts, and remembers pieces of them.
#[derive(Debug)]
pub(crate) struct Encoder {
    tokenizer: Tokenizer,
    added: Result<Added, &'static str>,
    words: Result<Words, &'static str>,
    cache: Result<Segments, &'static str>,
    /// A token that is put before a text whose words would be others at the beginning, and taken off again.
    lead: Option<(String, u32)>,
    /// Tokens before and behind a text.
    around: (Vec<u32>, Vec<u32>),
}

impl Encoder {
    /// An encoder with a cache of so many bytes.
    pub fn new(tokenizer: Tokenizer, cache_bytes: usize) -> Self {
        let inner = tokenizer.inner();
        let pre = words::described(inner.get_pre_tokenizer());
        let normalizer = words::described(inner.get_normalizer());
        let tokens: Vec<_> = inner.get_added_tokens_decoder().into_iter().collect();
        let leading = depends_on_beginning(&pre);
        let lead = tokens
            .iter()
            .find(|(_, token)| !(token.normalized || token.lstrip || token.rstrip || token.single_word))
            .map(|(id, token)| (token.content.clone(), *id));
        let added = match (leading, &lead) {
            (true, None) => Err("the first word is encoded otherwise, and there is no token to put before it"),
            _ => Added::new(&tokens, !words::does_nothing(&normalizer)),
        };
        let words = if leading {
            Err("the first word is encoded otherwise")
        } else {
            Words::new(inner)
        };
        let around = around(&tokenizer);
        let mut encoder = Self {
            added: around.as_ref().map_or_else(|why| Err(*why), |_| added),
            words,
            cache: Ok(Segments::new(cache_bytes)),
            lead: lead.filter(|_| leading),
            around: around.unwrap_or_default(),
            tokenizer,
        };
        encoder.verify();
        if let (Err(why), _) | (_, Err(why)) = (&encoder.added, &encoder.cache) {
            encoder.cache = Err(*why);
        } else if cache_bytes == 0 {
            encoder.cache = Err("it was given no memory");
        }
        encoder
    }

    /// Turns off what gives other tokens than the tokenizer.
    fn verify(&mut self) {
        if self.added.is_ok() && self.words.is_ok() && !probe::equal(self) {
            self.words = Err("it gave other tokens than the tokenizer");
        }
        if self.added.is_ok() && !probe::equal(self) {
            self.added = Err("it gave other tokens than the tokenizer");
        }
        if self.added.is_err() {
            self.words = Err("added tokens are left to the tokenizer");
        }
    }

    /// What it encodes with.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// How it encodes.
    pub fn describe(&self) -> Encoding {
        Encoding {
            cache: self
                .cache
                .as_ref()
                .map_or_else(|why| Switched::Off(why), |_| Switched::On),
            words: self
                .words
                .as_ref()
                .map_or_else(|why| Switched::Off(why), |_| Switched::On),
        }
    }

    /// How the cache did.
    pub fn usage(&self) -> CacheUse {
        self.cache.as_ref().map(Segments::usage).unwrap_or_default()
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, marks: Marks) -> Result<Vec<u32>, EncodeError> {
        let Ok(added) = &self.added else {
            return self.tokenizer.encode(text, marks);
        };
        let mut tokens = Vec::with_capacity(text.len() / 3 + 16);
        if marks == Marks::Added {
            tokens.extend_from_slice(&self.around.0);
        }
        let found = added.find(text);
        let mut from = 0;
        let mut begin = 0;
        for (index, mark) in found.iter().enumerate().filter(|(_, mark)| mark.cut) {
            self.segment(text, from..mark.start, &found[begin..index], &mut tokens)?;
            tokens.push(mark.id);
            (from, begin) = (mark.end, index + 1);
        }
        self.segment(text, from..text.len(), &found[begin..], &mut tokens)?;
        if marks == Marks::Added {
            tokens.extend_from_slice(&self.around.1);
        }
        Ok(tokens)
    }

    /// The tokens between two places, with the added tokens there that are too frequent to cut at.
    fn segment(
        &self,
        text: &str,
        range: std::ops::Range<usize>,
        found: &[added::Mark],
        tokens: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let segment = between(text, range.start, range.end);
        // The first words of a text may be others than the same words elsewhere.
        let kept = Segments::keeps(segment) && !(range.start == 0 && self.lead.is_some());
        let cache = self.cache.as_ref().ok().filter(|_| kept);
        if cache.is_some_and(|cache| cache.append(segment, tokens)) {
            return Ok(());
        }
        let begin = tokens.len();
        let mut from = range.start;
        for mark in found {
            self.plain(between(text, from, mark.start), from == 0, tokens)?;
            tokens.push(mark.id);
            from = mark.end;
        }
        self.plain(between(text, from, range.end), from == 0, tokens)?;
        if let Some(cache) = cache {
            cache.keep(segment, &tokens[begin..]);
        }
        Ok(())
    }

    /// The tokens of a text without added tokens.
    fn plain(&self, text: &str, first: bool, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        if text.is_empty() {
            return Ok(());
        }
        if let Ok(words) = &self.words {
            return words.encode(self.tokenizer.inner(), text, tokens);
        }
        match &self.lead {
            Some((lead, _)) if !first => {
                let marked = self.tokenizer.encode(&format!("{lead}{text}"), Marks::None)?;
                tokens.extend(marked.into_iter().skip(1));
            }
            _ => tokens.extend(self.tokenizer.encode(text, Marks::None)?),
        }
        Ok(())
    }
}

/// What lies between two places: nothing, where a token has taken spaces in which the next one begins.
fn between(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

/// Whether the first words of a text are encoded otherwise than the same words elsewhere.
fn depends_on_beginning(pre: &serde_json::Value) -> bool {
    let alone = [pre.clone()];
    let steps = pre["pretokenizers"].as_array().map_or(&alone[..], Vec::as_slice);
    steps
        .iter()
        .any(|step| step["type"] == "Metaspace" && step["prepend_scheme"] == "first")
}

/// The tokens that are put around a text, by the example of one.
fn around(tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>), &'static str> {
    let why = "the tokens around a text are not known";
    let marked = tokenizer.encode("a", Marks::Added).map_err(|_| why)?;
    let plain = tokenizer.encode("a", Marks::None).map_err(|_| why)?;
    let (before, behind) = tokenizer.marks();
    if marked.len() != before + plain.len() + behind || marked[before..before + plain.len()] != plain {
        return Err(why);
    }
    Ok((marked[..before].to_vec(), marked[before + plain.len()..].to_vec()))
}
