//! Which bytes tell of a change? What the model says, as the engine of the chosen dialect and version writes it.

use homing_config::{EventFormat, MockDialect};
use homing_domain::{AdapterName, DpRank, KvChange, Label, Stored, Tier};
use homing_engine::EventBatch;
use homing_wire::encode::{
    EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, EngineTokens, ExtraKey, SglangForm, VllmForm,
    sglang, vllm,
};

/// How an engine writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) dialect: MockDialect,
    pub(crate) format: EventFormat,
    /// Elements of a stored event of vLLM that is a list.
    pub(crate) fields: u32,
    pub(crate) block_size: u32,
}

impl Form {
    /// The payload of a message. `number` says which number an adapter has: engines count them from 1.
    pub(crate) fn payload(
        self,
        batch: &EventBatch,
        rank: DpRank,
        ts: f64,
        mut number: impl FnMut(&AdapterName) -> u64,
    ) -> Vec<u8> {
        let changes = batch.batch.changes.iter().zip(&batch.tokens);
        let events = changes
            .map(|(change, tokens)| self.event(change, tokens, &mut number))
            .collect();
        let message = EngineBatch {
            ts,
            events,
            dp: Some(rank.0),
        };
        match (self.dialect, self.format) {
            (MockDialect::Vllm, EventFormat::Map) => vllm(&message, VllmForm::Map),
            (MockDialect::Vllm, EventFormat::Array) => vllm(&message, VllmForm::Array(self.fields as usize)),
            (MockDialect::Sglang, EventFormat::Map) => sglang(&message, SglangForm::Map),
            (MockDialect::Sglang, EventFormat::Array) => sglang(&message, SglangForm::Array),
        }
    }

    fn event(self, change: &KvChange, tokens: &[u32], number: &mut impl FnMut(&AdapterName) -> u64) -> EngineEvent {
        match change {
            KvChange::Cleared(_) => EngineEvent::Cleared,
            KvChange::Removed(removed) => EngineEvent::Removed(EngineRemoved {
                hashes: removed.labels.iter().map(|label| self.hash(*label)).collect(),
                medium: Some(medium(removed.tier).to_owned()),
                group: self.is_vllm().then_some(u32::from(removed.group.0)),
                locality: None,
            }),
            KvChange::Stored(stored) => EngineEvent::Stored(self.stored(stored, tokens, number)),
        }
    }

    fn stored(self, stored: &Stored, tokens: &[u32], number: &mut impl FnMut(&AdapterName) -> u64) -> EngineStored {
        let vllm = self.is_vllm();
        let text = |name: &AdapterName| name.as_str().to_owned();
        EngineStored {
            hashes: stored.blocks.iter().map(|block| self.hash(block.label)).collect(),
            parent: stored.parent.map(|label| self.hash(label)),
            tokens: EngineTokens::Plain(tokens.to_vec()),
            block_size: self.block_size,
            lora_id: stored.adapter.as_ref().map(number),
            medium: Some(medium(stored.tier).to_owned()),
            lora_name: stored.adapter.as_ref().map(text),
            extra_keys: vllm.then(|| extra_keys(stored)),
            group: vllm.then_some(u32::from(stored.group.0)),
            kind: vllm.then(|| "full_attention".to_owned()),
            sliding_window: None,
            locality: None,
            cache_salt: stored.salt.as_ref().map(|salt| salt.as_str().to_owned()),
        }
    }

    fn hash(self, label: Label) -> EngineHash {
        match self.dialect {
            MockDialect::Vllm => EngineHash::Unsigned(label.get()),
            MockDialect::Sglang => EngineHash::Signed(label.get().cast_signed()),
        }
    }

    fn is_vllm(self) -> bool {
        self.dialect == MockDialect::Vllm
    }
}

/// Per block: the adapter's name, and the salt in the first block of a sequence.
fn extra_keys(stored: &Stored) -> Vec<Option<Vec<ExtraKey>>> {
    let keys = |place: usize| {
        let begins = place == 0 && stored.parent.is_none();
        let adapter = stored
            .adapter
            .iter()
            .map(|name| ExtraKey::Text(name.as_str().to_owned()));
        let salt = stored.salt.iter().filter(|_| begins);
        let salt = salt.map(|salt| ExtraKey::Text(salt.as_str().to_owned()));
        let keys: Vec<ExtraKey> = adapter.chain(salt).collect();
        (!keys.is_empty()).then_some(keys)
    };
    (0..stored.blocks.len()).map(keys).collect()
}

fn medium(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "GPU",
        Tier::Host => "CPU",
        Tier::Disk => "STORAGE",
        Tier::External => "EXTERNAL",
    }
}
