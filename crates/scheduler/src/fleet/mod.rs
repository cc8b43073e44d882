//! Who exists, and who may serve this request?
//!
//! Each thing that can be asked for is a set of places, so that filtering is a few operations on rows of bits whatever the size
//! of the fleet, and the number of those that each reason excluded comes with it.

mod facts;
mod openings;
mod reason;

use homing_domain::{AdapterName, ModelName, WorkerId};
use homing_load::Place;
use homing_profile::Time;
use rustc_hash::FxHashMap;

use crate::ask::{Ask, Phase};
use crate::bits::Bits;

use openings::Openings;

pub use facts::{Adapters, Duty, Health, Knowledge, Label, RankFacts};
pub use openings::Ready;
pub use reason::{Excluded, Reason};

/// Everyone, and sets of them.
#[derive(Debug, Default)]
pub struct Fleet {
    facts: Vec<Option<RankFacts>>,
    all: Bits,
    models: FxHashMap<ModelName, Bits>,
    prefills: Bits,
    decodes: Bits,
    down: Bits,
    draining: Bits,
    any_adapter: Bits,
    adapters: FxHashMap<AdapterName, Bits>,
    openings: Openings,
    labels: FxHashMap<Label, Bits>,
    workers: FxHashMap<WorkerId, Bits>,
}

impl Fleet {
    /// Says what holds of the rank at a place, instead of what was said before.
    pub fn set(&mut self, place: Place, facts: RankFacts) {
        self.take(place);
        self.all.set(place);
        self.models.entry(facts.model.clone()).or_default().set(place);
        self.workers.entry(facts.rank.worker).or_default().set(place);
        for (holds, set) in [
            (facts.role.prefills(), &mut self.prefills),
            (facts.role.decodes(), &mut self.decodes),
            (facts.health == Health::Down, &mut self.down),
            (facts.duty == Duty::Draining, &mut self.draining),
            (facts.adapters == Adapters::Any, &mut self.any_adapter),
        ] {
            if holds {
                set.set(place);
            }
        }
        if let Adapters::Only(names) = &facts.adapters {
            for name in names {
                self.adapters.entry(name.clone()).or_default().set(place);
            }
        }
        for label in &facts.labels {
            self.labels.entry(label.clone()).or_default().set(place);
        }
        if self.facts.len() <= place.index() {
            self.facts.resize(place.index() + 1, None);
        }
        self.facts[place.index()] = Some(facts);
    }

    /// Forgets the rank at a place.
    pub fn remove(&mut self, place: Place) {
        self.take(place);
        self.openings.forget(place);
    }

    fn take(&mut self, place: Place) {
        let Some(facts) = self.facts.get_mut(place.index()).and_then(Option::take) else {
            return;
        };
        for set in [
            &mut self.all,
            &mut self.prefills,
            &mut self.decodes,
            &mut self.down,
            &mut self.draining,
            &mut self.any_adapter,
        ] {
            set.clear(place);
        }
        clear(&mut self.models, &facts.model, place);
        clear(&mut self.workers, &facts.rank.worker, place);
        for label in &facts.labels {
            clear(&mut self.labels, label, place);
        }
        if let Adapters::Only(names) = &facts.adapters {
            for name in names {
                clear(&mut self.adapters, name, place);
            }
        }
    }

    /// What is known of the rank at a place.
    pub fn facts(&self, place: Place) -> Option<&RankFacts> {
        self.facts.get(place.index())?.as_ref()
    }

    /// Places up to the last that was ever taken.
    pub fn places(&self) -> usize {
        self.facts.len()
    }

    /// Says what is known of a rank's cache.
    pub fn set_knowledge(&mut self, place: Place, knowledge: Knowledge) {
        if let Some(facts) = self.facts.get_mut(place.index()).and_then(Option::as_mut) {
            facts.knowledge = knowledge;
        }
    }

    /// The places of a worker.
    pub fn worker(&self, worker: WorkerId) -> Option<&Bits> {
        self.workers.get(&worker)
    }

    /// Puts into `eligible` who may serve the request, and counts the others by the first reason that excluded them.
    pub fn filter(&self, ask: &Ask<'_>, eligible: &mut Bits) -> Excluded {
        let mut excluded = Excluded::default();
        let wanted = ask.wanted;
        eligible.copy_from(&self.all);
        excluded.add(Reason::OtherModel, eligible.keep(self.models.get(ask.model)));
        if matches!(ask.phase, Phase::Whole | Phase::Prefill) {
            excluded.add(Reason::OtherRole, eligible.keep(Some(&self.prefills)));
        }
        if matches!(ask.phase, Phase::Whole | Phase::Decode | Phase::Alone) {
            excluded.add(Reason::OtherRole, eligible.keep(Some(&self.decodes)));
        }
        excluded.add(Reason::Unhealthy, eligible.drop_all(&self.down));
        excluded.add(Reason::Draining, eligible.drop_all(&self.draining));
        if let Some(adapter) = ask.adapter {
            let mut able = self.any_adapter.clone();
            let sets = [self.adapters.get(adapter), self.openings.places(adapter)];
            for set in sets.into_iter().flatten() {
                able.add_all(set);
            }
            excluded.add(Reason::NoAdapter, eligible.keep(Some(&able)));
        }
        if let Some(pin) = wanted.pinned {
            excluded.add(Reason::NotPinned, eligible.keep(self.workers.get(&pin.worker)));
        }
        for dp in wanted.pinned.and_then(|pin| pin.dp).into_iter().chain(wanted.dp) {
            let mut others = eligible.clone();
            let is_it = |place: &Place| self.facts(*place).is_some_and(|facts| facts.rank.dp == dp);
            eligible.places().filter(is_it).for_each(|place| others.clear(place));
            excluded.add(Reason::OtherDpRank, eligible.drop_all(&others));
        }
        if !wanted.allowed.is_empty() {
            let allowed = self.places_of(&wanted.allowed);
            excluded.add(Reason::NotAllowed, eligible.keep(Some(&allowed)));
        }
        if !wanted.tried.is_empty() {
            let tried = self.places_of(&wanted.tried);
            excluded.add(Reason::Tried, eligible.drop_all(&tried));
        }
        for label in &wanted.required {
            excluded.add(Reason::MissingLabel, eligible.keep(self.labels.get(label)));
        }
        excluded
    }

