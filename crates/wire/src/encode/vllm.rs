//! How does vLLM write its messages?

use super::event::{EngineBatch, EngineEvent, EngineRemoved, EngineStored};
use super::put::{Event, Shape, batch, extra_keys, hash, hashes, number, text, tokens};

/// Which version of vLLM writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VllmForm {
    /// Events as lists, up to 0.22. Stores have so many elements, tag included, of 5 to 13; what does not fit is left
    /// out. Removals have their medium if stores have theirs, from 7 on, and likewise their group, from 10 on.
    Array(usize),
    /// Events as maps, from 0.24 on.
    Map,
}

/// A message of vLLM. The salt that SGLang tells apart is not in it: in vLLM's it is an extra key.
pub fn vllm(message: &EngineBatch, form: VllmForm) -> Vec<u8> {
    batch(message, |event| match event {
        EngineEvent::Stored(event) => stored(event, form),
        EngineEvent::Removed(event) => removed(event, form),
        EngineEvent::Cleared => Event::new(shape(form, 1), "AllBlocksCleared"),
    })
}

const fn shape(form: VllmForm, most: usize) -> Shape {
    match form {
        VllmForm::Array(_) => Shape::Array(most),
        VllmForm::Map => Shape::Map,
    }
}

fn stored(event: &EngineStored, form: VllmForm) -> Event {
    let length = match form {
        VllmForm::Array(length) => length.clamp(5, 13),
        VllmForm::Map => 0,
    };
    Event::new(shape(form, length), "BlockStored")
        .with("block_hashes", |out| hashes(out, &event.hashes))
        .with_or_nil("parent_block_hash", event.parent.as_ref(), hash)
        .with("token_ids", |out| tokens(out, &event.tokens))
        .with("block_size", |out| number(out, event.block_size))
        .with_or_nil("lora_id", event.lora_id, number)
        .with_or_nil("medium", event.medium.as_deref(), text)
        .with_or_nil("lora_name", event.lora_name.as_deref(), text)
        .with_some("extra_keys", event.extra_keys.as_deref(), extra_keys)
        .with_some("group_idx", event.group, number)
        .with_some("kv_cache_spec_kind", event.kind.as_deref(), text)
        .with_some("kv_cache_spec_sliding_window", event.sliding_window, number)
        .with_some("locality", event.locality.as_deref(), text)
}

fn removed(event: &EngineRemoved, form: VllmForm) -> Event {
    let most = match form {
        VllmForm::Array(..7) => 2,
        VllmForm::Array(7..10) => 3,
        VllmForm::Array(_) => 4,
        VllmForm::Map => 0,
    };
    Event::new(shape(form, most), "BlockRemoved")
        .with("block_hashes", |out| hashes(out, &event.hashes))
        .with_or_nil("medium", event.medium.as_deref(), text)
        .with_some("group_idx", event.group, number)
        .with_some("locality", event.locality.as_deref(), text)
}
