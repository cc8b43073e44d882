//! Which blocks are in the KV cache, who uses them, and which goes next?
//!
//! A block has a *place*. It is *partial* while it belongs to one sequence and has no key, *full* once it has one. It is
//! *active* while it is referenced, *inactive* when it is full and nobody references it: then it can be used again, and can
//! be evicted, the longest released first. Whoever releases a sequence releases its tail first, so that prefixes survive.
//!
//! **Invariant:** free, active and inactive places together are the capacity.
//!
//! **Invariant:** an operation that fails changes nothing: no reference, no eviction, no event.
//!
//! **Invariant:** changes are told exactly when the content changes; replayed into the oracle of the index they give the
//! content of the pool. With [`CopyRule::Physical`] every copy of an equal block is told when it comes and when it goes, as
//! vLLM does; with [`CopyRule::Shared`] there is one.
//!
//! Cost: constant per block, one lookup in a hash table where a key is involved; 48 bytes per block ever used at once, and
//! 16 to 32 for its key.
//!
//! It does not know sequences, tokens or time.

pub(crate) mod list;
mod log;
mod places;
#[cfg(test)]
mod tests;
mod tiers;
mod types;

use homing_domain::{BlockKey, BlockSize, Blocks, Tier, Tokens};
use rustc_hash::FxHashMap;

use crate::bugs::planted;
use list::{Linked, Links, List, NONE};
pub use log::{Act, Change, Events, Origin, Removals, TraceLine, Tracing};
use log::{Link, Log};
pub use tiers::TierConfig;
use tiers::Tiers;
pub use types::{BlockId, CopyRule, Counts, PoolConfig, PoolError, PrefillCost, Use, Wanted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Partial,
    Full,
}

/// A place. `key` and `parent` mean something for full blocks only.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: BlockKey,
    parent: BlockKey,
    references: u32,
    life: u32,
    /// Its neighbours among inactive blocks.
    links: Links,
    /// Its neighbours among the copies of its key, in the order in which they came. Before the first stands the last.
    copy_before: u32,
    copy_after: u32,
    kind: Kind,
}

impl Linked for Place {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The KV cache of one rank.
#[derive(Clone, Debug)]
pub struct Pool {
    config: PoolConfig,
    /// Grows up to the capacity as places are needed.
    places: Vec<Place>,
    /// Places that were used and are free again.
    freed: Vec<u32>,
    inactive: List,
    active: u32,
    /// The first copy of each key.
    by_key: FxHashMap<BlockKey, u32>,
    tiers: Tiers,
    log: Log,
}

impl Pool {
    /// An empty pool.
    pub fn new(config: PoolConfig) -> Self {
        Self {
            places: Vec::new(),
            freed: Vec::new(),
            inactive: List::EMPTY,
            active: 0,
            by_key: FxHashMap::default(),
            tiers: Tiers::new(&config.tiers),
            log: Log::new(&config),
            config,
        }
    }

    /// Takes a reference to each of the wanted blocks and appends them to `held`, full ones first. A full block that is active
    /// or inactive is used as it is; others, and partial ones, get a free place or that of the longest released block.
    ///
    /// A key that is wanted twice counts twice when room is looked for.
    pub fn use_blocks(
        &mut self,
        wanted: Wanted<'_>,
        origin: Origin<'_>,
        held: &mut Vec<BlockId>,
    ) -> Result<(), PoolError> {
        let (mut missing, mut revived) = (wanted.partial, 0);
        for key in wanted.keys {
            match self.by_key.get(key) {
                None => missing += 1,
                Some(&place) if self.places[place as usize].references == 0 => revived += 1,
                Some(_) => (),
            }
        }
        let available = self.counts().available().saturating_sub(revived);
        if missing > available {
            return Err(PoolError::Full {
                needed: missing,
                available,
            });
        }
        // What is there is held before anything is evicted.
        let start = held.len();
        for key in wanted.keys {
            let place = self.by_key.get(key).copied();
            held.push(place.map_or(BlockId { place: NONE, life: 0 }, |place| self.hold(place)));
        }
        let tokens_each = origin.tokens.len() / wanted.keys.len().max(1);
        let mut parent = wanted.parent;
        for (index, &key) in wanted.keys.iter().enumerate() {
            if held[start + index].place == NONE {
                let tokens = &origin.tokens[index * tokens_each..(index + 1) * tokens_each];
                held[start + index] = self.store(Link { parent, key }, Origin { tokens, ..origin });
            }
            parent = key;
        }
        for _ in 0..wanted.partial {
            let place = self.allocate();
            held.push(self.id(place));
        }
        Ok(())
    }

    /// Takes one more reference to a block that is in use.
    pub fn share(&mut self, id: BlockId) -> Result<(), PoolError> {
        let place = self.active(id)?;
        self.places[place].references += 1;
        Ok(())
    }

    /// A partial block becomes the full block `key` after `parent`. Returns what its sequence holds from now on: with
    /// [`CopyRule::Shared`] that is the block which had the key, if there was one.
    pub fn promote(
        &mut self,
        id: BlockId,
        parent: BlockKey,
        key: BlockKey,
        origin: Origin<'_>,
    ) -> Result<BlockId, PoolError> {
        let index = self.active(id)?;
        let place = &mut self.places[index];
        if place.kind != Kind::Partial {
            return Err(PoolError::NotPartial(id));
        }
        if place.references != 1 {
            return Err(PoolError::SharedPartial(id));
        }
        let equal = self.by_key.get(&key).copied();
        if let Some(equal) = equal
            && self.config.copies == CopyRule::Shared
        {
            let kept = self.hold(equal);
            self.active -= 1;
            self.free(id.place);
            return Ok(kept);
        }
        place.kind = Kind::Full;
        (place.key, place.parent) = (key, parent);
        self.join_copies(id.place, equal);
        if equal.is_none() || !planted!(self.config.bug, CopyNotTold) {
            self.log.stored(Tier::Device, Link { parent, key }, origin);
        }
        Ok(id)
    }

