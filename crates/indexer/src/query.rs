//! What is asked? The body of `POST /v1/overlap`, read and checked.

use std::fmt;

use homing_domain::{AdapterName, BlockKey, CacheSalt, Media, MediaId, Tokens, Window};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

use crate::problem::Problem;

/// A question as it is written. A field that nobody knows is an error: it would change the answer in silence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Written {
    model: Option<String>,
    block_size: Option<u64>,
    tokens: Option<TokenIds>,
    keys: Option<Keys>,
    adapter: Option<String>,
    salt: Option<String>,
    #[serde(default)]
    media: Option<Vec<WrittenMedia>>,
    #[serde(default)]
    window: WrittenWindow,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct WrittenMedia {
    id: String,
    start: u32,
    length: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenWindow {
    #[default]
    Plain,
    OneTokenAhead,
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) model: Option<String>,
    pub(crate) block_size: Option<u64>,
    pub(crate) prefix: Prefix,
}

/// The prefix that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prefix {
    /// To be hashed.
    Prompt(AskedPrompt),
    /// Hashed already.
    Keys(Vec<BlockKey>),
}

/// All that decides the keys of a prompt, but for the block size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AskedPrompt {
    pub(crate) tokens: Vec<u32>,
    pub(crate) adapter: Option<AdapterName>,
    pub(crate) salt: Option<CacheSalt>,
    pub(crate) media: Vec<Media>,
    pub(crate) window: Window,
}

impl Query {
    /// Reads a question from JSON.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let written: Written = serde_json::from_slice(body).map_err(|error| Problem::Malformed(error.to_string()))?;
        Ok(Self {
            model: written.model.clone(),
            block_size: written.block_size,
            prefix: prefix(written)?,
        })
    }
}

fn prefix(written: Written) -> Result<Prefix, Problem> {
    let media = written.media.unwrap_or_default();
    match (written.tokens, written.keys) {
        (Some(_), Some(_)) => Err(Problem::TokensAndKeys),
        (None, None) => Err(Problem::NoTokensNorKeys),
        (None, Some(Keys(keys))) => {
            let in_keys = [
                ("adapter", written.adapter.is_some()),
                ("salt", written.salt.is_some()),
                ("media", !media.is_empty()),
                ("window", written.window != WrittenWindow::Plain),
            ];
            match in_keys.iter().find(|(_, given)| *given) {
                Some((field, _)) => Err(Problem::InKeysAlready { field }),
                None => Ok(Prefix::Keys(keys)),
            }
        }
        (Some(TokenIds(tokens)), None) => Ok(Prefix::Prompt(AskedPrompt {
            tokens,
            adapter: written.adapter.map(AdapterName::new),
            salt: written.salt.map(CacheSalt::new),
            media: in_order(&media)?,
            window: match written.window {
                WrittenWindow::Plain => Window::Plain,
                WrittenWindow::OneTokenAhead => Window::OneTokenAhead,
            },
        })),
    }
}

fn in_order(media: &[WrittenMedia]) -> Result<Vec<Media>, Problem> {
    for (place, pair) in media.windows(2).enumerate() {
        if pair[1].start < pair[0].start {
            return Err(Problem::MediaOutOfOrder {
                place: place + 1,
                start: pair[1].start,
                before: pair[0].start,
            });
        }
    }
    let read = |media: &WrittenMedia| Media {
        id: MediaId::new(&media.id),
        start: Tokens(media.start),
        length: Tokens(media.length),
    };
    Ok(media.iter().map(read).collect())
}

/// Tokens, read one by one so that the wrong one can be named.
#[derive(Debug)]
struct TokenIds(Vec<u32>);

impl<'de> Deserialize<'de> for TokenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<u32>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tokens, whole numbers below 2^32")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u32>, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = list.next_element::<u64>()? {
                    let place = tokens.len();
                    let token = u32::try_from(token)
                        .map_err(|_| A::Error::custom(format_args!("token {place} is {token}, not below 2^32")))?;
                    tokens.push(token);
                }
                Ok(tokens)
            }
        }
        deserializer.deserialize_seq(All).map(Self)
    }
}

/// Keys, each 16 hexadecimal digits.
#[derive(Debug)]
struct Keys(Vec<BlockKey>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<BlockKey>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of keys, texts of 16 hexadecimal digits")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<BlockKey>, A::Error> {
                let mut keys = Vec::new();
                while let Some(KeyText(key)) = list.next_element()? {
                    let place = keys.len();
                    let key = key.map_err(|text| {
                        A::Error::custom(format_args!("key {place} is {text:?}, not 16 hexadecimal digits"))
                    })?;
                    keys.push(key);
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_seq(All).map(Self)
    }
}

/// A key, or the beginning of what is none.
struct KeyText(Result<BlockKey, String>);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl Visitor<'_> for One {
            type Value = KeyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text of 16 hexadecimal digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<KeyText, E> {
                let key = key(text).ok_or_else(|| text.chars().take(40).collect());
                Ok(KeyText(key))
            }
        }
        deserializer.deserialize_str(One)
    }
}

fn key(text: &str) -> Option<BlockKey> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
        .map(BlockKey)
}
