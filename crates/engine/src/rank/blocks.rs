//! Which blocks does a sequence get, share and give back?

use homing_domain::{BlockKey, Blocks, Tokens};
use homing_profile::Millis;

use super::{Rank, Slot};
use crate::adapters::Loading;
use crate::bugs::planted;
use crate::config::{EngineConfig, PrefixCaching};
use crate::pool::{Events, Origin, Pool, PoolError, Wanted};
use crate::request::Admitted;

/// How many leading blocks of a sequence need not be computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// On the device.
    pub device: u32,
    /// After those: below it, or behind some that are.
    pub below: u32,
}

impl Found {
    pub(crate) fn blocks(self) -> u32 {
        self.device + self.below
    }
}

impl Rank {
    /// Makes room for the next `new` tokens of a running sequence, which are computed in this step.
    #[inline]
    pub(crate) fn grow(&mut self, slot: Slot, new: u32) -> Result<(), PoolError> {
        let sequence = &mut self.sequences[slot as usize];
        let target = sequence.computed + new;
        if target > sequence.room {
            let block_size = self.config.block_size.get();
            let partial = (target - sequence.room).div_ceil(block_size);
            let wanted = Wanted {
                parent: self.config.hasher.root(),
                keys: &[],
                partial,
            };
            self.pool.use_blocks(wanted, Origin::default(), &mut sequence.blocks)?;
            sequence.room += partial * block_size;
        }
        sequence.scheduled = new;
        Ok(())
    }

    /// What of a sequence that waits is in the cache.
    pub(crate) fn found(&self, slot: Slot) -> Found {
        let sequence = &self.sequences[slot as usize];
        let mut limit = sequence.reusable_blocks(self.config.block_size.get());
        if planted!(self.config.bug, NothingComputed) {
            limit = (sequence.length / self.config.block_size.get()) as usize;
        }
        let keys = &sequence.keys[..limit.min(sequence.keys.len())];
        let device = self.pool.leading(keys).0;
        let below = keys[device as usize..].iter();
        let below = below.take_while(|key| self.pool.find(**key).is_some() || self.pool.offloaded_at(**key).is_some());
        Found {
            device,
            below: below.count() as u32,
        }
    }

    /// Admits a sequence that waits: it uses what was found of it, and `new` tokens are computed in this step. The caller takes
    /// it from those that wait.
    pub(crate) fn admit(&mut self, slot: Slot, found: Found, new: u32) -> Result<(), PoolError> {
        let block_size = self.config.block_size.get();
        let reused = found.blocks();
        let cached = reused * block_size;
        let sequence = &mut self.sequences[slot as usize];
        let partial = (cached + new).div_ceil(block_size) - reused;
        let keys = &sequence.keys[..reused as usize];
        let onboard = onboard_time(&self.config, &self.pool, &keys[found.device as usize..]);
        if self.config.events == Events::WithTokens {
            sequence.copy_tokens(0, cached, &mut self.scratch);
        } else {
            self.scratch.clear();
        }
        let mut blocks = Vec::with_capacity((reused + partial) as usize + 1);
        let wanted = Wanted {
            parent: self.config.hasher.root(),
            keys,
            partial,
        };
        let origin = Origin {
            tokens: &self.scratch,
            ..sequence.origin()
        };
        self.pool.use_blocks(wanted, origin, &mut blocks)?;
        self.extra += onboard;
        sequence.blocks = blocks;
        sequence.room = (reused + partial) * block_size;
        (sequence.computed, sequence.published, sequence.scheduled) = (cached, reused, new);
        if self.slots.join(sequence.adapter) == Loading::Needed {
            self.extra += self.config.adapters.load;
        }
        if sequence.cached.is_none() {
            let prompt = sequence.prompt_length();
            sequence.cached = Some(cached);
            self.prefix_queries += u64::from(prompt.0);
            self.prefix_hits += u64::from(cached);
            self.admitted.push(Admitted {
                request: sequence.id,
                prompt,
                cached: Tokens(cached),
                taken: Tokens(0),
            });
        }
        Ok(())
    }

    /// Makes the blocks of a sequence's first `tokens` tokens, as far as they are full, blocks that others can use.
    #[inline]
    pub(crate) fn publish(&mut self, slot: Slot, tokens: u32) {
        let block_size = self.config.block_size.get();
        let sequence = &mut self.sequences[slot as usize];
        if self.config.prefix_caching == PrefixCaching::Off {
            return;
        }
        while (sequence.published + 1) * block_size <= tokens {
            let index = sequence.published as usize;
            let parent = match index {
                0 => self.config.hasher.root(),
                _ => sequence.keys[index - 1],
            };
            self.scratch.clear();
            if self.config.events == Events::WithTokens {
                let first = sequence.published * block_size;
                sequence.copy_tokens(first, first + block_size, &mut self.scratch);
            }
            let origin = Origin {
                tokens: &self.scratch,
                ..sequence.origin()
            };
            let (id, key) = (sequence.blocks[index], sequence.keys[index]);
            let kept = self.pool.promote(id, parent, key, origin);
            sequence.blocks[index] = kept.expect("the block is the sequence's own and not full");
            sequence.published += 1;
        }
    }

    /// Blocks and adapter of a sequence are given back, the tail first, so that prefixes live longer.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.give_back(slot);
        self.slots.leave(self.sequences[slot as usize].adapter);
    }

    /// Blocks of a sequence are given back.
    pub(super) fn give_back(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot as usize];
        while let Some(id) = sequence.blocks.pop() {
            self.pool.release(id).expect("a sequence holds its blocks");
        }
    }
}

/// How long the blocks that are not on the device take to get there.
fn onboard_time(config: &EngineConfig, pool: &Pool, keys: &[BlockKey]) -> Millis {
    let block = config.block_size.tokens_in(Blocks(1));
    let time = |key| {
        let tier = pool.offloaded_at(key).filter(|_| pool.find(key).is_none())?;
        Some(config.timing.transfer(block, tier.onboard))
    };
    keys.iter()
        .filter_map(|key| time(*key))
        .fold(Millis::ZERO, |sum, time| sum + time)
}
