//! How far is a request? Its tokens, their keys, its blocks, and what is computed of it.
//!
//! **Invariant:** `computed <= length`; `published` of its blocks, from the first on, are full in the pool, and no more tokens
//! are computed or about to be than its blocks hold (`room`).

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, CacheSalt, Extras, KeyHasher, Prompt, Tokens};
use homing_profile::Millis;

use crate::adapters::AdapterNo;
use crate::config::{EngineConfig, PrefixCaching};
use crate::handover::Handover;
use crate::pool::{BlockId, Origin};
use crate::request::{Finish, Request, RequestNo};
use crate::text::{Ending, TextState, Vocabulary};

/// Whether a sequence goes on after the step that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    GoesOn,
    Finishes(Finish),
    /// It was cancelled; nothing more is heard of it.
    Vanishes,
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub id: RequestNo,
    prompt: Arc<[u32]>,
    outputs: Vec<u32>,
    /// Keys of the full blocks of all its tokens, computed or not; none without prefix caching.
    pub keys: Vec<BlockKey>,
    pub blocks: Vec<BlockId>,
    /// Tokens that are known: prompt and outputs.
    pub length: u32,
    /// Tokens whose KV is there.
    pub computed: u32,
    /// Tokens that the present step computes.
    pub scheduled: u32,
    pub published: u32,
    pub room: u32,
    /// Tokens until the next key.
    until_key: u32,
    /// The most outputs.
    pub limit: u32,
    text: TextState,
    seed: u64,
    ending: Ending,
    stop: Vec<u32>,
    pub adapter: Option<AdapterNo>,
    adapter_name: Option<AdapterName>,
    salt: Option<CacheSalt>,
    pub priority: i32,
    /// How many requests came before it.
    pub arrival: u64,
    /// Tokens of the prompt that came from the cache when it was first admitted.
    pub cached: Option<u32>,
    pub preemptions: u32,
    pub fate: Fate,
    /// For how long its blocks stay if it ends at its length.
    pub lease: Option<Millis>,
    /// Its KV is to come from elsewhere.
    pub takes: bool,
    /// Tokens of the prompt whose KV came from elsewhere.
    pub taken: u32,
}

impl Sequence {
    /// The sequence of a request that was checked: its prompt is not empty and not too long.
    pub(crate) fn new(request: Request, adapter: Option<AdapterNo>, arrival: u64, config: &EngineConfig) -> Self {
        let length = request.prompt.len() as u32;
        let block_size = config.block_size.get();
        let mut keys = Vec::new();
        if config.prefix_caching == PrefixCaching::On {
            let prompt = Prompt {
                adapter: request.adapter.as_ref(),
                salt: request.salt.as_ref(),
                ..Prompt::text(&request.prompt, config.block_size)
            };
            config.hasher.keys(&prompt, &mut keys);
        }
        Self {
            id: request.id,
            text: TextState::of(&request.prompt),
            prompt: request.prompt,
            outputs: Vec::new(),
            keys,
            blocks: Vec::new(),
            length,
            computed: 0,
            scheduled: 0,
            published: 0,
            room: 0,
            until_key: block_size - length % block_size,
            limit: request.max_tokens.0.min(config.max_model_len.0 - length),
            seed: request.seed,
            ending: request.ending,
            stop: request.stop,
            adapter,
            adapter_name: request.adapter,
            salt: request.salt,
            priority: request.priority,
            arrival,
            cached: None,
            preemptions: 0,
            fate: Fate::GoesOn,
            lease: match request.handover {
                Handover::Stage { lease } => Some(lease),
                Handover::None | Handover::Take => None,
            },
            takes: request.handover == Handover::Take,
            taken: 0,
        }
    }

    /// Tokens that are known and not computed.
    #[inline]
    pub(crate) fn remaining(&self) -> u32 {
        self.length - self.computed
    }

    /// Outputs that may still come.
    #[inline]
    pub(crate) fn outputs_left(&self) -> u32 {
        self.limit - self.outputs.len() as u32
    }

    pub(crate) fn generated(&self) -> Tokens {
        Tokens(self.outputs.len() as u32)
    }

    pub(crate) fn prompt_length(&self) -> Tokens {
        Tokens(self.prompt.len() as u32)
    }

    /// How many leading blocks may come from the cache, so that at least one token is computed.
    pub(crate) fn reusable_blocks(&self, block_size: u32) -> usize {
        ((self.length - 1) / block_size) as usize
    }

    /// What its blocks are part of, without their tokens.
    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin {
            adapter: self.adapter_name.as_ref(),
            salt: self.salt.as_ref(),
            tokens: &[],
        }
    }

    /// Copies tokens `from..to`.
    pub(crate) fn copy_tokens(&self, from: u32, to: u32, into: &mut Vec<u32>) {
        let (from, to, prompt) = (from as usize, to as usize, self.prompt.len());
        into.clear();
        into.extend_from_slice(&self.prompt[from.min(prompt)..to.min(prompt)]);
        into.extend_from_slice(&self.outputs[from.max(prompt) - prompt..to.max(prompt) - prompt]);
    }

    /// Generates a token, and decides whether it is the last.
    #[inline]
    pub(crate) fn generate(&mut self, vocabulary: &Vocabulary) -> u32 {
        let token = self.text.next(self.seed, self.ending, vocabulary);
        self.text = self.text.and(token);
        self.outputs.push(token);
        self.length += 1;
        let ends = self.ending != Ending::AtLength && token == vocabulary.end;
        if ends || self.stop.contains(&token) {
            self.fate = Fate::Finishes(Finish::Stop);
        } else if self.outputs_left() == 0 {
            self.fate = Fate::Finishes(Finish::Length);
        }
        token
    }

    /// Gives a block that the last token filled its key. `scratch` is memory to work in.
    #[inline]
    pub(crate) fn name_block(&mut self, block_size: u32, hasher: &KeyHasher, scratch: &mut Vec<u32>) {
        self.until_key -= 1;
        if self.until_key > 0 {
            return;
        }
        self.until_key = block_size;
        self.copy_tokens(self.length - block_size, self.length, scratch);
        let (parent, salt) = match self.keys.last() {
            Some(parent) => (*parent, None),
            None => (hasher.root(), self.salt.as_ref()),
        };
        let extras = Extras {
            adapter: hasher.adapter(self.adapter_name.as_ref()),
            salt,
            media: &[],
        };
        self.keys.push(hasher.child(parent, hasher.content(scratch, &extras)));
    }

    /// Back to the start, with everything that is known kept: its blocks were given back.
    pub(crate) fn restart(&mut self) {
        self.rewind();
        self.preemptions += 1;
    }

    /// Nothing of it is computed.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.blocks.is_empty(), "blocks are given back first");
        (self.computed, self.scheduled, self.published, self.room) = (0, 0, 0, 0);
    }

    /// Forgets the outputs: a planted mistake.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn forget_outputs(&mut self, block_size: u32) {
        self.length = self.prompt.len() as u32;
        self.outputs.clear();
        self.text = TextState::of(&self.prompt).and(1);
        self.keys.truncate((self.length / block_size) as usize);
        self.until_key = block_size - self.length % block_size;
    }

    /// Gives its memory back when it is over.
    pub(crate) fn empty(&mut self, nothing: &Arc<[u32]>) {
        self.prompt = Arc::clone(nothing);
        (self.outputs, self.keys, self.blocks, self.stop) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (self.adapter_name, self.salt) = (None, None);
    }
}
