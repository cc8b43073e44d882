//! Who serves what? A table that requests read without waiting, and that is replaced as a whole when somebody comes or goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homing_discovery::Facts;
use homing_domain::{AdapterName, WorkerId, excerpt_to};
use homing_scheduler::Adapters;

use crate::lane::Lane;
use crate::worker::Worker;

/// What a name that clients use stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// Where requests for it are decided: one for each block size.
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// The adapter that it is, if it is one.
    pub(crate) adapter: Option<AdapterName>,
    /// The model that it adapts.
    pub(crate) parent: Option<String>,
    /// Tokens of prompt and answer together, where a worker says it: the least of all.
    pub(crate) max_len: Option<u32>,
}

/// Who serves what.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) models: BTreeMap<String, Served>,
    pub(crate) workers: BTreeMap<WorkerId, Arc<Worker>>,
}

impl Table {
    /// The table of these workers.
    pub(crate) fn of(workers: impl Iterator<Item = (Arc<Worker>, Arc<Facts>)>) -> Self {
        let mut table = Self::default();
        for (worker, facts) in workers {
            table.name(worker.spec.model.as_str(), None, None, &worker.lane);
            for model in facts.models.iter().flatten() {
                let max_len = model.max_len.map(|tokens| tokens.0);
                table.name(&model.name, model.parent.as_deref(), max_len, &worker.lane);
            }
            table.workers.insert(worker.id, worker);
        }
        table
    }

    /// Adapters that are known though perhaps nobody has them now, with the models that they adapt.
    pub(crate) fn with_adapters<'a>(mut self, adapters: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        for (name, model) in adapters {
            let lanes = self.models.get(model).map(|served| served.lanes.clone());
            for lane in lanes.into_iter().flatten() {
                self.name(name, Some(model), None, &lane);
            }
        }
        self
    }

    /// Adapters that are not to be served any more, though somebody may have them still.
    pub(crate) fn without_adapters<'a>(mut self, names: impl Iterator<Item = &'a str>) -> Self {
        for name in names {
            if self.models.get(name).is_some_and(|served| served.adapter.is_some()) {
                self.models.remove(name);
            }
        }
        self
    }

    fn name(&mut self, name: &str, parent: Option<&str>, max_len: Option<u32>, lane: &Arc<Lane>) {
        let served = self.models.entry(name.to_owned()).or_default();
        if !served.lanes.iter().any(|known| Arc::ptr_eq(known, lane)) {
            served.lanes.push(lane.clone());
        }
        if let Some(parent) = parent {
            served.adapter = Some(AdapterName::new(name));
            served.parent = Some(parent.to_owned());
        }
        served.max_len = match (served.max_len, max_len) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// What a request asks for. A request that names nothing asks for the only model there is.
    pub(crate) fn find(&self, model: Option<&str>) -> Option<(&str, &Served)> {
        if let Some(name) = model {
            let found = self.models.get_key_value(name);
            return found.map(|(name, served)| (name.as_str(), served));
        }
        let mut models = self.models.iter().filter(|(_, served)| served.adapter.is_none());
        let (name, served) = models.next()?;
        let known = |lane: &Arc<Lane>| served.lanes.iter().any(|known| Arc::ptr_eq(known, lane));
        // Several names of one model are still one.
        let one = models.all(|(_, other)| other.lanes.iter().all(known));
        one.then_some((name, served))
    }

    /// The names of some models, and how many more there are.
    pub(crate) fn names(&self) -> String {
        const MAX_NAMES: usize = 8;
        let mut names: Vec<String> = self
            .models
            .keys()
            .take(MAX_NAMES)
            .map(|name| excerpt_to(name, 64).into_owned())
            .collect();
        let more = self.models.len() - names.len();
        if more > 0 {
            names.push(format!("and {more} more, see /v1/models"));
        }
        names.join(", ")
    }

    /// The worker of this address or number.
    pub(crate) fn worker(&self, name: &str) -> Option<&Arc<Worker>> {
        let name = name.trim_end_matches('/');
        let number = name.parse().ok().and_then(|number| self.workers.get(&WorkerId(number)));
        number.or_else(|| self.workers.values().find(|worker| &*worker.name == name))
    }

    /// Each lane once.
    pub(crate) fn lanes(&self) -> Vec<&Arc<Lane>> {
        let mut lanes: Vec<&Arc<Lane>> = Vec::new();
        for worker in self.workers.values() {
            if !lanes.iter().any(|known| Arc::ptr_eq(known, &worker.lane)) {
                lanes.push(&worker.lane);
            }
        }
        lanes
    }

    /// Workers that are left out, of how many.
    pub(crate) fn out(&self) -> (usize, usize) {
        let out = self.workers.values().filter(|worker| worker.is_out()).count();
        (out, self.workers.len())
    }
}

/// The adapters that a worker says it serves.
pub(crate) fn adapters(facts: &Facts) -> Adapters {
    let models = facts.models.iter().flatten();
    let named: BTreeSet<&str> = models
        .filter(|model| model.parent.is_some())
        .map(|model| model.name.as_str())
        .collect();
    if named.is_empty() {
        Adapters::None
    } else {
        Adapters::Only(named.into_iter().map(AdapterName::new).collect())
    }
}
