//! What does the engine hold? The truth, in half a page, and the events that tell of it.

use std::collections::BTreeMap;

use homing_wire::encode::{EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, VllmForm, vllm};

/// Tokens per block, in all of these tests.
pub const BLOCK: usize = 4;

/// A prompt of so many blocks that is like no other with another number.
pub fn prompt(number: u32, blocks: usize) -> Vec<u32> {
    let tokens = (blocks * BLOCK) as u32;
    (0..tokens).map(|token| number * 100_000 + token).collect()
}

/// The cache of a rank: each block is known by the tokens up to its end.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    held: BTreeMap<Vec<u32>, u64>,
    next_label: u64,
}

impl Cache {
    /// An engine whose labels begin here; another life uses others.
    pub fn new(first_label: u64) -> Self {
        Self {
            held: BTreeMap::new(),
            next_label: first_label,
        }
    }

    /// Computes a prompt: its blocks that are not held come.
    pub fn store(&mut self, tokens: &[u32]) -> EngineEvent {
        let full = tokens.len() / BLOCK * BLOCK;
        let known = self.overlap(tokens) as usize * BLOCK;
        assert!(known < full, "all of it is held already");
        let parent = self.held.get(&tokens[..known]).copied();
        let mut hashes = Vec::new();
        for end in (known + BLOCK..=full).step_by(BLOCK) {
            self.next_label += 1;
            self.held.insert(tokens[..end].to_vec(), self.next_label);
            hashes.push(EngineHash::Unsigned(self.next_label));
        }
        EngineEvent::Stored(EngineStored::plain(
            parent.map(EngineHash::Unsigned),
            hashes,
            tokens[known..full].to_vec(),
            BLOCK as u32,
        ))
    }

    /// Evicts block `block` of a prompt, counted from 0.
    pub fn evict(&mut self, tokens: &[u32], block: usize) -> EngineEvent {
        let end = (block + 1) * BLOCK;
        let label = self.held.remove(&tokens[..end]).expect("it is held");
        EngineEvent::Removed(EngineRemoved {
            hashes: vec![EngineHash::Unsigned(label)],
            medium: None,
            group: None,
            locality: None,
        })
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> EngineEvent {
        self.held.clear();
        EngineEvent::Cleared
    }

    /// How many leading blocks of a prompt are held.
    pub fn overlap(&self, tokens: &[u32]) -> u64 {
        let ends = (BLOCK..=tokens.len()).step_by(BLOCK);
        ends.take_while(|end| self.held.contains_key(&tokens[..*end])).count() as u64
    }

    /// Blocks held.
    pub fn len(&self) -> u64 {
        self.held.len() as u64
    }
}

/// A message with these events.
pub fn message(events: Vec<EngineEvent>) -> Vec<u8> {
    let batch = EngineBatch {
        ts: 1_700_000_000.0,
        events,
        dp: Some(0),
    };
    vllm(&batch, VllmForm::Map)
}
