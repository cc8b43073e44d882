//! Does everyone who waits get a turn, once, and fairly?

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use homing_domain::{RequestId, Tokens};
use homing_profile::{Millis, Time};
use homing_scheduler::queue::{Can, ClassSpec, Limits, Order, Queue, Refused, Tenant, Waiting};
use proptest::prelude::*;

fn class(name: &str, quantum: u32, order: Order) -> ClassSpec {
    ClassSpec {
        name: name.to_owned(),
        quantum,
        order,
        limits: Limits {
            requests: 100_000,
            ..Limits::default()
        },
    }
}

fn all() -> Limits {
    Limits {
        requests: 100_000,
        tokens: u64::MAX,
        ..Limits::default()
    }
}

fn waiting(id: u64, class: usize, tenant: u32, uncached: u32) -> Waiting {
    Waiting {
        id: RequestId::new(id.to_string()),
        class,
        tenant: Tenant(tenant),
        priority: 0,
        deadline: None,
        jump: Millis::ZERO,
        prompt: Tokens(uncached),
        uncached: Tokens(uncached),
        since: Time(id),
    }
}

fn taken(queue: &mut Queue) -> Vec<String> {
    std::iter::from_fn(|| queue.take(|_| Can::Go))
        .map(|request| request.id.to_string())
        .collect()
}

#[test]
fn classes_and_tenants_get_their_shares() {
    let mut queue = Queue::new(
        vec![class("a", 512, Order::FirstCome), class("b", 128, Order::FirstCome)],
        all(),
    );
    for id in 0..40_000 {
        // One tenant asks for three times as much as the other, in smaller pieces.
        let tenant = u32::from(id % 4 == 0);
        let tokens = if tenant == 0 { 100 } else { 700 };
        queue
            .put(waiting(id, (id / 4 % 2) as usize, tenant, tokens), Millis::ZERO)
            .unwrap();
    }
    let mut tokens = [[0.0; 2]; 2];
    for _ in 0..10_000 {
        let request = queue.take(|_| Can::Go).unwrap();
        tokens[request.class][request.tenant.0 as usize] += f64::from(request.uncached.0);
    }
    let class_share = tokens[0].iter().sum::<f64>() / tokens.iter().flatten().sum::<f64>();
    assert!((class_share - 0.8).abs() < 0.01, "{tokens:?}");
    for tenants in tokens {
        let share = tenants[0] / (tenants[0] + tenants[1]);
        assert!((share - 0.5).abs() < 0.01, "{tokens:?}");
    }
}

#[test]
fn who_asks_for_one_thing_at_a_time_gets_no_more_than_a_share() {
    let mut queue = Queue::new(vec![class("a", 1, Order::FirstCome)], all());
    for id in 0..1_000 {
        queue.put(waiting(id, 0, 0, 100), Millis::ZERO).unwrap();
    }
    let mut tokens = [0; 2];
    for _ in 0..600 {
        // The second tenant's requests are large, and there is never more than one of them.
        let _ = queue.put(waiting(1_000_000, 0, 1, 1_000), Millis::ZERO);
        let request = queue.take(|_| Can::Go).unwrap();
        tokens[request.tenant.0 as usize] += request.uncached.0;
    }
    let share = f64::from(tokens[0]) / f64::from(tokens[0] + tokens[1]);
    assert!((share - 0.5).abs() < 0.02, "{tokens:?}");
}

#[test]
fn priority_then_deadline_then_order_and_a_jump_in_seconds() {
    let mut queue = Queue::new(vec![class("a", 1, Order::FirstCome)], all());
    let second = |count: u64| Time(count * 1_000_000_000);
    for (id, change) in [
        (1, (0, None, 0.0)),
        (2, (0, Some(second(90)), 0.0)),
        (3, (0, Some(second(80)), 0.0)),
        (4, (5, None, 0.0)),
        (5, (0, None, 3_500.0)),
        (6, (0, None, 0.0)),
    ] {
        let mut request = waiting(id, 0, 0, 10);
        request.since = second(id);
        (request.priority, request.deadline) = (change.0, change.1);
        request.jump = Millis(change.2);
        queue.put(request, Millis::ZERO).unwrap();
    }
    // 5 came at 5 s and is treated as if at 1.5 s: after 1, before 6.
    assert_eq!(taken(&mut queue), ["4", "3", "2", "1", "5", "6"]);
}

