//! The way of a request to its answer: it arrives, asks its router, goes to an engine, is computed there.

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, Prompt, RankId, RequestId, Tokens, WorkerId};
use homing_engine::{Ending, Placement, Request as EngineRequest};
use homing_load::{End as BookingEnd, Heard, Ticket};
use homing_profile::Millis;
use homing_router::{Effect, Ended, Question, Routed, Verdict};
use homing_scheduler::Pin;
use homing_scheduler::queue::Tenant;
use homing_trace::Traffic;

use super::calendar::{Due, request_id};
use super::calls::{Booked, Call, CallNo, Going, Stage};
use super::check::Check;
use super::record::End;
use super::routers::model;
use super::turns::Turn;
use super::workers::{Loading, attempt_of, request_no};
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
            if !self.adapters.contains(adapter) {
                self.adapters.insert(adapter.clone());
            }
            for worker in self
                .workers
                .iter_mut()
                .filter(|worker| worker.loading == Loading::Works)
            {
                // It is there, or the engine has no room for adapters and refuses the request itself.
                let _ = worker.engine.load_adapter(adapter);
            }
        }
        if self.rng.chance(u64::from(self.impatience)) {
            self.will_give_up(number);
        }
        let reads_late = (self.slow_clients > 0 && self.rng.chance(u64::from(self.slow_clients)))
            .then(|| Millis(self.rng.between(100, 60_000) as f64));
        let class = request.client.class.as_ref().and_then(|name| {
            let mut classes = self.setup.routers.config.classes.iter();
            classes.position(|class| *class.name == **name)
        });
        let call = Call {
            number,
            class: class.unwrap_or(0),
            tenant: self.tenant(request.client.tenant.as_ref()),
            deadline: request.deadline.map(|within| self.now + within),
            reads_late,
            asked: Tokens(self.tokens.len() as u32),
            prompt: Arc::from(self.tokens.as_slice()),
            keys,
            text,
            request,
            router,
            arrived: self.now,
            stage: Stage::Asks(self.now),
            attempt: 0,
            tried: Vec::new(),
            said: Vec::new(),
            first_token: None,
            queued: Millis::ZERO,
            last: None,
            cached: Tokens(0),
        };
        self.calls.insert(number, call);
        if self.setup.split.is_some() {
            self.begin_apart(number);
        } else {
            self.ask(number);
        }
        Ok(())
    }

    /// The number of a tenant; those without a name have the first.
    fn tenant(&mut self, name: Option<&Arc<str>>) -> Tenant {
        let Some(name) = name else {
            return Tenant::default();
        };
        let next = Tenant(self.tenants.len() as u32 + 1);
        *self.tenants.entry(name.clone()).or_insert(next)
    }

    pub(crate) fn keys(&self, adapter: Option<&AdapterName>, tokens: &[u32]) -> Arc<[BlockKey]> {
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
    pub(crate) fn ask(&mut self, number: CallNo) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        call.stage = Stage::Asks(self.now);
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
        (question.class, question.tenant) = (call.class, call.tenant);
        question.deadline = call.deadline;
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
        if self.setup.routers.policy == "direct" && self.assigned.is_empty() {
            // Somebody else chose.
            let worker = WorkerId(self.rng.below(self.workers.len() as u64) as u32);
            question.wanted.pinned = Some(Pin { worker, dp: None });
        }
        let verdict = self.routers[router as usize].router.ask(self.now, question);
        // Those who waited went before it was this one's turn.
        self.effects(router);
        match verdict {
            Verdict::Go(goes) => {
                self.check_turn(number, &goes, Turn::CameAnew);
                self.let_go(number, *goes);
            }
            Verdict::Wait => {
                if let Some(call) = self.calls.get_mut(&number) {
                    call.stage = Stage::Waits(self.now);
                }
                self.outcome.waited += 1;
                self.log
                    .say(self.now, || format!("request {} waits at router {router}", number.0));
                self.check_room(number);
                // Whoever has to wait is tempted once more.
                if self.impatience > 0 && self.rng.chance(u64::from(self.impatience)) {
                    self.will_give_up(number);
                }
            }
            Verdict::Turned(why) => {
                self.log
                    .say(self.now, || format!("request {} goes nowhere: {why}", number.0));
                self.end(number, End::Failed);
            }
        }
    }

    /// What a router wants to be done.
    pub(crate) fn effects(&mut self, router: u32) {
        while let Some(effect) = self.routers[router as usize].router.next_effect() {
            match effect {
                Effect::Go { id, routed: goes } => match self.named(&id) {
                    Some(number) if self.setup.split.is_some() => self.goes_apart(number, *goes),
                    Some(number) => {
                        self.check_turn(number, &goes, Turn::Waited);
                        self.let_go(number, *goes);
                    }
                    None => self.violated(
                        Check::EndsOnce,
                        format!("router {router} lets {id} go, which does not wait"),
                    ),
                },
                Effect::Turned { id, why } => match self.named(&id) {
                    Some(number) if self.setup.split.is_some() => self.turned_apart(number, why.to_string()),
                    Some(number) => {
                        self.log
                            .say(self.now, || format!("request {} goes nowhere: {why}", number.0));
                        self.end(number, End::Failed);
                    }
                    None => self.violated(
                        Check::EndsOnce,
                        format!("router {router} turns {id} away, which does not wait"),
                    ),
                },
                Effect::Lapsed { id, rank } => self.lapsed(router, &id, rank),
                Effect::Doubted(rank) => self.doubted(router, rank),
            }
        }
    }

    /// The request that waits under this name.
    fn named(&self, id: &RequestId) -> Option<CallNo> {
        let call = self.present(id)?;
        matches!(call.stage, Stage::Waits(_)).then_some(call.number)
    }

    /// The request whose present attempt has this name.
    fn present(&self, id: &RequestId) -> Option<&Call> {
        let (call, attempt) = id.as_str().split_once('.')?;
        let (call, attempt) = (CallNo(call.parse().ok()?), attempt.parse::<u32>().ok()?);
        self.calls.get(&call).filter(|call| call.attempt == attempt)
    }

    /// A router gives a booking up of which it heard nothing: whoever holds the connection lets it go and tries elsewhere.
    fn lapsed(&mut self, router: u32, id: &RequestId, rank: RankId) {
        let lease = self.setup.routers.config.load.lease;
        let known = self
            .present(id)
            .and_then(|call| Some((call.number, call.attempt, *call.going()?)));
        let Some((number, attempt, going)) = known else {
            return self.violated(
                Check::Lease,
                format!("{id} lapsed at router {router}, and is not under way"),
            );
        };
        self.log
            .say(self.now, || format!("request {} lapses at {rank}", number.0));
        let silence = self.now.since(going.heard);
        if silence.0 < lease.0 || going.rank != rank {
            self.violated(
                Check::Lease,
                format!(
                    "{id} lapsed at router {router} after {} ms of silence on {rank}",
                    silence.0
                ),
            );
        }
        self.workers[rank.worker.0 as usize]
            .engine
            .cancel(request_no(number, attempt));
        if let Some(going) = self.calls.get_mut(&number).and_then(Call::going_mut) {
            going.booked = Booked::No;
        }
        self.calendar.enter(self.now, Due::Broken { call: number, attempt });
    }

    /// A router hears that a request is alive, though its client does not read.
    pub(crate) fn touch(&mut self, number: CallNo, attempt: u32) {
        let again = self.now + Millis(self.setup.routers.config.load.lease.0 / 3.0);
        let now = self.now;
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.attempt == attempt) else {
            return;
        };
        let router = call.router as usize;
        let Some(going) = call.going_mut() else { return };
        going.heard = now;
        self.routers[router].router.touch(now, going.ticket);
        self.calendar.enter(again, Due::Touch { call: number, attempt });
    }

    /// A router hears once more that a request ended. To it that is nothing new.
    pub(crate) fn late_word(&mut self, of: (u32, u64), ticket: Ticket) {
        let now = self.now;
        let Some(node) = self.node(of) else { return };
        let ended = Ended {
            end: BookingEnd::Failed,
            generated: None,
            cached: None,
        };
        if node.router.done(now, ticket, &ended) != Heard::Stranger {
            let router = of.0;
            self.violated(Check::EndsOnce, format!("router {router} ends a booking twice"));
        }
        self.effects(of.0);
    }

    /// Perhaps the end of a request is told twice.
    pub(crate) fn tell_again(&mut self, router: u32, ticket: Ticket) {
        if self.late_words > 0 && self.rng.chance(u64::from(self.late_words)) {
            let at = self.now + Millis(self.rng.between(1, 2_000) as f64);
            let life = self.routers[router as usize].life;
            self.calendar.enter(at, Due::LateWord { router, life, ticket });
        }
    }

    /// A request goes where its router sends it.
    fn let_go(&mut self, number: CallNo, goes: Routed) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let (Stage::Asks(since) | Stage::Waits(since), Some(ticket)) = (call.stage, goes.ticket) else {
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
            heard: self.now,
            heard_first: false,
            booked: Booked::Yes,
        });
        let attempt = call.attempt;
        self.log
            .say(self.now, || format!("request {} goes to {}", number.0, chosen.rank));
        self.outcome.retried += u64::from(attempt > 0);
        self.check_dispatch(number, &goes.decision);
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
        while self.workers[worker as usize].works() && self.workers[worker as usize].engine.poll(self.now, &mut step) {
            self.outcome.steps += 1;
            self.outcome.preemptions += step.preempted.len() as u64;
            if self.setup.split.is_some() {
                self.stepped_apart(worker, &step);
            } else {
                self.stepped(&step);
            }
            if let Some(events) = step.events.take() {
                self.publish(worker, step.rank, events.batch);
            }
        }
        self.step = step;
        let node = &mut self.workers[worker as usize];
        let wakes = node.engine.wake_at().filter(|_| node.works());
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
            let late = self.calls.get(&call).and_then(|call| call.reads_late);
            let at = at + late.unwrap_or(Millis::ZERO);
            if late.is_some() {
                self.calendar
                    .enter(self.now + self.setup.links.hop, Due::Touch { call, attempt });
            }
            self.calendar.enter(at, Due::Finished { call, attempt, cached });
        }
    }
}
