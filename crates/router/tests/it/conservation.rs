//! Whatever happens in whatever order: every request ends exactly once, nothing is left, and the same script gives the same
//! decisions.

use std::collections::{BTreeMap, BTreeSet};

use homing_domain::Tokens;
use homing_load::{End, Ticket};
use homing_profile::Millis;
use homing_router::{CacheView, Effect, Ended, NewRank, Routed, RouterConfig, Verdict};
use homing_scheduler::policy::NAMES;
use homing_scheduler::queue::Tenant;
use homing_scheduler::{Duty, Health, Pin};
use proptest::prelude::*;

use crate::world::{World, config, new_rank, question, rank};

#[derive(Clone, Debug)]
enum Step {
    Ask {
        prompt: u64,
        blocks: u64,
        tenant: u32,
        priority: i32,
        pin: Option<u32>,
    },
    First(usize),
    Output(usize, u32),
    Done(usize, bool),
    Again(usize),
    Cancel(usize),
    Pass(u32),
    Up(u32),
    Gone(u32),
    Health(u32, bool),
    Drain(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (
        0..6_u64,
        1..40_u64,
        0..3_u32,
        -1..2,
        proptest::option::weighted(0.1, 0..4_u32),
    );
    prop_oneof![
        6 => ask.prop_map(|(prompt, blocks, tenant, priority, pin)| Step::Ask { prompt, blocks, tenant, priority, pin }),
        4 => any::<usize>().prop_map(Step::First),
        2 => (any::<usize>(), 0..500_u32).prop_map(|(at, tokens)| Step::Output(at, tokens)),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, well)| Step::Done(at, well)),
        1 => any::<usize>().prop_map(Step::Again),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (0..40_000_u32).prop_map(Step::Pass),
        1 => (0..4_u32).prop_map(Step::Up),
        1 => (0..4_u32).prop_map(Step::Gone),
        1 => (0..4_u32, any::<bool>()).prop_map(|(worker, up)| Step::Health(worker, up)),
        1 => (0..4_u32, any::<bool>()).prop_map(|(worker, drains)| Step::Drain(worker, drains)),
    ]
}

/// What the caller knows.
#[derive(Default)]
struct Caller {
    asked: u32,
    waiting: BTreeSet<String>,
    going: BTreeMap<String, (Ticket, u32)>,
    ended: BTreeSet<String>,
    /// Who takes nothing.
    closed: BTreeSet<u32>,
    log: Vec<String>,
}

impl Caller {
    fn goes(&mut self, id: &str, routed: &Routed) {
        let chosen = routed.decision.chosen.rank;
        assert!(
            !self.closed.contains(&chosen.worker.0),
            "{id} went to {chosen}, which takes nothing"
        );
        assert!(
            self.going
                .insert(id.to_owned(), (routed.ticket.expect("it is booked"), chosen.worker.0))
                .is_none(),
            "{id} goes twice"
        );
        self.log
            .push(format!("{id} -> {chosen} {:.6}", routed.decision.chosen.cost));
    }

    fn ends(&mut self, id: &str) {
        assert!(self.ended.insert(id.to_owned()), "{id} ended twice");
    }

    fn hear(&mut self, world: &World) {
        for effect in world.effects() {
            match effect {
                Effect::Go { id, routed } => {
                    assert!(self.waiting.remove(id.as_str()), "{id} did not wait");
                    self.goes(id.as_str(), &routed);
                }
                Effect::Turned { id, .. } => {
                    assert!(self.waiting.remove(id.as_str()), "{id} did not wait");
                    self.ends(id.as_str());
                }
                Effect::Lapsed { id, .. } => {
                    assert!(self.going.remove(id.as_str()).is_some(), "{id} did not go");
                    self.ends(id.as_str());
                }
                Effect::Doubted(_) => {}
            }
        }
    }

    fn some_going(&self, at: usize) -> Option<(String, Ticket)> {
        let (id, (ticket, _)) = self.going.iter().nth(at.checked_rem(self.going.len())?)?;
        Some((id.clone(), *ticket))
    }
}

fn bounded(worker: u32) -> NewRank {
    let view = if worker.is_multiple_of(2) {
        CacheView::Guess
    } else {
        CacheView::Nothing
    };
    let mut new = new_rank(worker, view);
    new.spec.max_sequences = Some(3);
    new.spec.capacity = Some(100);
    new
}

