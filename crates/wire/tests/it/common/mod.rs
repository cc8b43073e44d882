//! What do the captures say, read without the code under test? And small helpers.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use homing_domain::{
    AdapterName, BlockKey, BlockSize, CacheGroup, CacheSalt, ClearScope, Digest, Extras, HashSeed, KeyHasher, KvBatch,
    KvChange, Label, MediaId, Removed, Sequence, Stored, StoredBlock, Tier,
};
use homing_wire::encode::{EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, EngineTokens, ExtraKey};
use homing_wire::{Decoder, DecoderConfig, Dialect};
use serde_json::Value;

/// A captured message: its frames, and what the engine's own library made of it.
pub struct Captured {
    pub frames: Vec<Vec<u8>>,
    pub decoded: Value,
}

pub struct Capture {
    pub name: &'static str,
    pub dialect: Dialect,
    pub block_size: u32,
    pub messages: Vec<Captured>,
}

pub fn captures() -> Vec<Capture> {
    let one = |name, dialect, block_size, frames: &[u8], text: &str| {
        let decoded: Vec<Value> = serde_json::from_str(text).unwrap();
        let frames = split(frames);
        assert_eq!(frames.len(), decoded.len());
        let messages = frames.into_iter().zip(decoded);
        Capture {
            name,
            dialect,
            block_size,
            messages: messages.map(|(frames, decoded)| Captured { frames, decoded }).collect(),
        }
    };
    vec![
        one(
            "vllm-0.32.0",
            Dialect::Vllm,
            32,
            include_bytes!("../../captures/vllm-0.32.0.bin"),
            include_str!("../../captures/vllm-0.32.0.json"),
        ),
        one(
            "vllm-0.32.0-clear",
            Dialect::Vllm,
            32,
            include_bytes!("../../captures/vllm-0.32.0-clear.bin"),
            include_str!("../../captures/vllm-0.32.0-clear.json"),
        ),
        one(
            "sglang-0.5.23",
            Dialect::Sglang,
            16,
            include_bytes!("../../captures/sglang-0.5.23.bin"),
            include_str!("../../captures/sglang-0.5.23.json"),
        ),
    ]
}

pub fn split(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let number = |bytes: &mut &[u8]| {
        let (head, rest) = bytes.split_first_chunk::<4>().unwrap();
        *bytes = rest;
        u32::from_le_bytes(*head) as usize
    };
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let count = number(&mut bytes);
        let frames = (0..count).map(|_| {
            let length = number(&mut bytes);
            let (frame, rest) = bytes.split_at(length);
            bytes = rest;
            frame.to_vec()
        });
        messages.push(frames.collect());
    }
    messages
}

pub fn hasher() -> KeyHasher {
    KeyHasher::new(HashSeed::PUBLIC)
}

pub fn size(tokens: u32) -> BlockSize {
    BlockSize::new(tokens).unwrap()
}

pub fn decoder(dialect: Dialect, block_size: u32) -> Decoder {
    Decoder::new(DecoderConfig {
        dialect,
        hasher: hasher(),
        block_size: size(block_size),
    })
}

/// What a message of a capture should be decoded to: written anew here, from the JSON, in the plainest way.
pub fn expected(message: &Value, payload: &[u8]) -> KvBatch {
    let [ts, events, _] = message["payload"].as_array().unwrap().as_slice() else {
        panic!("no batch: {message}");
    };
    let mut changes = Vec::new();
    for event in events.as_array().unwrap() {
        let change = match event["type"].as_str().unwrap() {
            "BlockStored" => KvChange::Stored(expected_store(event)),
            "BlockRemoved" => KvChange::Removed(Removed::plain(labels(&event["block_hashes"]))),
            "AllBlocksCleared" => KvChange::Cleared(ClearScope::AllTiers),
            other => panic!("{other}"),
        };
        // Removals that follow each other are one change, and a second clear is none.
        match (changes.last_mut(), change) {
            (Some(KvChange::Removed(last)), KvChange::Removed(more)) => last.labels.extend(more.labels),
            (Some(KvChange::Cleared(_)), KvChange::Cleared(_)) => {}
            (_, change) => changes.push(change),
        }
    }
    KvBatch {
        sequence: Sequence(message["seq"].as_u64().unwrap()),
        digest: Digest::of(payload),
        sent_ms: Some((ts.as_f64().unwrap() * 1000.0) as u64),
        changes,
    }
}

