//! How does TensorRT-LLM spell its events?
//!
//! Unknown members are ignored and those that may be missing are optional. Text without escapes is borrowed. Numbers
//! of blocks are numbers, or text in newer versions.

use std::borrow::Cow;
use std::fmt;

use homing_domain::Label;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde_json::value::RawValue;

use crate::error::WireError;

/// What is needed to give an event its place, even if the rest of it makes no sense.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(super) struct Head {
    pub(super) event_id: u64,
    #[serde(default)]
    pub(super) attention_dp_rank: Option<u16>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "event_id")]
    number: u64,
    #[serde(default)]
    attention_dp_rank: Option<u16>,
    #[serde(borrow)]
    pub(super) data: Data<'a>,
    #[serde(default)]
    pub(super) window_size: Option<u64>,
}

/// The members of all kinds of events.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Data<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) parent_hash: Option<Hash>,
    #[serde(default, borrow)]
    pub(super) blocks: Option<Vec<Block<'a>>>,
    #[serde(default)]
    pub(super) block_hashes: Option<Vec<Hash>>,
    #[serde(default)]
    pub(super) block_hash: Option<Hash>,
    #[serde(default)]
    pub(super) cache_level: Option<Moved>,
    #[serde(default, borrow)]
    pub(super) lora_name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) cache_salt: Option<Cow<'a, str>>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct Block<'a> {
    #[serde(rename = "block_hash")]
    pub(super) hash: Hash,
    pub(super) tokens: Vec<Token>,
    #[serde(default)]
    pub(super) cache_level: Option<u64>,
    #[serde(default)]
    pub(super) lora_id: Option<u64>,
    #[serde(default, borrow)]
    pub(super) lora_name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) cache_salt: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) mm_keys: Option<Vec<MediaKey<'a>>>,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(super) struct Token {
    pub(super) token_id: u32,
    #[serde(default)]
    pub(super) token_extra_id: u64,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct MediaKey<'a> {
    #[serde(borrow)]
    pub(super) hash: Cow<'a, str>,
    #[serde(default)]
    pub(super) start_offset: i64,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(super) struct Moved {
    pub(super) new_value: u64,
    pub(super) old_value: u64,
}

/// A label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) Label);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Hash;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a hash as a number or as text")
            }

            fn visit_u64<E: serde::de::Error>(self, hash: u64) -> Result<Hash, E> {
                Ok(Hash(Label::new(hash)))
            }

            fn visit_i64<E: serde::de::Error>(self, hash: i64) -> Result<Hash, E> {
                Ok(Hash(Label::from_signed(hash)))
            }

            fn visit_str<E: serde::de::Error>(self, hash: &str) -> Result<Hash, E> {
                Ok(Hash(Label::from_bytes(hash.as_bytes())))
            }
        }
        deserializer.deserialize_any(Read).map_err(D::Error::custom)
    }
}

/// The events of an answer, each still as text. No answer at all (`null`) has none.
pub(super) fn events(bytes: &[u8]) -> Result<Vec<&str>, WireError> {
    let events: Option<Vec<&RawValue>> = serde_json::from_slice(bytes).map_err(|error| WireError::Json {
        what: said(&error),
        line: error.line(),
        column: error.column(),
    })?;
    Ok(events.into_iter().flatten().map(RawValue::get).collect())
}

/// The place of an event, and what it says if that makes sense. `None` if it has no place.
pub(super) fn event(raw: &str) -> Option<(Head, Option<Event<'_>>)> {
    if let Ok(event) = serde_json::from_str::<Event<'_>>(raw) {
        let head = Head {
            event_id: event.number,
            attention_dp_rank: event.attention_dp_rank,
        };
        return Some((head, Some(event)));
    }
    Some((serde_json::from_str(raw).ok()?, None))
}

/// What the parser says, without the place that it appends.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
