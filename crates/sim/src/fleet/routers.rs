//! Routers, each with a feed, and what they know of workers.

use std::collections::{BTreeMap, BTreeSet};

use homing_disagg::{Endpoint, Traits};
use homing_domain::{KvBatch, KvChange, ModelName, RankId, Role};
use homing_engine::Style;
use homing_feed::{ClearReach, Feed, Identity, Input, Recovery, Source, State};
use homing_index::{Copies, Index, IndexConfig};
use homing_load::RankSpec;
use homing_profile::Time;
use homing_router::{CacheView, NewRank, Router, RouterConfig};
use homing_scheduler::policy::{PolicyError, by_spec};
use homing_scheduler::{Adapters, Duty, Health, RankFacts};
use homing_trace::SessionId;

use super::calendar::IDENTITY;
use super::setup::FleetSetup;
use super::split::SplitSetup;
use super::workers::Worker;

/// A subscription to a rank's events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subscription {
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) stands: bool,
}

/// A router in one of its lives.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: u32,
    pub(crate) life: u64,
    pub(crate) router: Router,
    pub(crate) feed: Feed,
    pub(crate) subscriptions: BTreeMap<RankId, Subscription>,
    /// Workers whose events do not come.
    pub(crate) deaf_to: BTreeSet<u32>,
    /// Workers that cannot be reached at all.
    pub(crate) cut_from: BTreeSet<u32>,
    /// Workers that it believes to be down.
    pub(crate) believed_down: BTreeSet<u32>,
    /// Workers that it was told of and that did not leave, and those of them that take no new requests.
    pub(crate) knows: BTreeSet<u32>,
    pub(crate) drained: BTreeSet<u32>,
    /// How often each rank came.
    pub(crate) came: BTreeMap<RankId, u64>,
    /// Where each session went last, and at which coming of that rank.
    pub(crate) sessions: BTreeMap<SessionId, (RankId, u64)>,
    /// Whether it listens to events.
    pub(crate) listens: bool,
    /// Views that were misread, and how often they must have been replaced until they can be right again.
    misread: BTreeMap<RankId, u64>,
}

impl Node {
    pub(crate) fn new(setup: &FleetSetup, number: u32, life: u64) -> Result<Self, PolicyError> {
        let of = &setup.routers;
        let seed = of.config.seed ^ (u64::from(number) << 32 | life);
        let config = RouterConfig {
            seed,
            ..of.config.clone()
        };
        let ranks = setup.workers.count as usize * usize::from(setup.workers.engine.ranks);
        let index = Index::new(IndexConfig {
            // Each rank may have a draft beside it.
            max_ranks: 2 * ranks,
            ..IndexConfig::new(config.hasher)
        });
        let feed = Feed::new(homing_feed::FeedConfig { seed, ..of.feed }, index);
        let policy = by_spec(&of.policy)?;
        let router = Router::new(&config, policy, feed.reader());
        Ok(Self {
            number,
            life,
            listens: of.view == CacheView::Events && router.uses_overlap(),
            router,
            feed,
            subscriptions: BTreeMap::new(),
            deaf_to: BTreeSet::new(),
            cut_from: BTreeSet::new(),
            believed_down: BTreeSet::new(),
            knows: BTreeSet::new(),
            drained: BTreeSet::new(),
            came: BTreeMap::new(),
            sessions: BTreeMap::new(),
            misread: BTreeMap::new(),
        })
    }

