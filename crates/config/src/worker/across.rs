//! What must hold between workers?
//!
//! Two workers with one address, or two streams at one endpoint, would be taken for each other. Endpoints are compared
//! with those of all ranks: the classic mistake is a replay port right after the events port of an engine with two ranks.
//!
//! **Cost:** a sort of all endpoints, and a look at every bound one for each that is bound to all interfaces.

use std::collections::BTreeMap;

use homing_domain::{BlockSize, ModelName};

use crate::error::Problem;
use crate::resolve::{Setting, Source};
use crate::worker::address::{Endpoint, EventsMode, HttpUrl};
use crate::worker::keys::WorkerKey;
use crate::worker::problem::{Span, WorkerName, WorkerProblem};
use crate::worker::{EventSource, WorkerSpec};

/// Workers with their names, and where all of them were written.
pub(crate) struct Workers<'a> {
    pub named: &'a [(WorkerName, WorkerSpec)],
    pub place: &'a Source,
}

/// One endpoint of a worker, with those of its further ranks.
struct Use<'a> {
    owner: usize,
    key: WorkerKey,
    mode: EventsMode,
    endpoint: &'a Endpoint,
    ranks: u16,
}

impl Workers<'_> {
    /// Everything that is wrong between them. `max_ranks` bounds the ranks of one index.
    pub fn problems(&self, max_ranks: &Setting, limit: u32) -> Vec<Problem> {
        let mut problems = self.same_urls();
        problems.extend(self.shared_endpoints());
        problems.extend(self.too_many_ranks(max_ranks, limit));
        problems
    }

    fn same_urls(&self) -> Vec<Problem> {
        let mut owners: BTreeMap<&HttpUrl, &WorkerName> = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, worker) in self.named {
            match owners.get(&worker.url) {
                Some(other) => problems.push(self.problem(
                    name,
                    WorkerProblem::SameUrl {
                        url: worker.url.to_string(),
                        other: (*other).clone(),
                    },
                )),
                None => {
                    owners.insert(&worker.url, name);
                }
            }
        }
        problems
    }

    fn shared_endpoints(&self) -> Vec<Problem> {
        let mut uses: Vec<Use<'_>> = self.named.iter().enumerate().flat_map(uses_of).collect();
        uses.sort_by_key(Use::place);
        let mut problems = Vec::new();
        let mut widest: Option<&Use<'_>> = None;
        for one in &uses {
            match widest {
                Some(other) if one.meets(other) => {
                    problems.push(self.shared(one, other));
                    if one.last() > other.last() {
                        widest = Some(one);
                    }
                }
                _ => widest = Some(one),
            }
        }
        let bound = || uses.iter().filter(|one| one.mode == EventsMode::Bind);
        for everywhere in bound().filter(|one| one.endpoint.is_wildcard()) {
            let hidden = bound().filter(|one| !one.endpoint.is_wildcard() && one.ports_meet(everywhere));
            problems.extend(hidden.map(|one| self.shared(one, everywhere)));
        }
        problems
    }

    fn too_many_ranks(&self, max_ranks: &Setting, limit: u32) -> Vec<Problem> {
        let mut indexes: BTreeMap<(&ModelName, BlockSize), u32> = BTreeMap::new();
        for (_, worker) in self.named {
            *indexes.entry((&worker.model, worker.block_size)).or_default() += u32::from(worker.ranks);
        }
        let full = indexes.into_iter().filter(|(_, ranks)| *ranks > limit);
        full.map(|((model, block_size), ranks)| Problem::TooManyRanks {
            model: model.clone(),
            block_size,
            ranks,
            place: self.place.clone(),
            limit: Box::new(max_ranks.clone()),
        })
        .collect()
    }

    /// Told of the later of the two, in the order in which they were written.
    fn shared(&self, one: &Use<'_>, other: &Use<'_>) -> Problem {
        let (first, second) = if (one.owner, one.key) < (other.owner, other.key) {
            (one, other)
        } else {
            (other, one)
        };
        self.problem(
            &self.named[second.owner].0,
            WorkerProblem::SharedEndpoint {
                key: second.key,
                span: second.span(),
                other_key: first.key,
                other_span: first.span(),
                other: self.named[first.owner].0.clone(),
            },
        )
    }

    fn problem(&self, worker: &WorkerName, problem: WorkerProblem) -> Problem {
        Problem::Worker {
            worker: worker.clone(),
            place: self.place.clone(),
            problem: Box::new(problem),
        }
    }
}

fn uses_of((owner, (_, worker)): (usize, &(WorkerName, WorkerSpec))) -> Vec<Use<'_>> {
    let EventSource::Stream { events, replay, .. } = &worker.source else {
        return Vec::new();
    };
    let one = |key, mode, endpoint| Use {
        owner,
        key,
        mode,
        endpoint,
        ranks: worker.ranks,
    };
    let events = one(WorkerKey::Events, events.mode, &events.endpoint);
    let replay = replay.iter();
    let replay = replay.map(|replay| one(WorkerKey::Replay, EventsMode::Connect, replay));
    std::iter::once(events).chain(replay).collect()
}

impl<'a> Use<'a> {
    /// Host and first port, or path. All spellings of "all interfaces" are one.
    fn place(&self) -> (&'a str, u32) {
        match self.endpoint {
            endpoint @ Endpoint::Tcp { port, .. } if endpoint.is_wildcard() => ("*", u32::from(*port)),
            Endpoint::Tcp { host, port } => (host, u32::from(*port)),
            // No port is 0, so that no path is taken for a host.
            Endpoint::Ipc { path } => (path, 0),
        }
    }

    fn last(&self) -> u32 {
        self.place().1 + u32::from(self.ranks) - 1
    }

    fn meets(&self, other: &Self) -> bool {
        self.place().0 == other.place().0 && self.ports_meet(other)
    }

    fn ports_meet(&self, other: &Self) -> bool {
        self.place().1 <= other.last() && other.place().1 <= self.last()
    }

    fn span(&self) -> Span {
        Span {
            first: self.endpoint.clone(),
            ranks: self.ranks,
        }
    }
}
