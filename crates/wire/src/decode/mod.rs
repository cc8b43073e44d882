//! Which event do these bytes from this engine mean?
//!
//! A [`Decoder`] belongs to one rank and to one life of its engine. It remembers a little between messages, all of it
//! bounded: of which kind the cache groups are, how the engine's blocks are split into ours, which blocks were skipped
//! when they were stored (so that their removal is skipped too), and what lately stored blocks hold (so that an event
//! that only names them can be understood).
//!
//! **Invariant:** a batch has the content hashes that [`homing_domain::KeyHasher::keys`] chains for the same prompt.
//!
//! **Invariant:** for every copy of a block that is passed on as stored, a later removal of it is passed on, and for no
//! other, as far as the memory reaches.
//!
//! Cost: one pass over the bytes; see `docs/wire-formats.md` for what was measured. Nothing is allocated but the batch.

mod batch;
mod event;
mod extras;
mod fields;
mod groups;
mod memory;
mod store;
mod trtllm;

use homing_domain::{AdapterName, BlockSize, Digest, DpRank, KeyHasher, KvBatch, KvChange, Label, Sequence};

use crate::dialect::Dialect;
use crate::error::WireError;
use crate::skipped::{BlockSizeRefusal, SkipReason, Skipped};
use fields::Scratch;
use groups::Groups;
use memory::{PassedOver, Recall};
use trtllm::Trtllm;

/// The most blocks of ours that a block of an engine is split into.
pub const MAX_SPLIT: u32 = 128;

/// What a decoder must know.
#[derive(Clone, Copy, Debug)]
pub struct DecoderConfig {
    /// How the engine writes.
    pub dialect: Dialect,
    /// What makes content hashes.
    pub hasher: KeyHasher,
    /// How many tokens make a block of ours. Those of the engine may be larger, see [`BlockSizeRefusal`].
    pub block_size: BlockSize,
}

/// A message, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What it says. Empty if all of it was skipped: its number still counts.
    pub batch: KvBatch,
    /// Which data-parallel rank it is of, where it says so.
    pub dp: Option<DpRank>,
    /// What is not in the batch.
    pub skipped: Skipped,
    /// The last block size in it that cannot be expressed in ours.
    pub refused: Option<BlockSizeRefusal>,
}

/// Reads what one rank of one engine says.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    /// Room for the lists of the event at hand; kept so that it is not allocated anew.
    scratch: Scratch,
    groups: Groups,
    passed_over: PassedOver,
    recall: Recall,
    /// The adapter named last: events of one adapter come in a row and share its name.
    adapter: Option<AdapterName>,
    trtllm: Trtllm,
}

impl Decoder {
    /// A decoder that has heard nothing yet.
    pub fn new(config: DecoderConfig) -> Self {
        Self {
            config,
            scratch: Scratch::default(),
            groups: Groups::default(),
            passed_over: PassedOver::default(),
            recall: Recall::default(),
            adapter: None,
            trtllm: Trtllm::default(),
        }
    }

    /// What it was made with.
    pub const fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Reads one message of vLLM or SGLang.
    pub fn decode(&mut self, sequence: Sequence, payload: &[u8]) -> Result<Decoded, WireError> {
        if self.config.dialect == Dialect::TrtLlm {
            return Err(WireError::Dialect {
                dialect: self.config.dialect,
                given: "MessagePack",
            });
        }
        let mut heard = Heard::default();
        let outer = batch::read(payload, |cursor| self.event(cursor, &mut heard))?;
        self.scratch.trim();
        Ok(heard.into_decoded(sequence, Digest::of(payload), outer.sent_ms, outer.dp))
    }

    /// Reads the events that TensorRT-LLM's HTTP endpoint gives: a list, each with a number of its own, of one or of
    /// several ranks. Every event that has a number becomes a batch.
    pub fn decode_trtllm(&mut self, json: &[u8]) -> Result<Vec<Decoded>, WireError> {
        if self.config.dialect != Dialect::TrtLlm {
            return Err(WireError::Dialect {
                dialect: self.config.dialect,
                given: "JSON",
            });
        }
        self.trtllm.decode(&self.config, json)
    }
}

/// What became of a message so far.
#[derive(Debug, Default)]
struct Heard {
    changes: Vec<KvChange>,
    skipped: Skipped,
    refused: Option<BlockSizeRefusal>,
}

impl Heard {
    fn skip(&mut self, reason: SkipReason) {
        self.skipped.add(reason);
    }

    fn into_decoded(self, sequence: Sequence, digest: Digest, sent_ms: Option<u64>, dp: Option<DpRank>) -> Decoded {
        Decoded {
            batch: KvBatch {
                sequence,
                digest,
                sent_ms,
                changes: self.changes,
            },
            dp,
            skipped: self.skipped,
            refused: self.refused,
        }
    }
}

/// The label of part `part` of the `parts` that the engine's block `label` is split into. The last keeps the engine's
/// label, because that is what children name as their parent.
fn part_label(label: Label, part: u32, parts: u32) -> Label {
    if part + 1 == parts {
        return label;
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&label.get().to_le_bytes());
    bytes[8..].copy_from_slice(&u64::from(part).to_le_bytes());
    Label::from_bytes(&bytes)
}
