//! One worker or two, which two, and what is booked: a list of rules.

use homing_disagg::choose::{Because, QUEUED_LIMIT};
use homing_disagg::{
    Agreement, Alone, Choice, Command, Endpoint, Enforce, Fate, Handoff, HandoffSettings, Input, Means, Need, Outcome,
    PoolPhase, Prefilled, Refused, Retry, Side, Staged, Topology, Traits, Tried, Turn, Whether,
};
use homing_domain::{BlockSize, Blocks, RankId, Role, Tokens, WorkerId};
use homing_load::{PromptWork, Standing, Ticket};
use homing_profile::{GigabytesPerSecond, Millis, Time};
use homing_router::{
    Across, Apart, CacheView, Effect, Ended, Halves, Naming, Policies, Question, Routed, Router, RouterConfig, Turned,
    TwoKeyed, Verdict,
};
use homing_scheduler::policy::by_name;
use homing_scheduler::{Keep, Label, Pin};

use crate::world::{World, config, finished, keys, new_rank, question, rank};

/// Prefill workers first, then decode workers.
fn fleet(prefills: u32, decodes: u32, config: &RouterConfig) -> World {
    fleet_with(prefills, decodes, config, |_| Vec::new())
}

fn fleet_with(prefills: u32, decodes: u32, config: &RouterConfig, labels: impl Fn(u32) -> Vec<Label>) -> World {
    World::with(prefills + decodes, "time", config, |new| {
        let worker = new.facts.rank.worker.0;
        new.facts.role = if worker < prefills { Role::Prefill } else { Role::Decode };
        new.facts.labels = labels(worker);
    })
}

/// A configuration by which two serve wherever two can.
fn always() -> RouterConfig {
    let mut config = config();
    config.apart.choose.whether = Whether::Always;
    config
}

pub fn apart(id: &str, prompt: u64, blocks: u64) -> Question {
    let mut question = question(id, prompt, blocks);
    question.apart = Some(Box::default());
    question
}

fn with(mut question: Question, change: impl FnOnce(&mut Apart)) -> Question {
    let mut apart = question.apart.take().unwrap_or_default();
    change(&mut apart);
    question.apart = Some(apart);
    question
}

pub fn required(question: Question) -> Question {
    with(question, |apart| apart.need = Need::Request(Alone::Never))
}

pub fn halves(routed: &Routed) -> &Halves {
    routed.halves.as_ref().expect("it was asked for")
}

fn because(routed: &Routed) -> Because {
    halves(routed).why.because
}

/// Who computes the prompt, if another, and who generates.
fn workers(routed: &Routed) -> (Option<u32>, u32) {
    let prefill = halves(routed).prefill.as_ref();
    let prefill = prefill.map(|prefill| prefill.decision.chosen.rank.worker.0);
    (prefill, routed.decision.chosen.rank.worker.0)
}

fn refused(verdict: Verdict) -> Refused {
    match verdict {
        Verdict::Turned(Turned::Apart(refused)) => refused,
        other => panic!("it is not refused: {other:?}"),
    }
}

/// Everything of a request ends.
pub fn end(world: &World, routed: &Routed) {
    world.done(routed.ticket.expect("it is booked"));
    if let Some(prefill) = &halves(routed).prefill {
        world.done(prefill.ticket.expect("it is booked"));
        let hold = prefill.hold.expect("it is held");
        world.router.settle(world.now, hold, Fate::HandedOver);
    }
}

/// So many requests generate on a worker.
fn generating(world: &World, worker: u32, count: u32) -> Vec<Ticket> {
    let go = |at: u32| {
        let mut question = question(&format!("busy {worker} {at}"), 1_000 + u64::from(at), 20);
        question.phase = homing_scheduler::Phase::Alone;
        question.wanted.pinned = Some(pin(worker));
        // Nothing is learnt from prompts that come with their KV.
        question.overrides.work = PromptWork::None;
        let ticket = world.go(question).ticket.expect("it is booked");
        world.router.prefill_done(world.now, ticket);
        ticket
    };
    (0..count).map(go).collect()
}

fn at_rest(world: &World) -> bool {
    let state = world.router.state(world.now);
    state.at_rest && state.staged_blocks == 0
}

