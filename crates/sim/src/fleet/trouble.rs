//! Faults, as they begin and end.
//!
//! **Invariant:** what two faults do together ends with the last of them.

use homing_profile::Millis;
use homing_scheduler::Duty;
use homing_trace::Traffic;

use super::calendar::Due;
use super::calls::CallNo;
use super::faults::FaultKind;
use super::workers::{Loading, attempt_of};
use super::world::{World, WorldError};

/// Routers hear at different times who is there and who drains, at most so late.
const WORD_SPREADS: u64 = 500;

impl<I: Traffic> World<I> {
    /// A fault begins or ends.
    pub(crate) fn fault(&mut self, fault: usize, ends: bool) -> Result<(), WorldError> {
        let kind = self.setup.faults[fault].kind;
        let word = if ends { "ends" } else { "begins" };
        self.log.say(self.now, || format!("{kind:?} {word}"));
        if ends {
            self.active.retain(|active| *active != fault);
            let alike = |active: &usize| self.setup.faults[*active].kind.is_alike(&kind);
            if !self.active.iter().any(alike) {
                self.heal(kind);
            }
            return Ok(());
        }
        self.active.push(fault);
        *self.outcome.faults.entry(kind.name()).or_default() += 1;
        self.strike(kind)
    }

    fn strike(&mut self, kind: FaultKind) -> Result<(), WorldError> {
        match kind {
            FaultKind::Crash { worker } => self.crash(worker),
            FaultKind::Hang { worker } => self.workers[worker as usize].hangs = true,
            FaultKind::Slow { worker, factor } => {
                let node = &mut self.workers[worker as usize];
                node.engine.set_slowdown(node.slowdown * factor);
            }
            FaultKind::Drain { worker } => {
                self.workers[worker as usize].duty = Duty::Draining;
                self.spread_the_word(worker);
            }
            FaultKind::Leave { worker } => {
                self.workers[worker as usize].listed = false;
                self.spread_the_word(worker);
            }
            FaultKind::AdapterFailure { worker } => {
                let node = &mut self.workers[worker as usize];
                node.loading = Loading::Fails;
                for name in &self.adapters {
                    // One that is not there need not be unloaded.
                    let _ = node.engine.unload_adapter(name);
                }
            }
            FaultKind::Loss { worker, per_mille } => self.workers[worker as usize].loss = per_mille,
            FaultKind::Repeat { worker, per_mille } => self.workers[worker as usize].repeat = per_mille,
            FaultKind::Reorder { worker, per_mille } => self.workers[worker as usize].reorder = per_mille,
            FaultKind::Misread { worker, per_mille } => self.workers[worker as usize].misread = per_mille,
            FaultKind::FeedCut { router, worker } => {
                self.routers[router as usize].deaf_to.insert(worker);
            }
            FaultKind::Partition { router, worker } => self.cut(router, worker),
            FaultKind::RouterRestart { router } => self.restart_router(router)?,
            FaultKind::Impatience { per_mille } => self.impatience = per_mille,
            FaultKind::SlowClients { per_mille } => self.slow_clients = per_mille,
            FaultKind::LateWords { per_mille } => self.late_words = per_mille,
            FaultKind::LostAnswers { per_mille } => self.lost_answers = per_mille,
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash { worker } => self.revive(worker),
            FaultKind::Hang { worker } => {
                self.workers[worker as usize].hangs = false;
                self.poke(worker);
            }
            FaultKind::Slow { worker, .. } => {
                let node = &mut self.workers[worker as usize];
                node.engine.set_slowdown(node.slowdown);
            }
            FaultKind::Drain { worker } => {
                self.workers[worker as usize].duty = Duty::Serving;
                self.spread_the_word(worker);
            }
            FaultKind::Leave { worker } => {
                self.workers[worker as usize].listed = true;
                self.spread_the_word(worker);
            }
            FaultKind::AdapterFailure { worker } => {
                let node = &mut self.workers[worker as usize];
                node.loading = Loading::Works;
                for name in &self.adapters {
                    // It is there, or the engine has no room for adapters.
                    let _ = node.engine.load_adapter(name);
                }
            }
            FaultKind::Loss { worker, .. } => self.workers[worker as usize].loss = 0,
            FaultKind::Repeat { worker, .. } => self.workers[worker as usize].repeat = 0,
            FaultKind::Reorder { worker, .. } => self.workers[worker as usize].reorder = 0,
            FaultKind::Misread { worker, .. } => self.workers[worker as usize].misread = 0,
            FaultKind::FeedCut { router, worker } => {
                self.routers[router as usize].deaf_to.remove(&worker);
            }
            FaultKind::Partition { router, worker } => {
                self.routers[router as usize].cut_from.remove(&worker);
            }
            FaultKind::RouterRestart { .. } => (),
            FaultKind::Impatience { .. } => self.impatience = 0,
            FaultKind::SlowClients { .. } => self.slow_clients = 0,
            FaultKind::LateWords { .. } => self.late_words = 0,
            FaultKind::LostAnswers { .. } => self.lost_answers = 0,
        }
    }

