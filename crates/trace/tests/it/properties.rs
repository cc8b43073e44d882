//! What stays true of every trace, whatever is done to it?

use std::sync::Arc;
use std::time::Duration;

use homing_domain::{AdapterName, BlockKey, BlockSize, Tokens};
use homing_profile::{Millis, Time};
use homing_trace::analyse::{Accesses, Summary};
use homing_trace::generate::{Kind, Length, Sessions};
use homing_trace::{
    Answer, Arrival, Arrivals, Client, ContentId, Conversations, Factor, LogRecord, Prompt, ReadOptions, Reader,
    Request, Segment, SessionId, Shift, Spelling, TraceError, Traffic, Window, Workload, repeat, superpose,
};
use proptest::prelude::*;

type Trace = Vec<Request>;

/// Requests with few contents, so that they share; some in sessions that extend their answers.
fn traces() -> impl Strategy<Value = Trace> {
    let segments = prop::collection::vec((0..4_u64, 1..30_u32), 1..6);
    let request = (0..50_u64, segments, 0..20_u32, prop::option::of(0..4_u64));
    prop::collection::vec(request, 1..40).prop_map(|requests| {
        let mut now = 0;
        let mut begun = std::collections::BTreeSet::new();
        let built = requests.into_iter().map(|(gap, segments, output, session)| {
            now += gap * 1_000_000;
            let segment = |(content, length)| Segment {
                content: ContentId(content),
                length: Tokens(length),
            };
            let segments: Vec<Segment> = segments.into_iter().map(segment).collect();
            let goes_on = session.is_some_and(|session| !begun.insert(session));
            let (prompt, arrival) = if goes_on {
                let think = Millis(7.0);
                (
                    Prompt::continued(segments),
                    Arrival::Follows {
                        earliest: Time(now),
                        think,
                    },
                )
            } else {
                (Prompt::fresh(segments), Arrival::At(Time(now)))
            };
            Request {
                arrival,
                session: session.map(SessionId::numbered),
                ..Request::at(Time::ZERO, prompt, Tokens(output))
            }
        });
        built.collect()
    })
}

fn opened(trace: &Trace) -> impl Traffic + use<'_> {
    trace.iter().cloned().map(Ok)
}

fn all(traffic: impl Traffic) -> Trace {
    traffic.map(|request| request.expect("it is right")).collect()
}

/// The whole prompts, with answers that stand in.
fn spelled(trace: &Trace) -> Vec<Vec<u32>> {
    let mut open = Conversations::new(1_000);
    let spell = |request: &Request| {
        let text = open.text(request).expect("what it extends stands before it");
        let mut tokens = Vec::new();
        text.tokens_into(&Spelling::default(), &mut tokens);
        if let Some(session) = request.session {
            open.answered(session, text, Answer::StandIn(request.output));
        }
        tokens
    };
    trace.iter().map(spell).collect()
}

fn is_ordered(trace: &Trace) -> bool {
    trace.is_sorted_by_key(|request| request.arrival.earliest())
}

fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn factor(value: f64) -> Factor {
    Factor::new(value).expect("above 0")
}

/// The same with contents that have always the same length, where they are not the last of a prompt.
fn cut_alike(request: Result<Request, TraceError>) -> Result<Request, TraceError> {
    request.map(|mut request| {
        let last = request.prompt.segments.len().saturating_sub(1);
        let mut segments = request.prompt.segments.to_vec();
        for segment in &mut segments[..last] {
            segment.length = Tokens(5 + 7 * segment.content.0 as u32);
        }
        for segment in &mut segments[last..] {
            segment.length = Tokens(segment.length.0.min(5 + 7 * segment.content.0 as u32));
        }
        request.prompt.segments = segments.into();
        request
    })
}

