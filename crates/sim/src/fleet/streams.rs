//! The way of an event: from an engine over a link to the feeds of routers, and what they ask for again.

use std::sync::Arc;

use homing_domain::{DpRank, KvBatch, KvChange, RankId};
use homing_feed::{Ask, AskId, Command, Input, Part, Reply, What};
use homing_profile::Millis;
use homing_scheduler::Duty;
use homing_trace::Traffic;

use super::calendar::Due;
use super::routers::{Node, Subscription, millis};
use super::world::{World, WorldError};

/// Removals that stand beside each other become one, as the decoder of an engine's bytes makes of them.
fn join_removals(changes: &mut Vec<KvChange>) {
    changes.dedup_by(|next, before| match (before, next) {
        (KvChange::Removed(before), KvChange::Removed(next)) => {
            let same = (before.tier, before.group) == (next.tier, next.group);
            if same {
                before.labels.append(&mut next.labels);
            }
            same
        }
        _ => false,
    });
}

/// A subscription that broke is made again after at most so long.
const RECONNECT: u64 = 1_000;

impl<I: Traffic> World<I> {
    /// A rank's batch goes to all who listen.
    pub(crate) fn publish(&mut self, worker: u32, dp: DpRank, mut batch: KvBatch) {
        join_removals(&mut batch.changes);
        let batch = Arc::new(batch);
        let node = &mut self.workers[worker as usize];
        node.keep(dp, &batch, self.now);
        let rank = RankId { worker: node.id, dp };
        let (loss, repeat, reorder) = (node.loss, node.repeat, node.reorder);
        for number in 0..self.routers.len() {
            let router = &self.routers[number];
            let Some(subscription) = router.subscriptions.get(&rank).filter(|known| known.stands) else {
                continue;
            };
            let deaf = router.deaf_to.contains(&worker) || router.cut_from.contains(&worker);
            if deaf || loss > 0 && self.rng.chance(u64::from(loss)) {
                self.log
                    .say(self.now, || format!("batch {} of {rank} is lost", batch.sequence.0));
                continue;
            }
            let mut at = self.now + self.setup.links.event_lag;
            if reorder > 0 && self.rng.chance(u64::from(reorder)) {
                at = at + Millis(self.rng.between(1, 200) as f64);
            }
            let due = Due::Batch {
                router: number as u32,
                life: router.life,
                rank,
                subscription: subscription.id,
                batch: batch.clone(),
            };
            if repeat > 0 && self.rng.chance(u64::from(repeat)) {
                let again = at + Millis(self.rng.between(0, 200) as f64);
                self.calendar.enter(again, due.clone());
            }
            self.calendar.enter(at, due);
        }
    }

    pub(crate) fn heard(&mut self, of: (u32, u64), rank: RankId, subscription: u64, batch: &Arc<KvBatch>) {
        let (now, misread) = (self.now, self.workers[rank.worker.0 as usize].misread);
        let overlooks = misread > 0 && self.rng.chance(u64::from(misread));
        let Some(node) = self.node(of) else { return };
        let known = node.subscriptions.get(&rank);
        if known.is_some_and(|known| known.stands && known.id == subscription) {
            let mut batch = KvBatch::clone(batch);
            if overlooks {
                node.overlook(now, rank, &mut batch);
            }
            // What is heard refuses nobody.
            let _ = node.feed.step(millis(now), Input::Heard { rank, batch });
            self.carry_out(of.0);
        }
    }

    /// A router relied on its view of a rank and found less: its feed is told.
    pub(crate) fn doubted(&mut self, router: u32, rank: RankId) {
        self.outcome.doubted += 1;
        self.log
            .say(self.now, || format!("router {router} doubts its view of {rank}"));
        let node = &mut self.routers[router as usize];
        // A doubt refuses nobody.
        let _ = node.feed.step(millis(self.now), Input::Doubted(rank));
        self.carry_out(router);
    }

    /// Has a router's questions asked.
    pub(crate) fn carry_out(&mut self, router: u32) {
        let node = &mut self.routers[router as usize];
        let life = node.life;
        while let Some(command) = node.feed.next_command() {
            if let Command::Ask(ask) = command {
                let at = self.now + self.setup.links.hop;
                self.calendar.enter(at, Due::Asked { router, life, ask });
            }
        }
    }

    /// A question reaches a worker, if it does.
    pub(crate) fn asked(&mut self, of: (u32, u64), ask: Ask) {
        let worker = ask.rank.worker.0;
        let Some(node) = self.node(of) else { return };
        if node.deaf_to.contains(&worker) || node.cut_from.contains(&worker) {
            return;
        }
        let engine = &self.workers[worker as usize];
        let batches = match ask.what {
            What::Replay { from } if engine.up => Some(engine.replay(ask.rank.dp, from)),
            _ => None,
        };
        let due = Due::Answered {
            router: of.0,
            life: of.1,
            ask: ask.id,
            rank: ask.rank,
            batches,
        };
        self.calendar.enter(self.now + self.setup.links.hop, due);
    }

