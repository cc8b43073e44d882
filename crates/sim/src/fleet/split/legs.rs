//! What do engines do with the legs of a request?

use homing_disagg::{Input, Leg, Means, PrefillFailure, Prefilled, Reach, Resume, Staged, With};
use homing_domain::{RankId, Tokens};
use homing_engine::{Ending, Handover, OnFailure, Outcome as Step, Placement, Request as EngineRequest, RequestNo};
use homing_trace::Traffic;

use super::{LegAt, LegKind, Word};
use crate::fleet::calendar::Due;
use crate::fleet::calls::CallNo;
use crate::fleet::workers::{attempt_of, request_no};
use crate::fleet::world::World;

/// Routers hear of so many tokens at once, after the first.
const CHUNK: u32 = 32;

pub(super) fn number_of(call: CallNo, leg: Leg) -> RequestNo {
    request_no(call, u32::from(leg.0))
}

pub(super) fn leg_of(request: RequestNo) -> (CallNo, Leg) {
    let (call, leg) = attempt_of(request);
    (call, Leg(leg as u16))
}

impl<I: Traffic> World<I> {
    /// A leg reaches its worker.
    pub(crate) fn leg_arrives(&mut self, number: CallNo, leg: Leg) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let router = split.router;
        let Some(state) = split.legs.get_mut(&leg).filter(|state| state.at == LegAt::Sent) else {
            return;
        };
        let worker = state.rank.worker.0;
        let cut = self.routers[router as usize].cut_from.contains(&worker);
        if cut || !self.workers[worker as usize].up {
            state.at = LegAt::Over;
            return self.word(number, leg, Word::Failed(Reach::Refused));
        }
        if let LegKind::Prefill(Means::Rendezvous(_)) = state.kind {
            state.at = LegAt::Door;
            return self.meet(number);
        }
        self.submit(number, leg);
    }

    /// A leg is put into its engine.
    fn submit(&mut self, number: CallNo, leg: Leg) {
        let lease = self
            .setup
            .split
            .as_ref()
            .map_or(homing_profile::Millis::ZERO, |split| split.lease);
        let left = self.calls.get(&number).map_or(1, |call| call.left().max(1));
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let Some(state) = split.legs.get_mut(&leg) else { return };
        let (handover, tokens) = match &state.kind {
            LegKind::Prefill(_) => (Handover::Stage { lease }, 1),
            LegKind::Decode(With::Whole) => (Handover::None, left),
            LegKind::Decode(With::OneToken { .. }) => (Handover::Take, 1),
            LegKind::Decode(With::ResultOf { .. } | With::Rendezvous(_)) => (Handover::Take, left),
        };
        let request = EngineRequest {
            ending: Ending::AtLength,
            adapter: split.adapter.clone(),
            priority: -split.priority,
            placement: Placement::On(state.rank.dp),
            handover,
            ..EngineRequest::plain(number_of(number, leg).0, split.prompt.clone(), tokens)
        };
        let worker = state.rank.worker.0;
        state.at = LegAt::Engine;
        match self.workers[worker as usize].engine.submit(request) {
            Ok(_) => self.poke(worker),
            Err(error) => {
                state.at = LegAt::Over;
                self.log.say(self.now, || {
                    format!(
                        "worker {worker} does not take request {} leg {}: {error}",
                        number.0, leg.0
                    )
                });
                self.word(number, leg, Word::Failed(Reach::Refused));
            }
        }
    }

    /// Two legs that meet: when the one waits at the door and the other has its blocks, the prompt is computed.
    fn meet(&mut self, number: CallNo) {
        let Some(split) = self.splits.get(&number) else { return };
        let prefill = split.legs.iter().find(|(_, state)| state.at == LegAt::Door);
        let decode = split
            .legs
            .values()
            .any(|state| state.at == LegAt::Reserved && state.meets());
        if let (Some((leg, _)), true) = (prefill, decode) {
            let due = Due::LegMeets {
                call: number,
                leg: *leg,
            };
            self.calendar.enter(self.now, due);
        }
    }

    /// They have met.
    pub(crate) fn leg_meets(&mut self, number: CallNo, leg: Leg) {
        let at = self
            .splits
            .get(&number)
            .and_then(|split| split.legs.get(&leg))
            .map(|state| state.at);
        if at == Some(LegAt::Door) {
            self.submit(number, leg);
        }
    }

    /// A router will hear of a leg.
    pub(super) fn word(&mut self, call: CallNo, leg: Leg, word: Word) {
        let at = self.now + self.setup.links.hop;
        self.calendar.enter(at, Due::LegWord { call, leg, word });
    }

    /// What a step of an engine brought to legs.
    pub(crate) fn stepped_apart(&mut self, worker: u32, step: &Step) {
        for staged in &step.staged {
            let (number, leg) = leg_of(staged.request);
            let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
            if let Some(state) = state.filter(|state| state.at != LegAt::Over) {
                state.staged = Some(Staged {
                    blocks: staged.blocks,
                    expires: Some(staged.until),
                });
                if state.meets() {
                    self.move_to_partner(number, leg);
                }
            }
        }
        for lapsed in &step.lapsed {
            self.outcome.split.lapsed += 1;
            self.check_lapse(worker, *lapsed);
        }
        for reserved in &step.reserved {
            let (number, leg) = leg_of(reserved.request);
            let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
            let Some(state) = state.filter(|state| state.at == LegAt::Engine) else {
                // Nobody wants it any more.
                self.workers[worker as usize]
                    .engine
                    .transfer_failed(reserved.request, OnFailure::End);
                continue;
            };
            (state.at, state.missing) = (LegAt::Reserved, reserved.missing);
            match state.kind {
                LegKind::Decode(With::ResultOf { leg: from, .. } | With::OneToken { leg: from, .. }) => {
                    self.move_from(number, from, leg);
                }
                _ => self.meet(number),
            }
        }
        self.tokens_came(step);
        for finished in &step.finished {
            let (number, leg) = leg_of(finished.request);
            let lost = self.lost_answers > 0 && self.rng.chance(u64::from(self.lost_answers));
            let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
            let Some(state) = state.filter(|state| state.at != LegAt::Over) else {
                continue;
            };
            state.cached = finished.cached;
            match state.kind {
                LegKind::Prefill(_) if lost => {
                    state.at = LegAt::Over;
                    self.word(number, leg, Word::Failed(Reach::Unknown));
                }
                // It answers when the other side has its KV.
                LegKind::Prefill(Means::Rendezvous(_)) => (),
                LegKind::Prefill(Means::ByResult) => self.word(number, leg, Word::Prefilled),
                LegKind::Decode(_) => self.word(number, leg, Word::Done),
            }
        }
    }

    fn tokens_came(&mut self, step: &Step) {
        let at = self.now + self.setup.links.hop;
        for output in &step.tokens {
            let (number, leg) = leg_of(output.request);
            let state = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg));
            let Some(state) = state.filter(|state| state.at != LegAt::Over) else {
                continue;
            };
            state.generated += 1;
            let (generated, first) = (state.generated, state.generated == 1);
            match state.kind {
                LegKind::Prefill(_) => state.token = output.token,
                LegKind::Decode(_) => {
                    if let Some(call) = self.calls.get_mut(&number) {
                        call.said.push(output.token);
                        call.first_token.get_or_insert(at);
                        if let Some(last) = &mut call.last {
                            last.first_token.get_or_insert(at);
                        }
                    }
                    if first {
                        self.word(number, leg, Word::Began);
                    } else if generated.is_multiple_of(CHUNK) {
                        self.word(number, leg, Word::Progress);
                    }
                }
            }
        }
    }

    /// A router hears of a leg.
    pub(crate) fn leg_word(&mut self, number: CallNo, leg: Leg, word: Word) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let (router, Some(state)) = (split.router, split.legs.get_mut(&leg)) else {
            return;
        };
        let (turn, rank, cached, generated) = (state.turn, state.rank, state.cached, state.generated);
        let is_prefill = matches!(state.kind, LegKind::Prefill(_));
        let over = matches!(word, Word::Prefilled | Word::Done | Word::Failed(_));
        if over && state.at == LegAt::Over && !matches!(word, Word::Failed(_)) {
            return;
        }
        if over {
            state.at = LegAt::Over;
        }
        let (staged, token, meets) = (state.staged, state.token, state.meets());
        let booked = split.turns.get_mut(&turn);
        let node = &self.routers[router as usize];
        match word {
            Word::Prefilled => {
                let Some(staged) = staged else { return };
                if let Some(booked) = booked {
                    if let Some(seat) = &mut booked.prefill {
                        seat.cached = Some(cached);
                        node.router.prefill_done(self.now, seat.ticket);
                    }
                    if let Some(hold) = booked.hold {
                        node.router.staged(hold, &staged);
                    }
                }
                self.effects(router);
                let mut result = Prefilled::Staged(staged);
                if let Some(call) = self.calls.get_mut(&number) {
                    call.cached = cached;
                    if call.left() == 1 && !meets {
                        call.said.push(token);
                        call.first_token.get_or_insert(self.now);
                        result = Prefilled::Answered(Some(staged));
                    }
                }
                self.tell(number, Input::PrefillDone { leg, result });
            }
            Word::Began | Word::Progress => {
                if let Some(seat) = booked.and_then(|booked| booked.decode.as_mut()) {
                    seat.generated = generated;
                    if matches!(word, Word::Began) {
                        node.router.prefill_done(self.now, seat.ticket);
                    }
                    node.router.output(self.now, seat.ticket, Tokens(generated));
                }
                self.effects(router);
                self.tell(number, Input::DecodeBegan { leg });
            }
            Word::Done => {
                let is_whole = booked.as_ref().is_some_and(|booked| booked.prefills.is_empty());
                if let Some(seat) = booked.and_then(|booked| booked.decode.as_mut()) {
                    seat.generated = generated;
                    seat.cached = is_whole.then_some(cached);
                }
                if let Some(call) = self.calls.get_mut(&number).filter(|_| is_whole) {
                    call.cached = cached;
                }
                self.tell(number, Input::DecodeDone { leg });
            }
            Word::Failed(reach) => self.leg_failed((number, leg, rank), is_prefill, (reach, generated)),
        }
    }

    fn leg_failed(&mut self, (number, leg, rank): (CallNo, Leg, RankId), is_prefill: bool, how: (Reach, u32)) {
        let (reach, generated) = how;
        let Some(router) = self.splits.get(&number).map(|split| split.router as usize) else {
            return;
        };
        self.outcome.split.failed += 1;
        self.outcome.retried += 1;
        let worker = &self.workers[rank.worker.0 as usize];
        let node = &mut self.routers[router];
        if !worker.up || node.cut_from.contains(&rank.worker.0) {
            node.believe(self.now, worker, false);
        }
        let words = format!("leg {} broke at {rank}", leg.0);
        let input = if is_prefill {
            let why = PrefillFailure::Other { reach, words };
            Input::PrefillFailed { leg, why }
        } else if generated > 0 && self.calls.get(&number).is_some_and(|call| call.left() == 0) {
            // All of the answer was read.
            Input::DecodeDone { leg }
        } else {
            let reach = if generated > 0 {
                Reach::Answering(Resume::Possible)
            } else {
                reach
            };
            Input::DecodeFailed { leg, reach, words }
        };
        self.tell(number, input);
        self.effects(router as u32);
    }

    /// A leg is taken out of its engine, wherever it is.
    pub(super) fn take_out(&mut self, number: CallNo, leg: Leg, rank: RankId, at: LegAt) {
        let worker = rank.worker.0;
        let request = number_of(number, leg);
        let engine = &mut self.workers[worker as usize].engine;
        match at {
            LegAt::Sent | LegAt::Door | LegAt::Over => return,
            // What is on its way comes, and is given back then.
            LegAt::Engine | LegAt::Moving(_) => {
                engine.cancel(request);
            }
            LegAt::Reserved => {
                engine.cancel(request);
                engine.transfer_failed(request, OnFailure::End);
            }
        }
        self.calendar.enter(self.now, Due::Poke { worker });
    }
}
