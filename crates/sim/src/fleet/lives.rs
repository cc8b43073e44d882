//! What do routers hear while they live: of workers that come and go, of time, of loads?

use homing_profile::Millis;
use homing_trace::Traffic;

use super::calendar::Due;
use super::calls::{Booked, Call};
use super::check::Check;
use super::routers::{Node, millis};
use super::world::{World, WorldError};

/// How often routers are told that time passed, and how often if somebody waits.
const TICK: Millis = Millis(100.0);
const TICK_WAITING: Millis = Millis(20.0);
/// How often routers see whether workers answer.
const PROBE: Millis = Millis(1_000.0);
/// Housekeeping of an index with each tick.
const HOUSEKEEPING: u32 = 5_000;

impl<I: Traffic> World<I> {
    /// A router begins a life, and meets all workers.
    pub(crate) fn start_router(&mut self, number: u32, life: u64) -> Result<Node, WorldError> {
        let mut node = Node::new(&self.setup, number, life)?;
        for worker in 0..self.workers.len() {
            if self.workers[worker].listed {
                self.introduce(&mut node, worker)?;
            }
        }
        self.calendar.enter(self.now + TICK, Due::Tick { router: number, life });
        self.calendar
            .enter(self.now + PROBE, Due::Poll { router: number, life });
        Ok(node)
    }

    /// A router hears what holds of a worker.
    pub(crate) fn discovers(&mut self, of: (u32, u64), worker: u32) -> Result<(), WorldError> {
        if self.node(of).is_none() {
            return Ok(());
        }
        let (router, at) = (of.0 as usize, worker as usize);
        self.routers[router].hear_duty(self.now, &self.workers[at]);
        // A request may have been let go to this very worker, before it is known to have left.
        self.effects(of.0);
        match (self.workers[at].listed, self.routers[router].knows.contains(&worker)) {
            (true, false) => {
                let mut node = self.routers.remove(router);
                let introduced = self.introduce(&mut node, at);
                self.routers.insert(router, node);
                introduced?;
            }
            (false, true) => self.leaves(of.0, worker),
            _ => (),
        }
        self.carry_out(of.0);
        self.effects(of.0);
        Ok(())
    }

    /// A router hears that a worker is not there any more. What it computes goes on.
    fn leaves(&mut self, router: u32, worker: u32) {
        let (now, mut released) = (self.now, 0);
        let ranks: Vec<_> = self.workers[worker as usize].ranks().collect();
        let node = &mut self.routers[router as usize];
        node.knows.remove(&worker);
        node.believed_down.remove(&worker);
        for rank in ranks {
            released += node.router.rank_gone(now, rank);
            node.forget_misread(rank);
            if node.subscriptions.remove(&rank).is_some() {
                // Who leaves is not refused.
                let _ = node.feed.step(millis(now), homing_feed::Input::Left(rank));
            }
        }
        let mut booked = 0;
        for (call, _) in self.calls_of(router, worker) {
            let going = self.calls.get_mut(&call).and_then(Call::going_mut);
            let Some(going) = going.filter(|going| going.booked == Booked::Yes) else {
                continue;
            };
            going.booked = Booked::No;
            booked += 1;
        }
        if released != booked {
            self.violated(
                Check::Conserved,
                format!("router {router} had {released} booked on worker {worker}, its clients know of {booked}"),
            );
        }
    }

    /// The router of this number, if it still is in this life.
    pub(crate) fn node(&mut self, (router, life): (u32, u64)) -> Option<&mut Node> {
        self.routers.get_mut(router as usize).filter(|node| node.life == life)
    }

    pub(crate) fn tick(&mut self, of: (u32, u64)) {
        let now = self.now;
        let Some(node) = self.node(of) else { return };
        if node.listens {
            // A tick refuses nobody.
            let _ = node.feed.step(millis(now), homing_feed::Input::Tick);
            node.feed.maintain(HOUSEKEEPING);
            node.show_views(now);
        }
        node.router.tick(now);
        let waits = node.router.waiting() > 0;
        let (router, life) = of;
        self.carry_out(router);
        let again = if waits { TICK_WAITING } else { TICK };
        self.calendar.enter(now + again, Due::Tick { router, life });
        self.effects(router);
    }

    /// A router sees which workers answer and how busy they are.
    pub(crate) fn poll(&mut self, of: (u32, u64)) {
        let (now, wants_load) = (self.now, self.setup.links.poll.0 > 0.0);
        if self.node(of).is_none() {
            return;
        }
        for number in 0..self.workers.len() {
            let (node, worker) = (&mut self.routers[of.0 as usize], &self.workers[number]);
            if !node.knows.contains(&worker.id.0) {
                continue;
            }
            let up = worker.up && !node.cut_from.contains(&worker.id.0);
            node.believe(now, worker, up);
            if up && wants_load {
                for rank in worker.ranks() {
                    let Some(load) = worker.engine.load(rank.dp) else {
                        continue;
                    };
                    let report = homing_load::Report {
                        at: now,
                        running: load.running,
                        waiting: load.waiting,
                        used_blocks: load.blocks.active,
                    };
                    // A rank that it does not know has nothing to report.
                    let _ = node.router.report(now, rank, report);
                }
            }
            self.effects(of.0);
        }
        let again = if wants_load { self.setup.links.poll } else { PROBE };
        let (router, life) = of;
        self.calendar.enter(now + again, Due::Poll { router, life });
        self.effects(router);
    }
}
