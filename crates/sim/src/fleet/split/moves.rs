//! Which KV is on its way?

use std::collections::{BTreeMap, BTreeSet};

use homing_disagg::{Fate, Input, Leg, Reach};
use homing_domain::WorkerId;
use homing_engine::{OnFailure, RequestNo};
use homing_profile::Time;
use homing_trace::Traffic;

use super::legs::{leg_of, number_of};
use super::{LegAt, LegKind, SplitSetup, Word};
use crate::fleet::calendar::Due;
use crate::fleet::calls::CallNo;
use crate::fleet::check::Check;
use crate::fleet::link::{Link, LinkError, TransferNo};
use crate::fleet::world::World;

/// A request at a worker.
type At = (u32, RequestNo);

#[derive(Clone, Copy, Debug)]
struct Move {
    from: At,
    to: At,
    bytes: u64,
}

/// All KV on its way.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Of each worker.
    links: Vec<Link>,
    wakes: Vec<Option<Time>>,
    under_way: BTreeMap<(u32, TransferNo), Move>,
    /// What was fetched, or began to be.
    read: BTreeSet<At>,
    /// What was said of the KV of a prefill leg, and until when it may be held.
    pub(super) fates: BTreeMap<(CallNo, Leg), (Fate, Time)>,
}

impl Moves {
    pub(crate) fn new(setup: &SplitSetup, workers: u32) -> Result<Self, LinkError> {
        let links: Result<Vec<Link>, LinkError> = (0..workers).map(|_| Link::new(setup.link)).collect();
        Ok(Self {
            links: links?,
            wakes: vec![None; workers as usize],
            ..Self::default()
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl<I: Traffic> World<I> {
    /// A prompt was computed for a leg that waits: its KV goes there.
    pub(super) fn move_to_partner(&mut self, number: CallNo, from: Leg) {
        let Some(split) = self.splits.get(&number) else { return };
        let turn = split.legs.get(&from).map(|state| state.turn);
        let partner = split.legs.iter().find(|(_, state)| {
            Some(state.turn) == turn && state.at == LegAt::Reserved && matches!(state.kind, LegKind::Decode(_))
        });
        if let Some((to, _)) = partner {
            let to = *to;
            self.move_from(number, from, to);
        }
    }

    /// KV that is staged goes to a leg that waits for it.
    pub(super) fn move_from(&mut self, number: CallNo, from: Leg, to: Leg) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let Some(source) = split.legs.get(&from).map(|state| state.rank.worker.0) else {
            return;
        };
        let Some(target) = split.legs.get_mut(&to) else { return };
        let at = (target.rank.worker.0, number_of(number, to));
        let holder = (source, number_of(number, from));
        let node = &mut self.workers[source as usize];
        let is_there = node.up && node.engine.staged().any(|staged| staged.request == holder.1);
        let per_token = node.engine.config().timing.kv_bytes_per_token();
        let bytes = u64::from(target.missing.0) * per_token;
        let link = self.moves.links.get_mut(source as usize);
        let begun = link
            .filter(|_| is_there)
            .and_then(|link| link.begin(self.now, bytes).ok());
        let Some(transfer) = begun else {
            target.at = LegAt::Over;
            self.workers[at.0 as usize].engine.transfer_failed(at.1, OnFailure::End);
            self.calendar.enter(self.now, Due::Poke { worker: at.0 });
            return self.word(number, to, Word::Failed(Reach::Said));
        };
        target.at = LegAt::Moving(transfer);
        let lease = self
            .setup
            .split
            .as_ref()
            .map_or(homing_profile::Millis::ZERO, |split| split.lease);
        node.engine.renew(holder.1, self.now + lease);
        let moving = Move {
            from: holder,
            to: at,
            bytes,
        };
        self.moves.under_way.insert((source, transfer), moving);
        if !self.moves.read.insert(holder) {
            let what = format!("the KV of request {} leg {} is read twice", number.0, from.0);
            self.violated(Check::Staged, what);
        }
        self.wake_link(source);
    }

    fn wake_link(&mut self, worker: u32) {
        let at = self.moves.links.get(worker as usize).and_then(Link::due);
        let Some(wakes) = self.moves.wakes.get_mut(worker as usize) else {
            return;
        };
        if let Some(at) = at.map(|at| at.max(self.now)).filter(|at| *wakes != Some(*at)) {
            *wakes = Some(at);
            self.calendar.enter(at, Due::LinkWakes { worker });
        }
    }

    /// Something may have arrived.
    pub(crate) fn link_wakes(&mut self, worker: u32) {
        if self.moves.wakes.get(worker as usize) != Some(&Some(self.now)) {
            return;
        }
        self.moves.wakes[worker as usize] = None;
        while let Some((_, transfer)) = self.moves.links[worker as usize].arrived(self.now) {
            if let Some(moved) = self.moves.under_way.remove(&(worker, transfer)) {
                self.arrived(moved);
            }
        }
        self.wake_link(worker);
    }

    fn arrived(&mut self, moved: Move) {
        let Move { from, to, bytes } = moved;
        self.outcome.split.moved += 1;
        self.outcome.split.bytes += bytes;
        self.workers[from.0 as usize].engine.release(from.1);
        self.workers[to.0 as usize].engine.received(to.1);
        let (number, leg) = leg_of(to.1);
        let split = self.splits.get_mut(&number);
        if let Some(state) = split.and_then(|split| split.legs.get_mut(&leg))
            && matches!(state.at, LegAt::Moving(_))
        {
            state.at = LegAt::Engine;
        }
        let (number, leg) = leg_of(from.1);
        let state = self.splits.get(&number).and_then(|split| split.legs.get(&leg));
        if state.is_some_and(|state| state.meets() && state.at != LegAt::Over) {
            self.word(number, leg, Word::Prefilled);
        }
        self.poke(from.0);
        self.poke(to.0);
    }

    /// A worker died, with all that it held and waited for.
    pub(crate) fn crash_apart(&mut self, worker: u32) {
        let lost: Vec<((u32, TransferNo), Move)> = self
            .moves
            .under_way
            .iter()
            .filter(|(_, moving)| moving.from.0 == worker || moving.to.0 == worker)
            .map(|(key, moving)| (*key, *moving))
            .collect();
        for (key, moving) in lost {
            self.moves.under_way.remove(&key);
            // What was sent and has not arrived arrives at nobody.
            self.moves.links[key.0 as usize].cancel(self.now, key.1);
            self.wake_link(key.0);
            if moving.from.0 == worker {
                self.workers[moving.to.0 as usize]
                    .engine
                    .transfer_failed(moving.to.1, OnFailure::End);
                self.calendar.enter(self.now, Due::Poke { worker: moving.to.0 });
                self.break_leg(moving.to.1);
            } else {
                let (number, leg) = leg_of(moving.from.1);
                let state = self.splits.get(&number).and_then(|split| split.legs.get(&leg));
                if state.is_some_and(super::LegState::meets) {
                    // Who meets notices that the other is gone.
                    self.workers[moving.from.0 as usize].engine.release(moving.from.1);
                    self.break_leg(moving.from.1);
                }
            }
        }
        let there: Vec<RequestNo> = self
            .splits
            .iter()
            .flat_map(|(number, split)| {
                let at = split.legs.iter().filter(|(_, state)| state.rank.worker.0 == worker);
                at.map(|(leg, _)| number_of(*number, *leg))
            })
            .collect();
        for request in there {
            self.break_leg(request);
        }
        let at = self.now + self.setup.links.hop;
        self.calendar.enter(at, Due::WorkerGone { worker });
    }

    /// A leg breaks where it is, if it is anywhere but on its way there.
    fn break_leg(&mut self, request: RequestNo) {
        let (number, leg) = leg_of(request);
        let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
        if let Some(state) = state.filter(|state| !matches!(state.at, LegAt::Over | LegAt::Sent)) {
            state.at = LegAt::Over;
            self.word(number, leg, Word::Failed(Reach::Unknown));
        }
    }

    /// All requests hear that a worker went.
    pub(crate) fn worker_gone(&mut self, worker: u32) {
        let numbers: Vec<CallNo> = self.splits.keys().copied().collect();
        for number in numbers {
            self.tell(number, Input::WorkerGone(WorkerId(worker)));
        }
    }

    /// A router cannot reach a worker any more: legs break, and the engine stops computing them.
    pub(crate) fn cut_apart(&mut self, router: u32, worker: u32) {
        let its: Vec<(CallNo, Leg)> = self
            .splits
            .iter()
            .filter(|(_, split)| split.router == router)
            .flat_map(|(number, split)| {
                let at = split.legs.iter().filter(|(_, state)| {
                    state.rank.worker.0 == worker && !matches!(state.at, LegAt::Over | LegAt::Sent)
                });
                at.map(|(leg, _)| (*number, *leg))
            })
            .collect();
        for (number, leg) in its {
            let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
            let Some(state) = state else { continue };
            let (rank, at) = (state.rank, std::mem::replace(&mut state.at, LegAt::Over));
            self.take_out(number, leg, rank, at);
            self.word(number, leg, Word::Failed(Reach::Unknown));
        }
    }
}