    /// Routers will hear what holds of a worker.
    fn spread_the_word(&mut self, worker: u32) {
        for number in 0..self.routers.len() {
            let (router, life) = (number as u32, self.routers[number].life);
            let at = self.now + Millis(self.rng.below(WORD_SPREADS) as f64);
            self.calendar.enter(at, Due::Discovers { router, life, worker });
        }
    }

    fn crash(&mut self, worker: u32) {
        let at = self.now + self.setup.links.hop;
        let lost = self.workers[worker as usize].crash(self.now);
        if self.setup.split.is_some() {
            self.crash_apart(worker);
        } else {
            for lost in lost {
                let (call, attempt) = attempt_of(lost);
                self.calendar.enter(at, Due::Broken { call, attempt });
            }
        }
        self.hang_up(worker, None);
    }

    fn revive(&mut self, worker: u32) {
        let node = &mut self.workers[worker as usize];
        node.up = true;
        // Engines of SGLang say at once that they hold nothing.
        self.poke(worker);
    }

    /// A router cannot reach a worker any more: answers under way break, and the engine stops computing them.
    fn cut(&mut self, router: u32, worker: u32) {
        self.routers[router as usize].cut_from.insert(worker);
        let at = self.now + self.setup.links.hop;
        for (call, attempt) in self.calls_of(router, worker) {
            let request = super::workers::request_no(call, attempt);
            self.workers[worker as usize].engine.cancel(request);
            self.calendar.enter(at, Due::Broken { call, attempt });
        }
        self.cut_apart(router, worker);
        self.hang_up(worker, Some(router));
    }

    /// The requests of a router that are at a worker or on their way there.
    pub(crate) fn calls_of(&self, router: u32, worker: u32) -> Vec<(CallNo, u32)> {
        let there = |call: &&super::calls::Call| {
            let there = call.going().is_some_and(|going| going.rank.worker.0 == worker);
            call.router == router && there
        };
        let mut calls: Vec<(CallNo, u32)> = self
            .calls
            .values()
            .filter(there)
            .map(|call| (call.number, call.attempt))
            .collect();
        calls.sort_unstable();
        calls
    }

    fn restart_router(&mut self, router: u32) -> Result<(), WorldError> {
        let before = &self.routers[router as usize];
        let life = before.life + 1;
        let (deaf_to, cut_from) = (before.deaf_to.clone(), before.cut_from.clone());
        let mut node = self.start_router(router, life)?;
        (node.deaf_to, node.cut_from) = (deaf_to, cut_from);
        self.routers[router as usize] = node;
        let its = self.calls.values().filter(|call| call.router == router);
        let mut its: Vec<CallNo> = its.map(|call| call.number).collect();
        its.sort_unstable();
        for call in &its {
            let request = self.calls.get_mut(call).map(|call| {
                let gone = call.going().map(|going| (going.rank.worker.0, call.attempt));
                call.asks(self.now);
                gone
            });
            if let Some((worker, attempt)) = request.flatten() {
                let request = super::workers::request_no(*call, attempt);
                self.workers[worker as usize].engine.cancel(request);
            }
        }
        for call in its {
            self.come_again(call);
        }
        Ok(())
    }
}