    /// Why the rank at a place may not serve the request, if it may not.
    pub fn why_not(&self, place: Place, ask: &Ask<'_>) -> Option<Reason> {
        let facts = self.facts(place)?;
        let wanted = ask.wanted;
        let prefills = matches!(ask.phase, Phase::Whole | Phase::Prefill);
        let decodes = matches!(ask.phase, Phase::Whole | Phase::Decode | Phase::Alone);
        let adapter = ask
            .adapter
            .is_some_and(|adapter| !self.has(adapter, place) && self.openings.ready(adapter, place).is_none());
        let pinned = |pin: crate::ask::Pin| pin.worker != facts.rank.worker;
        let other_dp = |pin: crate::ask::Pin| pin.dp.is_some_and(|dp| dp != facts.rank.dp);
        let checks = [
            (facts.model != *ask.model, Reason::OtherModel),
            (prefills && !facts.role.prefills(), Reason::OtherRole),
            (decodes && !facts.role.decodes(), Reason::OtherRole),
            (facts.health == Health::Down, Reason::Unhealthy),
            (facts.duty == Duty::Draining, Reason::Draining),
            (adapter, Reason::NoAdapter),
            (wanted.pinned.is_some_and(pinned), Reason::NotPinned),
            (
                wanted.pinned.is_some_and(other_dp) || wanted.dp.is_some_and(|dp| dp != facts.rank.dp),
                Reason::OtherDpRank,
            ),
            (
                !wanted.allowed.is_empty() && !wanted.allowed.contains(&facts.rank.worker),
                Reason::NotAllowed,
            ),
            (wanted.tried.contains(&facts.rank.worker), Reason::Tried),
            (
                !wanted.required.iter().all(|label| facts.labels.contains(label)),
                Reason::MissingLabel,
            ),
        ];
        checks
            .into_iter()
            .find(|(excluded, _)| *excluded)
            .map(|(_, reason)| reason)
    }

    /// Whether a rank has an adapter, or loads what it lacks by itself.
    pub fn has(&self, adapter: &AdapterName, place: Place) -> bool {
        self.any_adapter.has(place) || self.adapters.get(adapter).is_some_and(|set| set.has(place))
    }

    /// Says which ranks may be chosen for an adapter although they do not have it, instead of what was said before.
    pub fn set_openings(&mut self, adapter: &AdapterName, ready: Vec<(Place, Ready)>) {
        self.openings.set(adapter, ready);
    }

    /// Somebody asked for an adapter on a worker that did not have it: it is being loaded from now on.
    pub fn begin_load(&mut self, adapter: &AdapterName, worker: WorkerId, now: Time) {
        if let Some(places) = self.workers.get(&worker) {
            self.openings.begin(adapter, places, now);
        }
    }

    /// When a rank that does not have an adapter has it, if it may be chosen for it.
    #[inline]
    pub fn opening(&self, adapter: Option<&AdapterName>, place: Place) -> Option<Ready> {
        let adapter = adapter?;
        let ready = self.openings.ready(adapter, place)?;
        (!self.has(adapter, place)).then_some(ready)
    }

    /// The ranks that do not have an adapter and may be chosen for it.
    pub fn openings(&self, adapter: Option<&AdapterName>) -> impl Iterator<Item = Place> {
        let adapter = adapter.into_iter();
        adapter.flat_map(move |adapter| {
            let places = self.openings.places(adapter).into_iter().flat_map(Bits::places);
            places.filter(move |place| !self.has(adapter, *place))
        })
    }

    /// The sum of the weights of the preferred labels that a rank has.
    pub fn preference(&self, place: Place, preferred: &[(Label, f64)]) -> f64 {
        let has = |label: &Label| self.labels.get(label).is_some_and(|set| set.has(place));
        preferred
            .iter()
            .filter(|(label, _)| has(label))
            .map(|(_, weight)| weight)
            .sum()
    }

    fn places_of(&self, workers: &[WorkerId]) -> Bits {
        let mut places = Bits::default();
        for worker in workers {
            let of = self.workers.get(worker);
            of.into_iter()
                .flat_map(Bits::places)
                .for_each(|place| places.set(place));
        }
        places
    }
}

fn clear<K: std::hash::Hash + Eq>(sets: &mut FxHashMap<K, Bits>, key: &K, place: Place) {
    if let Some(set) = sets.get_mut(key) {
        set.clear(place);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