impl Caller {
    fn step(&mut self, world: &mut World, step: &Step) {
        match *step {
            Step::Ask { .. } => self.ask(world, step),
            Step::First(at) => {
                if let Some((_, ticket)) = self.some_going(at) {
                    world.router.prefill_done(world.now, ticket);
                }
            }
            Step::Output(at, tokens) => {
                if let Some((_, ticket)) = self.some_going(at) {
                    world.router.output(world.now, ticket, Tokens(tokens));
                }
            }
            Step::Done(at, well) => {
                if let Some((id, ticket)) = self.some_going(at) {
                    let ended = Ended {
                        end: if well { End::Finished } else { End::Failed },
                        generated: None,
                        cached: Some(Tokens(16)),
                    };
                    self.going.remove(&id);
                    self.ends(&id);
                    world.router.done(world.now, ticket, &ended);
                }
            }
            Step::Again(at) => {
                if let Some((id, _)) = self.some_going(at) {
                    let twice = world.ask(question(&id, 0, 1));
                    assert!(matches!(twice, Verdict::Turned(_)), "{id} is booked: {twice:?}");
                }
            }
            Step::Cancel(at) => {
                let some = at.checked_rem(self.waiting.len());
                if let Some(id) = some.and_then(|at| self.waiting.iter().nth(at).cloned()) {
                    assert!(world.router.cancel(&id.as_str().into()));
                    self.waiting.remove(&id);
                    self.ends(&id);
                }
            }
            Step::Pass(millis) => {
                world.pass(f64::from(millis));
                world.router.tick(world.now);
            }
            Step::Up(worker) => {
                if world.router.rank_up(world.now, bounded(worker)).is_ok() {
                    self.closed.remove(&worker);
                }
            }
            Step::Gone(worker) => self.gone(world, worker),
            Step::Health(worker, is_up) => {
                let health = if is_up { Health::Up } else { Health::Down };
                self.change(world, worker, (health, Duty::Serving));
            }
            Step::Drain(worker, drains) => {
                let duty = if drains { Duty::Draining } else { Duty::Serving };
                self.change(world, worker, (Health::Up, duty));
            }
        }
        self.hear(world);
    }

    fn ask(&mut self, world: &World, step: &Step) {
        let Step::Ask {
            prompt,
            blocks,
            tenant,
            priority,
            pin,
        } = *step
        else {
            return;
        };
        let id = format!("r{}", self.asked);
        self.asked += 1;
        let mut ask = question(&id, prompt, blocks);
        (ask.tenant, ask.priority) = (Tenant(tenant), priority);
        let worker = pin.map(|worker| rank(worker).worker);
        ask.wanted.pinned = worker.map(|worker| Pin { worker, dp: None });
        match world.ask(ask) {
            Verdict::Go(routed) => self.goes(&id, &routed),
            Verdict::Wait => assert!(self.waiting.insert(id)),
            Verdict::Turned(_) => self.ends(&id),
        }
    }

    /// What was booked there is not booked any more; the caller sees its connections break.
    fn gone(&mut self, world: &World, worker: u32) {
        world.router.rank_gone(world.now, rank(worker));
        let lost = self.going.iter().filter(|(_, (_, at))| *at == worker);
        for id in lost.map(|(id, _)| id.clone()).collect::<Vec<String>>() {
            self.going.remove(&id);
            self.ends(&id);
        }
    }

    fn change(&mut self, world: &World, worker: u32, (health, duty): (Health, Duty)) {
        let known = world.router.rank_changed(world.now, rank(worker), |facts| {
            (facts.health, facts.duty) = (health, duty);
        });
        if known.is_err() {
            return;
        }
        if (health, duty) == (Health::Up, Duty::Serving) {
            self.closed.remove(&worker);
        } else {
            self.closed.insert(worker);
        }
    }
}

fn run(policy: &str, script: &[Step]) -> Vec<String> {
    let narrow = RouterConfig {
        start_within: Millis(20.0),
        ..config()
    };
    let mut world = World::with(0, policy, &narrow, |_| ());
    let mut caller = Caller::default();
    for worker in 0..3 {
        caller.step(&mut world, &Step::Up(worker));
    }
    for step in script {
        caller.step(&mut world, step);
    }
    for worker in 0..4 {
        caller.gone(&world, worker);
    }
    world.pass(60_001.0);
    world.router.tick(world.now);
    caller.hear(&world);
    assert!(caller.waiting.is_empty(), "{:?} wait for ever", caller.waiting);
    assert_eq!(caller.ended.len() as u32, caller.asked);
    assert!(world.router.state(world.now).at_rest);
    caller.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn each_request_ends_once(policy in 0..NAMES.len(), script in proptest::collection::vec(step(), 1..120)) {
        let policy = NAMES[policy];
        let log = run(policy, &script);
        prop_assert_eq!(log, run(policy, &script), "the same script, other decisions");
    }
}
