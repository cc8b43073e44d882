//! Is what routers believe true, and is what clients get?

use std::sync::Arc;

use homing_domain::{BlockKey, RankId};
use homing_engine::{Ending, Engine, Outcome, Placement, Request as EngineRequest};
use homing_feed::{State, Why};
use homing_profile::{Millis, Time};
use homing_trace::Traffic;

use super::calls::CallNo;
use super::check::Check;
use super::routers::millis;
use super::world::{Care, World};

/// Prompts by which views are compared while things are under way.
const SAMPLE: usize = 6;
/// Batches may be late by so much besides the lag, and questions are asked every now and then.
const MARGIN: Millis = Millis(1_000.0);
/// Of answers that were given in one attempt, one in so many is compared.
const ANSWERS: u64 = 64;

/// How a view is compared with the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// It holds neither more nor less.
    Equal,
    /// It holds nothing more.
    NotMore,
}

impl<I: Traffic> World<I> {
    /// Compares views that say how good they are with engines that have told everything, while things are under way.
    pub(crate) fn check_views(&mut self) {
        let newest = self.memory.prompts.iter().rev().take(SAMPLE);
        let prompts: Vec<Arc<[BlockKey]>> = newest.cloned().collect();
        for number in 0..self.routers.len() {
            let ranks: Vec<RankId> = self.routers[number].subscriptions.keys().copied().collect();
            for rank in ranks {
                if let Some(comparison) = self.comparable(number, rank) {
                    self.compare(number, rank, &prompts, comparison);
                }
            }
        }
    }

    /// What must hold of a view now. None if nothing need.
    fn comparable(&mut self, number: usize, rank: RankId) -> Option<Comparison> {
        let node = &self.routers[number];
        let worker = &self.workers[rank.worker.0 as usize];
        let status = node.feed.status(millis(self.now), rank)?;
        if node.is_misled(self.now, rank) {
            return None;
        }
        let comparison = match status.state {
            State::Live => Comparison::Equal,
            State::Warming => Comparison::NotMore,
            _ => return None,
        };
        if !worker.up || worker.engine.pool(rank.dp)?.has_changes() {
            return None;
        }
        let dp = usize::from(rank.dp.0);
        let newest = *worker.newest.get(dp)?;
        if newest.is_some() && node.feed.position(rank) == newest {
            return Some(comparison);
        }
        // It is behind what the engine told. It may be so for as long as a view counts without being verified.
        let verified = Millis(self.setup.routers.feed.verify_within_ms as f64);
        let lag = self.setup.links.event_lag;
        let since = self.now.since(*worker.told.get(dp)?);
        if status.state == State::Live && newest.is_some() && since.0 > verified.0 + lag.0 + MARGIN.0 {
            let what = format!(
                "router {number} shows {rank} as live, has read up to {:?} and not up to {newest:?}, told {} ms ago",
                node.feed.position(rank),
                since.0
            );
            self.violated(Check::View, what);
        }
        None
    }

    /// Everything stands still: views have recovered, and are right.
    pub(crate) fn check_views_at_end(&mut self) {
        let prompts: Vec<Arc<[BlockKey]>> = self.memory.prompts.iter().cloned().collect();
        for number in 0..self.routers.len() {
            let ranks: Vec<RankId> = self.routers[number].subscriptions.keys().copied().collect();
            for rank in ranks {
                let status = self.routers[number].feed.status(millis(self.now), rank);
                let Some(status) = status else {
                    self.violated(Check::Recovers, format!("router {number} does not know rank {rank}"));
                    continue;
                };
                if self.routers[number].is_misled(self.now, rank) {
                    self.outcome.misled += 1;
                    continue;
                }
                let comparison = match status.state {
                    State::Live => Comparison::Equal,
                    State::Warming => Comparison::NotMore,
                    // Who cannot be asked and says nothing is not known to be as it was.
                    State::Stale { why: Why::Silent, .. } if self.setup.workers.ring == 0 => continue,
                    other => {
                        let what = format!("router {number} has not recovered rank {rank}: {other:?}");
                        self.violated(Check::Recovers, what);
                        continue;
                    }
                };
                self.compare(number, rank, &prompts, comparison);
            }
        }
    }

    /// Compares what a router believes of a rank with what its engine holds.
    fn compare(&mut self, number: usize, rank: RankId, prompts: &[Arc<[BlockKey]>], comparison: Comparison) {
        let Some(pool) = self.workers[rank.worker.0 as usize].engine.pool(rank.dp) else {
            return;
        };
        if pool.has_changes() {
            return;
        }
        let node = &self.routers[number];
        let mut wrong = None;
        for keys in prompts {
            let believed = node.router.overlap(keys, rank).map_or(0, |depths| depths.device());
            let holds = pool.leading(keys).0;
            self.memory.compared += 1;
            let right = match comparison {
                Comparison::Equal => believed == holds,
                Comparison::NotMore => believed <= holds,
            };
            if !right {
                wrong = Some((believed, holds));
            }
        }
        if let Some((believed, holds)) = wrong {
            let what = format!("router {number} believes that rank {rank} holds {believed} blocks, it holds {holds}");
            self.violated(Check::View, what);
        }
    }

    /// A request is answered: is it what an engine that nobody disturbs says?
    pub(crate) fn check_answer(&mut self, number: CallNo) {
        let Some(call) = self.calls.get(&number).filter(|_| self.care >= Care::Close) else {
            return;
        };
        if call.attempt == 0 && !number.0.is_multiple_of(ANSWERS) {
            return;
        }
        let mut config = self.setup.workers.engine.clone();
        config.ranks = 1;
        let Ok(mut engine) = Engine::new(config) else { return };
        if let Some(adapter) = &call.request.adapter {
            // It has room for adapters, as those that answered have.
            let _ = engine.load_adapter(adapter);
        }
        let request = EngineRequest {
            ending: Ending::AtLength,
            adapter: call.request.adapter.clone(),
            placement: Placement::Any,
            ..EngineRequest::plain(0, &call.prompt[..call.asked.0 as usize], call.request.output.0.max(1))
        };
        let mut said = Vec::new();
        let submitted = engine.submit(request);
        let (mut now, mut step) = (Time::ZERO, Outcome::default());
        while submitted.is_ok() {
            while engine.poll(now, &mut step) {
                said.extend(step.tokens.iter().map(|output| output.token));
            }
            match engine.wake_at() {
                Some(next) => now = next,
                None => break,
            }
        }
        if call.said != said {
            let parts = call.said.iter().zip(&said).position(|(a, b)| a != b);
            let what = format!(
                "request {} was answered with {} tokens in {} attempts, undisturbed it is {}; they part at {parts:?}",
                number.0,
                call.said.len(),
                call.attempt + 1,
                said.len()
            );
            self.violated(Check::Answer, what);
        }
    }
}
