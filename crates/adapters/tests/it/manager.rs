//! The manager before workers that are slow, fail, lie and leave; requests that use what is about to go.

use std::collections::{BTreeMap, BTreeSet};

use homing_adapters::{Act, Command, Entered, Host, Manager, ManagerConfig, Method, Pinned, When};
use homing_domain::{AdapterName, Tokens, WorkerId};
use homing_profile::{Millis, Time};
use proptest::prelude::*;

fn at(seconds: f64) -> Time {
    Time::from_millis(seconds * 1e3)
}

fn name(number: u8) -> AdapterName {
    AdapterName::new(format!("a{number}"))
}

fn host(number: u32, slots: u32) -> Host {
    Host {
        worker: WorkerId(number),
        name: format!("http://w{number}").into(),
        ranks: 1,
        slots,
    }
}

fn with(adapters: u8, workers: u32, slots: u32) -> Manager {
    let mut manager = Manager::new(ManagerConfig::default());
    for number in 0..workers {
        manager.worker_up(host(number, slots));
    }
    for number in 0..adapters {
        let registered = manager.register(&name(number), "/adapters".into(), Pinned::No);
        registered.expect("the name is one");
    }
    manager
}

fn commands(manager: &mut Manager) -> Vec<Command> {
    std::iter::from_fn(|| manager.next_command()).collect()
}

/// Carries everything out at once, until nothing is left to do.
fn settle(manager: &mut Manager, now: Time) -> usize {
    let mut count = 0;
    loop {
        let all = commands(manager);
        if all.is_empty() {
            return count;
        }
        for command in all {
            count += 1;
            manager.done(now, command.job, Ok(()));
        }
    }
}

#[test]
fn everything_gets_a_place_and_then_nothing_moves() {
    let mut manager = with(12, 4, 4);
    manager.tick(at(1.0), 0.0);
    assert_eq!(settle(&mut manager, at(1.0)), 12);
    assert_eq!(manager.residency().all_loaded(), 12);
    for round in 1..100 {
        manager.asked(at(f64::from(round)), Some(&name(0)), Tokens(100));
        manager.tick(at(f64::from(round)), 0.1);
        assert_eq!(settle(&mut manager, at(f64::from(round))), 0, "round {round}");
    }
}

#[test]
fn a_worker_that_returns_gets_back_what_it_had() {
    let mut manager = with(12, 4, 8);
    manager.tick(at(1.0), 0.0);
    settle(&mut manager, at(1.0));
    let had = manager.residency().on_worker(WorkerId(2));
    assert!(!had.is_empty());
    assert_eq!(manager.worker_gone(WorkerId(2)), had);
    manager.tick(at(2.0), 0.0);
    assert_eq!(
        settle(&mut manager, at(2.0)),
        had.len(),
        "what it had is loaded elsewhere, and nothing else"
    );
    // It comes back under another number: names are what counts.
    manager.worker_up(Host {
        worker: WorkerId(77),
        ..host(2, 8)
    });
    manager.tick(at(3.0), 0.0);
    assert_eq!(settle(&mut manager, at(3.0)), had.len());
    assert_eq!(manager.residency().on_worker(WorkerId(77)), had);
}

#[test]
fn a_burst_for_a_cold_adapter_waits_for_one_worker() {
    let mut manager = with(1, 8, 2);
    let opening = manager.openings(at(1.0), &name(0));
    assert_eq!(opening.len(), 1);
    let first = opening[0].worker;
    assert!(matches!(opening[0].when, When::Asked(_)));
    manager.want(at(1.0), first, &name(0));
    assert_eq!(commands(&mut manager).len(), 1);
    for _ in 0..50 {
        let opening = manager.openings(at(1.1), &name(0));
        assert_eq!(
            opening.iter().map(|opening| opening.worker).collect::<Vec<_>>(),
            [first]
        );
        assert!(matches!(opening[0].when, When::Loading(_)));
        manager.want(at(1.1), first, &name(0));
    }
    assert!(commands(&mut manager).is_empty());
}