#[test]
fn a_pair_is_booked_on_both_sides_each_in_its_phase() {
    let world = fleet(2, 2, &always());
    let routed = world.go(apart("a", 1, 500));
    assert_eq!(because(&routed), Because::Always);
    let (Some(prefill), decode) = workers(&routed) else {
        panic!("there is one worker");
    };
    assert!(prefill < 2 && decode >= 2);
    let state = world.router.state(world.now);
    let of = |worker: u32| &state.ranks[worker as usize];
    assert_eq!(of(prefill).load.pending_tokens(), 8_001);
    assert_eq!(of(prefill).staged.blocks, 501);
    assert_eq!((of(decode).load.pending_tokens(), of(decode).load.awaiting()), (0, 1));
    assert_eq!(
        of(decode).load.used_blocks(),
        501,
        "its blocks are counted from the beginning"
    );
    assert_eq!(halves(&routed).prefill.as_ref().unwrap().id.as_str(), "a/prefill");
    end(&world, &routed);
    assert!(at_rest(&world));
}

#[test]
fn one_worker_serves_where_two_would_only_take_longer() {
    let world = fleet(2, 2, &config());
    let routed = world.go(apart("short", 1, 10));
    assert_eq!((because(&routed), workers(&routed).0), (Because::WholeCostsLess, None));
    let (pair, whole) = (halves(&routed).why.pair.unwrap(), halves(&routed).why.whole.unwrap());
    assert!(pair.first_token.0 > whole.1.0, "{pair:?} {whole:?}");
    end(&world, &routed);
    assert!(at_rest(&world));
}

#[test]
fn two_serve_where_a_prompt_would_keep_those_waiting_who_generate() {
    let world = fleet(2, 2, &config());
    generating(&world, 2, 24);
    generating(&world, 3, 24);
    let routed = world.go(apart("long", 1, 500));
    assert_eq!(because(&routed), Because::PairCostsLess, "{}", routed.to_json());
    let routed = world.go(apart("short", 2, 1));
    assert_eq!(
        because(&routed),
        Because::WholeCostsLess,
        "there is nothing to wait for"
    );
}

#[test]
fn a_prompt_that_lies_on_a_decode_worker_needs_no_other() {
    let mut world = fleet(2, 2, &config());
    generating(&world, 2, 24);
    generating(&world, 3, 24);
    world.store(3, &keys(1, 500));
    let routed = world.go(apart("a", 1, 500));
    assert_eq!(
        (because(&routed), workers(&routed)),
        (Because::WholeCostsLess, (None, 3))
    );
}

#[test]
fn by_rules_a_prompt_is_short_or_mostly_cached_or_goes_to_two() {
    let mut config = config();
    config.apart.choose.whether = Whether::RULES;
    let mut world = fleet(2, 1, &config);
    let asked = |world: &World, id: &str, blocks| {
        let routed = world.go(apart(id, 1, blocks));
        end(world, &routed);
        because(&routed)
    };
    assert_eq!(
        asked(&world, "all of 1,601", 100),
        Because::MuchToCompute,
        "the share is 1"
    );
    world.store(2, &keys(1, 60));
    assert_eq!(asked(&world, "641 of 1,601", 100), Because::LittleToCompute);
    assert_eq!(asked(&world, "2,241 of 3,201", 200), Because::MuchToCompute);
    world.store(2, &keys(1, 199));
    assert_eq!(asked(&world, "17 of 3,201", 200), Because::LittleToCompute);
}

#[test]
fn without_prefill_workers_decode_workers_serve_alone_unless_two_are_required() {
    let world = fleet(0, 2, &config());
    let routed = world.go(apart("a", 1, 100));
    assert_eq!(because(&routed), Because::NoPrefill);
    let refused = refused(world.ask(required(apart("b", 1, 100))));
    assert_eq!(refused.retry(), Retry::Soon);
    assert!(matches!(refused, Refused::NoPrefillWorker(_)), "{refused}");
    end(&world, &routed);
    assert!(at_rest(&world));
}

#[test]
fn back_pressure_is_a_refusal_with_numbers_or_one_worker() {
    let mut config = always();
    config.apart.choose.most_queued = 5_000;
    config.start_within = Millis(1e9);
    let world = fleet(1, 1, &config);
    assert_eq!(because(&world.go(required(apart("a", 1, 400)))), Because::Required);
    let refused = refused(world.ask(required(apart("b", 2, 400))));
    let numbers = Refused::Busy {
        limit: QUEUED_LIMIT,
        queued: 6_401,
        most: 5_000,
    };
    assert_eq!(refused, numbers);
    assert_eq!(refused.denial().retry, Retry::Soon);
    assert_eq!(because(&world.go(apart("c", 3, 400))), Because::PrefillBusy);
}