    pub(crate) fn answered(&mut self, of: (u32, u64), ask: AskId, rank: RankId, batches: Option<Vec<Arc<KvBatch>>>) {
        let now = millis(self.now);
        let Some(node) = self.node(of) else { return };
        let mut say = |part| {
            // Answers refuse nobody.
            let _ = node.feed.step(now, Input::Reply(Reply { ask, rank, part }));
        };
        match batches {
            Some(batches) => {
                for batch in batches {
                    say(Part::Batch(KvBatch::clone(&batch)));
                }
                say(Part::ReplayEnd);
            }
            None => say(Part::Failed),
        }
        self.carry_out(of.0);
    }

    /// A router tries to subscribe to a rank.
    pub(crate) fn subscribe(&mut self, node: &mut Node, rank: RankId) {
        self.subscriptions += 1;
        let id = self.subscriptions;
        node.subscriptions.insert(rank, Subscription { id, stands: false });
        let due = Due::Subscribed {
            router: node.number,
            life: node.life,
            rank,
            subscription: id,
        };
        self.calendar.enter(self.now + self.setup.links.hop, due);
    }

    /// A router meets a worker: it may get requests from now on, and its events are listened to.
    pub(crate) fn introduce(&mut self, node: &mut Node, worker: usize) -> Result<(), WorldError> {
        let ranks: Vec<RankId> = self.workers[worker].ranks().collect();
        node.knows.insert(worker as u32);
        if self.workers[worker].duty == Duty::Draining {
            node.drained.insert(worker as u32);
        }
        for rank in ranks {
            node.meet(&self.setup, rank, self.now).map_err(WorldError::Room)?;
            if node.listens {
                self.subscribe(node, rank);
            }
        }
        Ok(())
    }

    pub(crate) fn subscribed(&mut self, of: (u32, u64), rank: RankId, subscription: u64) {
        let now = self.now;
        let again = now + Millis(self.rng.between(10, RECONNECT) as f64);
        let up = self.workers[rank.worker.0 as usize].up;
        let Some(node) = self.node(of) else { return };
        let reachable = up && !node.cut_from.contains(&rank.worker.0) && !node.deaf_to.contains(&rank.worker.0);
        let Some(known) = node.subscriptions.get_mut(&rank) else {
            return;
        };
        if known.id != subscription || known.stands {
            return;
        }
        if !reachable {
            let (router, life) = of;
            let due = Due::Subscribed {
                router,
                life,
                rank,
                subscription,
            };
            self.calendar.enter(again, due);
            return;
        }
        known.stands = true;
        // A subscription refuses nobody.
        let _ = node.feed.step(millis(now), Input::Connected(rank));
        node.show_views(now);
        self.carry_out(of.0);
    }

    /// A router notices that a subscription broke, and tries again.
    pub(crate) fn unsubscribed(&mut self, of: (u32, u64), rank: RankId, subscription: u64) {
        let now = self.now;
        let Some(node) = self.node(of) else { return };
        let known = node.subscriptions.get_mut(&rank);
        let Some(known) = known.filter(|known| known.id == subscription && known.stands) else {
            return;
        };
        known.stands = false;
        // The end of a subscription refuses nobody.
        let _ = node.feed.step(millis(now), Input::Disconnected(rank));
        node.show_views(now);
        self.carry_out(of.0);
        self.subscriptions += 1;
        let id = self.subscriptions;
        if let Some(node) = self.node(of) {
            node.subscriptions.insert(rank, Subscription { id, stands: false });
        }
        let (router, life) = of;
        let at = now + Millis(self.rng.between(10, RECONNECT) as f64);
        let subscription = id;
        let due = Due::Subscribed {
            router,
            life,
            rank,
            subscription,
        };
        self.calendar.enter(at, due);
    }

    /// The connections of a router to a worker break, or those of all routers.
    pub(crate) fn hang_up(&mut self, worker: u32, router: Option<u32>) {
        let at = self.now + self.setup.links.hop;
        let ranks: Vec<RankId> = self.workers[worker as usize].ranks().collect();
        for node in &self.routers {
            if router.is_some_and(|router| router != node.number) {
                continue;
            }
            for rank in &ranks {
                if let Some(known) = node.subscriptions.get(rank).filter(|known| known.stands) {
                    let due = Due::Unsubscribed {
                        router: node.number,
                        life: node.life,
                        rank: *rank,
                        subscription: known.id,
                    };
                    self.calendar.enter(at, due);
                }
            }
        }
    }
}