fn expected_store(event: &Value) -> Stored {
    let labels = labels(&event["block_hashes"]);
    let tokens: Vec<u32> = event["token_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_u64().unwrap() as u32)
        .collect();
    let parent = label(&event["parent_block_hash"]);
    let salt = event["cache_salt"]
        .as_str()
        .or(event["extra_keys"][0][0].as_str())
        .map(CacheSalt::new);
    let block_size = event["block_size"].as_u64().unwrap() as usize;
    assert_eq!(tokens.len(), block_size * labels.len());
    let blocks = labels.into_iter().zip(tokens.chunks(block_size)).enumerate();
    let blocks = blocks.map(|(number, (label, tokens))| StoredBlock {
        label,
        content: hasher().content(
            tokens,
            &Extras {
                salt: salt.as_ref().filter(|_| number == 0 && parent.is_none()),
                ..Extras::default()
            },
        ),
    });
    Stored {
        salt: salt.clone(),
        ..Stored::plain(parent, blocks.collect())
    }
}

fn labels(hashes: &Value) -> Vec<Label> {
    hashes
        .as_array()
        .unwrap()
        .iter()
        .map(|hash| label(hash).unwrap())
        .collect()
}

fn label(hash: &Value) -> Option<Label> {
    let unsigned = hash.as_u64().map(Label::new);
    unsigned.or_else(|| hash.as_i64().map(Label::from_signed))
}

/// A message of a capture as an engine has it before it writes it. The time is that of the bytes, because the parser of
/// JSON rounds it.
pub fn engine_batch(message: &Value, bytes: &[u8]) -> EngineBatch {
    let payload = &message["payload"];
    EngineBatch {
        ts: f64::from_be_bytes(bytes[2..10].try_into().unwrap()),
        events: payload[1].as_array().unwrap().iter().map(engine_event).collect(),
        dp: payload[2].as_u64().map(|dp| dp as u16),
    }
}

fn engine_event(event: &Value) -> EngineEvent {
    let hashes = |value: &Value| {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|hash| engine_hash(hash).unwrap())
            .collect()
    };
    let text = |name: &str| event[name].as_str().map(str::to_owned);
    match event["type"].as_str().unwrap() {
        "BlockStored" => EngineEvent::Stored(EngineStored {
            hashes: hashes(&event["block_hashes"]),
            parent: engine_hash(&event["parent_block_hash"]),
            tokens: EngineTokens::Plain(
                event["token_ids"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|token| token.as_u64().unwrap() as u32)
                    .collect(),
            ),
            block_size: event["block_size"].as_u64().unwrap() as u32,
            lora_id: event["lora_id"].as_u64(),
            medium: text("medium"),
            lora_name: text("lora_name"),
            extra_keys: event["extra_keys"]
                .as_array()
                .map(|keys| keys.iter().map(engine_keys).collect()),
            group: event["group_idx"].as_u64().map(|group| group as u32),
            kind: text("kv_cache_spec_kind"),
            sliding_window: None,
            locality: text("locality"),
            cache_salt: text("cache_salt"),
        }),
        "BlockRemoved" => EngineEvent::Removed(EngineRemoved {
            hashes: hashes(&event["block_hashes"]),
            medium: text("medium"),
            group: event["group_idx"].as_u64().map(|group| group as u32),
            locality: text("locality"),
        }),
        _ => EngineEvent::Cleared,
    }
}

fn engine_keys(keys: &Value) -> Option<Vec<ExtraKey>> {
    let keys = keys.as_array()?.iter();
    Some(
        keys.map(|key| ExtraKey::Text(key.as_str().unwrap().to_owned()))
            .collect(),
    )
}

fn engine_hash(hash: &Value) -> Option<EngineHash> {
    let unsigned = hash.as_u64().map(EngineHash::Unsigned);
    unsigned.or_else(|| hash.as_i64().map(EngineHash::Signed))
}

/// Numbers as names of blocks.
pub fn named(numbers: impl IntoIterator<Item = u64>) -> Vec<EngineHash> {
    numbers.into_iter().map(EngineHash::Unsigned).collect()
}

pub fn message(events: Vec<EngineEvent>) -> EngineBatch {
    EngineBatch {
        ts: 1.5,
        events,
        dp: Some(0),
    }
}

pub fn removed(hashes: Vec<EngineHash>) -> EngineRemoved {
    EngineRemoved {
        hashes,
        medium: None,
        group: None,
        locality: None,
    }
}

/// The keys that the stored blocks of changes chain to, from the root on.
pub fn chained(changes: &[KvChange]) -> Vec<BlockKey> {
    let mut keys = Vec::new();
    let mut parent = (None, hasher().root());
    for change in changes {
        let KvChange::Stored(stored) = change else {
            panic!("not a store: {change:?}");
        };
        assert_eq!(stored.parent, parent.0, "a run that does not follow");
        for block in &stored.blocks {
            parent = (Some(block.label), hasher().child(parent.1, block.content));
            keys.push(parent.1);
        }
    }
    keys
}

/// The only store among changes.
pub fn only_store(changes: &[KvChange]) -> &Stored {
    match changes {
        [KvChange::Stored(stored)] => stored,
        other => panic!("not one store: {other:?}"),
    }
}

/// The content of a block of text, of the base model or of an adapter.
pub fn content(tokens: &[u32], adapter: Option<&str>, media: &[(MediaId, i64)]) -> homing_domain::ContentHash {
    let adapter = adapter.map(AdapterName::new);
    let extras = Extras {
        adapter: hasher().adapter(adapter.as_ref()),
        salt: None,
        media,
    };
    hasher().content(tokens, &extras)
}

pub const HOST: (Tier, CacheGroup) = (Tier::Host, CacheGroup(0));