#[test]
fn a_load_that_fails_is_not_hammered_and_goes_elsewhere() {
    let mut manager = with(1, 3, 2);
    let mut tried: Vec<(f64, WorkerId)> = Vec::new();
    for tenth in 0..4_000 {
        let now = f64::from(tenth) / 10.0;
        manager.tick(at(now), 0.0);
        for command in commands(&mut manager) {
            tried.push((now, command.worker));
            manager.done(at(now), command.job, Err("no such file"));
        }
    }
    let per_worker = |worker: u32| tried.iter().filter(|(_, tried)| tried.0 == worker).count();
    for worker in 0..3 {
        assert!(
            (3..=6).contains(&per_worker(worker)),
            "{} tries on {worker}",
            per_worker(worker)
        );
    }
    assert_eq!(
        manager.failure(WorkerId(0), &name(0)).map(|failure| &*failure.why),
        Some("no such file")
    );
    assert!(
        manager.openings(at(400.0), &name(0)).is_empty(),
        "nobody is sent where it failed"
    );
    // Told of anew, it is tried anew.
    manager.register(&name(0), "/right".into(), Pinned::No).unwrap();
    manager.tick(at(401.0), 0.0);
    let commands = commands(&mut manager);
    assert_eq!(commands.len(), 1);
    assert_eq!(
        commands[0].act,
        Act::Load {
            source: "/right".into()
        }
    );
}

#[test]
fn a_command_of_which_nothing_is_heard_has_failed() {
    let mut manager = with(1, 1, 1);
    manager.tick(at(0.0), 0.0);
    let command = commands(&mut manager).remove(0);
    manager.tick(at(61.0), 0.0);
    assert_eq!(manager.counts().failed_loads, 1);
    manager.done(at(62.0), command.job, Ok(()));
    assert!(manager.residency().is_empty(), "too late: what the worker lists counts");
    manager.listed(at(63.0), WorkerId(0), &[(name(0), None)]);
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Ready);
}

#[test]
fn what_is_used_active_or_pinned_stays() {
    let mut manager = with(2, 1, 2);
    manager.tick(at(0.0), 0.0);
    settle(&mut manager, at(0.0));
    manager.register(&name(0), "/x".into(), Pinned::Yes).unwrap();
    manager.register(&name(9), "/y".into(), Pinned::No).unwrap();
    manager.tick(at(1.0), 0.0);
    assert_eq!(manager.enter(at(1.0), WorkerId(0), &name(1)), Entered::Ready);
    manager.want(at(1.0), WorkerId(0), &name(9));
    assert!(commands(&mut manager).is_empty(), "one is pinned, the other in use");
    manager.leave(at(2.0), WorkerId(0), &name(1));
    manager.active(homing_domain::RankId::new(0, 0), BTreeSet::from([name(1)]));
    manager.tick(at(2.0), 0.0);
    assert!(
        commands(&mut manager).is_empty(),
        "its engine says that somebody uses it"
    );
    manager.active(homing_domain::RankId::new(0, 0), BTreeSet::new());
    manager.tick(at(2.1), 0.0);
    let unload = commands(&mut manager).remove(0);
    assert_eq!((unload.act, unload.adapter), (Act::Unload, name(1)));
    assert_eq!(
        manager.enter(at(2.1), WorkerId(0), &name(1)),
        Entered::Absent,
        "it is on its way out"
    );
    manager.done(at(2.2), unload.job, Ok(()));
    let load = commands(&mut manager).remove(0);
    assert_eq!(load.adapter, name(9));
}

