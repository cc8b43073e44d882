//! Does the load equal that of a naive model, whatever happens in whatever order?

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, BlockSize, HashSeed, KeyHasher, Prompt, RankId, RequestId, Tokens};
use homing_load::{Booking, End, Heard, Load, LoadConfig, LoadError, Place, PromptWork, RankSpec, Ticket};
use homing_profile::{Millis, Polynomial, Time, Timing};
use proptest::prelude::*;

const RANKS: u32 = 3;
const SIZE: u32 = 4;

#[derive(Clone, Debug)]
enum Op {
    Book {
        request: u8,
        place: u32,
        prompt: Vec<u8>,
        tail: u32,
        cached: u32,
        expected: u32,
        work: bool,
    },
    First(usize),
    Output(usize, u32),
    End(usize),
    Tick,
    Wait(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let book = (
        0..12_u8,
        0..RANKS + 1,
        prop::collection::vec(0..2_u8, 0..6),
        0..SIZE,
        0..30_u32,
        0..20_u32,
        any::<bool>(),
    );
    prop_oneof![
        4 => book.prop_map(|(request, place, prompt, tail, cached, expected, work)| Op::Book {
            request, place, prompt, tail, cached, expected, work
        }),
        3 => (0..40_usize).prop_map(Op::First),
        3 => ((0..40_usize), 0..40_u32).prop_map(|(of, tokens)| Op::Output(of, tokens)),
        4 => (0..40_usize).prop_map(Op::End),
        1 => Just(Op::Tick),
        1 => (0..1_000_u32).prop_map(Op::Wait),
    ]
}

/// One booking as the model sees it.
#[derive(Clone, Debug)]
struct Live {
    ticket: Ticket,
    request: u8,
    place: u32,
    prompt: u32,
    keys: Vec<BlockKey>,
    uncached: u32,
    generated: u32,
    decoding: bool,
}

fn block_size() -> BlockSize {
    BlockSize::new(SIZE).expect("not zero")
}

fn keys_of(prompt: &[u8]) -> Vec<BlockKey> {
    let tokens: Vec<u32> = prompt
        .iter()
        .flat_map(|block| [u32::from(*block); SIZE as usize])
        .collect();
    let mut keys = Vec::new();
    let size = block_size();
    KeyHasher::new(HashSeed::PUBLIC).keys(&Prompt::text(&tokens, size), &mut keys);
    keys
}

fn load() -> Load {
    let mut config = LoadConfig::new(block_size());
    config.lease = Millis(2_000.0);
    let mut load = Load::new(config);
    for worker in 0..RANKS {
        let spec = RankSpec::new(RankId::new(worker, 0), Timing::Polynomial(Polynomial::default()));
        assert_eq!(load.add_rank(spec, Time::ZERO), Ok(Place(worker)));
    }
    load
}

fn compare(load: &Load, live: &[Live]) {
    assert_eq!(load.live(), live.len());
    for place in 0..RANKS {
        let mine = || live.iter().filter(move |booking| booking.place == place);
        let rank = load.rank(Place(place)).expect("it was added");
        let waiting = || mine().filter(|booking| !booking.decoding);
        assert_eq!(rank.pending() as usize, waiting().count());
        assert_eq!(
            rank.pending_tokens(),
            waiting().map(|booking| u64::from(booking.uncached)).sum::<u64>()
        );
        let decoding = || mine().filter(|booking| booking.decoding);
        assert_eq!(rank.decoding() as usize, decoding().count());
        assert_eq!(
            rank.context(),
            decoding().map(|b| u64::from(b.prompt + b.generated)).sum::<u64>()
        );
        let shared: HashSet<BlockKey> = mine().flat_map(|b| b.keys.iter().copied()).collect();
        let own: u32 = mine().map(|b| b.prompt.div_ceil(SIZE) - b.keys.len() as u32).sum();
        assert_eq!(rank.prompt_blocks(), shared.len() as u64 + u64::from(own));
        let output = |b: &Live| u64::from((b.prompt + b.generated).div_ceil(SIZE) - b.prompt.div_ceil(SIZE));
        assert_eq!(rank.output_blocks(), mine().map(output).sum::<u64>());
        let fading = rank.fading_output_blocks();
        assert!((0.0..=rank.output_blocks() as f64).contains(&fading), "{fading}");
    }
}

fn compare_booked(load: &Load, live: &[Live]) {
    for prompt in [&[0, 1, 0, 1, 0][..], &[1, 1, 1, 1], &[0, 0, 0]] {
        let keys = keys_of(prompt);
        let mut told = BTreeMap::new();
        load.booked_blocks(&keys, |place, blocks, _| {
            told.insert(place.0, blocks);
        });
        let common = |booking: &Live| keys.iter().zip(&booking.keys).take_while(|(a, b)| a == b).count() as u32;
        let mut expected = BTreeMap::new();
        for booking in live.iter().filter(|booking| common(booking) > 0) {
            let most = expected.entry(booking.place).or_insert(0);
            *most = common(booking).max(*most);
        }
        assert_eq!(told, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sums_are_those_of_a_naive_model_and_return_to_zero(ops in prop::collection::vec(op(), 0..80)) {
        let mut load = load();
        let mut live: Vec<Live> = Vec::new();
        // Every ticket ever given, so that words about attempts which have ended are among the input.
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut now = Time::ZERO;
        for op in ops {
            let known = |of: usize, live: &[Live]| {
                let ticket = *tickets.get(of)?;
                Some((ticket, live.iter().position(|booking| booking.ticket == ticket)))
            };
            match op {
                Op::Book { request, place, prompt, tail, cached, expected, work } => {
                    let keys = keys_of(&prompt);
                    let length = keys.len() as u32 * SIZE + tail;
                    let booking = Booking {
                        id: RequestId::new(request.to_string()),
                        place: Place(place),
                        prompt: Tokens(length),
                        cached: Tokens(cached),
                        keys: Arc::from(keys.as_slice()),
                        expected_output: Tokens(expected),
                        adapter: (expected % 2 == 0).then(|| AdapterName::from("a")),
                        work: if work { PromptWork::Counts } else { PromptWork::None },
                    };
                    let id = booking.id.clone();
                    match load.book(booking, now) {
                        Err(LoadError::NoSuchPlace(_)) => prop_assert!(place == RANKS),
                        Err(error) => {
                            prop_assert!(live.iter().any(|booking| booking.request == request));
                            prop_assert_eq!(error, LoadError::LiveId(id));
                        }
                        Ok(ticket) => {
                            prop_assert!(place < RANKS && live.iter().all(|booking| booking.request != request));
                            prop_assert_eq!(load.find(&id), Some(ticket));
                            tickets.push(ticket);
                            let uncached = if work { length - cached.min(length) } else { 0 };
                            live.push(Live { ticket, request, place, prompt: length, keys, uncached, generated: 0, decoding: false });
                        }
                    }
                }
                Op::First(of) => if let Some((ticket, at)) = known(of, &live) {
                    let heard = load.prefill_done(ticket, now);
                    match at {
                        None => prop_assert_eq!(heard, Heard::Stranger),
                        Some(at) => {
                            prop_assert_eq!(heard == Heard::News, !live[at].decoding);
                            live[at].decoding = true;
                        }
                    }
                },
                Op::Output(of, tokens) => if let Some((ticket, at)) = known(of, &live) {
                    let heard = load.output(ticket, Tokens(tokens), now);
                    match at {
                        None => prop_assert_eq!(heard, Heard::Stranger),
                        Some(at) => {
                            live[at].decoding |= tokens > 0;
                            live[at].generated = live[at].generated.max(tokens);
                        }
                    }
                },
                Op::End(of) => if let Some((ticket, at)) = known(of, &live) {
                    let heard = load.end(ticket, End::Finished, now);
                    prop_assert_eq!(heard == Heard::News, at.is_some());
                    at.map(|at| live.remove(at));
                },
                Op::Tick => {
                    let gone: BTreeSet<String> = load.tick(now).iter().map(|(id, _)| id.to_string()).collect();
                    live.retain(|booking| !gone.contains(&booking.request.to_string()));
                }
                Op::Wait(millis) => now = now + Millis(f64::from(millis)),
            }
            compare(&load, &live);
            compare_booked(&load, &live);
        }
        for booking in live {
            load.end(booking.ticket, End::Cancelled, now);
        }
        prop_assert!(load.is_at_rest(), "{load:?}");
    }

    #[test]
    fn a_rank_that_goes_takes_its_bookings_with_it(places in prop::collection::vec(0..RANKS, 0..20)) {
        let mut load = load();
        for (at, place) in places.iter().enumerate() {
            load.book(simple(&at.to_string(), *place), Time::ZERO).unwrap();
        }
        for place in 0..RANKS {
            let mine = places.iter().filter(|booked| **booked == place).count();
            prop_assert_eq!(load.remove_rank(Place(place), Time::ZERO).len(), mine);
            prop_assert!(load.rank(Place(place)).is_none());
        }
        prop_assert!(load.is_at_rest());
    }
}

fn simple(id: &str, place: u32) -> Booking {
    Booking {
        id: RequestId::from(id),
        place: Place(place),
        prompt: Tokens(1_000),
        cached: Tokens(0),
        keys: Arc::from(keys_of(&[0, 1, 0])),
        expected_output: Tokens(10),
        adapter: None,
        work: PromptWork::Counts,
    }
}

#[test]
fn a_late_end_frees_only_its_own_attempt() {
    let mut load = load();
    let first = load.book(simple("r", 0), Time::ZERO).unwrap();
    assert_eq!(load.end(first, End::Failed, Time::ZERO), Heard::News);
    let second = load.book(simple("r", 1), Time::ZERO).unwrap();
    assert_eq!(load.end(first, End::Failed, Time::ZERO), Heard::Stranger);
    assert_eq!(load.prefill_done(first, Time::ZERO), Heard::Stranger);
    assert_eq!(load.rank(Place(1)).unwrap().pending(), 1);
    assert_eq!(load.end(second, End::Finished, Time::ZERO), Heard::News);
    assert!(load.is_at_rest());
    assert_eq!(load.counters().strangers, 2);
}

#[test]
fn a_head_runs_down_those_behind_it_do_not_and_an_overdue_one_is_suspect() {
    use homing_load::Standing;
    let mut load = load();
    let ahead = |load: &Load, millis| {
        let rank = load.rank(Place(0)).unwrap();
        rank.backlog(Time::from_millis(millis)).0
    };
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-3 * other, "{one} {other}");
    load.book(simple("a", 0), Time::ZERO).unwrap();
    load.book(simple("b", 0), Time::ZERO).unwrap();
    let whole = load.rank(Place(0)).unwrap().backlog(Time::ZERO).0 / 2.0;
    near(ahead(&load, whole / 2.0), 1.5 * whole);
    near(ahead(&load, whole * 2.0), whole);
    let rank = load.rank(Place(0)).unwrap();
    assert_eq!(rank.standing(Time::from_millis(whole * 2.0)), Standing::Well);
    let late = Time::from_millis(whole * 3.0 + 251.0);
    assert_eq!(rank.standing(late), Standing::Suspect);
    near(rank.backlog(late).0, 2.0 * whole);
}

#[test]
fn a_lease_ends_when_nothing_is_heard_and_not_before() {
    let mut load = load();
    let at = Time::from_millis;
    let kept = load.book(simple("kept", 0), at(0.0)).unwrap();
    load.book(simple("lost", 0), at(0.0)).unwrap();
    load.touch(kept, at(1_500.0));
    assert_eq!(load.tick(at(1_999.0)), []);
    let lapsed = load.tick(at(2_000.0));
    assert_eq!(lapsed.len(), 1);
    assert_eq!(lapsed[0].0, RequestId::from("lost"));
    assert_eq!((load.live(), load.counters().expired), (1, 1));
}

#[test]
fn a_rank_that_is_slower_than_its_profile_is_learnt_and_shared_by_new_ones() {
    let mut load = load();
    let mut now = Time::ZERO;
    for round in 0..40 {
        for place in 0..RANKS {
            let ticket = load.book(simple(&format!("{round}/{place}"), place), now).unwrap();
            let profile = Timing::Polynomial(Polynomial::default()).prefill(Tokens(1_000), Tokens(0));
            load.prefill_done(ticket, now + profile * 1.5);
            load.end(ticket, End::Finished, now + profile * 2.0);
        }
        now = now + Millis(500.0);
        load.tick(now);
    }
    let factor = load.rank(Place(0)).unwrap().factor();
    assert!((factor - 1.5).abs() < 0.1, "{factor}");
    let spec = RankSpec::new(RankId::new(9, 0), Timing::Polynomial(Polynomial::default()));
    let new = load.add_rank(spec, now).unwrap();
    let rank = load.rank(new).unwrap();
    assert!(
        (rank.factor() - 1.5).abs() < 0.1 && !rank.is_verified(),
        "{}",
        rank.factor()
    );
}

#[test]
fn room_is_waited_for_where_there_is_none() {
    let mut load = Load::new(LoadConfig::new(block_size()));
    let mut spec = RankSpec::new(RankId::new(0, 0), Timing::Polynomial(Polynomial::default()));
    spec.capacity = Some(300);
    spec.max_sequences = Some(2);
    let place = load.add_rank(spec, Time::ZERO).unwrap();
    assert_eq!(load.rank(place).unwrap().space_wait(300), Millis::ZERO);
    assert_eq!(
        load.rank(place).unwrap().space_wait(301),
        Millis::ZERO,
        "there will never be more room"
    );
    load.book(simple("a", 0), Time::ZERO).unwrap();
    assert!(load.rank(place).unwrap().space_wait(301).0 > 0.0);
    let rank = load.rank(place).unwrap();
    let (three, one) = (rank.space_wait(50), rank.space_wait(48));
    assert!(
        (three.0 - 3.0 * one.0).abs() < 1e-9,
        "its output is expected to need three"
    );
    assert_eq!(rank.space_wait(47), Millis::ZERO);
    load.book(simple("b", 0), Time::ZERO).unwrap();
    assert!(load.rank(place).unwrap().space_wait(0).0 > 0.0, "no third sequence");
}

#[test]
fn bounds_are_kept_and_said() {
    let mut config = LoadConfig::new(block_size());
    (config.max_bookings, config.max_ranks) = (1, 1);
    let mut load = Load::new(config);
    let spec = |worker| RankSpec::new(RankId::new(worker, 0), Timing::Polynomial(Polynomial::default()));
    load.add_rank(spec(0), Time::ZERO).unwrap();
    assert_eq!(
        load.add_rank(spec(0), Time::ZERO),
        Err(LoadError::KnownRank(RankId::new(0, 0)))
    );
    let full = load.add_rank(spec(1), Time::ZERO).unwrap_err();
    assert_eq!(full.to_string(), "ranks: there are 1 already, which is the limit");
    load.book(simple("a", 0), Time::ZERO).unwrap();
    let full = load.book(simple("b", 0), Time::ZERO).unwrap_err();
    assert_eq!(full.to_string(), "bookings: there are 1 already, which is the limit");
}
