//! How does each adapter stand: who has it, who is about to, and where may a request that needs it go meanwhile?

use std::collections::BTreeSet;

use homing_domain::{AdapterName, WorkerId};
use homing_profile::{Millis, Time};

use super::act::Need;
use super::{Entered, Kind, Manager, Pinned};
use crate::placement::{Site, order};

/// When an adapter is on a worker that does not have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// It is being loaded, and should be there by then.
    Loading(Time),
    /// It takes so long from when somebody asks for it.
    Asked(Millis),
}

/// A worker that does not have an adapter and may be sent requests for it, which wait until it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opening {
    /// Which.
    pub worker: WorkerId,
    /// When it has it.
    pub when: When,
}

/// How an adapter stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Which.
    pub adapter: AdapterName,
    /// From where it is loaded, if that is known.
    pub source: Option<std::sync::Arc<str>>,
    /// Whether it stays when nobody asks for it.
    pub pinned: Pinned,
    /// The workers that have it.
    pub on: BTreeSet<WorkerId>,
    /// The workers that are loading it, or about to when it is asked for.
    pub openings: Vec<Opening>,
    /// The workers that should have it.
    pub planned: BTreeSet<WorkerId>,
}

impl Manager {
    /// How an adapter stands. Of one that is not known nothing can be said.
    pub fn standing(&self, now: Time, adapter: &AdapterName) -> Option<Standing> {
        let entry = self.catalogue.get(adapter)?;
        Some(Standing {
            adapter: adapter.clone(),
            source: entry.source.clone(),
            pinned: entry.pinned,
            on: self.serving(adapter),
            openings: self.openings(now, adapter),
            planned: self.plan.get(adapter).cloned().unwrap_or_default(),
        })
    }

    /// The workers that have an adapter and are not about to lose it.
    pub fn serving(&self, adapter: &AdapterName) -> BTreeSet<WorkerId> {
        let on = self.residency.holders(adapter).map(|rank| rank.worker);
        on.filter(|worker| !self.is_leaving(*worker, adapter)).collect()
    }

    /// Whether a worker is told to unload an adapter, or was and may do it yet, or is about to be.
    pub(super) fn is_leaving(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        let unloads = |job: &super::Job| job.kind == Kind::Unload && job.worker == worker && job.adapter == *adapter;
        self.jobs.values().any(unloads)
            || self.stuck.contains_key(&(worker, adapter.clone()))
            || self.giving_way.get(&worker) == Some(adapter)
    }

    /// The adapters of a worker that it is not about to lose.
    pub fn served_by(&self, worker: WorkerId) -> Vec<AdapterName> {
        let all = self.residency.on_worker(worker);
        all.into_iter()
            .filter(|adapter| self.serving(adapter).contains(&worker))
            .collect()
    }

    /// Whether a request finds an adapter on a worker, without entering.
    pub fn finds(&self, worker: WorkerId, adapter: &AdapterName) -> Entered {
        if self.serving(adapter).contains(&worker) {
            Entered::Ready
        } else {
            Entered::Absent
        }
    }

    /// Where a request may go that finds nobody who has the adapter, or all of them too busy.
    ///
    /// Workers that are loading it; and if there is none, *one* more, so that a burst is not scattered: the first planned one that lacks
    /// it, or the first of its order that can take it. If somebody has it already, only one with a free slot, or with one that no
    /// plan needs.
    pub fn openings(&self, now: Time, adapter: &AdapterName) -> Vec<Opening> {
        let entry = self.catalogue.get(adapter);
        if entry.is_none_or(|entry| entry.source.is_none()) {
            return Vec::new();
        }
        let loading: Vec<Opening> = self
            .jobs
            .values()
            .filter(|job| job.kind == Kind::Load && job.adapter == *adapter)
            .map(|job| Opening {
                worker: job.worker,
                when: When::Loading(job.since + self.load_time),
            })
            .collect();
        if !loading.is_empty() {
            return loading;
        }
        if let Some(wanted) = self.wanted.iter().find(|wanted| wanted.adapter == *adapter) {
            let (worker, when) = (wanted.worker, When::Asked(self.load_time));
            return vec![Opening { worker, when }];
        }
        let serving = self.serving(adapter);
        let need = if serving.is_empty() { Need::Asked } else { Need::Planned };
        let sites = self.sites();
        let planned = self.plan.get(adapter);
        let mut order = order(adapter, &sites);
        // In its own order, but planned ones first.
        order.sort_by_key(|at| !planned.is_some_and(|places| places.contains(&sites[*at].worker)));
        let can = |worker: WorkerId| {
            !self.residency.on_some_of(worker, adapter)
                && self.may_load(now, worker, adapter)
                && (self.free(worker) > 0 || self.victim(now, worker, need).is_some())
        };
        let mut workers = order.iter().map(|at| &sites[*at]);
        let found = workers.clone().find(|site| can(site.worker)).or_else(|| {
            // Everybody is in use everywhere: one of them gives way if it is asked for. Where it is about to go is the last place.
            let nobody = serving.is_empty();
            let may = |site: &&Site| nobody && site.slots > 0 && self.may_load(now, site.worker, adapter);
            let stays = |site: &&Site| !self.residency.on_some_of(site.worker, adapter);
            workers
                .clone()
                .find(|site| may(site) && stays(site))
                .or_else(|| workers.find(may))
        });
        let found = found.map(|site| site.worker);
        let opening = |worker| Opening {
            worker,
            when: When::Asked(self.load_time),
        };
        found.map(opening).into_iter().collect()
    }

    /// Whether a load of an adapter on a worker is under way, or waits for its turn.
    pub fn is_coming(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        let loads = |job: &super::Job| job.kind == Kind::Load && job.worker == worker && job.adapter == *adapter;
        self.jobs.values().any(loads) || self.is_wanted(worker, adapter)
    }
}
