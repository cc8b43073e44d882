//! Which workers exist, given what each source told last?
//!
//! [`Ledger`] takes what sources tell and says what changed. Time is an argument.
//!
//! **Invariant:** a worker is its address. Told of by two sources it is one worker, and the word of the first of them in their
//! order holds.
//!
//! **Invariant:** no two workers have the same address or an endpoint of events in common, and there are at most [`MAX_WORKERS`].
//!
//! **Invariant:** a worker that comes and goes waits longer each time, so that what a source can cause per time is bounded.
//!
//! Cost: all workers are looked at whenever a source tells something or time is up, which is seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homing_config::worker::MAX_WORKERS;
use homing_config::{Endpoint, EventSource, EventsMode, HttpUrl, WorkerSpec};
use homing_domain::WorkerId;
use homing_profile::{Millis, Time};

use crate::roster::{Change, Refused, RosterConfig, SourceStanding, Worker};
use crate::source::{Absence, Origin, Told};

/// What all sources told, and what was made of it.
#[derive(Debug)]
pub(crate) struct Ledger {
    config: RosterConfig,
    sources: Vec<Heard>,
    workers: BTreeMap<HttpUrl, Worker>,
    /// Those who left lately. At most [`MAX_WORKERS`]: of more, the one that left first is forgotten.
    past: BTreeMap<HttpUrl, Past>,
    /// Those who are told of and not taken, and why.
    refused: BTreeMap<HttpUrl, String>,
    /// Addresses that a later source told of as well. What was said of them is not said again.
    shadowed: BTreeSet<(HttpUrl, usize)>,
    next: u32,
    remarks: Vec<String>,
}

/// What a source told last.
#[derive(Debug)]
struct Heard {
    origin: Origin,
    has_told: bool,
    trouble: Option<String>,
    set: BTreeMap<HttpUrl, Named>,
}

#[derive(Debug)]
struct Named {
    spec: Arc<WorkerSpec>,
    /// Since when it is missing, if it is kept though it is.
    missing: Option<Time>,
}

#[derive(Debug)]
struct Past {
    left: Time,
    times: u32,
}

impl Ledger {
    pub(crate) fn new(config: RosterConfig, origins: Vec<Origin>) -> Self {
        let heard = |origin| Heard {
            origin,
            has_told: false,
            trouble: None,
            set: BTreeMap::new(),
        };
        Self {
            config,
            sources: origins.into_iter().map(heard).collect(),
            workers: BTreeMap::new(),
            past: BTreeMap::new(),
            refused: BTreeMap::new(),
            shadowed: BTreeSet::new(),
            next: 0,
            remarks: Vec::new(),
        }
    }

    /// Takes what the source at `place` told, and says what changed: who left, then who came.
    pub(crate) fn take(&mut self, now: Time, place: usize, told: Told) -> Vec<Change> {
        let source = &mut self.sources[place];
        match told {
            Told::Failed { why } => {
                if source.trouble.as_ref() != Some(&why) {
                    let kept = source.set.len();
                    self.remarks.push(format!(
                        "{}: {why}; the {kept} workers it told of are kept",
                        source.origin
                    ));
                }
                source.trouble = Some(why);
            }
            Told::Set { workers, absence } => {
                if source.trouble.take().is_some() {
                    self.remarks.push(format!("{}: well again", source.origin));
                }
                source.has_told = true;
                source.tell(now, workers, absence);
            }
        }
        self.tick(now)
    }

    /// Says what changed because time passed.
    pub(crate) fn tick(&mut self, now: Time) -> Vec<Change> {
        let linger = millis(self.config.linger);
        for source in &mut self.sources {
            source
                .set
                .retain(|_, named| named.missing.is_none_or(|since| now < since + linger));
        }
        let window = millis(self.config.flap_window);
        self.past.retain(|_, past| now < past.left + window);
        let wanted = self.wanted();
        let mut changes = self.leave(now, &wanted);
        changes.extend(self.come(now, wanted));
        changes
    }

