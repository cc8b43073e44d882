//! How does SGLang write its messages?

use super::event::{EngineBatch, EngineEvent, EngineStored};
use super::put::{Event, Shape, batch, hash, hashes, number, text, tokens};
use crate::msgpack::{write_map, write_text};

/// Which version of SGLang writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglangForm {
    /// Events as lists, up to 0.5.18.
    Array,
    /// Events as maps, as 0.5.23 does.
    Map,
}

/// A message of SGLang. What SGLang does not tell (names of adapters, extra keys, groups, locality) is left out.
pub fn sglang(message: &EngineBatch, form: SglangForm) -> Vec<u8> {
    let shape = match form {
        SglangForm::Array => Shape::Array(usize::MAX),
        SglangForm::Map => Shape::Map,
    };
    batch(message, |event| match event {
        EngineEvent::Stored(event) => stored(event, shape),
        EngineEvent::Removed(event) => Event::new(shape, "BlockRemoved")
            .with("block_hashes", |out| hashes(out, &event.hashes))
            .with_or_nil("medium", event.medium.as_deref(), text),
        EngineEvent::Cleared => Event::new(shape, "AllBlocksCleared"),
    })
}

fn stored(event: &EngineStored, shape: Shape) -> Event {
    let written = Event::new(shape, "BlockStored")
        .with("block_hashes", |out| hashes(out, &event.hashes))
        .with_or_nil("parent_block_hash", event.parent.as_ref(), hash)
        .with("token_ids", |out| tokens(out, &event.tokens))
        .with("block_size", |out| number(out, event.block_size))
        .with_or_nil("lora_id", event.lora_id, number)
        .with_or_nil("medium", event.medium.as_deref(), text);
    match &event.cache_salt {
        None => written,
        Some(salt) => written.with("cache_salt", |out| {
            // At the eighth place of a list there is a map, for more to come.
            if shape != Shape::Map {
                write_map(out, 1);
                write_text(out, "cache_salt");
            }
            write_text(out, salt);
        }),
    }
}
