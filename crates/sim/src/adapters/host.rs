//! One worker: an engine, and the adapters that it has.

use std::collections::{BTreeMap, VecDeque};

use homing_domain::AdapterName;
use homing_engine::config::AdapterConfig;
use homing_engine::{Engine, EngineConfig};
use homing_profile::{Millis, Time, Timing};

/// What an adapter on a worker without a manager is used for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) requests: u32,
    pub(super) last: Time,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) engine: Engine,
    /// Changes when it is lost and comes back: what was under way before is not any more.
    pub(super) life: u64,
    pub(super) up: bool,
    /// When it is looked at next.
    pub(super) wakes: Option<Time>,
    /// Without a manager: what it has, what it is loading, and who waits for that.
    pub(super) held: BTreeMap<AdapterName, Held>,
    pub(super) loading: Option<AdapterName>,
    pub(super) queue: VecDeque<usize>,
}

impl Host {
    pub(super) fn new(timing: Timing, slots: u32) -> Self {
        let mut config = EngineConfig::vllm(homing_domain::Blocks(16_384), timing);
        config.adapters = AdapterConfig {
            slots,
            load: Millis(2.0),
        };
        Self {
            engine: Engine::new(config).expect("the configuration is right"),
            life: 0,
            up: true,
            wakes: None,
            held: BTreeMap::new(),
            loading: None,
            queue: VecDeque::new(),
        }
    }

    /// The slot that an adapter can have: a free one, or that of the idle one that was used the longest ago, which goes.
    pub(super) fn make_room(&mut self, slots: u32) -> bool {
        if (self.held.len() as u32) < slots {
            return true;
        }
        let idle = self.held.iter().filter(|(_, held)| held.requests == 0);
        let oldest = idle.min_by_key(|(name, held)| (held.last, (*name).clone()));
        let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
            return false;
        };
        self.held.remove(&oldest);
        // It is there: what is held was loaded.
        let _ = self.engine.unload_adapter(&oldest);
        true
    }

    /// Everything is gone.
    pub(super) fn lose(&mut self) {
        self.engine.restart();
        let names: Vec<AdapterName> = self.engine.adapters().cloned().collect();
        for name in names {
            let _ = self.engine.unload_adapter(&name);
        }
        self.life += 1;
        self.up = false;
        self.wakes = None;
        self.held.clear();
        self.loading = None;
        self.queue.clear();
    }
}