#[test]
fn who_waits_for_a_slot_gets_one_though_all_are_in_use() {
    let mut manager = with(2, 1, 2);
    manager.tick(at(0.0), 0.0);
    settle(&mut manager, at(0.0));
    manager.register(&name(9), "/y".into(), Pinned::No).unwrap();
    for adapter in [0, 1, 1] {
        assert_eq!(manager.enter(at(1.0), WorkerId(0), &name(adapter)), Entered::Ready);
    }
    manager.want(at(1.0), WorkerId(0), &name(9));
    assert!(commands(&mut manager).is_empty());
    assert_eq!(
        manager.enter(at(1.1), WorkerId(0), &name(0)),
        Entered::Absent,
        "it gives way"
    );
    assert_eq!(manager.enter(at(1.1), WorkerId(0), &name(1)), Entered::Ready);
    manager.leave(at(2.0), WorkerId(0), &name(0));
    manager.tick(at(2.0), 0.0);
    assert_eq!(settle(&mut manager, at(2.0)), 2);
    assert_eq!(manager.finds(WorkerId(0), &name(9)), Entered::Ready);
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Absent);
}

#[test]
fn who_gives_way_and_is_asked_for_goes_elsewhere_or_stays() {
    let mut manager = with(1, 1, 1);
    manager.tick(at(0.0), 0.0);
    settle(&mut manager, at(0.0));
    manager.register(&name(9), "/y".into(), Pinned::No).unwrap();
    assert_eq!(manager.enter(at(1.0), WorkerId(0), &name(0)), Entered::Ready);
    manager.want(at(1.0), WorkerId(0), &name(9));
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Absent);
    // There is nobody else: it stays for those who ask for it.
    let opening = manager.openings(at(1.1), &name(0));
    assert_eq!(
        opening.iter().map(|opening| opening.worker).collect::<Vec<_>>(),
        [WorkerId(0)]
    );
    manager.want(at(1.1), WorkerId(0), &name(0));
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Ready);
    // With somebody else, it is loaded there.
    manager.worker_up(host(1, 1));
    manager.want(at(1.2), WorkerId(0), &name(9));
    let opening = manager.openings(at(1.3), &name(0));
    assert_eq!(
        opening.iter().map(|opening| opening.worker).collect::<Vec<_>>(),
        [WorkerId(1)]
    );
}

#[test]
fn an_old_listing_does_not_undo_what_was_done_since() {
    let mut manager = with(1, 1, 2);
    manager.tick(at(1.0), 0.0);
    let load = commands(&mut manager).remove(0);
    manager.done(at(2.0), load.job, Ok(()));
    manager.listed(at(1.5), WorkerId(0), &[]);
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Ready);
    manager.listed(at(2.5), WorkerId(0), &[]);
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Absent);
}

#[test]
fn a_listing_from_before_an_unload_brings_nothing_back() {
    let mut manager = with(2, 1, 1);
    manager.tick(at(1.0), 0.0);
    settle(&mut manager, at(1.0));
    let (there, other) = match manager.finds(WorkerId(0), &name(0)) {
        Entered::Ready => (name(0), name(1)),
        Entered::Absent => (name(1), name(0)),
    };
    manager.want(at(3.0), WorkerId(0), &other);
    let unload = commands(&mut manager).remove(0);
    assert_eq!((unload.act, &unload.adapter), (Act::Unload, &there));
    manager.done(at(4.0), unload.job, Ok(()));
    manager.listed(at(3.5), WorkerId(0), &[(there.clone(), None)]);
    assert_eq!(manager.finds(WorkerId(0), &there), Entered::Absent);
    // Somebody else may have loaded it since.
    manager.listed(at(4.5), WorkerId(0), &[(there.clone(), None)]);
    assert_eq!(manager.finds(WorkerId(0), &there), Entered::Ready);
}

#[test]
fn what_a_worker_says_it_lacks_is_loaded_again() {
    let mut manager = with(1, 1, 2);
    manager.tick(at(1.0), 0.0);
    let load = commands(&mut manager).remove(0);
    manager.done(at(2.0), load.job, Ok(()));
    // That was asked before it was loaded.
    manager.lacks(at(3.0), at(1.5), WorkerId(0), &name(0));
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Ready);
    manager.lacks(at(3.0), at(2.5), WorkerId(0), &name(0));
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Absent);
    let again = commands(&mut manager);
    assert!(
        matches!(
            again.as_slice(),
            [Command {
                act: Act::Load { .. },
                ..
            }]
        ),
        "{again:?}"
    );
    // A listing from before it was missed is as old as one from before a load.
    manager.listed(at(2.7), WorkerId(0), &[(name(0), None)]);
    assert_eq!(manager.finds(WorkerId(0), &name(0)), Entered::Absent);
}