    /// Gives one reference back. The last one makes a full block inactive and a partial one's place free.
    pub fn release(&mut self, id: BlockId) -> Result<(), PoolError> {
        let index = self.active(id)?;
        let place = &mut self.places[index];
        place.references -= 1;
        if place.references > 0 {
            return Ok(());
        }
        self.active -= 1;
        match place.kind {
            Kind::Full => self.inactive.push(&mut self.places, id.place),
            Kind::Partial | Kind::Free => self.free(id.place),
        }
        Ok(())
    }

    /// Takes a block that is in use out of the pool, however many use it. For them it is unknown from now on.
    pub fn destroy(&mut self, id: BlockId) -> Result<(), PoolError> {
        let index = self.active(id)?;
        self.places[index].references = 0;
        self.active -= 1;
        self.remove(id.place);
        Ok(())
    }

    /// Empties the pool and its tiers, which is told. Refused while blocks are in use.
    pub fn clear(&mut self) -> Result<(), PoolError> {
        if self.active > 0 {
            return Err(PoolError::InUse(self.active));
        }
        self.empty();
        self.log.cleared();
        Ok(())
    }

    /// Begins a new life: empty, and nothing is left to tell.
    pub fn reset(&mut self) {
        self.empty();
        self.active = 0;
        self.log.forget();
    }

    /// Tells that the pool is empty, as some engines do when they start.
    pub(crate) fn tell_cleared(&mut self) {
        self.log.cleared();
    }

    /// How it stands.
    pub fn counts(&self) -> Counts {
        let (total, inactive) = (self.config.capacity.0, self.inactive.len());
        Counts {
            free: total - self.active - inactive,
            active: self.active,
            inactive,
            total,
        }
    }

    /// The first copy of a full block.
    pub fn find(&self, key: BlockKey) -> Option<BlockId> {
        let place = *self.by_key.get(&key)?;
        Some(self.id(place))
    }

    /// How many use a block; 0 for one that is inactive.
    pub fn references(&self, id: BlockId) -> Result<u32, PoolError> {
        let place = self.known(id)?;
        Ok(self.places[place].references)
    }

    /// How many of these are neither active nor inactive, wherever they stand.
    pub fn missing(&self, keys: &[BlockKey]) -> Blocks {
        Blocks(keys.iter().filter(|key| !self.by_key.contains_key(key)).count() as u32)
    }

    /// How many of these are there before the first that is not.
    pub fn leading(&self, keys: &[BlockKey]) -> Blocks {
        Blocks(keys.iter().take_while(|key| self.by_key.contains_key(key)).count() as u32)
    }

    /// What a sequence of `length` tokens with these keys would cost after its longest leading run that is there.
    pub fn prefill_cost(&self, keys: &[BlockKey], length: Tokens, block_size: BlockSize) -> PrefillCost {
        let reusable = length.0.saturating_sub(1) / block_size.get();
        let cached = self.leading(&keys[..keys.len().min(reusable as usize)]);
        PrefillCost {
            new_blocks: Blocks(length.0.div_ceil(block_size.get()) - cached.0),
            new_tokens: Tokens(length.0 - block_size.tokens_in(cached).0),
        }
    }

    /// How many of these, which are there, nobody uses: using them takes them from what can be evicted.
    pub fn inactive_of(&self, keys: &[BlockKey]) -> Blocks {
        let inactive = |key: &&BlockKey| {
            let place = self.by_key.get(key);
            place.is_some_and(|place| self.places[*place as usize].references == 0)
        };
        Blocks(keys.iter().filter(inactive).count() as u32)
    }

    /// Every full block on the device, once for each copy; and whether it is in use.
    pub fn contents(&self) -> impl Iterator<Item = (BlockKey, Use)> + '_ {
        let full = self.places.iter().filter(|place| place.kind == Kind::Full);
        full.map(|place| {
            let active = if place.references > 0 {
                Use::Active
            } else {
                Use::Inactive
            };
            (place.key, active)
        })
    }

    /// Every block below the device, with its tier.
    pub fn offloaded(&self) -> impl Iterator<Item = (BlockKey, Tier)> + '_ {
        self.tiers.contents()
    }

    /// Where a block is below the device.
    pub fn offloaded_at(&self, key: BlockKey) -> Option<TierConfig> {
        if self.tiers.is_empty() {
            None
        } else {
            self.tiers.find(key)
        }
    }

    /// The changes that were not yet taken.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.log.take_changes()
    }

    /// Whether there are changes to take.
    pub fn has_changes(&self) -> bool {
        self.log.has_changes()
    }

    /// The lines of the trace that were not yet taken.
    pub fn take_trace(&mut self) -> impl Iterator<Item = TraceLine> + '_ {
        self.log.lines()
    }

    fn id(&self, place: u32) -> BlockId {
        BlockId {
            place,
            life: self.places[place as usize].life,
        }
    }

    fn known(&self, id: BlockId) -> Result<usize, PoolError> {
        let index = id.place as usize;
        let known = self
            .places
            .get(index)
            .is_some_and(|place| place.life == id.life && place.kind != Kind::Free);
        if known { Ok(index) } else { Err(PoolError::Unknown(id)) }
    }

    fn active(&self, id: BlockId) -> Result<usize, PoolError> {
        let index = self.known(id)?;
        if self.places[index].references == 0 {
            return Err(PoolError::NotActive(id));
        }
        Ok(index)
    }
}