    /// When [`Ledger::tick`] has something to do.
    pub(crate) fn wake(&self) -> Option<Time> {
        let linger = millis(self.config.linger);
        let named = self.sources.iter().flat_map(|source| source.set.values());
        let leaving = named.filter_map(|named| named.missing).map(|since| since + linger);
        let coming = self.sources.iter().flat_map(|source| source.set.keys());
        let coming = coming.filter(|url| !self.workers.contains_key(*url) && !self.refused.contains_key(*url));
        let coming = coming
            .filter_map(|url| self.past.get(url))
            .map(|past| self.back_at(past));
        leaving.chain(coming).min()
    }

    pub(crate) fn workers(&self) -> Vec<Worker> {
        let mut workers: Vec<Worker> = self.workers.values().cloned().collect();
        workers.sort_by_key(|worker| worker.id);
        workers
    }

    pub(crate) fn standing(&self) -> Vec<SourceStanding> {
        let standing = |source: &Heard| SourceStanding {
            origin: source.origin.clone(),
            workers: source.has_told.then_some(source.set.len()),
            trouble: source.trouble.clone(),
        };
        self.sources.iter().map(standing).collect()
    }

    pub(crate) fn refused(&self) -> Vec<Refused> {
        let refused = self.refused.iter();
        refused
            .map(|(url, why)| Refused {
                url: url.clone(),
                why: why.clone(),
            })
            .collect()
    }

    /// What is worth a line in a log, since it was asked last.
    pub(crate) fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Everyone who is told of, by address, with the first source that does.
    fn wanted(&mut self) -> BTreeMap<HttpUrl, (Arc<WorkerSpec>, usize)> {
        let mut wanted: BTreeMap<HttpUrl, (Arc<WorkerSpec>, usize)> = BTreeMap::new();
        let mut shadowed = BTreeSet::new();
        for (place, source) in self.sources.iter().enumerate() {
            for (url, named) in &source.set {
                let Some((_, first)) = wanted.get(url) else {
                    wanted.insert(url.clone(), (named.spec.clone(), place));
                    continue;
                };
                let key = (url.clone(), place);
                if !self.shadowed.contains(&key) {
                    let (first, second) = (&self.sources[*first].origin, &source.origin);
                    self.remarks.push(format!(
                        "worker {url} is named by {first} and by {second}: what the first says holds"
                    ));
                }
                shadowed.insert(key);
            }
        }
        self.shadowed = shadowed;
        wanted
    }

    /// Takes those away who are not told of any more, or who are others now.
    fn leave(&mut self, now: Time, wanted: &BTreeMap<HttpUrl, (Arc<WorkerSpec>, usize)>) -> Vec<Change> {
        let stays = |worker: &Worker| {
            let named = wanted.get(&worker.spec.url);
            named.is_some_and(|(spec, _)| is_same_worker(spec, &worker.spec))
        };
        let gone: Vec<HttpUrl> = self
            .workers
            .iter()
            .filter(|(_, worker)| !stays(worker))
            .map(|(url, _)| url.clone())
            .collect();
        let mut changes = Vec::new();
        for url in gone {
            if let Some(worker) = self.workers.remove(&url) {
                changes.push(Change::Left(worker.id));
            }
            let times = self.past.get(&url).map_or(1, |past| past.times.saturating_add(1));
            self.past.insert(url, Past { left: now, times });
            if self.past.len() > MAX_WORKERS {
                let oldest = self.past.iter().min_by_key(|(_, past)| past.left);
                if let Some(oldest) = oldest.map(|(url, _)| url.clone()) {
                    self.past.remove(&oldest);
                }
            }
        }
        changes
    }

