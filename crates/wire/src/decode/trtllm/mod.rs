//! What does TensorRT-LLM say? The JSON of its HTTP endpoint `/kv_cache_events`.
//!
//! Each event has a number, and says of itself which window of attention and which rank it is of. `created` tells the
//! windows; only the largest holds whole prefixes. `stored` has blocks with their tokens and the level they lie at.
//! `removed` tells no level, and `updated` moves a block to another level without its tokens: so where each block lies
//! and what is in it is remembered, up to a bound.

use homing_domain::{
    AdapterName, CacheGroup, CacheSalt, Digest, DpRank, Extras, KvChange, Label, MediaId, Removed, Sequence, Stored,
    StoredBlock, Tier,
};
use rustc_hash::FxHashMap;

use super::memory::{Known, PassedOver, Place};
use super::{Decoded, DecoderConfig, Heard, MAX_SPLIT, part_label};
use crate::error::WireError;
use crate::skipped::{BlockSizeRefusal, SkipReason, Skipped};

mod json;

use json::{Block, Data, Event};

/// Blocks whose level and content are remembered. Of those beyond it a removal is taken to be from the device, and a
/// move only as a removal.
const MAX_REMEMBERED: usize = 1 << 20;

/// There are no groups: other windows are left out.
const GROUP: CacheGroup = CacheGroup(0);

/// What is remembered between events, of all ranks that an endpoint speaks for.
#[derive(Debug, Default)]
pub(super) struct Trtllm {
    /// The largest window of attention heard of.
    window: u64,
    ranks: FxHashMap<Option<DpRank>, Rank>,
    /// Blocks remembered in all ranks.
    remembered: usize,
}

#[derive(Debug, Default)]
struct Rank {
    blocks: FxHashMap<Label, (Tier, Known)>,
    passed_over: PassedOver,
    /// Tokens in a block of the engine: the most that any had.
    engine_block: u32,
}

impl Trtllm {
    pub(super) fn decode(&mut self, config: &DecoderConfig, bytes: &[u8]) -> Result<Vec<Decoded>, WireError> {
        let events = json::events(bytes)?;
        let mut batches: Vec<Decoded> = Vec::new();
        let mut unnumbered = Skipped::default();
        for raw in &events {
            let Some((head, event)) = json::event(raw) else {
                unnumbered.add(SkipReason::BadFields);
                continue;
            };
            let mut found = Heard::default();
            let dp = head.attention_dp_rank.map(DpRank);
            let applied = event
                .ok_or(SkipReason::BadFields)
                .and_then(|event| self.apply(config, dp, &event, &mut found));
            if let Err(reason) = applied {
                found.skip(reason);
            }
            let digest = Digest::of(raw.as_bytes());
            batches.push(found.into_decoded(Sequence(head.event_id), digest, None, dp));
        }
        match batches.last_mut() {
            Some(last) => last.skipped += unnumbered,
            None if !unnumbered.is_empty() => {
                return Err(WireError::Form {
                    what: "events with an `event_id` were expected",
                    at: 0,
                });
            }
            None => {}
        }
        Ok(batches)
    }

    fn apply(
        &mut self,
        config: &DecoderConfig,
        dp: Option<DpRank>,
        event: &Event<'_>,
        heard: &mut Heard,
    ) -> Result<(), SkipReason> {
        if let Some(window) = event.window_size {
            self.window = self.window.max(window);
            if window < self.window {
                return Err(SkipReason::UnusableGroup);
            }
        }
        let rank = self.ranks.entry(dp).or_default();
        let mut hand = Hand {
            config,
            rank,
            remembered: &mut self.remembered,
            heard,
        };
        match event.data.kind.as_ref() {
            "created" => Ok(()),
            "stored" => hand.stored(&event.data),
            "removed" => hand.removed(event.data.block_hashes.as_deref().ok_or(SkipReason::BadFields)?),
            "updated" => hand.updated(&event.data),
            _ => Err(SkipReason::UnknownEvent),
        }
    }
}

/// What an event of one rank works with.
struct Hand<'a> {
    config: &'a DecoderConfig,
    rank: &'a mut Rank,
    remembered: &'a mut usize,
    heard: &'a mut Heard,
}

/// Where all skipped blocks are remembered to lie: removals do not tell it.
const SKIPPED: Place = Place {
    tier: Tier::Device,
    group: GROUP,
};

