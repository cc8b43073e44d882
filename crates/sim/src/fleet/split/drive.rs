//! What does a handoff want done?

use std::collections::VecDeque;

use homing_disagg::{
    Choice, Command, Denial, Fate, Handoff, Input, Leg, Need, Outcome, PoolPhase, Retry, Seat, Side, Tried, Turn, With,
};
use homing_domain::Tokens;
use homing_load::End as BookingEnd;
use homing_profile::Millis;
use homing_router::{Apart, Ended, Naming, Question, Routed, Verdict};
use homing_trace::Traffic;

use super::{Booked, LegAt, LegKind, LegState, SeatOf, Split};
use crate::fleet::calendar::{Due, request_id};
use crate::fleet::calls::{Booked as IsBooked, CallNo, Going, Stage};
use crate::fleet::check::Check;
use crate::fleet::record::End;
use crate::fleet::routers::model;
use crate::fleet::world::{Decisions, World};

impl<I: Traffic> World<I> {
    /// A request arrived: its handoff begins.
    pub(crate) fn begin_apart(&mut self, number: CallNo) {
        let (Some(call), Some(setup)) = (self.calls.get(&number), &self.setup.split) else {
            return;
        };
        let mut out = Vec::new();
        let split = Split {
            handoff: Handoff::begin(setup.handoff.clone(), PoolPhase::Active, &mut out),
            router: call.router,
            prompt: call.prompt.clone(),
            keys: call.keys.clone(),
            adapter: call.request.adapter.clone(),
            priority: call.request.client.priority,
            turns: std::collections::BTreeMap::new(),
            legs: std::collections::BTreeMap::new(),
            waits: None,
            timer: None,
            inputs: VecDeque::new(),
            is_driven: true,
        };
        self.splits.insert(number, split);
        let touch = self.now + Millis(self.setup.routers.config.load.lease.0 / 3.0);
        self.calendar.enter(touch, Due::TouchAll { call: number });
        for command in out {
            self.obey(number, command);
        }
        self.drive(number);
    }

