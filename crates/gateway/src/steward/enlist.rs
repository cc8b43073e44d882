//! How does a worker that said what it is come to take requests, and how is it forgotten?

use std::sync::Arc;

use homing_config::WorkerSpec;
use homing_discovery::{Facts, Health, StallConfig};
use homing_domain::{KeyHasher, RankId, WorkerId};
use homing_keeper::{Hooks, Keeper, KeeperConfig, Subject, feed_config, index_config};
use homing_load::RankSpec;
use homing_profile::{Millis, Time};
use homing_router::{CacheView, NewRank, Router};
use homing_scheduler::{Label, RankFacts};
use tokio::runtime::Handle;

use super::{Steward, StewardError};
use crate::adapters::Shelf;
use crate::lane::Lane;
use crate::progress::{WorkerProgress, monitor};
use crate::settings;
use crate::table::adapters;
use crate::worker::{Enlisted, Worker};

impl Steward {
    /// A worker that said what it is begins to take requests. It was asked at `asked`.
    pub(super) async fn enlist(&mut self, id: WorkerId, facts: Arc<Facts>, asked: Time) {
        let Some(known) = self.known.get(&id) else { return };
        let filled = facts.fill(&known.found.spec, &self.config.worker_defaults());
        let spec = filled.spec;
        let mut remarks = filled.learnt;
        remarks.extend(filled.mismatches.iter().cloned());
        for mismatch in &filled.mismatches {
            tracing::warn!(worker = %spec.url, "{mismatch}");
        }
        let lane = match self.lane(id, &spec) {
            Ok(lane) => lane,
            Err(error) => {
                tracing::error!(worker = %spec.url, %error, "its index cannot be kept");
                return;
            }
        };
        let view = settings::view(&spec, &facts);
        // Reading a tokenizer takes a moment, in which no request is to wait for it.
        let (prompters, model, dialect) = (self.prompters.clone(), spec.model.clone(), spec.dialect);
        let read = tokio::task::spawn_blocking(move || prompters.of(model.as_str(), dialect).is_some());
        let _ = read.await;
        let mixing = monitor::mixing_of(spec.dialect);
        let progress = WorkerProgress::new(&self.timing, mixing, spec.ranks, StallConfig::of(&self.config));
        let worker = Arc::new(Worker::new(Enlisted {
            id,
            spec,
            facts,
            remarks,
            lane,
            health: Health::new(settings::health(&self.config), u64::from(id.0)),
            progress,
            trust: self.trust.clone(),
            rules: self.rules.clone(),
        }));
        if let Err(error) = self.join(&worker, view).await {
            tracing::error!(worker = %worker.name, error, "cannot take requests");
            self.forget(&worker).await;
            return;
        }
        if let Some(known) = self.known.get_mut(&id) {
            known.worker = Some(worker.clone());
            known.listed = Some((asked, worker.facts.clone()));
        }
        worker.lane.adapters_came(&worker, asked);
        self.publish();
        if let Some(checkup) = &self.checkup {
            checkup.begin(&worker);
        }
        tracing::info!(
            worker = %worker.name, model = %worker.spec.model, block_size = worker.spec.block_size.get(),
            ranks = worker.spec.ranks, view = ?view, "takes requests"
        );
    }

    async fn join(&self, worker: &Arc<Worker>, view: CacheView) -> Result<(), String> {
        let lane = &worker.lane;
        for (dp, source) in worker.spec.rank_sources() {
            let rank = RankId { worker: worker.id, dp };
            let source = self
                .sources
                .of(&worker.spec, dp, &source)
                .map_err(|error| error.to_string())?;
            if let Some(source) = source.filter(|_| lane.router.uses_overlap() && view == CacheView::Events) {
                lane.keeper
                    .join(rank, source)
                    .await
                    .map_err(|error| error.to_string())?;
            }
            let new = NewRank {
                spec: RankSpec {
                    capacity: worker.facts.blocks.map(|blocks| worker.our_blocks(blocks.0)),
                    ..RankSpec::new(rank, self.timing.clone())
                },
                facts: RankFacts {
                    role: worker.spec.role,
                    adapters: adapters(&worker.facts),
                    labels: worker
                        .spec
                        .labels
                        .iter()
                        .map(|label| Label::new(&label.key, &label.value))
                        .collect(),
                    ..RankFacts::new(rank, worker.spec.model.clone())
                },
                view,
            };
            lane.rank_up(new).map_err(|error| error.to_string())?;
            let traits = settings::traits(&worker.spec, &worker.facts, &self.config.disagg);
            lane.router
                .set_traits(rank, traits)
                .map_err(|error| error.to_string())?;
        }
        lane.worker_up(worker.id, worker.spec.role);
        Ok(())
    }

    /// A worker is in nothing any more.
    pub(super) async fn forget(&mut self, worker: &Arc<Worker>) {
        worker.lane.worker_down(worker.id);
        worker.lane.adapters_gone(worker.id);
        for rank in worker.ranks() {
            worker.lane.rank_gone(rank);
            worker.lane.keeper.leave(rank).await;
        }
        if let Some(known) = self.known.get_mut(&worker.id) {
            known.worker = None;
        }
        self.publish();
        // A model that nobody serves any more needs no index.
        let served: Vec<Subject> = self.workers().map(|worker| Subject::of(&worker.spec)).collect();
        self.lanes.retain(|subject, _| served.contains(subject));
    }

    fn lane(&mut self, first: WorkerId, spec: &WorkerSpec) -> Result<Arc<Lane>, StewardError> {
        let subject = Subject::of(spec);
        if let Some(lane) = self.lanes.get(&subject) {
            return Ok(lane.clone());
        }
        let hasher = KeyHasher::new(self.config.hash_seed);
        let keeper = KeeperConfig {
            feed: feed_config(&self.config, first),
            index: index_config(&self.config, hasher),
            hooks: Hooks::default(),
        };
        let keeper = Keeper::start(keeper, &self.decoders, Handle::current(), self.metrics.clone())?;
        let policies = settings::policies(&self.config).expect("the policies were read when the gateway began");
        let router = Router::with_policies(
            &settings::router(&self.config, spec.block_size, hasher),
            policies,
            keeper.reader().clone(),
        );
        let lease = Millis(self.config.disagg.lease.as_secs_f64() * 1e3);
        let lane = Arc::new(Lane::new(
            subject.clone(),
            router,
            keeper,
            Shelf::new(self.shelves.clone()),
            (self.clock, self.doubts.0.clone(), lease),
        ));
        for (name, of) in self
            .registered
            .iter()
            .filter(|(_, of)| *of.model == *lane.subject.model.as_str())
        {
            lane.adapter_registered(name, of);
        }
        self.lanes.insert(subject, lane.clone());
        Ok(lane)
    }
}
