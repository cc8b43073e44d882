//! What becomes of a request, from its arrival to its end?

use std::sync::Arc;

use homing_adapters::Entered;
use homing_domain::{AdapterName, RequestId, Tokens, WorkerId};
use homing_engine::Request;
use homing_load::{End, Ticket};
use homing_profile::{Millis, Time};
use homing_router::{Effect, Ended, Question, Routed, Turned, Verdict};

use super::world::{Due, World, model};

/// How long a request that cannot go anywhere is put off, and how often.
const AGAIN: Millis = Millis(50.0);
const TRIES: u32 = 400;

/// A request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) arrived: Time,
    pub(super) adapter: Option<AdapterName>,
    prompt: u32,
    output: u32,
    attempt: u32,
    pub(super) ticket: Option<Ticket>,
    pub(super) worker: u32,
    first: bool,
    pub(super) over: bool,
}

impl World {
    pub(super) fn arrive(&mut self) {
        if !self.comes() {
            return;
        }
        let gap = -(1.0 - self.rng.share()).ln() / self.setup.rate * 1e3;
        self.enter(self.now + Millis(gap), Due::Arrive);
        let adapter = if self.rng.chance(200) {
            None
        } else {
            Some(self.mix.draw(&mut self.rng))
        };
        let call = Call {
            arrived: self.now,
            adapter,
            prompt: self.rng.between(256, 1_024) as u32,
            output: self.rng.between(16, 96) as u32,
            attempt: 0,
            ticket: None,
            worker: 0,
            first: false,
            over: false,
        };
        self.outcome.requests += 1;
        if let Some(manager) = &mut self.manager {
            manager.asked(self.now, call.adapter.as_ref(), Tokens(call.prompt + call.output));
        }
        self.calls.push(call);
        self.ask(self.calls.len() - 1);
    }

    /// A request wants to go somewhere.
    pub(super) fn ask(&mut self, number: usize) {
        let call = &mut self.calls[number];
        if call.over {
            return;
        }
        call.attempt += 1;
        if call.attempt > TRIES {
            call.over = true;
            self.outcome.failed += 1;
            return;
        }
        let id = RequestId::new(format!("{number}.{}", call.attempt));
        let mut question = Question::new(id, model(), Tokens(call.prompt), Arc::from([]));
        question.adapter.clone_from(&call.adapter);
        question.most_output = Tokens(call.output);
        match self.router.ask(self.now, question) {
            Verdict::Go(routed) => self.go(number, &routed),
            Verdict::Wait => {}
            Verdict::Turned(why) => self.turned(number, &why),
        }
    }

    fn turned(&mut self, number: usize, why: &Turned) {
        match why {
            Turned::Loads { adapter, rank, .. } => self.waits(number, rank.worker.0, adapter),
            _ => self.enter(self.now + AGAIN, Due::Again(number)),
        }
    }

    /// A request goes to a worker.
    fn go(&mut self, number: usize, routed: &Routed) {
        let worker = routed.decision.chosen.rank.worker.0;
        let call = &mut self.calls[number];
        call.ticket = routed.ticket;
        call.worker = worker;
        let Some(adapter) = call.adapter.clone() else {
            self.submit(number);
            return;
        };
        if let Some(manager) = &mut self.manager {
            if manager.enter(self.now, WorkerId(worker), &adapter) == Entered::Ready {
                self.submit(number);
            } else {
                self.give_back(number);
                self.tell(Some(&adapter));
                self.enter(self.now + Millis(1.0), Due::Again(number));
            }
            return;
        }
        self.hosts[worker as usize].queue.push_back(number);
        self.load_lazily(worker);
    }

    fn give_back(&mut self, number: usize) {
        if let Some(ticket) = self.calls[number].ticket.take() {
            let ended = Ended {
                end: End::Cancelled,
                generated: None,
                cached: None,
            };
            self.router.done(self.now, ticket, &ended);
        }
    }

    pub(super) fn submit(&mut self, number: usize) {
        let call = &self.calls[number];
        // No two prompts share anything.
        let prompt: Vec<u32> = (0..call.prompt)
            .map(|at| (number as u32).wrapping_mul(31).wrapping_add(at) % 50_000)
            .collect();
        let mut request = Request::plain(number as u64, prompt, call.output);
        request.adapter.clone_from(&call.adapter);
        let worker = call.worker;
        if self.hosts[worker as usize].engine.submit(request).is_err() {
            self.outcome.strays += 1;
            self.give_back(number);
            self.enter(self.now + AGAIN, Due::Again(number));
            return;
        }
        self.work(worker);
    }

    pub(super) fn first_token(&mut self, number: usize) {
        let call = &mut self.calls[number];
        if std::mem::replace(&mut call.first, true) {
            return;
        }
        let took = self.now.since(call.arrived).0;
        if call.adapter.is_some() {
            self.outcome.first_token.add(took);
        } else {
            self.outcome.base_first_token.add(took);
        }
        if let Some(ticket) = call.ticket {
            self.router.prefill_done(self.now, ticket);
        }
    }

    pub(super) fn finished(&mut self, worker: u32, number: usize) {
        let call = &mut self.calls[number];
        call.over = true;
        self.outcome.served += 1;
        let (adapter, output) = (call.adapter.clone(), call.output);
        if let Some(ticket) = call.ticket.take() {
            let ended = Ended {
                end: End::Finished,
                generated: Some(Tokens(output)),
                cached: None,
            };
            self.router.done(self.now, ticket, &ended);
        }
        let Some(adapter) = adapter else { return };
        if let Some(manager) = &mut self.manager {
            manager.leave(self.now, WorkerId(worker), &adapter);
            return;
        }
        let now = self.now;
        if let Some(held) = self.hosts[worker as usize].held.get_mut(&adapter) {
            held.requests = held.requests.saturating_sub(1);
            held.last = now;
        }
        if !self.hosts[worker as usize].queue.is_empty() {
            self.enter(now, Due::Wake(worker));
            self.load_lazily(worker);
        }
    }

    /// Carries out what the router wants done.
    pub(super) fn effects(&mut self) {
        while let Some(effect) = self.router.next_effect() {
            let number = |id: &RequestId| id.as_str().split('.').next().and_then(|number| number.parse().ok());
            match effect {
                Effect::Go { id, routed } => {
                    if let Some(number) = number(&id) {
                        self.go(number, &routed);
                    }
                }
                Effect::Turned { id, why } => {
                    if let Some(number) = number(&id) {
                        self.turned(number, &why);
                    }
                }
                _ => {}
            }
        }
    }
}
