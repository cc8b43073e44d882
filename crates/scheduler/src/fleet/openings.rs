//! Which ranks do not have an adapter, and may be chosen for it all the same?
//!
//! A request that finds nobody who has its adapter, or all of them too busy, can wait for a rank that is loading it, or that loads it
//! when it is asked for. Who manages adapters says which; there are few for each adapter, so that a burst is not scattered.

use homing_domain::AdapterName;
use homing_load::Place;
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

use crate::bits::Bits;

/// When a rank has an adapter that it does not have yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ready {
    /// It is being loaded, and is there then.
    At(Time),
    /// So long after somebody asked for it.
    After(Millis),
}

impl Ready {
    /// How long that is from now on.
    pub fn wait(self, now: Time) -> Millis {
        match self {
            Self::At(then) => then.since(now),
            Self::After(wait) => wait,
        }
    }
}

/// The ranks that may be chosen for an adapter although they do not have it.
#[derive(Clone, Debug, Default)]
struct Opened {
    places: Bits,
    ready: Vec<(Place, Ready)>,
}

/// The same for all adapters.
#[derive(Clone, Debug, Default)]
pub(super) struct Openings {
    of: FxHashMap<AdapterName, Opened>,
}

impl Openings {
    /// Says who may be chosen for an adapter, instead of what was said before.
    pub(super) fn set(&mut self, adapter: &AdapterName, ready: Vec<(Place, Ready)>) {
        if ready.is_empty() {
            self.of.remove(adapter);
            return;
        }
        let mut places = Bits::default();
        for (place, _) in &ready {
            places.set(*place);
        }
        self.of.insert(adapter.clone(), Opened { places, ready });
    }

    /// The rank at a place is gone.
    pub(super) fn forget(&mut self, gone: Place) {
        self.of.retain(|_, opened| {
            opened.places.clear(gone);
            opened.ready.retain(|(place, _)| *place != gone);
            !opened.ready.is_empty()
        });
    }

    pub(super) fn places(&self, adapter: &AdapterName) -> Option<&Bits> {
        self.of.get(adapter).map(|opened| &opened.places)
    }

    pub(super) fn ready(&self, adapter: &AdapterName, place: Place) -> Option<Ready> {
        let opened = self.of.get(adapter)?;
        let found = opened.ready.iter().find(|(known, _)| *known == place);
        found.map(|(_, ready)| *ready)
    }

    /// Somebody asked for an adapter on these ranks: it is being loaded from now on.
    pub(super) fn begin(&mut self, adapter: &AdapterName, places: &Bits, now: Time) {
        let Some(opened) = self.of.get_mut(adapter) else { return };
        for (_, ready) in opened.ready.iter_mut().filter(|(place, _)| places.has(*place)) {
            *ready = Ready::At(now + ready.wait(now));
        }
    }
}
