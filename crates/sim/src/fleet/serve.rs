//! The way of a request: it arrives, asks its router, goes to an engine, is answered, fails and tries again, ends.

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, Prompt, RequestId, Tokens, WorkerId};
use homing_engine::{Ending, Placement, Request as EngineRequest};
use homing_load::End as BookingEnd;
use homing_profile::Millis;
use homing_router::{Effect, Ended, Question, Routed, Verdict};
use homing_scheduler::Pin;
use homing_trace::{Answer, Traffic};

use super::calendar::{Due, request_id};
use super::calls::{Call, CallNo, Going, Stage};
use super::record::End;
use super::routers::model;
use super::workers::{attempt_of, request_no};
use super::world::{Decisions, World, WorldError};

/// Routers hear of so many tokens at once, after the first.
const CHUNK: u32 = 32;

impl<I: Traffic> World<I> {
    /// The next request of the traffic comes to one of the routers.
    pub(crate) fn arrive(&mut self) -> Result<(), WorldError> {
        let Some((_, request)) = self.agenda.pop()? else {
            return Ok(());
        };
        let text = self.conversations.text(&request)?;
        self.tokens.clear();
        text.tokens_into(&self.setup.spelling, &mut self.tokens);
        let number = CallNo(self.outcome.requests);
        self.outcome.requests += 1;
        let router = self.rng.below(self.routers.len() as u64) as u32;
        let keys = self.keys(request.adapter.as_ref(), &self.tokens);
        self.memory.remember(&keys);
        if let Some(adapter) = &request.adapter {
            for worker in &mut self.workers {
                // It is there, or the engine has no room for adapters and refuses the request itself.
                let _ = worker.engine.load_adapter(adapter);
            }
        }
        if self.rng.chance(u64::from(self.impatience)) {
            let after = Millis(self.rng.between(1, 20_000) as f64);
            self.calendar.enter(self.now + after, Due::GivenUp { call: number });
        }
        let call = Call {
            number,
            asked: Tokens(self.tokens.len() as u32),
            prompt: Arc::from(self.tokens.as_slice()),
            keys,
            text,
            request,
            router,
            arrived: self.now,
            stage: Stage::Waits(self.now),
            attempt: 0,
            tried: Vec::new(),
            said: Vec::new(),
            first_token: None,
            queued: Millis::ZERO,
            last: None,
            cached: Tokens(0),
        };
        self.calls.insert(number, call);
        self.ask(number);
        Ok(())
    }

    fn keys(&self, adapter: Option<&AdapterName>, tokens: &[u32]) -> Arc<[BlockKey]> {
        let config = &self.setup.routers.config;
        let prompt = Prompt {
            adapter,
            ..Prompt::text(tokens, config.load.block_size)
        };
        let mut keys = Vec::new();
        config.hasher.keys(&prompt, &mut keys);
        keys.into()
    }

