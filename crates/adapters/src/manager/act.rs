//! Where should everything be, and what is the next step there?

use homing_domain::{AdapterName, WorkerId};
use homing_profile::Time;

use super::{Act, Command, Job, JobId, Kind, Manager, Origin, Pair, Pinned};
use crate::placement::replicas::{Fleet, Wish};
use crate::placement::{Wanted, place};

/// For whom a slot is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A request waits.
    Asked,
    /// A plan says so.
    Planned,
}

impl Manager {
    /// Makes the plan anew.
    pub(super) fn replan(&mut self, now: Time, busy: f64) {
        self.failures
            .retain(|_, failure| failure.until > now || failure.tries > 0);
        let sites = self.sites();
        let wishes: Vec<Wish> = self
            .catalogue
            .iter()
            .filter(|(_, entry)| entry.source.is_some())
            .map(|(adapter, entry)| Wish {
                adapter: adapter.clone(),
                tokens: self.demand.of(adapter).tokens,
                pinned: entry.pinned == Pinned::Yes,
                resident: self.residency.holders(adapter).next().is_some(),
            })
            .collect();
        let fleet = Fleet {
            workers: sites.iter().filter(|site| site.slots > 0).count() as u32,
            slots: sites.iter().map(|site| site.slots).sum(),
            busy,
            base: self.demand.of_base().tokens,
            headroom: self.config.headroom,
        };
        let counts = self.steady.round(&wishes, &fleet, self.config.down_rounds);
        let mut order: Vec<usize> = (0..wishes.len()).collect();
        order.sort_by(|a, b| {
            let (one, other) = (&wishes[*a], &wishes[*b]);
            other
                .pinned
                .cmp(&one.pinned)
                .then_with(|| other.tokens.total_cmp(&one.tokens))
                .then_with(|| one.adapter.cmp(&other.adapter))
        });
        let wanted: Vec<Wanted> = order
            .into_iter()
            .map(|at| self.wanted_places(now, &wishes[at].adapter, counts[at]))
            .collect();
        self.plan = place(self.config.method, &wanted, &sites);
    }

    fn wanted_places(&self, now: Time, adapter: &AdapterName, replicas: u32) -> Wanted {
        let workers = || self.hosts.keys().copied();
        Wanted {
            adapter: adapter.clone(),
            replicas,
            // What a request waits for there is as good as there.
            has: workers()
                .filter(|worker| self.residency.on_some_of(*worker, adapter) || self.is_coming(*worker, adapter))
                .collect(),
            not: workers()
                .filter(|worker| !self.may_load(now, *worker, adapter))
                .collect(),
        }
    }

    /// Whether a load there did not fail lately.
    pub(super) fn may_load(&self, now: Time, worker: WorkerId, adapter: &AdapterName) -> bool {
        let failure = self.failures.get(&(worker, adapter.clone()));
        failure.is_none_or(|failure| failure.until <= now)
    }

    /// Begins what can begin: first what requests wait for, then what the plan lacks, most wanted first.
    pub(super) fn act(&mut self, now: Time) {
        for wanted in self.wanted.clone() {
            if self.full() {
                return;
            }
            self.begin(now, wanted.worker, &wanted.adapter, Need::Asked);
        }
        if self.full() {
            return;
        }
        self.withdraw(now);
        let mut lacking: Vec<(f64, Pair)> = Vec::new();
        for (adapter, places) in &self.plan {
            let demand = self.demand.of(adapter).tokens;
            for worker in places {
                if !self.residency.on_all_of(*worker, adapter) {
                    lacking.push((demand, (*worker, adapter.clone())));
                }
            }
        }
        lacking.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        for (_, (worker, adapter)) in lacking {
            if self.full() {
                return;
            }
            self.begin(now, worker, &adapter, Need::Planned);
        }
    }

    /// Adapters that are not to be served any more go, wherever they are.
    fn withdraw(&mut self, now: Time) {
        let leaving = self
            .catalogue
            .iter()
            .filter(|(_, entry)| entry.origin == Origin::Leaving);
        let gone: Vec<AdapterName> = leaving.map(|(adapter, _)| adapter.clone()).collect();
        for adapter in gone {
            for worker in self.hosts.keys().copied().collect::<Vec<_>>() {
                let idle = self.is_idle(worker, &adapter, now);
                if !self.full() && !self.is_busy(worker) && self.residency.on_some_of(worker, &adapter) && idle {
                    self.start(now, worker, &adapter, Kind::Unload);
                }
            }
        }
    }

    fn full(&self) -> bool {
        self.jobs.len() >= self.config.at_once
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        self.jobs.values().any(|job| job.worker == worker)
    }