#[test]
fn what_is_unregistered_goes_when_nobody_uses_it() {
    let mut manager = with(1, 2, 2);
    manager.tick(at(1.0), 0.0);
    settle(&mut manager, at(1.0));
    let worker = *manager.serving(&name(0)).first().unwrap();
    assert_eq!(manager.enter(at(1.0), worker, &name(0)), Entered::Ready);
    assert!(manager.unregister(&name(0)));
    manager.tick(at(2.0), 0.0);
    assert!(commands(&mut manager).is_empty());
    manager.leave(at(3.0), worker, &name(0));
    manager.tick(at(3.0), 0.0);
    assert_eq!(settle(&mut manager, at(3.0)), 1);
    assert_eq!(manager.names().count(), 0);
    assert!(!manager.unregister(&name(0)));
}

/// What can happen to a manager.
#[derive(Clone, Debug)]
enum Input {
    Up(u32, u32),
    Gone(u32),
    Register(u8, bool),
    Unregister(u8),
    Asked(u8),
    Enter(u32, u8),
    Leave,
    Want(u32, u8),
    Done(usize, bool),
    Listed(u32, Vec<u8>),
    Tick(u32),
}

fn input() -> impl Strategy<Value = Input> {
    let (worker, adapter) = (0..4_u32, 0..10_u8);
    prop_oneof![
        2 => (worker.clone(), 0..4_u32).prop_map(|(worker, slots)| Input::Up(worker, slots)),
        1 => worker.clone().prop_map(Input::Gone),
        2 => (adapter.clone(), any::<bool>()).prop_map(|(adapter, pinned)| Input::Register(adapter, pinned)),
        1 => adapter.clone().prop_map(Input::Unregister),
        4 => adapter.clone().prop_map(Input::Asked),
        4 => (worker.clone(), adapter.clone()).prop_map(|(worker, adapter)| Input::Enter(worker, adapter)),
        3 => Just(Input::Leave),
        4 => (worker.clone(), adapter.clone()).prop_map(|(worker, adapter)| Input::Want(worker, adapter)),
        8 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(which, well)| Input::Done(which, well)),
        1 => (worker, prop::collection::vec(adapter, 0..4)).prop_map(|(worker, adapters)| Input::Listed(worker, adapters)),
        6 => (1..5_000_u32).prop_map(Input::Tick),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_rules_hold(method in prop_oneof![Just(Method::Rendezvous), Just(Method::MinCost)], inputs in prop::collection::vec(input(), 0..200)) {
        let config = ManagerConfig { method, at_once: 3, ..ManagerConfig::default() };
        let mut manager = Manager::new(config);
        let mut now = Time::ZERO;
        let mut slots: BTreeMap<WorkerId, u32> = BTreeMap::new();
        let mut open: Vec<Command> = Vec::new();
        let mut inside: Vec<(WorkerId, AdapterName)> = Vec::new();
        for input in inputs {
            match input {
                Input::Up(worker, count) => {
                    manager.worker_up(host(worker, count));
                    slots.insert(WorkerId(worker), count);
                }
                Input::Gone(worker) => {
                    manager.worker_gone(WorkerId(worker));
                    slots.remove(&WorkerId(worker));
                    open.retain(|command| command.worker.0 != worker);
                    inside.retain(|(of, _)| of.0 != worker);
                }
                Input::Register(adapter, pinned) => {
                    let pinned = if pinned { Pinned::Yes } else { Pinned::No };
                    manager.register(&name(adapter), "/x".into(), pinned).unwrap();
                }
                Input::Unregister(adapter) => {
                    manager.unregister(&name(adapter));
                }
                Input::Asked(adapter) => manager.asked(now, Some(&name(adapter)), Tokens(100)),
                Input::Enter(worker, adapter) => {
                    let leaving = open.iter().any(|command| command.act == Act::Unload && command.worker.0 == worker && command.adapter == name(adapter));
                    let entered = manager.enter(now, WorkerId(worker), &name(adapter));
                    prop_assert!(entered == Entered::Absent || !leaving);
                    if entered == Entered::Ready {
                        inside.push((WorkerId(worker), name(adapter)));
                    }
                }
                Input::Leave => {
                    if let Some((worker, adapter)) = inside.pop() {
                        manager.leave(now, worker, &adapter);
                    }
                }
                Input::Want(worker, adapter) => manager.want(now, WorkerId(worker), &name(adapter)),
                Input::Done(which, well) => {
                    if !open.is_empty() {
                        let command = open.remove(which % open.len());
                        manager.done(now, command.job, if well { Ok(()) } else { Err("fault") });
                    }
                }
                Input::Listed(worker, adapters) => {
                    let list: Vec<_> = adapters.into_iter().map(|adapter| (name(adapter), Some("/x".into()))).collect();
                    manager.listed(now, WorkerId(worker), &list);
                    // What it says now is newer than what it was told to do and never answered.
                    open.retain(|command| command.worker.0 != worker || manager.is_under_way(command.job));
                }
                Input::Tick(millis) => {
                    now = now + Millis(f64::from(millis));
                    manager.tick(now, 0.5);
                }
            }
            while let Some(command) = manager.next_command() {
                let worker = command.worker;
                prop_assert!(slots.contains_key(&worker), "a worker that is gone is told to do something");
                if command.act == Act::Unload {
                    prop_assert!(!inside.contains(&(worker, command.adapter.clone())), "{} is in use", command.adapter);
                } else {
                    let rank = homing_domain::RankId { worker, dp: homing_domain::DpRank(0) };
                    prop_assert!(manager.residency().free(rank) > 0, "no slot for {}", command.adapter);
                }
                open.push(command);
            }
            // Commands that took too long are over for the manager, and the worker may be told the next.
            let under_way = manager.under_way();
            prop_assert!(under_way <= 3);
            for (adapter, places) in manager.plan() {
                for worker in places {
                    prop_assert!(slots.contains_key(worker), "{adapter} is planned on nobody");
                }
            }
            for (worker, count) in &slots {
                let planned = manager.plan().values().filter(|places| places.contains(worker)).count();
                // A plan made before slots changed is made anew with the next tick.
                if planned > *count as usize {
                    let mut later = manager.clone();
                    later.tick(now, 0.5);
                    let planned = later.plan().values().filter(|places| places.contains(worker)).count();
                    prop_assert!(planned <= *count as usize);
                }
            }
            for number in 0..10 {
                let openings = manager.openings(now, &name(number));
                let waits = openings.iter().filter(|opening| matches!(opening.when, When::Asked(_))).count();
                prop_assert!(waits <= 1, "a burst could be scattered: {openings:?}");
            }
        }
    }
}