fn records() -> impl Strategy<Value = LogRecord> {
    let name = || prop::option::of("\\PC{1,20}");
    let micros = || prop::option::of(0..1_000_000_000_u64);
    let lengths = (0..2_000_000_000_000_000_u64, 1..5_000_u32, 0..5_000_u32, 1..600_u32);
    let who = (name(), name(), name(), any::<i32>(), name());
    let times = (micros(), micros(), micros(), prop::option::of(0..5_000_u32));
    (lengths, who, times, any::<u64>(), 0..=1_u32).prop_map(|(lengths, who, times, key, some)| {
        let (at, prompt, output, block) = lengths;
        let owned = |name: Option<String>| name.map(|name| Arc::from(name.as_str()));
        let after = |micros: Option<u64>| micros.map(Duration::from_micros);
        LogRecord {
            at: Duration::from_micros(at),
            prompt: Tokens(prompt),
            output: Tokens(output),
            block: BlockSize::new(block).expect("not zero"),
            keys: (0..u64::from(some * (prompt / block)))
                .map(|n| BlockKey(key.wrapping_mul(n + 1)))
                .collect(),
            session: owned(who.0),
            client: Client {
                tenant: owned(who.1),
                class: owned(who.2),
                priority: who.3,
            },
            adapter: who.4.map(AdapterName::new),
            deadline: after(times.0),
            first_token: after(times.1),
            took: after(times.2),
            cached: times.3.map(Tokens),
        }
    })
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in records()) {
        let line = record.encode();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(LogRecord::decode(line.as_bytes()).unwrap(), record);
    }

    #[test]
    fn speeding_up_keeps_order_and_texts(trace in traces(), by in 0.1..10.0_f64) {
        let fast = all(opened(&trace).sped_up(factor(by)));
        prop_assert!(is_ordered(&fast));
        prop_assert_eq!(spelled(&fast), spelled(&trace));
        let (slow, quick) = (trace.last().unwrap(), fast.last().unwrap());
        let expected = slow.arrival.earliest().millis() / by;
        prop_assert!((quick.arrival.earliest().millis() - expected).abs() < 1e-3);
    }

    #[test]
    fn a_slice_begins_at_nothing_and_extends_only_what_is_in_it(trace in traces(), from in 0..2_000_u64, length in 0..2_000_u64) {
        let window = Window::Time(Time(from * 1_000_000), Time((from + length) * 1_000_000));
        let slice = all(opened(&trace).sliced(window));
        prop_assert!(is_ordered(&slice));
        prop_assert!(slice.iter().all(|request| request.arrival.earliest() < Time(length * 1_000_000)));
        spelled(&slice);
        // Nothing that begins anew is missing.
        let fresh = |trace: &Trace| trace.iter().filter(|request| request.continues().is_none()).count();
        let within = trace.iter().filter(|request| {
            (from * 1_000_000..(from + length) * 1_000_000).contains(&request.arrival.earliest().0)
        });
        prop_assert_eq!(fresh(&slice), fresh(&within.cloned().collect()));

        let counted = all(opened(&trace).sliced(Window::Count { skip: 3, take: length }));
        prop_assert!(counted.len() as u64 <= length && is_ordered(&counted));
        spelled(&counted);
    }

    #[test]
    fn scaled_prompts_share_as_many_times_as_much(trace in traces(), by in 0.3..4.0_f64) {
        let trace = all(opened(&trace).map(cut_alike));
        let scaled = all(opened(&trace).scaled(factor(by), factor(by)));
        let whole = |trace: &Trace| {
            let fresh: Trace = trace.iter().filter(|request| request.continues().is_none()).cloned().collect();
            spelled(&fresh)
        };
        let (before, after) = (whole(&trace), whole(&scaled));
        for (a, scaled_a) in before.iter().zip(&after) {
            // At most six segments, of which each may have a token more.
            let longer = scaled_a.len() as f64 - (a.len() as f64 * by).round();
            prop_assert!((0.0..=6.0).contains(&longer), "{}", longer);
            for (b, scaled_b) in before.iter().zip(&after) {
                let expected = shared(a, b) as f64 * by;
                // Ends are rounded; a token that is equal by chance is possible.
                prop_assert!((shared(scaled_a, scaled_b) as f64 - expected).abs() <= 8.0 + by);
                prop_assert_eq!(shared(a, b) == 0, shared(scaled_a, scaled_b) == 0);
            }
        }
    }

    #[test]
    fn copies_have_the_same_requests_each_and_share_nothing(trace in traces(), copies in 1..5_u32, ahead: bool) {
        let shift = if ahead { Shift::Ahead(Millis(13.0)) } else { Shift::Around(Millis(1_000.0)) };
        let open = || Ok::<_, TraceError>(opened(&trace));
        let many = all(superpose(copies, shift, open).unwrap());
        prop_assert!(is_ordered(&many));
        prop_assert_eq!(many.len(), trace.len() * copies as usize);
        check_copies(&trace, &many, copies as usize);

        let again = all(repeat(u64::from(copies), Millis(5.0), open));
        prop_assert!(is_ordered(&again));
        prop_assert_eq!(again.len(), trace.len() * copies as usize);
        check_copies(&trace, &again, copies as usize);
        let second = again.get(trace.len()).map(|request| request.arrival.earliest());
        let (first, last) = (trace[0].arrival.earliest(), trace.last().unwrap().arrival.earliest());
        prop_assert!(second.is_none_or(|second| second == last + Millis(5.0) + first.since(Time::ZERO)));
    }

    #[test]
    fn copies_cache_as_well_as_one(trace in traces(), copies in 1..5_u32, period in 1..3_000_u64) {
        let size = BlockSize::new(4).expect("not zero");
        let open = || Ok::<_, TraceError>(opened(&trace));
        let many = superpose(copies, Shift::Ahead(Millis(period as f64)), open).unwrap();
        let one = Summary::of(opened(&trace), size, |_| Millis(1.0)).unwrap();
        let all = Summary::of(many, size, |_| Millis(1.0)).unwrap();
        prop_assert_eq!(all.cached_tokens, one.cached_tokens * u64::from(copies));
        prop_assert_eq!(all.blocks, one.blocks * u64::from(copies));
        prop_assert_eq!(all.work, Millis(one.work.0 * f64::from(copies)));
    }

    #[test]
    fn without_a_limit_the_best_cache_forgets_nothing(trace in traces()) {
        let size = BlockSize::new(4).expect("not zero");
        let summary = Summary::of(opened(&trace), size, |_| Millis::ZERO).unwrap();
        let pooled = Accesses::of(opened(&trace), size).unwrap().pooled(u64::MAX);
        prop_assert_eq!(pooled.cached_tokens, summary.cached_tokens);
        prop_assert_eq!(pooled.cached.len() as u64, summary.requests);
        // A session that goes on finds all but its last block: its own answers are cached too.
        let nothing = Accesses::of(opened(&trace), size).unwrap().pooled(0);
        prop_assert_eq!(nothing.cached_tokens, 0);
    }
}

