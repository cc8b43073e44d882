//! How is an event put together? As a list or as a map, of the same fields in the same order.

use super::event::{EngineBatch, EngineEvent, EngineHash, EngineTokens, ExtraKey};
use crate::msgpack::{
    write_array, write_bytes, write_float, write_map, write_nil, write_signed, write_text, write_unsigned,
};

/// How events look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A list of at most so many elements, tag included.
    Array(usize),
    /// A map.
    Map,
}

/// An event that is being written.
pub(super) struct Event {
    shape: Shape,
    count: usize,
    bytes: Vec<u8>,
}

impl Event {
    pub(super) fn new(shape: Shape, tag: &str) -> Self {
        let event = Self {
            shape,
            count: 0,
            bytes: Vec::new(),
        };
        event.with("type", |out| write_text(out, tag))
    }

    /// Adds a field.
    pub(super) fn with(mut self, key: &str, put: impl FnOnce(&mut Vec<u8>)) -> Self {
        match self.shape {
            Shape::Array(most) if self.count >= most => return self,
            Shape::Array(_) => {}
            Shape::Map => write_text(&mut self.bytes, key),
        }
        put(&mut self.bytes);
        self.count += 1;
        self
    }

    /// Adds a field that is nil where there is nothing.
    pub(super) fn with_or_nil<T>(self, key: &str, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) -> Self {
        self.with(key, |out| optional(out, value, put))
    }

    /// Adds a field that a map leaves out where there is nothing, and a list has as nil.
    pub(super) fn with_some<T>(self, key: &str, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) -> Self {
        if value.is_none() && self.shape == Shape::Map {
            return self;
        }
        self.with_or_nil(key, value, put)
    }

    pub(super) fn finish(self, out: &mut Vec<u8>) {
        match self.shape {
            Shape::Array(_) => write_array(out, self.count),
            Shape::Map => write_map(out, self.count),
        }
        out.extend_from_slice(&self.bytes);
    }
}

/// What is around the events, which vLLM and SGLang share.
pub(super) fn batch(batch: &EngineBatch, mut event: impl FnMut(&EngineEvent) -> Event) -> Vec<u8> {
    let mut out = Vec::new();
    write_array(&mut out, 3);
    write_float(&mut out, batch.ts);
    write_array(&mut out, batch.events.len());
    for one in &batch.events {
        event(one).finish(&mut out);
    }
    optional(&mut out, batch.dp, |out, dp| write_unsigned(out, u64::from(dp)));
    out
}

pub(super) fn hashes(out: &mut Vec<u8>, hashes: &[EngineHash]) {
    write_array(out, hashes.len());
    for one in hashes {
        hash(out, one);
    }
}

pub(super) fn hash(out: &mut Vec<u8>, hash: &EngineHash) {
    match hash {
        EngineHash::Unsigned(number) => write_unsigned(out, *number),
        EngineHash::Signed(number) => write_signed(out, *number),
        EngineHash::Bytes(bytes) => write_bytes(out, bytes),
    }
}

pub(super) fn number(out: &mut Vec<u8>, number: impl Into<u64>) {
    write_unsigned(out, number.into());
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    write_text(out, text);
}

pub(super) fn tokens(out: &mut Vec<u8>, tokens: &EngineTokens) {
    match tokens {
        EngineTokens::Plain(tokens) => {
            write_array(out, tokens.len());
            for &token in tokens {
                number(out, token);
            }
        }
        EngineTokens::Pairs(tokens) => {
            write_array(out, tokens.len().saturating_sub(1));
            for pair in tokens.windows(2) {
                write_array(out, 2);
                for &token in pair {
                    number(out, token);
                }
            }
        }
    }
}

pub(super) fn extra_keys(out: &mut Vec<u8>, keys: &[Option<Vec<ExtraKey>>]) {
    write_array(out, keys.len());
    for block in keys {
        optional(out, block.as_deref(), |out, keys| {
            write_array(out, keys.len());
            for key in keys {
                extra_key(out, key);
            }
        });
    }
}

fn extra_key(out: &mut Vec<u8>, key: &ExtraKey) {
    match key {
        ExtraKey::Text(text) => write_text(out, text),
        ExtraKey::Bytes(bytes) => write_bytes(out, bytes),
        ExtraKey::Media(identifier, offset) => {
            write_array(out, 2);
            write_text(out, identifier);
            write_signed(out, *offset);
        }
    }
}

fn optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => put(out, value),
        None => write_nil(out),
    }
}