fn tier_of(level: u64) -> Result<Tier, SkipReason> {
    match level {
        0 => Ok(Tier::Device),
        1 => Ok(Tier::Host),
        2 => Ok(Tier::Disk),
        _ => Err(SkipReason::UnknownMedium),
    }
}

impl Hand<'_> {
    fn stored(&mut self, data: &Data<'_>) -> Result<(), SkipReason> {
        let blocks = data.blocks.as_deref().ok_or(SkipReason::BadFields)?;
        let mut parent = data.parent_hash.map(|hash| hash.0);
        if let Some(parent) = parent
            && self.rank.passed_over.has(parent, SKIPPED)
        {
            self.pass_over(blocks);
            return Err(SkipReason::AfterSkipped);
        }
        for (number, block) in blocks.iter().enumerate() {
            let is_last = number + 1 == blocks.len();
            if let Err(reason) = self.block(data, block, &mut parent, is_last) {
                self.pass_over(&blocks[number..]);
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Remembers blocks that are skipped.
    fn pass_over(&mut self, blocks: &[Block<'_>]) {
        for block in blocks {
            self.rank.passed_over.note(block.hash.0, SKIPPED);
        }
    }

    fn block(
        &mut self,
        data: &Data<'_>,
        block: &Block<'_>,
        parent: &mut Option<Label>,
        is_last: bool,
    ) -> Result<(), SkipReason> {
        let tier = tier_of(block.cache_level.unwrap_or(0))?;
        let parts = self.parts(block.tokens.len(), is_last)?;
        let media = media_of(block);
        if parts > 1 && !media.is_empty() {
            return Err(SkipReason::MediaInSplitBlock);
        }
        let adapter = adapter_of(data, block);
        let salt = block.cache_salt.as_deref().or(data.cache_salt.as_deref());
        let salt = salt.filter(|salt| !salt.is_empty()).map(CacheSalt::new);
        let adapter_hash = self.config.hasher.adapter(adapter.as_ref());
        let begins = parent.is_none();
        let tokens: Vec<u32> = block.tokens.iter().map(|token| token.token_id).collect();
        let size = self.config.block_size.get() as usize;
        for (part, tokens) in (0_u32..).zip(tokens.chunks_exact(size)) {
            let extras = Extras {
                adapter: adapter_hash,
                salt: salt.as_ref().filter(|_| begins && part == 0),
                media: &media,
            };
            let content = self.config.hasher.content(tokens, &extras);
            let label = part_label(block.hash.0, part, parts);
            let known = Known {
                parent: *parent,
                content,
            };
            self.remember(label, tier, known);
            let run = run_of(&mut self.heard.changes, tier, *parent, adapter.as_ref());
            run.salt = run.salt.take().or_else(|| salt.clone());
            run.blocks.push(StoredBlock { label, content });
            *parent = Some(label);
        }
        Ok(())
    }

    /// How many of ours a block of so many tokens is. Only the last block of an event can be not full.
    fn parts(&mut self, tokens: usize, is_last: bool) -> Result<u32, SkipReason> {
        let tokens = u32::try_from(tokens).map_err(|_| SkipReason::BadFields)?;
        let ours = self.config.block_size.get();
        if is_last && (tokens < self.rank.engine_block || tokens < ours || !tokens.is_multiple_of(ours)) {
            return Err(SkipReason::PartialBlock);
        }
        self.rank.engine_block = self.rank.engine_block.max(tokens);
        if tokens == 0 || !tokens.is_multiple_of(ours) || tokens / ours > MAX_SPLIT {
            self.heard.refused = Some(BlockSizeRefusal {
                engine: tokens,
                router: self.config.block_size,
            });
            return Err(SkipReason::BlockSize);
        }
        Ok(tokens / ours)
    }

    /// Into how many of ours the blocks of this rank are split.
    fn learned_parts(&self) -> u32 {
        (self.rank.engine_block / self.config.block_size.get()).clamp(1, MAX_SPLIT)
    }

    fn remember(&mut self, label: Label, tier: Tier, known: Known) {
        if *self.remembered < MAX_REMEMBERED || self.rank.blocks.contains_key(&label) {
            let before = self.rank.blocks.insert(label, (tier, known));
            *self.remembered += usize::from(before.is_none());
        }
    }

    fn removed(&mut self, hashes: &[json::Hash]) -> Result<(), SkipReason> {
        let parts = self.learned_parts();
        let mut passed_over = false;
        for hash in hashes {
            if self.rank.passed_over.take(hash.0, SKIPPED) {
                passed_over = true;
                continue;
            }
            for part in (0..parts).rev() {
                let label = part_label(hash.0, part, parts);
                let known = self.rank.blocks.remove(&label);
                *self.remembered -= usize::from(known.is_some());
                let tier = known.map_or(Tier::Device, |(tier, _)| tier);
                self.gone(label, tier);
            }
        }
        if passed_over {
            return Err(SkipReason::RemovalOfSkipped);
        }
        Ok(())
    }

    /// A block moved from one level to another, or something of no interest here changed.
    fn updated(&mut self, data: &Data<'_>) -> Result<(), SkipReason> {
        let hash = data.block_hash.ok_or(SkipReason::BadFields)?;
        let Some(moved) = &data.cache_level else {
            return Ok(());
        };
        if self.rank.passed_over.has(hash.0, SKIPPED) {
            return Err(SkipReason::AfterSkipped);
        }
        let to = tier_of(moved.new_value);
        let parts = self.learned_parts();
        let mut unknown = false;
        for part in 0..parts {
            let label = part_label(hash.0, part, parts);
            let known = self.rank.blocks.get(&label).copied();
            let from = match known {
                Some((tier, _)) => tier,
                None => tier_of(moved.old_value)?,
            };
            self.gone(label, from);
            if let (Some((_, known)), Ok(to)) = (known, to) {
                self.remember(label, to, known);
                let run = run_of(&mut self.heard.changes, to, known.parent, None);
                run.blocks.push(StoredBlock {
                    label,
                    content: known.content,
                });
            } else {
                unknown = true;
            }
        }
        to?;
        if unknown {
            return Err(SkipReason::NoTokens);
        }
        Ok(())
    }

    fn gone(&mut self, label: Label, tier: Tier) {
        if let Some(KvChange::Removed(gone)) = self.heard.changes.last_mut()
            && gone.tier == tier
        {
            gone.labels.push(label);
            return;
        }
        self.heard.changes.push(KvChange::Removed(Removed {
            labels: vec![label],
            tier,
            group: GROUP,
        }));
    }
}

/// The store that is last among the changes, if a block after `parent` continues it; else a new one.
fn run_of<'a>(
    changes: &'a mut Vec<KvChange>,
    tier: Tier,
    parent: Option<Label>,
    adapter: Option<&AdapterName>,
) -> &'a mut Stored {
    let continues = |run: &Stored| {
        parent.is_some()
            && run.blocks.last().map(|block| block.label) == parent
            && run.tier == tier
            && run.adapter.as_ref() == adapter
    };
    if !matches!(changes.last(), Some(KvChange::Stored(run)) if continues(run)) {
        changes.push(KvChange::Stored(Stored {
            tier,
            group: GROUP,
            adapter: adapter.cloned(),
            ..Stored::plain(parent, Vec::new())
        }));
    }
    match changes.last_mut() {
        Some(KvChange::Stored(run)) => run,
        _ => unreachable!("a store was pushed"),
    }
}

fn adapter_of(data: &Data<'_>, block: &Block<'_>) -> Option<AdapterName> {
    let name = block.lora_name.as_deref().or(data.lora_name.as_deref());
    let name = name.filter(|name| !name.is_empty()).map(AdapterName::new);
    let number = || block.lora_id.filter(|&id| id > 0);
    name.or_else(|| number().map(|id| AdapterName::new(format!("lora-{id}"))))
}

/// The media of a block. What is told of one that began in an earlier block is how much of it lay there. Of one that
/// begins in this block it is not told where, so it is taken to be at its start: such a block is never taken for
/// another, and a query finds it only where that is so.
fn media_of(block: &Block<'_>) -> Vec<(MediaId, i64)> {
    let named = block.mm_keys.iter().flatten();
    let mut media: Vec<(MediaId, i64)> = named
        .map(|key| (MediaId::new(&key.hash), key.start_offset.saturating_neg()))
        .collect();
    // Tokens of tables of prompts carry a number of their own.
    let mut last = 0;
    for (position, token) in block.tokens.iter().enumerate() {
        if token.token_extra_id != last && token.token_extra_id != 0 {
            let name = format!("token-extra-id:{}", token.token_extra_id);
            media.push((MediaId::new(&name), i64::try_from(position).unwrap_or(i64::MAX)));
        }
        last = token.token_extra_id;
    }
    media
}