    /// Something happened to a request.
    pub(crate) fn tell(&mut self, number: CallNo, input: Input) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        split.inputs.push_back(input);
        if !std::mem::replace(&mut split.is_driven, true) {
            self.drive(number);
        }
    }

    /// Processes inputs until there are no more.
    fn drive(&mut self, number: CallNo) {
        while let Some(split) = self.splits.get_mut(&number) {
            let Some(input) = split.inputs.pop_front() else {
                split.is_driven = false;
                return self.settle_down(number);
            };
            let mut out = Vec::new();
            split.handoff.on(self.now, input, &mut out);
            for command in out {
                self.obey(number, command);
            }
        }
    }

    /// Looks whether it is over, and when it wants to hear of time.
    fn settle_down(&mut self, number: CallNo) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        if split.handoff.is_over() {
            self.check_over(number);
            self.splits.remove(&number);
            return;
        }
        let timer = split.handoff.next_timer();
        if timer != split.timer {
            split.timer = timer;
            if let Some(at) = timer {
                self.calendar.enter(at.max(self.now), Due::HandoffTick { call: number });
            }
        }
    }

    /// Time passed for a handoff.
    pub(crate) fn handoff_tick(&mut self, number: CallNo) {
        let due = self.splits.get(&number).and_then(|split| split.handoff.next_timer());
        if due.is_some_and(|due| due <= self.now) {
            self.tell(number, Input::Tick);
        }
    }

    /// Routers hear that a request is alive.
    pub(crate) fn touch_all(&mut self, number: CallNo) {
        let Some(split) = self.splits.get(&number) else { return };
        let router = &self.routers[split.router as usize].router;
        for booked in split.turns.values() {
            for seat in [&booked.prefill, &booked.decode].into_iter().flatten() {
                router.touch(self.now, seat.ticket);
            }
        }
        let again = self.now + Millis(self.setup.routers.config.load.lease.0 / 3.0);
        self.calendar.enter(again, Due::TouchAll { call: number });
    }

    fn obey(&mut self, number: CallNo, command: Command) {
        match command {
            Command::Choose { turn, need, tried } => self.choose(number, turn, (need, tried)),
            Command::Withdraw { turn } => {
                let Some(split) = self.splits.get_mut(&number) else {
                    return;
                };
                if split.waits.take_if(|(open, ..)| *open == turn).is_some() {
                    let id = request_id(number, u32::from(turn.0));
                    let known = self.routers[split.router as usize].router.cancel(&id);
                    if let Some(call) = self.calls.get_mut(&number) {
                        call.stage = Stage::Asks(self.now);
                    }
                    if !known {
                        let what = format!("request {} waits, and its router does not know it", number.0);
                        self.violated(Check::EndsOnce, what);
                    }
                }
            }
            Command::StartPrefill { leg, turn, rank, means } => {
                self.start(number, leg, LegState::new(turn, rank, LegKind::Prefill(means)));
            }
            Command::StartDecode { leg, turn, rank, with } => {
                self.outcome.split.drained += u64::from(matches!(with, With::OneToken { .. }));
                self.check_decode_leg(number, &with);
                self.start(number, leg, LegState::new(turn, rank, LegKind::Decode(with)));
            }
            Command::Cancel { leg } => self.cancel_leg(number, leg),
            Command::EndSeat { seat, end } => self.end_seat(number, seat, end),
            Command::Settle { turn, fate } => self.settle(number, turn, fate),
            Command::Finish(outcome) => {
                self.log.say(self.now, || format!("request {}: {outcome:?}", number.0));
                let end = match outcome {
                    Outcome::Served => {
                        self.check_answer(number);
                        End::Answered
                    }
                    Outcome::Left => End::GivenUp,
                    Outcome::Refused(_) | Outcome::Failed(_) => End::Failed,
                };
                self.end(number, end);
            }
        }
    }

    fn choose(&mut self, number: CallNo, turn: Turn, (need, tried): (Need, Tried)) {
        if matches!(need, Need::Request(_)) {
            self.go_on(number);
        }
        let (Some(call), Some(split)) = (self.calls.get_mut(&number), self.splits.get_mut(&number)) else {
            return;
        };
        call.stage = Stage::Asks(self.now);
        call.attempt = u32::from(turn.0);
        if matches!(need, Need::Request(_)) {
            (split.prompt, split.keys) = (call.prompt.clone(), call.keys.clone());
        }
        let prompt = Tokens(split.prompt.len() as u32);
        let id = request_id(number, u32::from(turn.0));
        let mut question = Question::new(id, model(), prompt, split.keys.clone());
        question.adapter.clone_from(&call.request.adapter);
        question.session = call.request.session.map(|session| session.to_string().into());
        question.priority = call.request.client.priority;
        (question.class, question.tenant) = (call.class, call.tenant);
        question.deadline = call.deadline;
        question.apart = Some(Box::new(Apart {
            need,
            tried,
            prefill: None,
            naming: Naming::Chosen,
        }));
        let router = split.router;
        self.check_tries(number, turn);
        let verdict = self.routers[router as usize].router.ask(self.now, question);
        if matches!(verdict, Verdict::Wait) {
            // Before effects are carried out, because one of them may be about this very question.
            self.wait(number, turn, need);
        }
        self.effects(router);
        match verdict {
            Verdict::Go(goes) => {
                if let Some(input) = self.booked(number, turn, need, *goes) {
                    self.tell(number, input);
                }
            }
            Verdict::Wait => (),
            Verdict::Turned(why) => {
                let why = denial(why.to_string());
                self.tell(number, Input::Nowhere { turn, why });
            }
        }
    }

    /// A question waits at its router.
    fn wait(&mut self, number: CallNo, turn: Turn, need: Need) {
        let (Some(call), Some(split)) = (self.calls.get_mut(&number), self.splits.get_mut(&number)) else {
            return;
        };
        let (now, router) = (self.now, split.router);
        split.waits = Some((turn, need, now));
        call.stage = Stage::Waits(now);
        self.outcome.waited += 1;
        self.log
            .say(now, || format!("request {} waits at router {router}", number.0));
    }

    /// A question that waited is answered.
    pub(crate) fn goes_apart(&mut self, number: CallNo, goes: Routed) {
        let waits = self.splits.get_mut(&number).and_then(|split| split.waits.take());
        let Some((turn, need, since)) = waits else {
            let what = format!("request {} is let go and does not wait", number.0);
            return self.violated(Check::EndsOnce, what);
        };
        if let Some(call) = self.calls.get_mut(&number) {
            call.queued = Millis(call.queued.0 + self.now.since(since).0);
        }
        if let Some(input) = self.booked(number, turn, need, goes) {
            self.tell(number, input);
        }
    }

    /// A question that waited is not answered.
    pub(crate) fn turned_apart(&mut self, number: CallNo, why: String) {
        let waits = self.splits.get_mut(&number).and_then(|split| split.waits.take());
        if let Some((turn, ..)) = waits {
            if let Some(call) = self.calls.get_mut(&number) {
                call.stage = Stage::Asks(self.now);
            }
            let why = denial(why);
            self.tell(number, Input::Nowhere { turn, why });
        }
    }

    /// Notes what was booked for a choice.
    fn booked(&mut self, number: CallNo, turn: Turn, need: Need, goes: Routed) -> Option<Input> {
        let entropy = self.rng.number();
        let choice = goes.choice(need, entropy);
        let seat = |ticket, rank| SeatOf {
            ticket,
            rank,
            generated: 0,
            cached: None,
        };
        let rank = goes.decision.chosen.rank;
        let prefill = goes.halves.as_ref().and_then(|halves| halves.prefill.as_ref());
        let booked = Booked {
            decode: goes.ticket.map(|ticket| seat(ticket, rank)),
            prefill: prefill.and_then(|half| Some(seat(half.ticket?, half.decision.chosen.rank))),
            hold: prefill.and_then(|half| half.hold),
            ..Booked::default()
        };
        match choice {
            Choice::Pair { .. } => self.outcome.split.pairs += 1,
            Choice::Whole(_) => self.outcome.split.whole += 1,
            Choice::Decode(_) => (),
        }
        self.log
            .say(self.now, || format!("request {} turn {}: {choice:?}", number.0, turn.0));
        if let (Some(call), Some(ticket)) = (self.calls.get_mut(&number), goes.ticket) {
            call.stage = Stage::Asks(self.now);
            call.last = Some(Going {
                ticket,
                rank,
                since: self.now,
                predicted_cached: prefill.map_or(goes.cached, |half| half.cached),
                predicted_first_token: goes.decision.chosen.first_token,
                first_token: None,
                generated: 0,
                heard: self.now,
                heard_first: false,
                booked: IsBooked::Yes,
            });
        }
        self.check_places(number, &booked);
        let split = self.splits.get_mut(&number)?;
        split.turns.insert(turn, booked);
        self.check_tries(number, turn);
        if self.decisions == Decisions::Kept {
            self.decided.insert(number, goes.decision);
        }
        Some(Input::Chosen { turn, choice })
    }

    fn start(&mut self, number: CallNo, leg: Leg, state: LegState) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        self.log.say(self.now, || {
            format!("request {} leg {}: {:?} at {}", number.0, leg.0, state.kind, state.rank)
        });
        if let LegKind::Prefill(_) = state.kind
            && let Some(booked) = split.turns.get_mut(&state.turn)
        {
            booked.prefills.push(leg);
        }
        if let LegKind::Decode(With::ResultOf { turn, .. } | With::OneToken { turn, .. }) = state.kind
            && let Some(hold) = split.turns.get(&turn).and_then(|booked| booked.hold)
        {
            self.routers[split.router as usize].router.moving(hold, state.rank);
        }
        split.legs.insert(leg, state);
        self.calendar
            .enter(self.now + self.setup.links.hop, Due::LegArrives { call: number, leg });
    }

    fn end_seat(&mut self, number: CallNo, seat: Seat, end: BookingEnd) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let router = split.router;
        let booked = split
            .turns
            .get_mut(&seat.turn)
            .and_then(|booked| booked.seat(seat.side).take());
        let Some(of) = booked else {
            let what = format!("the {} place of request {} ends twice", seat.side.name(), number.0);
            return self.violated(Check::EndsOnce, what);
        };
        let ended = Ended {
            end,
            generated: match seat.side {
                Side::Prefill => Some(Tokens(0)),
                Side::Decode => Some(Tokens(of.generated)),
            },
            cached: of.cached,
        };
        self.routers[router as usize].router.done(self.now, of.ticket, &ended);
        self.tell_again(router, of.ticket);
        self.effects(router);
    }

    fn settle(&mut self, number: CallNo, turn: Turn, fate: Fate) {
        let Some(split) = self.splits.get_mut(&number) else {
            return;
        };
        let router = split.router;
        let told = split
            .turns
            .get_mut(&turn)
            .map(|booked| (booked.fate.replace(fate), booked.hold.take()));
        let Some((None, Some(hold))) = told else {
            let what = format!("what became of the KV of request {} is said twice", number.0);
            return self.violated(Check::Staged, what);
        };
        self.routers[router as usize].router.settle(self.now, hold, fate);
        let at = match fate {
            Fate::Lapses(at) => at,
            _ => self.now,
        };
        let split = self.splits.get(&number);
        let legs = split
            .and_then(|split| split.turns.get(&turn))
            .map(|booked| booked.prefills.clone());
        for leg in legs.into_iter().flatten() {
            self.moves.fates.insert((number, leg), (fate, at));
        }
    }

    /// A leg is ended by its handoff.
    fn cancel_leg(&mut self, number: CallNo, leg: Leg) {
        let Some(state) = self.splits.get_mut(&number).and_then(|split| split.legs.get_mut(&leg)) else {
            return;
        };
        let (rank, at) = (state.rank, std::mem::replace(&mut state.at, LegAt::Over));
        self.take_out(number, leg, rank, at);
    }
}

fn denial(words: String) -> Denial {
    Denial {
        retry: Retry::Soon,
        words,
    }
}