    /// A rank is there. Whether the router had room for it.
    pub(crate) fn meet(&mut self, setup: &FleetSetup, rank: RankId, now: Time) -> Result<(), String> {
        let engine = &setup.workers.engine;
        let spec = RankSpec {
            capacity: Some(engine.blocks.0),
            max_sequences: Some(engine.max_running),
            ..RankSpec::new(rank, setup.routers.timing.clone())
        };
        let drains = self.drained.contains(&rank.worker.0);
        *self.came.entry(rank).or_default() += 1;
        let role = setup
            .split
            .as_ref()
            .map_or(Role::Both, |split| split.role(rank.worker.0));
        let facts = RankFacts {
            role,
            adapters: Adapters::Any,
            duty: if drains { Duty::Draining } else { Duty::Serving },
            ..RankFacts::new(rank, model())
        };
        let view = setup.routers.view;
        let new = NewRank { spec, facts, view };
        self.router.rank_up(now, new).map_err(|error| error.to_string())?;
        if let Some(split) = &setup.split {
            let traits = traits(setup, split, rank);
            self.router
                .set_traits(rank, traits)
                .map_err(|error| error.to_string())?;
        }
        if self.listens {
            let source = Source {
                identity: Identity { ..IDENTITY },
                recovery: if setup.workers.ring > 0 {
                    Recovery::Replay
                } else {
                    Recovery::LiveOnly
                },
                clear_reach: ClearReach::Rank,
                copies: Copies::Counted,
            };
            let input = Input::Discovered { rank, source };
            self.feed.step(millis(now), input).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// It misreads a batch, as if nothing had been removed; number and digest stay those of the true one.
    pub(crate) fn overlook(&mut self, now: Time, rank: RankId, batch: &mut KvBatch) {
        let changes = batch.changes.len();
        batch.changes.retain(|change| !matches!(change, KvChange::Removed(_)));
        if batch.changes.len() == changes {
            return;
        }
        if let Some(status) = self.feed.status(millis(now), rank) {
            // What is heard during a repair may be part of the view that comes of it.
            let repairs = u64::from(status.state == State::Repairing);
            self.misread.insert(rank, status.counters.replaced + repairs + 1);
        }
    }

    /// The view is gone, and what was wrong with it too.
    pub(crate) fn forget_misread(&mut self, rank: RankId) {
        self.misread.remove(&rank);
    }

    /// Whether its view of a rank is wrong because it misread something.
    pub(crate) fn is_misled(&self, now: Time, rank: RankId) -> bool {
        let status = self.feed.status(millis(now), rank);
        let replaced = status.map_or(0, |status| status.counters.replaced);
        self.misread.get(&rank).is_some_and(|needed| replaced < *needed)
    }

    /// What it was told of a worker.
    pub(crate) fn believe(&mut self, now: Time, worker: &Worker, up: bool) {
        let number = worker.id.0;
        if !self.knows.contains(&number) {
            return;
        }
        let changed = if up {
            self.believed_down.remove(&number)
        } else {
            self.believed_down.insert(number)
        };
        if !changed {
            return;
        }
        let health = if up { Health::Up } else { Health::Down };
        self.router
            .worker_changed(now, worker.id, |facts| facts.health = health);
    }

    /// Whether a worker takes new requests.
    pub(crate) fn hear_duty(&mut self, now: Time, worker: &Worker) {
        let number = worker.id.0;
        let changed = match worker.duty {
            Duty::Draining => self.drained.insert(number),
            Duty::Serving => self.drained.remove(&number),
        };
        if changed && self.knows.contains(&number) {
            self.router
                .worker_changed(now, worker.id, |facts| facts.duty = worker.duty);
        }
    }

    /// How good its views are is told to the router.
    pub(crate) fn show_views(&self, now: Time) {
        let statuses: Vec<_> = self.feed.statuses(millis(now)).collect();
        self.router.views(&statuses);
    }
}

/// How a rank hands KV over: as its kind of engine does.
fn traits(setup: &FleetSetup, split: &SplitSetup, rank: RankId) -> Traits {
    let traits = match setup.workers.engine.style {
        Style::Vllm(_) => Traits::by_result(),
        Style::Sglang(_) => Traits::rendezvous(Some(Endpoint {
            host: format!("worker-{}", rank.worker.0).into(),
            port: 8_998,
            dp_size: setup.workers.engine.ranks,
        })),
    };
    Traits {
        rate: split.link.bandwidth,
        ..traits
    }
}

/// The one model that the fleet serves.
pub(crate) fn model() -> ModelName {
    ModelName::from("model")
}

pub(crate) fn millis(now: Time) -> u64 {
    now.0 / 1_000_000
}