    /// Takes those in who are told of and can be.
    fn come(&mut self, now: Time, wanted: BTreeMap<HttpUrl, (Arc<WorkerSpec>, usize)>) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut taken: BTreeMap<Endpoint, HttpUrl> = BTreeMap::new();
        for worker in self.workers.values() {
            taken.extend(endpoints(&worker.spec).map(|endpoint| (endpoint, worker.spec.url.clone())));
        }
        let mut refused = BTreeMap::new();
        // In the order of the sources, so that of two who cannot both be there it is not the address that decides.
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_by_key(|(_, (_, place))| *place);
        for (url, (spec, place)) in wanted {
            let origin = self.sources[place].origin.clone();
            if let Some(worker) = self.workers.get_mut(&url) {
                if worker.spec != spec || worker.origin != origin {
                    worker.spec = spec;
                    worker.origin = origin;
                    changes.push(Change::Changed(worker.clone()));
                }
                continue;
            }
            if self.past.get(&url).is_some_and(|past| now < self.back_at(past)) {
                continue;
            }
            match self.admit(&spec, &taken) {
                Err(why) => {
                    if self.refused.get(&url) != Some(&why) {
                        self.remarks
                            .push(format!("worker {url}, {origin}, is not taken: {why}"));
                    }
                    refused.insert(url, why);
                }
                Ok(id) => {
                    taken.extend(endpoints(&spec).map(|endpoint| (endpoint, url.clone())));
                    let worker = Worker { id, spec, origin };
                    self.workers.insert(url, worker.clone());
                    changes.push(Change::Came(worker));
                }
            }
        }
        self.refused = refused;
        changes
    }

    /// The number of a new worker, or why there is none.
    fn admit(&mut self, spec: &WorkerSpec, taken: &BTreeMap<Endpoint, HttpUrl>) -> Result<WorkerId, String> {
        if self.workers.len() >= MAX_WORKERS {
            return Err(format!("there are {MAX_WORKERS} workers already"));
        }
        let shared = endpoints(spec).find_map(|endpoint| taken.get(&endpoint).map(|owner| (endpoint, owner)));
        if let Some((endpoint, owner)) = shared {
            return Err(format!("{endpoint} is an endpoint of worker {owner} as well"));
        }
        let id = WorkerId(self.next);
        self.next = self.next.checked_add(1).ok_or("all numbers are used up")?;
        Ok(id)
    }

    /// When a worker that left may be back. The first time is free: restarts are no flapping.
    fn back_at(&self, past: &Past) -> Time {
        if past.times < 2 {
            return past.left;
        }
        let wait = millis(self.config.flap_wait).0 * f64::from(1_u32 << (past.times - 2).min(30));
        past.left + Millis(wait.min(millis(self.config.flap_window).0))
    }
}

impl Heard {
    fn tell(&mut self, now: Time, workers: Vec<Arc<WorkerSpec>>, absence: Absence) {
        let mut told = BTreeMap::new();
        for spec in workers.into_iter().take(MAX_WORKERS) {
            told.entry(spec.url.clone()).or_insert(Named { spec, missing: None });
        }
        if absence == Absence::Doubtful {
            for (url, named) in std::mem::take(&mut self.set) {
                let missing = Some(named.missing.unwrap_or(now));
                let spec = named.spec;
                told.entry(url).or_insert(Named { spec, missing });
            }
        }
        self.set = told;
    }
}

/// Whether a worker of which this is said now is the one of which that was said: another label or role changes nothing of what is
/// known of its cache.
fn is_same_worker(now: &WorkerSpec, before: &WorkerSpec) -> bool {
    let same = WorkerSpec {
        labels: before.labels.clone(),
        role: before.role,
        ..now.clone()
    };
    same == *before
}

/// Where its ranks publish and send again. Those that we bind are left out: all interfaces and one of them are the same port, and
/// the sockets themselves find out.
fn endpoints(spec: &WorkerSpec) -> impl Iterator<Item = Endpoint> {
    spec.rank_sources()
        .flat_map(|(_, source)| match source {
            EventSource::Stream { events, replay, .. } => {
                let events = (events.mode == EventsMode::Connect).then_some(events.endpoint);
                [events, replay]
            }
            EventSource::Nobody | EventSource::Agent(_) | EventSource::Poll(_) => [None, None],
        })
        .flatten()
}

fn millis(time: Duration) -> Millis {
    Millis(time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests;