#[test]
fn what_may_be_staged_is_bounded() {
    let mut config = always();
    config.apart.staging.most_blocks = 150;
    config.start_within = Millis(1e9);
    let world = fleet(2, 1, &config);
    let first = world.go(apart("a", 1, 100));
    let second = world.go(apart("b", 2, 100));
    assert_ne!(workers(&first).0, workers(&second).0, "each has room for one");
    let third = refused(world.ask(required(apart("c", 3, 100))));
    assert!(
        matches!(
            third,
            Refused::StagedFull {
                staged: 101,
                most: 150,
                ..
            }
        ),
        "{third}"
    );
    assert_eq!(because(&world.go(apart("d", 4, 100))), Because::StagedFull);
    let hold = halves(&first).prefill.as_ref().unwrap().hold.unwrap();
    let later = world.now + Millis(1_000.0);
    world.router.settle(world.now, hold, Fate::Lapses(later));
    let before = world.ask(required(apart("e", 5, 100)));
    assert!(
        matches!(refused_or(&before), Some(Refused::StagedFull { .. })),
        "it counts until it lapses"
    );
    world.router.tick(later);
    assert_eq!(workers(&world.go(required(apart("f", 6, 100)))).0, workers(&first).0);
}

fn refused_or(verdict: &Verdict) -> Option<&Refused> {
    match verdict {
        Verdict::Turned(Turned::Apart(refused)) => Some(refused),
        _ => None,
    }
}

fn zone(zone: &str) -> Vec<Label> {
    vec![Label::new("zone", zone)]
}

fn within_zones() -> RouterConfig {
    let mut config = always();
    config.apart.choose.topology = vec![Topology {
        label: "zone".into(),
        enforce: Enforce::Required,
    }];
    config
}

#[test]
fn pairs_are_chosen_together_so_that_kv_can_travel() {
    // The best prefill worker is in zone a, whose only decode worker is full.
    let world = fleet_with(2, 2, &within_zones(), |worker| {
        zone(["a", "b", "a", "b"][worker as usize])
    });
    let busy = apart("busy", 9, 50);
    let busy = with(busy, |apart| apart.prefill = Some(pin(1)));
    world.go(busy);
    generating(&world, 2, 200);
    let routed = world.go(apart("a", 1, 500));
    assert_eq!(workers(&routed), (Some(1), 3));
    assert!(halves(&routed).why.other_place > 0);
}

fn pin(worker: u32) -> Pin {
    let worker = WorkerId(worker);
    Pin { worker, dp: None }
}

#[test]
fn where_a_required_label_is_not_known_nothing_travels() {
    let world = fleet_with(
        1,
        1,
        &within_zones(),
        |worker| if worker == 0 { Vec::new() } else { zone("a") },
    );
    let refused = refused(world.ask(required(apart("a", 1, 100))));
    assert!(
        matches!(&refused, Refused::UnknownPlace { label, .. } if label == "zone"),
        "{refused}"
    );
    assert_eq!(
        because(&world.go(apart("b", 2, 100))),
        Because::NoPair,
        "one worker needs no transfer"
    );
}

#[test]
fn those_who_do_not_understand_each_other_are_no_pair() {
    let world = fleet(1, 2, &always());
    let mut traits = Traits::by_result();
    traits.format.kv_type = Some("fp8".into());
    world.router.set_traits(rank(0), traits.clone()).unwrap();
    world.router.set_traits(rank(2), traits.clone()).unwrap();
    traits.format.kv_type = Some("auto".into());
    world.router.set_traits(rank(1), traits.clone()).unwrap();
    assert_eq!(workers(&world.go(apart("a", 1, 100))), (Some(0), 2));
    world.router.set_traits(rank(2), traits).unwrap();
    let refused = refused(world.ask(required(apart("b", 2, 100))));
    assert_eq!(
        refused,
        Refused::NoPair {
            pairs: 2,
            format: 2,
            topology: 0
        }
    );
}

