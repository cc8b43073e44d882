//! Does each request come when it is due? A driver that answers every request after a fixed time, against a naive one.

use std::collections::BTreeMap;

use homing_domain::Tokens;
use homing_profile::{Millis, Time};
use homing_trace::generate::{Kind, Sessions};
use homing_trace::{Agenda, AgendaError, Arrival, Arrivals, Prompt, Request, SessionId, TraceError, Workload};
use proptest::prelude::*;

fn ms(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

/// A request of a session at a time; `Some` think time where it follows.
fn request(number: u32, session: Option<u64>, at: u64, think: Option<u64>) -> Request {
    let arrival = match think {
        None => Arrival::At(ms(at)),
        Some(think) => Arrival::Follows {
            earliest: ms(at),
            think: Millis(think as f64),
        },
    };
    Request {
        arrival,
        session: session.map(SessionId::numbered),
        // Its number, to tell it from others.
        ..Request::at(Time::ZERO, Prompt::fresh([]), Tokens(number))
    }
}

/// Drives an agenda; each request takes `took`. When each was given out, by number.
fn driven(trace: Vec<Request>, took: u64) -> BTreeMap<u32, Time> {
    let mut agenda = Agenda::new(trace.into_iter().map(Ok), 1_000);
    let (mut given, mut running) = (BTreeMap::new(), Vec::new());
    let mut last = Time::ZERO;
    loop {
        running.sort_by_key(|(end, session): &(Time, SessionId)| (*end, *session));
        let due = agenda.due().expect("the trace is right");
        let first_end = running.first().copied();
        match (due, first_end) {
            (None, None) => return given,
            // What ends may bring something that is due before all else.
            (due, Some((end, session))) if due.is_none_or(|due| end <= due) => {
                running.remove(0);
                agenda.ended(session, end);
            }
            _ => {
                let (at, request) = agenda.pop().expect("the trace is right").expect("it is due");
                assert_eq!(Some(at), due);
                assert!(at >= last, "times never decrease");
                last = at;
                assert_eq!(given.insert(request.output.0, at), None, "no request twice");
                running.extend(request.session.map(|session| (at + Millis(took as f64), session)));
            }
        }
    }
}

type Row = (u64, Option<u64>, Option<u64>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec(
        (0..40_u64, prop::option::of(0..4_u64), prop::option::of(0..50_u64)),
        0..40,
    )
}

proptest! {
    #[test]
    fn requests_come_at_their_time_and_after_those_that_they_follow(rows in rows(), took in 0..60_u64) {
        let mut trace = Vec::new();
        let mut expected = BTreeMap::new();
        // Per session, when all that was read so far has ended.
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut now = 0;
        for (number, (gap, session, think)) in (0..).zip(rows) {
            now += gap;
            // Only the first request of a session comes by itself.
            let think = session.and_then(|session| ends.contains_key(&session).then(|| think.unwrap_or(0)));
            trace.push(request(number, session, now, think));
            let before = session.and_then(|session| ends.get(&session).copied());
            let at = before.map_or(now, |end| now.max(end + think.unwrap_or(0)));
            expected.insert(number, ms(at));
            if let Some(session) = session {
                ends.insert(session, at + took);
            }
        }
        prop_assert_eq!(driven(trace, took), expected);
    }
}

#[test]
fn a_trace_that_is_wrong_is_told_and_goes_on() {
    let error = TraceError {
        label: "file".into(),
        line: 2,
        problem: homing_trace::Problem::Quote,
    };
    let trace = vec![
        Ok(request(0, None, 1, None)),
        Err(error.clone()),
        Ok(request(1, None, 2, None)),
    ];
    let mut agenda = Agenda::new(trace.into_iter(), 1);
    // What is behind the first request is looked at before that is given out.
    assert_eq!(agenda.pop(), Err(AgendaError::Trace(error)));
    assert_eq!(agenda.pop().unwrap().unwrap().0, ms(1));
    assert_eq!(agenda.pop().unwrap().unwrap().0, ms(2));
    assert_eq!(agenda.pop(), Ok(None));
}

#[test]
fn no_more_wait_than_may() {
    let session = Some(1);
    let trace = (0..4).map(|number| Ok(request(number, session, 0, (number > 0).then_some(5))));
    let mut agenda = Agenda::new(trace, 2);
    assert_eq!(agenda.due(), Err(AgendaError::TooManyWait { limit: 2 }));
    assert_eq!(agenda.pop().unwrap().unwrap().0, ms(0));
    assert!(agenda.is_busy(SessionId::numbered(1)));
}

#[test]
fn generated_sessions_are_read_no_further_than_needed() {
    let kind = Kind::Sessions(Sessions::agents());
    let traffic = Workload::new(1, Arrivals::Constant { per_second: 1.0 }, kind);
    let mut agenda = Agenda::new(traffic.requests().unwrap(), 10_000);
    // Endless, and nothing ends: only first requests come.
    for second in 0..20 {
        let (at, request) = agenda.pop().unwrap().unwrap();
        assert_eq!(at, ms(second * 1_000));
        assert_eq!(request.continues(), None);
    }
}
