use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homing_domain::BlockSize;

use super::*;
use crate::analyse::Summary;
use crate::transform::{Traffic, merge};

const POISSON: Arrivals = Arrivals::Poisson { per_second: 5.0 };

fn requests(kind: Kind, count: usize) -> Vec<Request> {
    let traffic = Workload::new(7, POISSON, kind).requests().unwrap();
    traffic.take(count).map(|request| request.unwrap()).collect()
}

/// A tenant and an adapter.
type Who = (String, Option<AdapterName>);

fn kinds() -> [Kind; 4] {
    [
        Kind::Sessions(Sessions::chat()),
        Kind::Sessions(Sessions::agents()),
        Kind::Documents(Documents::default()),
        Kind::Unrelated {
            prompt: Length::about(500),
            answer: Length::about(100),
        },
    ]
}

#[test]
fn equal_workloads_give_equal_requests_in_order() {
    for kind in kinds() {
        let all = requests(kind, 2_000);
        assert_eq!(all, requests(kind, 2_000));
        assert!(all.is_sorted_by_key(|request| request.arrival.earliest()));
        let other = Workload::new(8, POISSON, kind).requests().unwrap();
        assert_ne!(
            all[..5],
            other.take(5).map(|request| request.unwrap()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn kinds_share_as_much_as_they_are_meant_to() {
    let block = BlockSize::new(16).unwrap();
    for (kind, share) in kinds().into_iter().zip([0.7..0.97, 0.9..0.995, 0.25..0.6, 0.0..0.001]) {
        let traffic = Workload::new(1, POISSON, kind).requests().unwrap().take(5_000);
        let summary = Summary::of(traffic, block, |_| Millis::ZERO).unwrap();
        assert!(
            share.contains(&summary.cached_share()),
            "{kind:?}: {}",
            summary.cached_share()
        );
    }
}

#[test]
fn a_session_has_one_client_and_one_adapter_and_shares_are_kept() {
    let share = |weight, name: &str| Share {
        weight,
        what: Client {
            tenant: Some(Arc::from(name)),
            ..Client::default()
        },
    };
    let workload = Workload {
        clients: vec![share(3, "large"), share(1, "small"), share(0, "none")],
        adapters: vec![
            Share { weight: 1, what: None },
            Share {
                weight: 1,
                what: Some(AdapterName::new("a")),
            },
        ],
        deadline: Some(Millis(500.0)),
        ..Workload::new(3, POISSON, Kind::Sessions(Sessions::chat()))
    };
    let mut sessions: BTreeMap<SessionId, BTreeSet<Who>> = BTreeMap::new();
    for request in workload.requests().unwrap().take(20_000) {
        let request = request.unwrap();
        assert_eq!(request.deadline, Some(Millis(500.0)));
        let tenant = request.client.tenant.unwrap().to_string();
        let who = sessions.entry(request.session.unwrap()).or_default();
        who.insert((tenant, request.adapter));
    }
    assert!(sessions.values().all(|who| who.len() == 1));
    let count = |test: &dyn Fn(&Who) -> bool| {
        sessions.values().filter(|who| who.iter().any(test)).count() as f64 / sessions.len() as f64
    };
    assert!((0.7..0.8).contains(&count(&|who| who.0 == "large")));
    assert!((0.2..0.3).contains(&count(&|who| who.0 == "small")));
    assert!((0.45..0.55).contains(&count(&|who| who.1.is_some())));
}

#[test]
fn a_session_ends_before_it_is_longer_than_a_model_can_read() {
    let sessions = Sessions {
        context: 20_000,
        ..Sessions::agents()
    };
    let mut lengths: BTreeMap<SessionId, (u32, u32)> = BTreeMap::new();
    let workload = Workload::new(3, POISSON, Kind::Sessions(sessions));
    for request in workload.requests().unwrap().take(5_000) {
        let request = request.unwrap();
        let (turns, tokens) = lengths.entry(request.session.unwrap()).or_default();
        *turns += 1;
        *tokens += request.prompt.new_tokens().0 + request.output.0;
    }
    let too_long = |(turns, tokens): &(u32, u32)| *turns > 1 && *tokens > 20_000;
    assert!(!lengths.values().any(too_long));
    assert!(
        lengths.values().any(|(_, tokens)| *tokens > 18_000),
        "some come near it"
    );
}

#[test]
fn traces_that_are_merged_are_ordered_and_share_nothing() {
    let kind = Kind::Documents(Documents::default());
    let traffic = || Workload::new(5, POISSON, kind).requests().unwrap().take(500);
    let both: Vec<Request> = merge([traffic(), traffic()]).map(|request| request.unwrap()).collect();
    assert_eq!(both.len(), 1_000);
    assert!(both.is_sorted_by_key(|request| request.arrival.earliest()));
    let block = BlockSize::new(16).unwrap();
    let one = Summary::of(traffic(), block, |_| Millis::ZERO).unwrap();
    let two = Summary::of(both.into_iter().map(Ok), block, |_| Millis::ZERO).unwrap();
    assert_eq!(two.cached_tokens, 2 * one.cached_tokens);
    assert_eq!(two.prompt_tokens, 2 * one.prompt_tokens);
}

#[test]
fn what_is_impossible_is_refused() {
    for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let workload = Workload::new(1, Arrivals::Poisson { per_second }, kinds()[0]);
        assert_eq!(workload.requests().unwrap_err().name, "per_second");
    }
}

#[test]
fn a_slice_of_time_is_finite() {
    use crate::transform::Window;
    let window = Window::Time(Time::from_millis(10_000.0), Time::from_millis(20_000.0));
    let traffic = Workload::new(1, POISSON, kinds()[2]).requests().unwrap().sliced(window);
    assert!((20..100).contains(&traffic.count()));
}
