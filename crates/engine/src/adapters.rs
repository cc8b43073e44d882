//! Which adapters are on the device?
//!
//! A step can have as many different adapters as there are slots. One that is not there takes the slot of the one that was
//! used the longest ago by nobody who runs, and makes the step longer.
//!
//! **Invariant:** an adapter of a running sequence is on the device.

use homing_domain::AdapterName;

/// An adapter, as an engine numbers those it ever heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdapterNo(pub u32);

/// The adapters that an engine knows by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    names: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    name: AdapterName,
    served: bool,
}

impl Registry {
    /// Serves an adapter from now on. Returns whether it did not before.
    pub(crate) fn add(&mut self, name: &AdapterName) -> bool {
        if let Some(known) = self.names.iter_mut().find(|known| known.name == *name) {
            return !std::mem::replace(&mut known.served, true);
        }
        self.names.push(Known {
            name: name.clone(),
            served: true,
        });
        true
    }

    /// Serves it no more; requests that use it go on. Returns whether it did before.
    pub(crate) fn remove(&mut self, name: &AdapterName) -> bool {
        let known = self.names.iter_mut().find(|known| known.name == *name);
        known.is_some_and(|known| std::mem::replace(&mut known.served, false))
    }

    pub(crate) fn find(&self, name: &AdapterName) -> Option<AdapterNo> {
        let place = self
            .names
            .iter()
            .position(|known| known.served && known.name == *name)?;
        Some(AdapterNo(place as u32))
    }

    pub(crate) fn name(&self, number: AdapterNo) -> &AdapterName {
        &self.names[number.0 as usize].name
    }

    pub(crate) fn served(&self) -> impl Iterator<Item = &AdapterName> {
        self.names.iter().filter(|known| known.served).map(|known| &known.name)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// The slots of one rank, in the order of their last use.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    limit: u32,
    resident: Vec<Resident>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    adapter: AdapterNo,
    running: u32,
}

/// What it takes to run a sequence with an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// Nothing: it is there.
    None,
    /// It is loaded first.
    Needed,
}

impl Slots {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            resident: Vec::new(),
        }
    }

    /// Whether a sequence with this adapter can join those that run.
    pub(crate) fn admits(&self, adapter: Option<AdapterNo>) -> bool {
        let Some(adapter) = adapter else { return true };
        let in_use = self.resident.iter().filter(|resident| resident.running > 0);
        self.resident.iter().any(|resident| resident.adapter == adapter) || (in_use.count() as u32) < self.limit
    }

    /// A sequence joins that is admitted.
    pub(crate) fn join(&mut self, adapter: Option<AdapterNo>) -> Loading {
        let Some(adapter) = adapter else { return Loading::None };
        let found = self.resident.iter().position(|resident| resident.adapter == adapter);
        let loading = if found.is_some() {
            Loading::None
        } else {
            Loading::Needed
        };
        let full = self.resident.len() >= self.limit as usize;
        // What it takes is its own place, or if it has none and all are taken, that of an idle one.
        let idle = || {
            self.resident
                .iter()
                .position(|resident| resident.running == 0)
                .filter(|_| full)
        };
        let taken = found.or_else(idle).map(|place| self.resident.remove(place));
        let mut resident = match taken {
            Some(resident) if resident.adapter == adapter => resident,
            _ => Resident { adapter, running: 0 },
        };
        resident.running += 1;
        self.resident.push(resident);
        loading
    }

    /// A sequence leaves.
    pub(crate) fn leave(&mut self, adapter: Option<AdapterNo>) {
        let Some(adapter) = adapter else { return };
        if let Some(resident) = self.resident.iter_mut().find(|resident| resident.adapter == adapter) {
            resident.running = resident.running.saturating_sub(1);
        }
    }

    pub(crate) fn resident(&self) -> impl Iterator<Item = (AdapterNo, u32)> + '_ {
        self.resident
            .iter()
            .map(|resident| (resident.adapter, resident.running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_idles_the_longest_goes() {
        let [a, b, c] = [0, 1, 2].map(|number| Some(AdapterNo(number)));
        let mut slots = Slots::new(2);
        assert_eq!(slots.join(a), Loading::Needed);
        assert_eq!(slots.join(b), Loading::Needed);
        assert!(slots.admits(a) && slots.admits(None) && !slots.admits(c));
        assert_eq!(slots.join(a), Loading::None);
        slots.leave(b);
        assert!(slots.admits(c));
        assert_eq!(slots.join(c), Loading::Needed);
        slots.leave(a);
        assert!(!slots.admits(b), "one of the sequences with a still runs");
        slots.leave(a);
        assert_eq!(slots.join(b), Loading::Needed);
        let left: Vec<_> = slots.resident().map(|(adapter, _)| adapter.0).collect();
        assert_eq!(left, [2, 1]);
    }

    #[test]
    fn names_are_served_until_they_are_removed() {
        let (a, b) = (AdapterName::new("a"), AdapterName::new("b"));
        let mut registry = Registry::default();
        assert!(registry.add(&a) && registry.add(&b) && !registry.add(&a));
        assert_eq!(registry.find(&b), Some(AdapterNo(1)));
        assert!(registry.remove(&a) && !registry.remove(&a));
        assert_eq!(registry.find(&a), None);
        assert!(registry.add(&a));
        assert_eq!(registry.find(&a), Some(AdapterNo(0)));
    }
}