    /// Begins to load, or to make room for it.
    fn begin(&mut self, now: Time, worker: WorkerId, adapter: &AdapterName, need: Need) {
        let source = self.catalogue.get(adapter).and_then(|entry| entry.source.clone());
        if source.is_none() || self.is_busy(worker) || !self.may_load(now, worker, adapter) {
            return;
        }
        if self.free(worker) > 0 {
            self.giving_way.remove(&worker);
            self.start(now, worker, adapter, Kind::Load);
        } else if let Some(victim) = self.victim(now, worker, need) {
            if let Some(places) = self.plan.get_mut(&victim) {
                places.remove(&worker);
            }
            self.start(now, worker, &victim, Kind::Unload);
        } else if need == Need::Asked {
            self.make_way(worker, now);
        }
    }

    /// Where everybody is in use and somebody waits, the least used takes no new requests until it can go: otherwise who waits could wait
    /// for ever.
    fn make_way(&mut self, worker: WorkerId, now: Time) {
        if self.giving_way.contains_key(&worker) || !self.is_waited_for(worker) {
            return;
        }
        let requests = |adapter: &AdapterName| {
            let used = self.used.get(&(worker, adapter.clone()));
            used.map_or(0, |used| used.requests)
        };
        let may_go = |adapter: &AdapterName| {
            let entry = self.catalogue.get(adapter);
            let kept = entry.is_none_or(|entry| entry.source.is_none() || entry.pinned == Pinned::Yes);
            !kept && !self.is_expected(worker, adapter, now)
        };
        let all = self.residency.on_worker(worker).into_iter();
        let least = all
            .filter(may_go)
            .min_by_key(|adapter| (requests(adapter), adapter.clone()));
        if let Some(least) = least {
            self.giving_way.insert(worker, least);
        }
    }

    fn is_waited_for(&self, worker: WorkerId) -> bool {
        self.wanted.iter().any(|wanted| wanted.worker == worker)
    }

    /// Free slots of a worker: of the rank with the fewest.
    pub(super) fn free(&self, worker: WorkerId) -> u32 {
        let ranks = self.residency.ranks_of(worker);
        ranks.map(|rank| self.residency.free(rank)).min().unwrap_or(0)
    }

    /// Who gives way: whom no plan wants there, and if a request waits, whom it does; the longest unused of them. Nobody who is in
    /// use, and nobody who is pinned and planned there.
    pub(super) fn victim(&self, now: Time, worker: WorkerId, need: Need) -> Option<AdapterName> {
        let planned = |adapter: &AdapterName| self.plan.get(adapter).is_some_and(|places| places.contains(&worker));
        let pinned = |adapter: &AdapterName| {
            let entry = self.catalogue.get(adapter);
            entry.is_some_and(|entry| entry.pinned == Pinned::Yes)
        };
        let last = |adapter: &AdapterName| {
            let used = self.used.get(&(worker, adapter.clone()));
            used.map_or(Time::ZERO, |used| used.last)
        };
        let known_source = |adapter: &AdapterName| {
            // What cannot be loaded again is not thrown away.
            let entry = self.catalogue.get(adapter);
            entry.is_some_and(|entry| entry.source.is_some())
        };
        self.residency
            .on_worker(worker)
            .into_iter()
            .filter(|adapter| self.is_idle(worker, adapter, now) && known_source(adapter))
            .filter(|adapter| !planned(adapter) || (need == Need::Asked && !pinned(adapter)))
            .min_by_key(|adapter| (planned(adapter), last(adapter), adapter.clone()))
    }

    /// Whether nobody uses it there, nor waits for it.
    fn is_idle(&self, worker: WorkerId, adapter: &AdapterName, now: Time) -> bool {
        let pair = (worker, adapter.clone());
        let used = self.used.get(&pair).is_some_and(|used| used.requests > 0);
        let mut ranks = self.residency.ranks_of(worker);
        let active = ranks.any(|rank| self.residency.is_active(rank, adapter));
        let stuck = self.stuck.get(&pair).is_some_and(|until| *until > now);
        !used && !active && !stuck && !self.is_expected(worker, adapter, now)
    }

    /// Whether requests wait for it there, or did so a moment ago.
    fn is_expected(&self, worker: WorkerId, adapter: &AdapterName, now: Time) -> bool {
        let fresh = self.fresh.get(&(worker, adapter.clone()));
        fresh.is_some_and(|until| *until > now) || self.is_wanted(worker, adapter)
    }

    fn start(&mut self, now: Time, worker: WorkerId, adapter: &AdapterName, kind: Kind) {
        let (act, within) = match kind {
            Kind::Load => {
                let entry = self.catalogue.get(adapter);
                let Some(source) = entry.and_then(|entry| entry.source.clone()) else {
                    return;
                };
                (Act::Load { source }, self.config.load_within)
            }
            Kind::Unload => (Act::Unload, self.config.unload_within),
        };
        let job = JobId(self.next_job);
        self.next_job += 1;
        self.changed.insert((worker, adapter.clone()), now);
        self.jobs.insert(
            job,
            Job {
                worker,
                adapter: adapter.clone(),
                kind,
                since: now,
                until: now + within,
            },
        );
        self.commands.push_back(Command {
            job,
            worker,
            adapter: adapter.clone(),
            act,
            within,
        });
    }
}