proptest! {
    /// As the share of a published trace is counted: ids that were there before, over all ids.
    #[test]
    fn of_a_file_with_ids_as_many_blocks_came_before_as_ids_did(
        requests in prop::collection::vec((prop::collection::vec(0..3_u64, 1..6), 1..=512_u32), 1..30),
    ) {
        let mut ids: std::collections::BTreeMap<Vec<u64>, usize> = std::collections::BTreeMap::new();
        let (mut file, mut before, mut all) = (String::new(), 0, 0);
        for (path, last) in requests {
            // A partial block has a length of its own by its id, as a block of a file has.
            let last = (last.wrapping_mul(path.len() as u32) % 7 + path[path.len() - 1] as u32) * 60 + 1;
            let last = if path.len() % 2 == 0 { 512 } else { last.min(511) };
            let mut listed = Vec::new();
            for length in 1..=path.len() {
                let mut prefix = path[..length].to_vec();
                if length == path.len() {
                    prefix.push(u64::from(last) << 8);
                }
                let fresh = ids.len();
                let known = ids.contains_key(&prefix);
                before += u64::from(known);
                listed.push(*ids.entry(prefix).or_insert(fresh));
            }
            all += listed.len() as u64;
            let input = (listed.len() as u32 - 1) * 512 + last;
            let line = format!("{{\"timestamp\":0,\"input_length\":{input},\"output_length\":1,\"hash_ids\":{listed:?}}}\n");
            file.push_str(&line);
        }
        let reader = Reader::open(file.as_bytes(), ReadOptions::new("file")).unwrap();
        let size = BlockSize::new(512).expect("not zero");
        let summary = Summary::of(reader, size, |_| Millis::ZERO).unwrap();
        prop_assert_eq!((summary.cached_blocks, summary.blocks), (before, all));
    }
}

/// Every copy has each request of the trace once, and no prompt of one begins like a prompt of another.
fn check_copies(trace: &Trace, many: &Trace, copies: usize) {
    let mut numbers: Vec<_> = many.iter().map(|request| request.prompt.copy).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), copies);
    let texts = spelled(many);
    for (copy, number) in numbers.iter().enumerate() {
        let of_copy = many.iter().filter(|request| request.prompt.copy == *number);
        let mut new: Vec<_> = of_copy
            .clone()
            .map(|request| request.prompt.segments.to_vec())
            .collect();
        let mut expected: Vec<_> = trace.iter().map(|request| request.prompt.segments.to_vec()).collect();
        new.sort_by_key(|segments| format!("{segments:?}"));
        expected.sort_by_key(|segments| format!("{segments:?}"));
        assert_eq!(new, expected, "copy {copy}");
        let sessions = of_copy.filter_map(|request| request.session);
        assert!(sessions.into_iter().all(|session| session.copy == *number));
    }
    for (a, text_a) in many.iter().zip(&texts) {
        for (b, text_b) in many.iter().zip(&texts) {
            if a.prompt.copy != b.prompt.copy {
                // A few tokens may be equal by chance, not a block.
                assert!(shared(text_a, text_b) < 4);
            }
        }
    }
}

#[test]
fn a_session_that_goes_on_finds_its_own_answers() {
    let sessions = Sessions {
        openings: 1,
        opening: Length::always(64),
        first: Length::always(16),
        next: Length::always(16),
        answer: Length::always(32),
        turns: Length::always(3),
        pause: Millis(10.0),
        context: 10_000,
    };
    let kind = Kind::Sessions(sessions);
    let traffic = Workload::new(1, Arrivals::Constant { per_second: 1.0 }, kind)
        .requests()
        .unwrap();
    let summary = Summary::of(traffic.take(3), BlockSize::new(16).unwrap(), |_| Millis::ZERO).unwrap();
    // Prompts of 80, 128 and 176 tokens. The second finds 80 and all of the answer but its last block, of which the last
    // token is not computed; so does the third.
    assert_eq!(summary.prompt_tokens, 384);
    assert_eq!(summary.cached_tokens, 96 + 144);
}