#[test]
fn what_is_not_known_of_kv_agrees_unless_it_has_to_be_shown() {
    let mut config = always();
    config.apart.choose.agreement = Agreement::Shown;
    let world = fleet(1, 1, &config);
    let refused = refused(world.ask(required(apart("a", 1, 100))));
    assert!(matches!(refused, Refused::NoPair { format: 1, .. }), "{refused}");
}

#[test]
fn missing_blocks_travel_where_the_decode_worker_reads_only_those() {
    let mut world = fleet(1, 2, &always());
    let with_rate = |mut traits: Traits| {
        traits.rate = GigabytesPerSecond(1.0);
        traits
    };
    for worker in 0..3 {
        world
            .router
            .set_traits(rank(worker), with_rate(Traits::by_result()))
            .unwrap();
    }
    world.store(2, &keys(1, 400));
    let routed = world.go(apart("a", 1, 500));
    let pairing = halves(&routed).pairing.unwrap();
    assert_eq!(workers(&routed), (Some(0), 2), "less has to travel there");
    assert_eq!(pairing.bytes, 131_072 * (8_001 - 6_400));
    assert!((pairing.transfer.0 - pairing.bytes as f64 / 1e6).abs() < 1.0);
    // What is on its way to a worker goes before what comes next.
    let hold = halves(&routed).prefill.as_ref().unwrap().hold.unwrap();
    world.router.moving(hold, rank(2));
    let next = world.router.consider_apart(world.now, &apart("b", 1, 500)).unwrap();
    let transfer = halves(&next).pairing.unwrap().transfer;
    assert!(
        transfer.0 > 1.9 * pairing.transfer.0,
        "{transfer} after {}",
        pairing.transfer
    );
}

#[test]
fn named_workers_are_taken_and_two_names_are_two_workers() {
    let world = fleet(2, 2, &config());
    let both = with(apart("a", 1, 10), |apart| apart.prefill = Some(pin(1)));
    let mut both = both;
    both.wanted.pinned = Some(pin(3));
    let routed = world.go(both);
    assert_eq!((because(&routed), workers(&routed)), (Because::Named, (Some(1), 3)));
    let prefill = world.go(with(apart("b", 1, 10), |apart| apart.prefill = Some(pin(0))));
    assert_eq!(workers(&prefill).0, Some(0));
    let mut decode = apart("c", 1, 10);
    decode.wanted.pinned = Some(pin(2));
    assert_eq!(workers(&world.go(decode)), (None, 2));
}

#[test]
fn where_others_choose_they_have_to_name_both() {
    let world = fleet(2, 2, &config());
    let direct = |id: &str| with(apart(id, 1, 10), |apart| apart.naming = Naming::Direct);
    let nobody = refused(world.ask(direct("a")));
    assert_eq!(
        (&nobody, nobody.retry()),
        (&Refused::NotNamed(Side::Decode), Retry::Never)
    );
    let mut decode = direct("b");
    decode.wanted.pinned = Some(pin(2));
    assert_eq!(refused(world.ask(decode.clone())), Refused::NotNamed(Side::Prefill));
    let both = with(decode, |apart| apart.prefill = Some(pin(0)));
    assert_eq!(workers(&world.go(both)), (Some(0), 2));
}

#[test]
fn to_ask_changes_nothing() {
    let world = fleet(2, 2, &always());
    let before = format!("{:?}", world.router.state(world.now));
    let told = world.router.consider_apart(world.now, &apart("a", 1, 500)).unwrap();
    assert_eq!(format!("{:?}", world.router.state(world.now)), before);
    assert_eq!(told.ticket, None);
    let mut unbooked = apart("a", 1, 500);
    unbooked.overrides.keep = Keep::Unbooked;
    let routed = world.go(unbooked);
    assert_eq!(halves(&routed).prefill.as_ref().unwrap().hold, None);
    assert_eq!(workers(&routed), workers(&told));
    assert!(at_rest(&world));
}

#[test]
fn the_reasons_are_told_as_json() {
    let world = fleet(1, 1, &always());
    let json = world.go(apart("a", 1, 500)).to_json();
    let start = "{\"why\":{\"because\":\"two wherever there are two\",\"pair\":{\"cost\":";
    assert!(json.starts_with(start), "{json}");
    for part in [
        "\"one_worker\":{\"cost\":",
        "\"prefill\":{\"policy\":\"time\"",
        "\"decode\":{\"policy\":\"time\"",
    ] {
        assert!(json.contains(part), "{json}");
    }
}

