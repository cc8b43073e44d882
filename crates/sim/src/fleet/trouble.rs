//! Faults, as they begin and end.

use homing_trace::Traffic;

use super::calendar::Due;
use super::calls::CallNo;
use super::faults::FaultKind;
use super::workers::attempt_of;
use super::world::{World, WorldError};

impl<I: Traffic> World<I> {
    /// A fault begins or ends.
    pub(crate) fn fault(&mut self, fault: usize, ends: bool) -> Result<(), WorldError> {
        let kind = self.setup.faults[fault].kind;
        let word = if ends { "ends" } else { "begins" };
        self.log.say(self.now, || format!("{kind:?} {word}"));
        match kind {
            FaultKind::Crash { worker } if ends => self.revive(worker),
            FaultKind::Crash { worker } => self.crash(worker),
            FaultKind::Slow { worker, factor } => {
                let node = &mut self.workers[worker as usize];
                let factor = if ends { 1.0 } else { factor };
                node.engine.set_slowdown(node.slowdown * factor);
            }
            FaultKind::Loss { worker, per_mille } => {
                self.workers[worker as usize].loss = if ends { 0 } else { per_mille };
            }
            FaultKind::Repeat { worker, per_mille } => {
                self.workers[worker as usize].repeat = if ends { 0 } else { per_mille };
            }
            FaultKind::Reorder { worker, per_mille } => {
                self.workers[worker as usize].reorder = if ends { 0 } else { per_mille };
            }
            FaultKind::FeedCut { router, worker } => {
                let deaf_to = &mut self.routers[router as usize].deaf_to;
                if ends {
                    deaf_to.remove(&worker);
                } else {
                    deaf_to.insert(worker);
                }
            }
            FaultKind::Partition { router, worker } if ends => {
                self.routers[router as usize].cut_from.remove(&worker);
            }
            FaultKind::Partition { router, worker } => self.cut(router, worker),
            FaultKind::RouterRestart { router } if !ends => self.restart_router(router)?,
            FaultKind::RouterRestart { .. } => {}
            FaultKind::Impatience { per_mille } => self.impatience = if ends { 0 } else { per_mille },
        }
        Ok(())
    }

    fn crash(&mut self, worker: u32) {
        let at = self.now + self.setup.links.hop;
        for lost in self.workers[worker as usize].crash() {
            let (call, attempt) = attempt_of(lost);
            self.calendar.enter(at, Due::Broken { call, attempt });
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
        let on_it = |call: &super::calls::Call| {
            let there = call.going().is_some_and(|going| going.rank.worker.0 == worker);
            call.router == router && there
        };
        let mut broken: Vec<(CallNo, u32)> = self
            .calls
            .values()
            .filter(|call| on_it(call))
            .map(|call| (call.number, call.attempt))
            .collect();
        broken.sort_unstable();
        for (call, attempt) in broken {
            let request = super::workers::request_no(call, attempt);
            self.workers[worker as usize].engine.cancel(request);
            self.calendar.enter(at, Due::Broken { call, attempt });
        }
        self.hang_up(worker, Some(router));
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
        for call in its {
            self.come_again(call);
        }
        Ok(())
    }
}