#[test]
fn short_ones_go_first_but_a_long_one_does_not_starve() {
    let order = Order::Shortest { per_token: Millis(1.0) };
    let mut queue = Queue::new(vec![class("a", 1, order)], all());
    let mut long = waiting(0, 0, 0, 10_000);
    long.since = Time::ZERO;
    queue.put(long, Millis::ZERO).unwrap();
    // Every 100 ms a short one comes and one is taken: adversarial arrivals for whoever is long.
    let mut turn = None;
    for id in 1..1_000_u64 {
        let mut short = waiting(id, 0, 0, 10);
        short.since = Time::from_millis(id as f64 * 100.0);
        queue.put(short, Millis::ZERO).unwrap();
        if queue.take(|_| Can::Go).unwrap().id.as_str() == "0" {
            turn = Some(id);
            break;
        }
    }
    assert_eq!(turn, Some(100), "after the 10 s that its tokens count for");
}

#[test]
fn one_that_cannot_go_keeps_nobody_else_waiting_and_earns_nothing() {
    let mut queue = Queue::new(
        vec![class("a", 1, Order::FirstCome), class("b", 1, Order::FirstCome)],
        all(),
    );
    for id in 0..200 {
        queue.put(waiting(id, (id % 2) as usize, 0, 10), Millis::ZERO).unwrap();
    }
    let not_a = |request: &Waiting| if request.class == 0 { Can::Wait } else { Can::Go };
    for _ in 0..50 {
        assert_eq!(queue.take(not_a).unwrap().class, 1);
    }
    let next: Vec<usize> = (0..20).map(|_| queue.take(|_| Can::Go).unwrap().class).collect();
    let of_a = next.iter().filter(|class| **class == 0).count();
    assert!((9..=11).contains(&of_a), "{next:?}");
    assert_eq!(queue.take(|_| Can::Wait), None);
    let pinned = |request: &Waiting| {
        if request.id.as_str() == "198" {
            Can::Go
        } else {
            Can::Wait
        }
    };
    assert_eq!(queue.take(pinned).unwrap().id.as_str(), "198");
}

#[test]
fn refusals_say_what_was_exceeded() {
    let mut spec = class("bulk", 1, Order::FirstCome);
    spec.limits = Limits {
        requests: 2,
        tokens: 1_000,
        first_token: Millis(5_000.0),
    };
    let mut queue = Queue::new(
        vec![spec],
        Limits {
            requests: 100,
            tokens: 900,
            ..Limits::default()
        },
    );
    let mut put = |id, tokens, first_token| {
        queue
            .put(waiting(id, 0, 0, tokens), Millis(first_token))
            .map_err(|refused| refused.to_string())
    };
    assert_eq!(put(1, 500, 10.0), Ok(()));
    expect!["bulk: waiting prompt tokens would be 1100, at most 1000 are allowed; try again in 250 ms"]
        .assert_eq(&put(2, 600, 250.0).unwrap_err());
    expect!["all classes: waiting prompt tokens would be 950, at most 900 are allowed; try again in 100 ms"]
        .assert_eq(&put(2, 450, 1.0).unwrap_err());
    expect!["bulk: milliseconds to the first token would be 7000, at most 5000 are allowed; try again in 2000 ms"]
        .assert_eq(&put(2, 1, 7_000.0).unwrap_err());
    expect!["request 1 waits already"].assert_eq(&put(1, 1, 1.0).unwrap_err());
    assert_eq!(put(2, 1, 10.0), Ok(()));
    expect!["bulk: waiting requests would be 3, at most 2 are allowed; try again in 100 ms"]
        .assert_eq(&put(3, 1, 10.0).unwrap_err());
    assert_eq!(
        queue.put(waiting(9, 7, 0, 1), Millis::ZERO),
        Err(Refused::NoSuchClass(7))
    );
}

#[test]
fn who_waits_stays_within_the_bounds_when_its_prefix_goes() {
    let mut spec = class("bulk", 1, Order::FirstCome);
    spec.limits.tokens = 1_000;
    let mut queue = Queue::new(vec![spec], all());
    let cached = |id, prompt, uncached| Waiting {
        prompt: Tokens(prompt),
        ..waiting(id, 0, 0, uncached)
    };
    queue.put(cached(1, 600, 10), Millis::ZERO).unwrap();
    let refused = queue.put(cached(2, 600, 10), Millis::ZERO).unwrap_err();
    expect!["bulk: waiting prompt tokens would be 1200, at most 1000 are allowed; try again in 100 ms"]
        .assert_eq(&refused.to_string());
    queue.put(cached(3, 400, 10), Millis::ZERO).unwrap();
    for id in [1, 3] {
        assert!(queue.update(&RequestId::new(id.to_string()), Tokens(400)));
    }
    assert_eq!((queue.tokens(), queue.uncached()), (1_000, 800));
    assert_eq!(taken(&mut queue), ["1", "3"]);
    queue.put(cached(2, 1_000, 1_000), Millis::ZERO).unwrap();
}