#[test]
fn a_place_is_given_back_where_the_other_half_cannot_be_booked() {
    let world = fleet(1, 1, &always());
    let first = world.go(question_for_prefill("a/prefill"));
    let verdict = world.ask(apart("a", 1, 100));
    assert!(matches!(verdict, Verdict::Turned(Turned::Unbookable(_))), "{verdict:?}");
    assert_eq!(world.router.state(world.now).booked, 1);
    world.done(first.ticket.unwrap());
    assert!(at_rest(&world));
}

fn question_for_prefill(id: &str) -> Question {
    let mut question = question(id, 7, 10);
    question.phase = homing_scheduler::Phase::Prefill;
    question
}

#[test]
fn a_pair_waits_as_others_do_and_goes_as_a_pair() {
    let world = fleet(1, 1, &always());
    let first = world.go(required(apart("a", 1, 2_000)));
    let prefill = halves(&first).prefill.as_ref().unwrap();
    assert_eq!(
        world.ask(required(apart("b", 2, 100))),
        Verdict::Wait,
        "prompts are in its way"
    );
    world.done(prefill.ticket.unwrap());
    let effects = world.effects();
    let [Effect::Go { id, routed }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((id.as_str(), workers(routed)), ("b", (Some(0), 1)));
}

#[test]
fn staged_kv_gets_a_decode_worker_that_was_not_tried() {
    let world = fleet(1, 2, &always());
    let need = Need::DecodeFor {
        turn: Turn(0),
        prefill: rank(0),
    };
    let asked = |id: &str, tried: &[u32]| {
        let decode = tried.iter().map(|worker| WorkerId(*worker)).collect();
        with(apart(id, 1, 100), |apart| {
            apart.need = need;
            apart.tried = Tried {
                prefill: Vec::new(),
                decode,
            };
        })
    };
    let routed = world.go(asked("a", &[1]));
    assert_eq!(
        (because(&routed), workers(&routed)),
        (Because::AlreadyStaged, (None, 2))
    );
    assert_eq!(routed.choice(need, 0), Choice::Decode(rank(2)));
    let nobody = refused(world.ask(asked("b", &[1, 2])));
    assert!(matches!(nobody, Refused::Nobody { side: Side::Decode, .. }), "{nobody}");
}

#[test]
fn a_decode_worker_that_waits_for_kv_is_neither_busy_nor_suspect() {
    let mut world = fleet(1, 1, &always());
    let routed = world.go(apart("a", 1, 500));
    world.pass(10_000.0);
    let state = world.router.state(world.now);
    assert_eq!(
        (state.ranks[1].standing, state.ranks[1].backlog),
        (Standing::Well, Millis::ZERO)
    );
    assert_eq!(state.ranks[0].standing, Standing::Suspect, "its prompt is long overdue");
    end(&world, &routed);
}

#[test]
fn workers_that_meet_get_a_room_and_do_not_serve_alone() {
    let world = fleet(1, 1, &config());
    let endpoint = Endpoint {
        host: "10.0.0.1".into(),
        port: 8_998,
        dp_size: 1,
    };
    world
        .router
        .set_traits(rank(0), Traits::rendezvous(Some(endpoint.clone())))
        .unwrap();
    world.router.set_traits(rank(1), Traits::rendezvous(None)).unwrap();
    let routed = world.go(apart("short", 1, 2));
    assert_eq!(because(&routed), Because::NobodyAlone);
    let choice = routed.choice(Need::Request(Alone::Allowed), 77);
    let means = Means::Rendezvous(endpoint.meeting(77, rank(0).dp));
    let pair = Choice::Pair {
        prefill: rank(0),
        decode: rank(1),
        means,
    };
    assert_eq!(choice, pair);
    world.router.set_traits(rank(0), Traits::rendezvous(None)).unwrap();
    let routed = world.go(apart("other", 1, 2));
    assert_eq!(halves(&routed).prefill.as_ref().unwrap().means(0), Means::ByResult);
}

#[test]
fn each_pool_has_its_own_policy() {
    let index = homing_index::Index::new(homing_index::IndexConfig::new(crate::world::hasher()));
    let policy = |name| by_name(name).expect("there is one");
    let policies = Policies {
        whole: policy("time"),
        prefill: Some(policy("time")),
        decode: Some(policy("round-robin")),
    };
    let router = Router::with_policies(&always(), policies, index.reader());
    for worker in 0..4 {
        let mut new = new_rank(worker, CacheView::Nothing);
        new.facts.role = if worker < 1 { Role::Prefill } else { Role::Decode };
        router.rank_up(Time::ZERO, new).unwrap();
    }
    let decode = |id: &str| match router.ask(Time::ZERO, apart(id, 1, 2)) {
        Verdict::Go(goes) => (goes.decision.policy, goes.decision.chosen.rank.worker.0),
        other => panic!("{other:?}"),
    };
    let taken = ["a", "b", "c"].map(decode);
    assert!(taken.iter().all(|(policy, _)| *policy == "round-robin"));
    let mut workers = taken.map(|(_, worker)| worker);
    workers.sort_unstable();
    assert_eq!(workers, [1, 2, 3], "each in its turn");
}

#[test]
fn prompts_alone_say_nothing_of_how_long_answers_are() {
    let world = fleet(1, 1, &always());
    for turn in 0..20 {
        let routed = world.go(apart(&format!("{turn}"), turn, 10));
        let ended = Ended {
            generated: Some(Tokens(1_000)),
            ..finished()
        };
        world.router.done(world.now, routed.ticket.unwrap(), &ended);
        let prefill = halves(&routed).prefill.as_ref().unwrap();
        let one = Ended {
            generated: Some(Tokens(1)),
            ..finished()
        };
        world.router.done(world.now, prefill.ticket.unwrap(), &one);
        world.router.settle(world.now, prefill.hold.unwrap(), Fate::HandedOver);
    }
    let routed = world.go(apart("last", 99, 10));
    let state = world.router.state(world.now);
    let claimed = state.ranks[1].load.claimed_blocks();
    assert!(
        claimed >= 11 + 60,
        "a thousand tokens are expected, {claimed} blocks are claimed"
    );
    end(&world, &routed);
}

/// A request from its beginning to its end, as a driver does it.
#[test]
fn a_handoff_and_a_router_need_nothing_but_a_driver() {
    let world = fleet(2, 2, &always());
    let mut out = Vec::new();
    let mut handoff = Handoff::begin(HandoffSettings::default(), PoolPhase::Active, &mut out);
    let mut booked: Vec<Routed> = Vec::new();
    let mut outcome = None;
    while let Some(command) = (!out.is_empty()).then(|| out.remove(0)) {
        let input = match command {
            Command::Choose { turn, need, tried } => {
                let asked = with(apart("a", 1, 200), |apart| {
                    apart.need = need;
                    apart.tried = tried;
                });
                let routed = world.go(asked);
                let choice = routed.choice(need, 5);
                booked.push(routed);
                Some(Input::Chosen { turn, choice })
            }
            Command::StartPrefill { leg, .. } => {
                let staged = Staged {
                    blocks: Blocks(201),
                    expires: None,
                };
                let hold = halves(&booked[0]).prefill.as_ref().unwrap().hold.unwrap();
                world.router.staged(hold, &staged);
                let result = Prefilled::Staged(staged);
                Some(Input::PrefillDone { leg, result })
            }
            Command::StartDecode { leg, rank, .. } => {
                let hold = halves(&booked[0]).prefill.as_ref().unwrap().hold.unwrap();
                world.router.moving(hold, rank);
                Some(Input::DecodeDone { leg })
            }
            Command::EndSeat { seat, end } => {
                let ticket = match seat.side {
                    Side::Decode => booked[0].ticket,
                    Side::Prefill => halves(&booked[0]).prefill.as_ref().unwrap().ticket,
                };
                let ended = Ended { end, ..finished() };
                world.router.done(world.now, ticket.unwrap(), &ended);
                None
            }
            Command::Settle { fate, .. } => {
                let hold = halves(&booked[0]).prefill.as_ref().unwrap().hold.unwrap();
                world.router.settle(world.now, hold, fate);
                None
            }
            Command::Finish(told) => {
                outcome = Some(told);
                None
            }
            Command::Withdraw { .. } | Command::Cancel { .. } => None,
        };
        if let Some(input) = input {
            handoff.on(world.now, input, &mut out);
        }
    }
    assert_eq!((outcome, handoff.is_over()), (Some(Outcome::Served), true));
    assert!(at_rest(&world));
    assert_eq!(world.router.state(world.now).staged.handed_over, 1);
}

#[test]
fn a_rank_that_goes_takes_what_was_staged_there() {
    let world = fleet(2, 1, &always());
    let routed = world.go(apart("a", 1, 100));
    let prefill = RankId::new(workers(&routed).0.unwrap(), 0);
    world.router.rank_gone(world.now, prefill);
    assert_eq!(world.router.state(world.now).staged_blocks, 0);
    world.done(routed.ticket.unwrap());
    assert!(at_rest(&world));
    let next = world.go(apart("b", 1, 100));
    assert_ne!(workers(&next).0, Some(prefill.worker.0));
}

/// A pool with blocks of another size, in a router of its own.
fn pool(size: u32, roles: &[(u32, Role)]) -> Router {
    let hasher = crate::world::hasher();
    let index = homing_index::Index::new(homing_index::IndexConfig::new(hasher));
    let mut config = RouterConfig::new(BlockSize::new(size).expect("not zero"), hasher);
    config.apart.choose.whether = Whether::Always;
    let router = Router::new(&config, by_name("time").expect("there is one"), index.reader());
    for (worker, role) in roles {
        let mut new = new_rank(*worker, CacheView::Nothing);
        new.facts.role = *role;
        router.rank_up(Time::ZERO, new).expect("there is room");
    }
    router
}

#[test]
fn pools_with_blocks_of_different_sizes_are_two_routers_and_one_choice() {
    let prefill = pool(16, &[(0, Role::Prefill), (1, Role::Prefill)]);
    let decode = pool(64, &[(2, Role::Decode), (3, Role::Decode)]);
    let across = Across {
        prefill: &prefill,
        decode: &decode,
    };
    let now = Time::from_millis(1.0);
    let short = question("a", 1, 100);
    let mut long = apart("a", 1, 100);
    long.keys = keys(2, 25);
    let asked = TwoKeyed {
        prefill: &short,
        decode: &long,
    };
    let would = across.consider(now, asked).unwrap();
    assert!(
        prefill.state(now).at_rest && decode.state(now).at_rest,
        "nothing is booked"
    );
    let routed = across.ask(now, asked).unwrap();
    assert_eq!(workers(&routed), workers(&would));
    let half = halves(&routed).prefill.as_ref().unwrap();
    assert!(half.decision.chosen.rank.worker.0 < 2 && routed.decision.chosen.rank.worker.0 >= 2);
    assert_eq!(
        (prefill.state(now).staged_blocks, decode.state(now).staged_blocks),
        (101, 0)
    );
    assert_eq!((prefill.state(now).booked, decode.state(now).booked), (1, 1));

    let again = across.ask(now, asked).unwrap_err();
    assert!(matches!(again, Turned::Unbookable(_)), "{again}");
    assert_eq!(
        (prefill.state(now).booked, decode.state(now).booked),
        (1, 1),
        "nothing is booked by halves"
    );

    prefill.done(now, half.ticket.unwrap(), &finished());
    prefill.settle(now, half.hold.unwrap(), Fate::HandedOver);
    decode.done(now, routed.ticket.unwrap(), &finished());
    assert!(prefill.state(now).at_rest && decode.state(now).at_rest && prefill.state(now).staged_blocks == 0);
}

#[test]
fn where_the_prompt_cannot_be_booked_in_one_router_the_place_in_the_other_is_given_back() {
    let (prefill, decode) = (pool(16, &[(0, Role::Prefill)]), pool(64, &[(2, Role::Decode)]));
    let across = Across {
        prefill: &prefill,
        decode: &decode,
    };
    let now = Time::from_millis(1.0);
    let Verdict::Go(first) = prefill.ask(now, question_for_prefill("a/prefill")) else {
        panic!("it goes");
    };
    let (short, long) = (question("a", 1, 100), apart("a", 1, 100));
    let asked = TwoKeyed {
        prefill: &short,
        decode: &long,
    };
    assert!(across.ask(now, asked).is_err());
    assert!(decode.state(now).at_rest);
    prefill.done(now, first.ticket.unwrap(), &finished());
    assert!(prefill.state(now).at_rest);
}
