//! What engines say, and what came of commands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homing_domain::{AdapterName, RankId, WorkerId};
use homing_profile::{Millis, Time};

use super::{Counts, Entry, Failure, Job, JobId, Kind, Manager, Origin, Pair};

/// How much of what a load took counts for what the next is expected to take.
const LEARN: f64 = 0.2;

/// For so long an adapter that requests waited for stays, whoever else wants its slot: they are decided about anew.
const GRACE: Millis = Millis(1_000.0);

impl Manager {
    /// A worker lists all adapters that it serves, and from where they came if it says so. It was asked at `asked`: what changed by
    /// our commands since then is known better.
    pub fn listed(&mut self, asked: Time, worker: WorkerId, adapters: &[(AdapterName, Option<Arc<str>>)]) {
        let ranks: Vec<RankId> = self.residency.ranks_of(worker).collect();
        if ranks.is_empty() {
            return;
        }
        let old = |manager: &Self, adapter: &AdapterName| changed_since(&manager.changed, (worker, adapter), asked);
        let told: BTreeSet<&AdapterName> = adapters.iter().map(|(name, _)| name).collect();
        for gone in self.residency.on_worker(worker) {
            if !told.contains(&gone) && !old(self, &gone) {
                self.used
                    .retain(|(of, adapter), used| *of != worker || *adapter != gone || used.requests > 0);
                for rank in &ranks {
                    self.residency.remove(*rank, &gone);
                }
            }
        }
        for (adapter, source) in adapters {
            if old(self, adapter) {
                continue;
            }
            for rank in &ranks {
                self.residency.add(*rank, adapter);
            }
            self.failures.remove(&(worker, adapter.clone()));
            if !self.catalogue.contains_key(adapter) && self.catalogue.len() < self.config.most {
                let entry = Entry {
                    source: source.clone(),
                    ..Entry::default()
                };
                self.catalogue.insert(adapter.clone(), entry);
            }
        }
        self.stuck.retain(|(of, adapter), _| {
            *of != worker || (told.contains(adapter) && changed_since(&self.changed, (worker, adapter), asked))
        });
        // Whoever lists next was asked later still.
        self.changed
            .retain(|(of, _), changed| *of != worker || *changed >= asked);
        self.forget_strangers();
    }

    /// A request that was sent to a worker at `asked` was told that its adapter is not there: the engine was restarted, or somebody
    /// else took it away.
    pub fn lacks(&mut self, now: Time, asked: Time, worker: WorkerId, adapter: &AdapterName) {
        if changed_since(&self.changed, (worker, adapter), asked) {
            return;
        }
        let ranks: Vec<RankId> = self.residency.ranks_of(worker).collect();
        for rank in &ranks {
            self.residency.remove(*rank, adapter);
        }
        if !ranks.is_empty() {
            self.changed.insert((worker, adapter.clone()), now);
        }
        self.forget_strangers();
        self.act(now);
    }

    /// A worker says of which adapters requests are under way there, whoever sent them.
    pub fn active(&mut self, rank: RankId, adapters: BTreeSet<AdapterName>) {
        self.residency.set_active(rank, adapters);
    }

    /// A command is over. What is said of one that is not under way any more changes nothing.
    pub fn done(&mut self, now: Time, job: JobId, result: Result<(), &str>) {
        let Some(job) = self.jobs.remove(&job) else { return };
        self.over(now, &job, result);
        self.act(now);
    }

    /// Commands of which nothing was heard have failed.
    pub(super) fn time_out(&mut self, now: Time) {
        let late: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.until <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some(job) = self.jobs.remove(&id) {
                self.over(now, &job, Err("it took too long"));
            }
        }
    }

    fn over(&mut self, now: Time, job: &Job, result: Result<(), &str>) {
        let pair = (job.worker, job.adapter.clone());
        self.changed.insert(pair.clone(), now);
        let ranks: Vec<RankId> = self.residency.ranks_of(job.worker).collect();
        let Counts {
            loads,
            failed_loads,
            unloads,
            failed_unloads,
        } = &mut self.counts;
        match (job.kind, result) {
            (Kind::Load, Ok(())) => {
                *loads += 1;
                for rank in &ranks {
                    self.residency.add(*rank, &job.adapter);
                }
                self.failures.remove(&pair);
                if self.is_wanted(job.worker, &job.adapter) {
                    self.fresh.insert(pair.clone(), now + GRACE);
                }
                self.not_wanted(job.worker, &job.adapter);
                self.used.entry(pair).or_default().last = now;
                let took = now.since(job.since).0;
                self.load_time = Millis(self.load_time.0 + LEARN * (took - self.load_time.0));
            }
            (Kind::Load, Err(why)) => {
                *failed_loads += 1;
                let tries = self.failures.get(&pair).map_or(0, |failure| failure.tries) + 1;
                let pause = if tries >= self.config.tries {
                    self.config.backoff_most.0
                } else {
                    let doubled = f64::from(1_u32 << (tries - 1).min(20));
                    (self.config.backoff.0 * doubled).min(self.config.backoff_most.0)
                };
                let failure = Failure {
                    // After a long pause it is tried anew.
                    tries: tries % self.config.tries.max(1),
                    until: now + Millis(pause),
                    why: why.into(),
                };
                self.failures.insert(pair.clone(), failure);
                self.not_wanted(job.worker, &job.adapter);
                // The plan must not insist on a place where it cannot be.
                self.next_round = Time::ZERO;
            }
            (Kind::Unload, Ok(())) => {
                *unloads += 1;
                for rank in &ranks {
                    self.residency.remove(*rank, &job.adapter);
                }
                self.used.remove(&pair);
                self.forget_strangers();
            }
            (Kind::Unload, Err(_)) => {
                *failed_unloads += 1;
                self.stuck.insert(pair, now + self.config.backoff);
            }
        }
    }

    /// An adapter that nobody told us of and no engine has any more is not known.
    fn forget_strangers(&mut self) {
        let residency = &self.residency;
        self.catalogue.retain(|adapter, entry| {
            let known = entry.origin == Origin::Registered || entry.source.is_some();
            known || residency.holders(adapter).next().is_some()
        });
    }
}

fn changed_since(changed: &BTreeMap<Pair, Time>, (worker, adapter): (WorkerId, &AdapterName), asked: Time) -> bool {
    let changed = changed.get(&(worker, adapter.clone()));
    changed.is_some_and(|changed| *changed >= asked)
}
