//! What is kept of blocks that left the device? Host memory, then disk, each with a capacity and an order of use.
//!
//! A block that leaves the device is written to the first tier unless it is there; what a tier has no room for goes on to
//! the next one, and from the last it goes for good.
//!
//! **Invariant:** a block is in one tier below the device at most.

use homing_domain::{BlockKey, Blocks, Tier};
use homing_profile::GigabytesPerSecond;
use rustc_hash::FxHashMap;

use super::list::{Linked, Links, List};
use super::log::{Link, Log, Origin};

/// A tier below the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierConfig {
    /// Which one it is told to be.
    pub tier: Tier,
    /// How many blocks it holds.
    pub capacity: Blocks,
    /// How fast blocks come back from it to the device.
    pub onboard: GigabytesPerSecond,
}

#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    stores: Vec<Store>,
}

#[derive(Clone, Debug)]
struct Store {
    config: TierConfig,
    places: Vec<Place>,
    by_key: FxHashMap<BlockKey, u32>,
    order: List,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    link: Link,
    links: Links,
}

impl Linked for Place {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Tiers {
    pub(crate) fn new(configs: &[TierConfig]) -> Self {
        let usable = configs.iter().filter(|config| config.capacity > Blocks(0));
        Self {
            stores: usable.map(|config| Store::new(*config)).collect(),
        }
    }

    /// A block leaves the device.
    pub(crate) fn write_back(&mut self, link: Link, log: &mut Log) {
        if self.stores.is_empty() || self.touch(link.key).is_some() {
            return;
        }
        let mut coming = Some(link);
        for index in 0..self.stores.len() {
            let Some(link) = coming else { return };
            coming = self.stores[index].oldest_if_full();
            // It is told to be on the next tier before it is told to be gone from this one, so that no view loses it between.
            if let Some(out) = coming
                && index + 1 == self.stores.len()
            {
                self.stores[index].drop(out.key, log);
            }
            self.stores[index].put(link, log);
            if index > 0 {
                self.stores[index - 1].drop(link.key, log);
            }
        }
    }

    /// Where a block is, if it is anywhere; it counts as used.
    pub(crate) fn touch(&mut self, key: BlockKey) -> Option<TierConfig> {
        let found = self.stores.iter_mut().find(|store| store.by_key.contains_key(&key))?;
        let place = found.by_key[&key];
        found.order.take(&mut found.places, place);
        found.order.push(&mut found.places, place);
        Some(found.config)
    }

    /// Where a block is, if it is anywhere.
    pub(crate) fn find(&self, key: BlockKey) -> Option<TierConfig> {
        let found = self.stores.iter().find(|store| store.by_key.contains_key(&key))?;
        Some(found.config)
    }

    pub(crate) fn contents(&self) -> impl Iterator<Item = (BlockKey, Tier)> + '_ {
        self.stores
            .iter()
            .flat_map(|store| store.by_key.keys().map(|key| (*key, store.config.tier)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        for store in &mut self.stores {
            *store = Store::new(store.config);
        }
    }
}

impl Store {
    fn new(config: TierConfig) -> Self {
        Self {
            config,
            places: Vec::new(),
            by_key: FxHashMap::default(),
            order: List::EMPTY,
            free: Vec::new(),
        }
    }

    /// The block that must go before another can come.
    fn oldest_if_full(&self) -> Option<Link> {
        let full = self.order.len() >= self.config.capacity.0;
        let oldest = self.order.oldest().filter(|_| full)?;
        Some(self.places[oldest as usize].link)
    }

    /// For a moment there is one more than the capacity while a block moves on to the next tier.
    fn put(&mut self, link: Link, log: &mut Log) {
        let place = Place {
            link,
            links: Links::LOOSE,
        };
        let index = if let Some(index) = self.free.pop() {
            self.places[index as usize] = place;
            index
        } else {
            self.places.push(place);
            self.places.len() as u32 - 1
        };
        self.order.push(&mut self.places, index);
        self.by_key.insert(link.key, index);
        log.stored(self.config.tier, link, Origin::default());
    }

    fn drop(&mut self, key: BlockKey, log: &mut Log) {
        if let Some(index) = self.by_key.remove(&key) {
            self.order.take(&mut self.places, index);
            self.free.push(index);
            log.removed(self.config.tier, key);
        }
    }
}
