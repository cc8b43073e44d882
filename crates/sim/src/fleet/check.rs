//! What must hold all the time?

use homing_domain::{BlockKey, RankId};
use homing_feed::State;
use homing_profile::{Millis, Time};
use std::collections::VecDeque;
use std::sync::Arc;

use super::calls::Stage;
use super::routers::millis;
use super::world::World;
use homing_trace::Traffic;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// When it was seen.
    pub at: Time,
    /// What it is.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Prompts that are remembered to compare views by.
const REMEMBERED: usize = 64;
/// A router may notice a deadline so much later, because it is told of time now and then.
const SLACK: Millis = Millis(500.0);

/// What is remembered for checks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    prompts: VecDeque<Arc<[BlockKey]>>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) compared: u64,
}

impl Memory {
    pub(crate) fn remember(&mut self, keys: &Arc<[BlockKey]>) {
        if self.prompts.len() == REMEMBERED {
            self.prompts.pop_front();
        }
        self.prompts.push_back(keys.clone());
    }
}

impl<I: Traffic> World<I> {
    pub(crate) fn violated(&mut self, what: impl Into<String>) {
        let (at, what) = (self.now, what.into());
        self.memory.violations.push(Violation { at, what });
    }

    /// Looks at all that can be looked at while things are under way.
    pub(crate) fn check(&mut self) {
        for number in 0..self.routers.len() {
            let (mut waits, mut goes, mut longest) = (0, 0, Millis::ZERO);
            for call in self.calls.values().filter(|call| call.router as usize == number) {
                match call.stage {
                    Stage::Waits(since) => {
                        waits += 1;
                        longest = Millis(longest.0.max(self.now.since(since).0));
                    }
                    Stage::Goes(_) => goes += 1,
                }
            }
            let router = &self.routers[number].router;
            let state = router.state(self.now);
            if state.waiting != waits {
                self.violated(format!(
                    "router {number} has {} that wait, its clients know of {waits}",
                    state.waiting
                ));
            }
            if state.booked != goes {
                self.violated(format!(
                    "router {number} has {} booked, its clients know of {goes}",
                    state.booked
                ));
            }
            let config = &self.setup.routers.config;
            let (most, most_wait) = (config.total.requests, config.most_wait);
            if waits > most {
                self.violated(format!("{waits} wait at router {number}, more than it allows"));
            }
            if longest.0 > most_wait.0 + SLACK.0 {
                self.violated(format!("someone has waited for {} ms at router {number}", longest.0));
            }
        }
    }

    /// Looks at what must hold when everything is over.
    pub(crate) fn check_end(&mut self) {
        if !self.calls.is_empty() {
            let first = self.calls.keys().min().map_or(0, |call| call.0);
            self.violated(format!(
                "{} requests never ended, the first is {first}",
                self.calls.len()
            ));
        }
        for number in 0..self.routers.len() {
            let router = &self.routers[number].router;
            if !router.state(self.now).at_rest {
                self.violated(format!("router {number} is not at rest after the last request"));
            }
        }
        let prompts: Vec<Arc<[BlockKey]>> = self.memory.prompts.iter().cloned().collect();
        for number in 0..self.routers.len() {
            if !self.routers[number].listens {
                continue;
            }
            let ranks: Vec<RankId> = self.routers[number].subscriptions.keys().copied().collect();
            for rank in ranks {
                self.compare(number, rank, &prompts);
            }
        }
        let live: usize = self.workers.iter().map(|worker| worker.engine.live()).sum();
        if live > 0 {
            self.violated(format!("{live} requests are left in engines"));
        }
    }

    /// Compares what a router believes of a rank with what its engine holds. The engine is idle.
    fn compare(&mut self, number: usize, rank: RankId, prompts: &[Arc<[BlockKey]>]) {
        let node = &self.routers[number];
        let Some(status) = node.feed.status(millis(self.now), rank) else {
            self.violated(format!("router {number} does not know rank {rank}"));
            return;
        };
        if !matches!(status.state, State::Live | State::Warming) {
            self.violated(format!(
                "router {number} has not recovered rank {rank}: {:?}",
                status.state
            ));
            return;
        }
        let Some(pool) = self.workers[rank.worker.0 as usize].engine.pool(rank.dp) else {
            return;
        };
        if pool.has_changes() {
            return;
        }
        let mut wrong = None;
        for keys in prompts {
            let believed = node.router.overlap(keys, rank).map_or(0, |depths| depths.device());
            let holds = pool.leading(keys).0;
            self.memory.compared += 1;
            let differs = match status.state {
                State::Live => believed != holds,
                _ => believed > holds,
            };
            if differs {
                wrong = Some(format!(
                    "router {number} believes that rank {rank} holds {believed} blocks, it holds {holds}"
                ));
            }
        }
        if let Some(wrong) = wrong {
            self.violated(wrong);
        }
    }
}