    /// A request asks its router where to go.
    fn ask(&mut self, number: CallNo) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        call.stage = Stage::Waits(self.now);
        let mut question = Question::new(
            request_id(number, call.attempt),
            model(),
            Tokens(call.prompt.len() as u32),
            call.keys.clone(),
        );
        question.adapter.clone_from(&call.request.adapter);
        question.session = call.request.session.map(|session| session.to_string().into());
        question.priority = call.request.client.priority;
        question.wanted.tried.clone_from(&call.tried);
        if call.attempt == 0 {
            let worker = usize::try_from(number.0)
                .ok()
                .and_then(|number| self.assigned.get(number));
            let pin = |worker: &u32| Pin {
                worker: WorkerId(*worker),
                dp: None,
            };
            question.wanted.pinned = worker.map(pin);
        }
        let router = call.router;
        let verdict = self.routers[router as usize].router.ask(self.now, question);
        match verdict {
            Verdict::Go(goes) => self.let_go(number, *goes),
            Verdict::Wait => self
                .log
                .say(self.now, || format!("request {} waits at router {router}", number.0)),
            Verdict::Turned(why) => {
                self.log
                    .say(self.now, || format!("request {} goes nowhere: {why}", number.0));
                self.end(number, End::Failed);
            }
        }
        self.effects(router);
    }

    /// What a router wants to be done.
    pub(crate) fn effects(&mut self, router: u32) {
        while let Some(effect) = self.routers[router as usize].router.next_effect() {
            match effect {
                Effect::Go { id, routed: goes } => match self.named(&id) {
                    Some(number) => self.let_go(number, *goes),
                    None => self.violated(format!("router {router} lets {id} go, which does not wait")),
                },
                Effect::Turned { id, why } => match self.named(&id) {
                    Some(number) => {
                        self.log
                            .say(self.now, || format!("request {} goes nowhere: {why}", number.0));
                        self.end(number, End::Failed);
                    }
                    None => self.violated(format!("router {router} turns {id} away, which does not wait")),
                },
                Effect::Lapsed { id, .. } => self.violated(format!("{id} lapsed at router {router}")),
                Effect::Doubted(rank) => {
                    self.log
                        .say(self.now, || format!("router {router} doubts its view of {rank}"));
                }
            }
        }
    }

    /// The request that waits under this name.
    fn named(&self, id: &RequestId) -> Option<CallNo> {
        let (call, attempt) = id.as_str().split_once('.')?;
        let (call, attempt) = (CallNo(call.parse().ok()?), attempt.parse::<u32>().ok()?);
        let known = self.calls.get(&call)?;
        let waits = matches!(known.stage, Stage::Waits(_)) && known.attempt == attempt;
        waits.then_some(call)
    }

    /// A request goes where its router sends it.
    fn let_go(&mut self, number: CallNo, goes: Routed) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let (Stage::Waits(since), Some(ticket)) = (call.stage, goes.ticket) else {
            return;
        };
        let chosen = goes.decision.chosen;
        call.queued = Millis(call.queued.0 + self.now.since(since).0);
        call.stage = Stage::Goes(Going {
            ticket,
            rank: chosen.rank,
            since: self.now,
            predicted_cached: goes.cached,
            predicted_first_token: chosen.first_token,
            first_token: None,
            generated: 0,
        });
        let (attempt, router) = (call.attempt, call.router);
        self.log
            .say(self.now, || format!("request {} goes to {}", number.0, chosen.rank));
        let known_down = self.routers[router as usize]
            .believed_down
            .contains(&chosen.rank.worker.0);
        if known_down {
            self.violated(format!(
                "router {router} sends a request to {}, which it knows to be down",
                chosen.rank
            ));
        }
        if self.decisions == Decisions::Kept {
            self.decided.insert(number, goes.decision);
        }
        let at = self.now + self.setup.links.hop;
        self.calendar.enter(at, Due::Dispatched { call: number, attempt });
    }

    /// A request reaches a worker.
    pub(crate) fn dispatched(&mut self, number: CallNo, attempt: u32) {
        let Some(call) = self.calls.get(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let Some(going) = call.going() else { return };
        let worker = going.rank.worker.0;
        let reachable = !self.routers[call.router as usize].cut_from.contains(&worker);
        let request = EngineRequest {
            ending: Ending::AtLength,
            adapter: call.request.adapter.clone(),
            priority: -call.request.client.priority,
            placement: Placement::On(going.rank.dp),
            ..EngineRequest::plain(request_no(number, attempt).0, call.prompt.clone(), call.left())
        };
        let node = &mut self.workers[worker as usize];
        let taken = if reachable && node.up {
            node.engine.submit(request).map_err(|error| error.to_string())
        } else {
            Err("it cannot be reached".to_owned())
        };
        if let Err(error) = taken {
            self.log.say(self.now, || {
                format!("worker {worker} does not take request {}: {error}", number.0)
            });
            let at = self.now + self.setup.links.hop;
            self.calendar.enter(at, Due::Broken { call: number, attempt });
            return;
        }
        self.poke(worker);
    }

    /// Has a worker's engine do what is due.
    pub(crate) fn poke(&mut self, worker: u32) {
        let mut step = std::mem::take(&mut self.step);
        while self.workers[worker as usize].up && self.workers[worker as usize].engine.poll(self.now, &mut step) {
            self.outcome.steps += 1;
            self.outcome.preemptions += step.preempted.len() as u64;
            self.stepped(&step);
            if let Some(events) = step.events.take() {
                self.publish(worker, step.rank, events.batch);
            }
        }
        self.step = step;
        let node = &mut self.workers[worker as usize];
        let wakes = node.engine.wake_at().filter(|_| node.up);
        if let Some(at) = wakes.filter(|at| node.wakes.is_none_or(|before| *at < before)) {
            node.wakes = Some(at);
            self.calendar.enter(at, Due::Wake { worker });
        }
    }

    /// What a step of an engine brought to requests.
    fn stepped(&mut self, step: &homing_engine::Outcome) {
        let at = self.now + self.setup.links.hop;
        for output in &step.tokens {
            let (number, attempt) = attempt_of(output.request);
            let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
                continue;
            };
            call.said.push(output.token);
            call.first_token.get_or_insert(at);
            let Some(going) = call.going_mut() else { continue };
            going.generated += 1;
            let tokens = Tokens(going.generated);
            let first = going.first_token.is_none();
            going.first_token.get_or_insert(at);
            if first || tokens.0.is_multiple_of(CHUNK) {
                let call = number;
                self.calendar.enter(at, Due::Progress { call, attempt, tokens });
            }
        }
        for finished in &step.finished {
            let (call, attempt) = attempt_of(finished.request);
            let cached = finished.cached;
            self.calendar.enter(at, Due::Finished { call, attempt, cached });
        }
    }

    /// A router hears of tokens.
    pub(crate) fn progress(&mut self, number: CallNo, attempt: u32, tokens: Tokens) {
        let Some(call) = self.calls.get(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let (Some(going), router) = (call.going(), call.router) else {
            return;
        };
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
        self.end(number, End::Answered);
        self.effects(router);
    }

    /// A request failed where it was: it tries elsewhere, and goes on with what was said.
    pub(crate) fn broken(&mut self, number: CallNo, attempt: u32) {
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let Some(going) = call.going().copied() else { return };
        let (router, worker) = (call.router, going.rank.worker);
        call.waits(self.now);
        call.tried.push(worker);
        call.attempt += 1;
        let again = call.attempt < self.setup.routers.attempts && call.left() > 0;
        self.log
            .say(self.now, || format!("request {} broke at {}", number.0, going.rank));
        let ended = Ended {
            end: BookingEnd::Failed,
            generated: None,
            cached: None,
        };
        let node = &mut self.routers[router as usize];
        node.router.done(self.now, going.ticket, &ended);
        if !self.workers[worker.0 as usize].up || node.cut_from.contains(&worker.0) {
            node.believe(self.now, &self.workers[worker.0 as usize], false);
        }
        if again {
            self.go_on(number);
            self.ask(number);
        } else {
            self.end(number, End::Failed);
        }
        self.effects(router);
    }

    /// The next attempt begins with what was said so far.
    fn go_on(&mut self, number: CallNo) {
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
        if let Some(going) = call.going().copied() {
            let worker = going.rank.worker.0;
            let request = request_no(number, call.attempt);
            self.workers[worker as usize].engine.cancel(request);
        }
        call.waits(self.now);
        call.attempt += 1;
        call.said.clear();
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

    /// A client does not want its answer any more.
    pub(crate) fn given_up(&mut self, number: CallNo) {
        let Some(call) = self.calls.get(&number) else { return };
        let router = call.router;
        let node = &self.routers[router as usize];
        match call.stage {
            Stage::Waits(_) => {
                if !node.router.cancel(&request_id(number, call.attempt)) {
                    self.violated(format!("request {} waits, and its router does not know it", number.0));
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
            }
        }
        self.log.say(self.now, || format!("request {} is given up", number.0));
        self.end(number, End::GivenUp);
        self.effects(router);
    }

    /// A request is over.
    fn end(&mut self, number: CallNo, end: End) {
        let Some(call) = self.calls.remove(&number) else {
            self.violated(format!("request {} ends twice", number.0));
            return;
        };
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