#[test]
fn who_is_refused_is_told_when_there_is_room_at_the_pace_of_the_last_seconds() {
    let mut spec = class("bulk", 1, Order::FirstCome);
    spec.limits.requests = 10;
    let mut queue = Queue::new(vec![spec], all());
    // Ten wait; every 200 ms one goes and another comes.
    let mut refused = None;
    for id in 0..200_u64 {
        let mut request = waiting(id, 0, 0, 100);
        request.since = Time::from_millis(id as f64 * 200.0);
        if id >= 10 && id % 50 != 49 {
            queue.take(|_| Can::Go);
        }
        refused = queue.put(request, Millis(9_000.0)).err().or(refused);
    }
    let Some(Refused::Exceeded {
        retry_after,
        value,
        limit,
        ..
    }) = refused
    else {
        panic!("ten wait already");
    };
    assert_eq!((value, limit), (11, 10));
    assert!((150.0..300.0).contains(&retry_after.0), "{retry_after:?}");
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        class: usize,
        tenant: u32,
        tokens: u32,
        priority: i32,
        deadline: Option<u64>,
    },
    Take(u32),
    Cancel(u64),
    Update(u64, u32),
    Expire(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let put = (
        0..2_usize,
        0..3_u32,
        0..500_u32,
        -1..2_i32,
        prop::option::of(0..100_u64),
    );
    prop_oneof![
        3 => put.prop_map(|(class, tenant, tokens, priority, deadline)| Op::Put { class, tenant, tokens, priority, deadline }),
        2 => (0..4_u32).prop_map(Op::Take),
        1 => (0..60_u64).prop_map(Op::Cancel),
        1 => (0..60_u64, 0..500_u32).prop_map(|(id, tokens)| Op::Update(id, tokens)),
        1 => (0..100_u64).prop_map(Op::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Everyone has more than enough waiting: after 10,000 requests each has what its quantum says, up to 1% of everything.
    #[test]
    fn shares_are_those_of_the_quanta(
        classes in prop::collection::vec(1..9_u32, 2..4),
        // So that one request is a small part of what 10,000 take: shares are exact up to one request.
        tenants in prop::collection::vec((1..9_u32, 50..400_u32), 2..5),
    ) {
        let specs = classes.iter().map(|quantum| class("c", *quantum, Order::FirstCome));
        let mut queue = Queue::new(specs.collect(), all());
        for (tenant, (quantum, _)) in tenants.iter().enumerate() {
            prop_assert!(queue.set_quantum(Tenant(tenant as u32), *quantum));
        }
        let mut id = 0;
        let mut put = |queue: &mut Queue, class: usize, tenant: usize| {
            id += 1;
            // Sizes of a tenant differ up to threefold.
            let tokens = tenants[tenant].1 * (1 + (id % 3) as u32);
            queue.put(waiting(id, class, tenant as u32, tokens), Millis::ZERO).unwrap();
        };
        for class in 0..classes.len() {
            for tenant in 0..tenants.len() {
                (0..3).for_each(|_| put(&mut queue, class, tenant));
            }
        }
        let mut taken = vec![vec![0.0; tenants.len()]; classes.len()];
        for _ in 0..10_000 {
            let request = queue.take(|_| Can::Go).unwrap();
            let (class, tenant) = (request.class, request.tenant.0 as usize);
            taken[class][tenant] += f64::from(request.uncached.0);
            put(&mut queue, class, tenant);
        }
        let total: f64 = taken.iter().flatten().sum();
        let sum = |quanta: &mut dyn Iterator<Item = u32>| f64::from(quanta.sum::<u32>());
        for (class, of_class) in taken.iter().enumerate() {
            let share = of_class.iter().sum::<f64>() / total;
            let due = f64::from(classes[class]) / sum(&mut classes.iter().copied());
            prop_assert!((share - due).abs() < 0.01, "class {class}: {share} and not {due}: {taken:?}");
            for (tenant, of_tenant) in of_class.iter().enumerate() {
                let share = of_tenant / of_class.iter().sum::<f64>();
                let due = f64::from(tenants[tenant].0) / sum(&mut tenants.iter().map(|(quantum, _)| *quantum));
                prop_assert!((share - due).abs() < 0.01, "tenant {tenant}: {share} and not {due}: {taken:?}");
            }
        }
    }

    /// Whatever others put in, before and after it, a request waits for no more than one request of each tenant who waited when it
    /// came and of each class in turn. Tenants who come anew do not pass it.
    #[test]
    fn nobody_starves(
        size in 1..5_000_u32,
        crowd in prop::collection::vec((0..40_u32, 1..2_000_u32), 0..60),
        adversary in prop::collection::vec((any::<bool>(), 1..2_000_u32), 300),
        victim in prop::sample::select(vec![0_u32, 1_000, u32::MAX]),
    ) {
        let mut queue = Queue::new(vec![class("a", 1, Order::FirstCome), class("b", 1, Order::FirstCome)], all());
        let mut id = 0;
        let mut put = |queue: &mut Queue, class: usize, tenant: u32, tokens: u32| {
            id += 1;
            queue.put(waiting(id, class, tenant, tokens), Millis::ZERO).unwrap();
        };
        for (tenant, tokens) in &crowd {
            put(&mut queue, (*tenant % 2) as usize, 10 + tenant, *tokens);
        }
        for _ in 0..crowd.len() / 2 {
            queue.take(|_| Can::Go);
        }
        let tenants: BTreeSet<u32> = crowd.iter().map(|(tenant, _)| *tenant).collect();
        put(&mut queue, 0, victim, size);
        // In tokens: each tenant one request, the other class as much as this one, and one request more.
        let bound = 2 * (tenants.len() as u32 + 2) * 2_000;
        let mut served = 0;
        for (turn, (fresh, tokens)) in adversary.iter().cycle().enumerate() {
            // In the victim's class tenants that nobody knows, with numbers before and after its own; in the other a greedy one.
            let turn = turn as u32;
            put(&mut queue, usize::from(!*fresh), if *fresh { 2_000 + turn } else { 3 }, *tokens);
            put(&mut queue, 0, 100 + turn % 800, *tokens);
            let request = queue.take(|_| Can::Go).unwrap();
            if request.tenant == Tenant(victim) {
                break;
            }
            served += request.uncached.0;
            prop_assert!(served <= bound, "{served} tokens went before it, at most {bound} should");
        }
    }

    #[test]
    fn each_request_leaves_exactly_once(ops in prop::collection::vec(op(), 0..120)) {
        let mut queue = Queue::new(vec![class("a", 3, Order::FirstCome), class("b", 1, Order::FirstCome)], all());
        queue.set_quantum(Tenant(1), 4);
        // For each, its prompt and what is not cached of it.
        let mut inside: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (id, op) in ops.into_iter().enumerate() {
            let gone = match op {
                Op::Put { class, tenant, tokens: of, priority, deadline } => {
                    let mut request = waiting(id as u64, class, tenant, of);
                    (request.priority, request.deadline) = (priority, deadline.map(Time));
                    inside.insert(request.id.to_string(), (u64::from(of), u64::from(of)));
                    queue.put(request, Millis::ZERO).unwrap();
                    Vec::new()
                }
                Op::Take(blocked) => {
                    let can = |request: &Waiting| if request.tenant.0 == blocked { Can::Wait } else { Can::Go };
                    let taken = queue.take(can);
                    prop_assert!(taken.as_ref().is_none_or(|request| request.tenant.0 != blocked));
                    prop_assert!(taken.is_some() || queue.is_empty() || blocked < 3);
                    taken.into_iter().collect()
                }
                Op::Cancel(id) => queue.cancel(&RequestId::new(id.to_string())).into_iter().collect(),
                Op::Update(id, tokens) => {
                    let known = inside.get_mut(&id.to_string());
                    prop_assert_eq!(queue.update(&RequestId::new(id.to_string()), Tokens(tokens)), known.is_some());
                    if let Some(known) = known {
                        known.1 = u64::from(tokens);
                    }
                    Vec::new()
                }
                Op::Expire(now) => {
                    let gone = queue.expire(Time(now));
                    prop_assert!(gone.iter().all(|request| request.deadline.is_some_and(|at| at <= Time(now))));
                    gone
                }
            };
            for request in gone {
                let known = inside.remove(request.id.as_str());
                let tokens = (u64::from(request.prompt.0), u64::from(request.uncached.0));
                prop_assert_eq!(known, Some(tokens), "{:?} left twice", request);
            }
            let sums = inside.values().fold((0, 0), |sums, of| (sums.0 + of.0, sums.1 + of.1));
            prop_assert_eq!((queue.len(), queue.tokens(), queue.uncached()), (inside.len(), sums.0, sums.1));
        }
        for id in taken(&mut queue) {
            prop_assert!(inside.remove(&id).is_some());
        }
        prop_assert!(inside.is_empty() && queue.is_empty() && queue.tokens() + queue.uncached() == 0);
    }
}