/// Engines that do what they are told, and a manager that hears of it late.
#[derive(Debug, Default)]
struct Fleet {
    /// What each engine has.
    has: BTreeMap<WorkerId, BTreeSet<AdapterName>>,
    /// Told, and not done yet.
    told: Vec<Command>,
    /// Done, which nobody heard of yet.
    done: Vec<Command>,
    /// Listings on their way: when each was asked for, and what the engine said.
    asked: BTreeMap<WorkerId, (Time, Option<BTreeSet<AdapterName>>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Want(u32, u8),
    Enter(u32, u8),
    Leave(usize),
    Carry(usize),
    Hear(usize),
    Ask(u32),
    Say(u32),
    Read(u32),
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (worker, adapter) = (0..2_u32, 0..4_u8);
    prop_oneof![
        4 => (worker.clone(), adapter.clone()).prop_map(|(worker, adapter)| Step::Want(worker, adapter)),
        1 => (worker.clone(), adapter).prop_map(|(worker, adapter)| Step::Enter(worker, adapter)),
        2 => any::<usize>().prop_map(Step::Leave),
        4 => any::<usize>().prop_map(Step::Carry),
        4 => any::<usize>().prop_map(Step::Hear),
        2 => worker.clone().prop_map(Step::Ask),
        2 => worker.clone().prop_map(Step::Say),
        2 => worker.prop_map(Step::Read),
        4 => (1..2_000_u32).prop_map(Step::Pass),
    ]
}

impl Fleet {
    fn carry_out(&mut self, which: usize) {
        if self.told.is_empty() {
            return;
        }
        let command = self.told.remove(which % self.told.len());
        let has = self.has.get_mut(&command.worker).expect("it is there");
        match command.act {
            Act::Load { .. } => has.insert(command.adapter.clone()),
            Act::Unload => has.remove(&command.adapter),
        };
        self.done.push(command);
    }
}

proptest! {
    /// Whatever is heard late, a request that is let in finds its adapter, and no engine gets more than it has slots for.
    #[test]
    fn who_is_let_in_finds_what_he_came_for(steps in prop::collection::vec(step(), 0..120)) {
        let mut manager = with(4, 2, 2);
        let mut fleet = Fleet { has: (0..2).map(|worker| (WorkerId(worker), BTreeSet::new())).collect(), ..Fleet::default() };
        let mut inside: Vec<(WorkerId, AdapterName)> = Vec::new();
        let mut now = at(1.0);
        for step in steps {
            match step {
                Step::Want(worker, adapter) => manager.want(now, WorkerId(worker), &name(adapter)),
                Step::Enter(worker, adapter) => {
                    if manager.enter(now, WorkerId(worker), &name(adapter)) == Entered::Ready {
                        inside.push((WorkerId(worker), name(adapter)));
                    }
                }
                Step::Leave(which) => {
                    if !inside.is_empty() {
                        let (worker, adapter) = inside.remove(which % inside.len());
                        manager.leave(now, worker, &adapter);
                    }
                }
                Step::Carry(which) => fleet.carry_out(which),
                Step::Hear(which) => {
                    if !fleet.done.is_empty() {
                        let command = fleet.done.remove(which % fleet.done.len());
                        manager.done(now, command.job, Ok(()));
                    }
                }
                Step::Ask(worker) => {
                    fleet.asked.entry(WorkerId(worker)).or_insert((now, None));
                }
                Step::Say(worker) => {
                    let has = fleet.has[&WorkerId(worker)].clone();
                    if let Some((_, said @ None)) = fleet.asked.get_mut(&WorkerId(worker)) {
                        *said = Some(has);
                    }
                }
                Step::Read(worker) => {
                    if let Some((asked, Some(said))) = fleet.asked.get(&WorkerId(worker)).cloned() {
                        let list: Vec<_> = said.into_iter().map(|adapter| (adapter, Some("/adapters".into()))).collect();
                        manager.listed(asked, WorkerId(worker), &list);
                        fleet.asked.remove(&WorkerId(worker));
                    }
                }
                Step::Pass(millis) => {
                    now = now + Millis(f64::from(millis));
                    // Nothing takes so long that it counts as failed.
                    if fleet.told.is_empty() && fleet.done.is_empty() {
                        manager.tick(now, 0.5);
                    }
                }
            }
            fleet.told.extend(commands(&mut manager));
            for (worker, has) in &fleet.has {
                prop_assert!(has.len() <= 2, "{worker:?} has {has:?}");
                for adapter in (0..4).map(name) {
                    let ready = manager.finds(*worker, &adapter) == Entered::Ready;
                    prop_assert!(!ready || has.contains(&adapter), "{worker:?} does not have {adapter}");
                }
            }
            for (worker, adapter) in &inside {
                prop_assert!(fleet.has[worker].contains(adapter), "{adapter} went under a request");
            }
        }
    }
}
