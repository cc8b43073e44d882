//! The way of a request after it was let go: it is answered, fails and tries again, is given up, ends.

use std::sync::Arc;

use homing_domain::Tokens;
use homing_load::End as BookingEnd;
use homing_profile::Millis;
use homing_router::Ended;
use homing_trace::{Answer, Traffic};

use super::calendar::{Due, request_id};
use super::calls::{CallNo, Stage};
use super::check::Check;
use super::record::End;
use super::workers::request_no;
use super::world::World;

impl<I: Traffic> World<I> {
    /// A router hears of tokens.
    pub(crate) fn progress(&mut self, number: CallNo, attempt: u32, tokens: Tokens) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let router = call.router;
        let Some(going) = call.going_mut() else { return };
        (going.heard, going.heard_first) = (now, true);
        let node = &self.routers[router as usize];
        if tokens.0 == 1 {
            node.router.prefill_done(self.now, going.ticket);
        }
        node.router.output(self.now, going.ticket, tokens);
        self.effects(router);
    }

    /// A router hears that an answer is whole.
    pub(crate) fn finished(&mut self, number: CallNo, attempt: u32, cached: Tokens) {
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        call.cached = cached;
        let Some(going) = call.going().copied() else { return };
        let router = call.router;
        let ended = Ended {
            end: BookingEnd::Finished,
            generated: Some(Tokens(going.generated)),
            cached: Some(cached),
        };
        self.routers[router as usize]
            .router
            .done(self.now, going.ticket, &ended);
        self.tell_again(router, going.ticket);
        self.check_answer(number);
        self.end(number, End::Answered);
        self.effects(router);
    }

    /// A request failed where it was: it tries elsewhere, and goes on with what was said.
    pub(crate) fn broken(&mut self, number: CallNo, attempt: u32) {
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let Some(going) = call.going().copied() else { return };
        if call.left() == 0 {
            // All of the answer was read; only its client has not.
            let cached = call.cached;
            return self.finished(number, attempt, cached);
        }
        let (router, worker) = (call.router, going.rank.worker);
        call.asks(self.now);
        call.tried.push(worker);
        call.attempt += 1;
        let again = call.attempt < self.setup.routers.attempts;
        self.log
            .say(self.now, || format!("request {} broke at {}", number.0, going.rank));
        let ended = Ended {
            end: BookingEnd::Failed,
            generated: None,
            cached: None,
        };
        let node = &mut self.routers[router as usize];
        // Told in this order, nobody who waits goes there now.
        if !self.workers[worker.0 as usize].up || node.cut_from.contains(&worker.0) {
            node.believe(self.now, &self.workers[worker.0 as usize], false);
        }
        node.router.done(self.now, going.ticket, &ended);
        self.tell_again(router, going.ticket);
        if again {
            self.go_on(number);
            self.ask(number);
        } else {
            self.end(number, End::Failed);
        }
        self.effects(router);
    }

    /// The next attempt begins with what was said so far.
    pub(crate) fn go_on(&mut self, number: CallNo) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        if call.said.is_empty() {
            return;
        }
        let asked = call.asked.0 as usize;
        let prompt: Vec<u32> = call.prompt[..asked].iter().chain(&call.said).copied().collect();
        let adapter = call.request.adapter.clone();
        let keys = self.keys(adapter.as_ref(), &prompt);
        if let Some(call) = self.calls.get_mut(&number) {
            call.prompt = prompt.into();
            call.keys = keys;
        }
    }

    /// A request whose router died comes again, from the beginning.
    pub(crate) fn come_again(&mut self, number: CallNo) {
        let routers = self.routers.len() as u64;
        let next = self.rng.below(routers) as u32;
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        call.attempt += 1;
        call.said.clear();
        call.tried.clear();
        call.first_token = None;
        call.router = next;
        let asked = call.asked.0 as usize;
        let prompt: Arc<[u32]> = Arc::from(&call.prompt[..asked]);
        let adapter = call.request.adapter.clone();
        let keys = self.keys(adapter.as_ref(), &prompt);
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        (call.prompt, call.keys) = (prompt, keys);
        if call.attempt < self.setup.routers.attempts {
            self.ask(number);
        } else {
            self.end(number, End::Failed);
        }
    }

    /// A client will not wait for the end of its answer.
    pub(crate) fn will_give_up(&mut self, number: CallNo) {
        let most = self.rng.pick([20, 200, 2_000, 20_000]);
        let after = Millis(self.rng.between(1, most) as f64);
        self.calendar.enter(self.now + after, Due::GivenUp { call: number });
    }

    /// A client does not want its answer any more.
    pub(crate) fn given_up(&mut self, number: CallNo) {
        if self.splits.contains_key(&number) {
            return self.tell(number, homing_disagg::Input::ClientGone);
        }
        let Some(call) = self.calls.get(&number) else { return };
        let router = call.router;
        let node = &self.routers[router as usize];
        match call.stage {
            Stage::Asks(_) => (),
            Stage::Waits(_) => {
                if !node.router.cancel(&request_id(number, call.attempt)) {
                    self.violated(
                        Check::EndsOnce,
                        format!("request {} waits, and its router does not know it", number.0),
                    );
                }
            }
            Stage::Goes(going) => {
                let ended = Ended {
                    end: BookingEnd::Cancelled,
                    generated: None,
                    cached: None,
                };
                node.router.done(self.now, going.ticket, &ended);
                let request = request_no(number, call.attempt);
                self.workers[going.rank.worker.0 as usize].engine.cancel(request);
                self.tell_again(router, going.ticket);
            }
        }
        self.log.say(self.now, || format!("request {} is given up", number.0));
        self.end(number, End::GivenUp);
        self.effects(router);
    }

    /// A request is over.
    pub(crate) fn end(&mut self, number: CallNo, end: End) {
        let Some(call) = self.calls.remove(&number) else {
            self.violated(Check::EndsOnce, format!("request {} ends twice", number.0));
            return;
        };
        self.outcome.ended_as[end as usize] += 1;
        let record = call.record(self.now, end);
        self.outcome.hash = record.mix_into(self.outcome.hash);
        self.over.push((record, number));
        if let Some(session) = call.request.session {
            self.conversations
                .answered(session, call.text, Answer::Said(&call.said));
            self.agenda.ended(session, self.now);
        }
    }
}
