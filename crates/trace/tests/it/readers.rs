//! What do readers make of files? Each format by example, and everything that can be wrong with it.

use std::fmt::Write;

use homing_domain::{AdapterName, BlockSize, Tokens};
use homing_profile::{Millis, Time};
use homing_trace::{
    Arrival, Conversations, Format, LogSessions, ReadOptions, Reader, Request, Spelling, Start, TraceError,
};

fn options() -> ReadOptions {
    ReadOptions {
        block: BlockSize::new(4).expect("not zero"),
        window: 100,
        ..ReadOptions::new("file")
    }
}

fn read(text: &str) -> Vec<Result<Request, TraceError>> {
    Reader::open(text.as_bytes(), options()).expect("it is known").collect()
}

fn read_well(text: &str) -> Vec<Request> {
    read(text)
        .into_iter()
        .map(|request| request.expect("it is right"))
        .collect()
}

fn tokens(request: &Request) -> Vec<u32> {
    let mut tokens = Vec::new();
    let text = Conversations::new(1).text(request).expect("it continues nothing");
    text.tokens_into(&Spelling::default(), &mut tokens);
    tokens
}

fn ms(millis: f64) -> Time {
    Time::from_millis(millis)
}

#[test]
fn mooncake_blocks_become_tokens_that_share_prefixes() {
    let requests = read_well(
        "{\"timestamp\": 100, \"input_length\": 10, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n\
         {\"timestamp\": 130.5, \"input_length\": 8, \"output_length\": 0, \"hash_ids\": [0, 7]}\r\n\
         \n\
         {\"created_time\": 131, \"input_tokens\": 12, \"output_tokens\": 1, \"hash_ids\": [0, 1, 2], \"priority\": -3, \"x\": [1]}",
    );
    let arrivals: Vec<Arrival> = requests.iter().map(|request| request.arrival).collect();
    assert_eq!(
        arrivals,
        [Arrival::At(ms(0.0)), Arrival::At(ms(30.5)), Arrival::At(ms(31.0))]
    );
    let spelled: Vec<Vec<u32>> = requests.iter().map(tokens).collect();
    assert_eq!(spelled.iter().map(Vec::len).collect::<Vec<_>>(), [10, 8, 12]);
    assert_eq!(spelled[0][..4], spelled[1][..4]);
    assert_ne!(spelled[0][4..8], spelled[1][4..8]);
    assert_eq!(spelled[0][..], spelled[2][..10]);
    assert_eq!(requests[2].client.priority, -3);
    assert_eq!(
        requests.iter().map(|r| r.output).collect::<Vec<_>>(),
        [Tokens(5), Tokens(0), Tokens(1)]
    );
}

#[test]
fn turns_of_a_session_follow_each_other() {
    let requests = read_well(
        r#"{"session_id": "a", "timestamp": 10, "input_length": 6, "output_length": 5}
           {"session_id": "a", "delay": 250, "input_length": 3, "output_length": 5, "tenant": "t", "class": "c", "adapter": "l"}
           {"session_id": 17, "timestamp": 12, "input_length": 6, "output_length": 5, "deadline_ms": 40}
           {"session_id": "a", "timestamp": 900, "delay_ms": 1, "input_length": 0, "output_length": 5}
           {"timestamp": 20, "input_length": 6, "output_length": 5}"#,
    );
    let followed = |earliest: f64, think| Arrival::Follows {
        earliest: ms(earliest),
        think: Millis(think),
    };
    let arrivals: Vec<Arrival> = requests.iter().map(|request| request.arrival).collect();
    let expected = [
        Arrival::At(ms(0.0)),
        followed(0.0, 250.0),
        Arrival::At(ms(2.0)),
        Arrival::At(ms(10.0)),
        followed(890.0, 1.0),
    ];
    assert_eq!(arrivals, expected);
    let starts: Vec<Start> = requests.iter().map(|request| request.prompt.start).collect();
    assert_eq!(
        starts,
        [
            Start::Fresh,
            Start::Previous,
            Start::Fresh,
            Start::Fresh,
            Start::Previous
        ]
    );
    assert_eq!(requests[0].session, requests[1].session);
    assert_eq!(requests[0].session, requests[4].session);
    assert_ne!(requests[0].session, requests[2].session);
    assert_eq!(requests[3].session, None);
    assert_eq!(requests[1].client.tenant.as_deref(), Some("t"));
    assert_eq!(requests[1].client.class.as_deref(), Some("c"));
    assert_eq!(requests[1].adapter.as_ref().map(AdapterName::as_str), Some("l"));
    assert_eq!(requests[2].deadline, Some(Millis(40.0)));
}

#[test]
fn whole_prompts_in_sessions_extend_nothing_but_wait() {
    let requests = read_well(
        r#"{"session_id": "a", "timestamp": 10, "input_length": 4, "output_length": 5, "hash_ids": [1]}
           {"session_id": "a", "timestamp": 20, "input_length": 8, "output_length": 5, "hash_ids": [1, 2]}"#,
    );
    assert!(requests.iter().all(|request| request.prompt.start == Start::Fresh));
    let waits = Arrival::Follows {
        earliest: ms(10.0),
        think: Millis::ZERO,
    };
    assert_eq!(requests[1].arrival, waits);
}

#[test]
fn azure_has_times_and_lengths() {
    let requests = read_well(
        "\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
         2023-11-16 18:15:46.6805900,374,44\r\n\
         \"2023-11-16 18:15:50.9951690\",\"396\",109\r\n",
    );
    assert_eq!(requests[0].arrival, Arrival::At(ms(0.0)));
    assert_eq!(requests[1].arrival, Arrival::At(ms(4_314.579)));
    assert_eq!(requests[0].prompt.new_tokens(), Tokens(374));
    assert_eq!(requests[1].output, Tokens(109));
    assert_ne!(tokens(&requests[0])[..100], tokens(&requests[1])[..100]);
    let turned = read_well("x,generatedtokens,TIMESTAMP,ContextTokens\n,4,2024-05-10 00:00:00.009930+00:00,2");
    assert_eq!(
        (turned[0].output, turned[0].prompt.new_tokens()),
        (Tokens(4), Tokens(2))
    );
}

#[test]
fn a_log_is_written_when_requests_end_and_read_as_they_came() {
    let text = r#"{"homing":1,"at_us":5000,"prompt":9,"output":2,"block":4,"keys":"00000000000000aa00000000000000bb"}
                  {"homing":1,"at_us":2000,"prompt":7,"output":900,"block":4,"keys":"00000000000000AA","new_field":1}
                  {"homing":1,"at_us":6000,"prompt":7,"output":900,"block":4}"#;
    let requests = read_well(text);
    let arrivals: Vec<Arrival> = requests.iter().map(|request| request.arrival).collect();
    assert_eq!(
        arrivals,
        [Arrival::At(ms(0.0)), Arrival::At(ms(3.0)), Arrival::At(ms(4.0))]
    );
    let spelled: Vec<Vec<u32>> = requests.iter().map(tokens).collect();
    assert_eq!(spelled.iter().map(Vec::len).collect::<Vec<_>>(), [7, 9, 7]);
    assert_eq!(spelled[0][..4], spelled[1][..4]);
    assert_ne!(spelled[0][4..7], spelled[1][4..7]);
    assert_ne!(spelled[0][..4], spelled[2][..4]);
}

#[test]
fn sessions_of_a_log_can_be_replayed_in_a_closed_loop() {
    // The second extends the first and its answer; the third has another beginning; the fourth overlaps the third.
    let text = r#"{"homing":1,"session":"s","at_us":1000,"took_us":500,"prompt":9,"output":4,"block":4,"keys":"00000000000000aa00000000000000bb"}
{"homing":1,"session":"s","at_us":4500,"took_us":500,"prompt":20,"output":2,"block":4,"keys":"00000000000000aa00000000000000bb00000000000000cc00000000000000dd00000000000000ee"}
{"homing":1,"session":"s","at_us":6000,"took_us":500,"prompt":30,"output":2,"block":4,"keys":"0000000000000001"}
{"homing":1,"session":"s","at_us":6100,"took_us":500,"prompt":4,"output":2,"block":4}"#;
    let closed = ReadOptions {
        log_sessions: LogSessions::ClosedLoop,
        ..options()
    };
    let requests: Vec<Request> = Reader::open(text.as_bytes(), closed)
        .unwrap()
        .map(|r| r.unwrap())
        .collect();
    let after = |earliest: f64, think| Arrival::Follows {
        earliest: ms(earliest),
        think: Millis(think),
    };
    let arrivals: Vec<Arrival> = requests.iter().map(|request| request.arrival).collect();
    assert_eq!(
        arrivals,
        [
            Arrival::At(ms(0.0)),
            after(0.0, 3.0),
            after(3.5, 1.0),
            Arrival::At(ms(5.1))
        ]
    );
    assert_eq!(requests[1].prompt.start, Start::Previous);
    assert_eq!(requests[1].prompt.new_tokens(), Tokens(7));
    assert_eq!(requests[2].prompt.start, Start::Fresh);
    let open = read_well(text);
    assert!(open.iter().all(|request| matches!(request.arrival, Arrival::At(_))));
}

/// The lines are `first`, a blank one, `wrong` and `last`: all but `wrong` are right, and what is said of it begins so.
fn refused(first: &str, wrong: &str, last: &str, expected: &str) {
    let results = read(&format!("{first}\n\n{wrong}\n{last}\n"));
    let errors: Vec<String> = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors.len(), 1, "{wrong}: {errors:?}");
    assert!(errors[0].starts_with(&format!("file:3: {expected}")), "{}", errors[0]);
    let right = if first == CSV { 1 } else { 2 };
    assert_eq!(results.len() - 1, right, "{wrong}");
}

const MOONCAKE: &str = r#"{"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [0]}"#;
const TURN: &str = r#"{"session_id":"a","timestamp":0,"input_length":4,"output_length":1}"#;
const LOG: &str = r#"{"homing":1,"at_us":1,"prompt":4,"output":1,"block":4}"#;
const CSV: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

#[test]
fn what_is_wrong_with_a_line_is_said_and_reading_goes_on() {
    for (first, wrong, expected) in [
        (MOONCAKE, "{", "EOF while parsing an object at line 1 column 1"),
        (MOONCAKE, "[]", "expected an object, which begins with {"),
        (MOONCAKE, "{\u{1}", "key must be a string at line 1 column 2"),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "output_length": 1, "hash_ids": [0]}"#,
            "missing field `input_length` at line 1 column 53",
        ),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "input_length": 4, "output_length": 1}"#,
            "there is no hash_ids",
        ),
        (
            MOONCAKE,
            r#"{"input_length": 4, "output_length": 1, "hash_ids": [0]}"#,
            "there is no timestamp",
        ),
        (
            MOONCAKE,
            r#"{"timestamp": -1, "input_length": 4, "output_length": 1, "hash_ids": [0]}"#,
            r#"timestamp is "-1", expected milliseconds, not negative and below 1.6e13"#,
        ),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}"#,
            r#"input_length is "0", expected at least one token"#,
        ),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "input_length": 4, "output_length": 5000000, "hash_ids": [0]}"#,
            r#"output_length is "5000000", expected a whole number of tokens, at most 4194304"#,
        ),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [0]}"#,
            "1 blocks of 4 tokens do not fit a prompt of 9 tokens, which has 3: is the block size right?",
        ),
        (
            MOONCAKE,
            r#"{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [0, 1]}"#,
            "2 blocks of 4 tokens do not fit a prompt of 3 tokens, which has 1: is the block size right?",
        ),
        (
            TURN,
            r#"{"session_id":"a","delay":-3,"input_length":4,"output_length":1}"#,
            r#"delay is "-3", expected milliseconds, not negative and below 1.6e13"#,
        ),
    ] {
        refused(first, wrong, first, expected);
    }
}

#[test]
fn what_is_wrong_with_tables_and_logs_is_said_and_reading_goes_on() {
    for (first, wrong, expected) in [
        (CSV, "2024-05-10 00:00:00,1", "there are 2 columns, expected 3"),
        (CSV, "2024-05-10 00:00:00,1,\"2", "a quoted cell does not end"),
        (
            CSV,
            "yesterday,1,2",
            r#"TIMESTAMP is "yesterday", expected a time such as 2023-11-16 18:15:46.680590"#,
        ),
        (
            CSV,
            "2024-05-10 00:00:00,one,2",
            r#"ContextTokens is "one", expected a whole number"#,
        ),
        (
            CSV,
            "2024-05-10 00:00:00,0,2",
            r#"ContextTokens is "0", expected at least one token"#,
        ),
        (
            LOG,
            r#"{"homing":2,"at_us":1,"prompt":4,"output":1,"block":4}"#,
            r#"homing is "2", expected version 1"#,
        ),
        (
            LOG,
            r#"{"homing":1,"at_us":1,"prompt":4,"output":1,"block":0}"#,
            r#"block is "0", expected at least one token"#,
        ),
        (
            LOG,
            r#"{"homing":1,"at_us":1,"prompt":4,"output":1,"block":4,"keys":"12"}"#,
            r#"keys is "12", expected 16 hexadecimal digits for each key"#,
        ),
        (
            LOG,
            r#"{"homing":1,"at_us":1,"prompt":4,"output":1,"block":4,"keys":"00000000000000000000000000000001"}"#,
            "2 blocks of 4 tokens do not fit a prompt of 4 tokens, which has 1: is the block size right?",
        ),
        (
            LOG,
            r#"{"homing":1,"at_us":99999999999999999,"prompt":4,"output":1,"block":4}"#,
            r#"at_us is "99999999999999999", expected microseconds, at most 1.6e16"#,
        ),
    ] {
        let last = if first == CSV { "2024-05-10 00:00:00,1,2" } else { first };
        refused(first, wrong, last, expected);
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_and_shown_shortened() {
    let name = "x".repeat(300);
    let line = format!(r#"{{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":[0],"tenant":"{name}"}}"#);
    let error = read(&line)[0].clone().unwrap_err().to_string();
    let shown = "x".repeat(40);
    assert_eq!(
        error,
        format!("file:1: tenant is \"{shown}\", expected a name of at most 256 bytes")
    );
}

#[test]
fn formats_are_known_by_their_first_line_or_refused() {
    for (line, format) in [
        (
            r#"{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}"#,
            Some(Format::Mooncake),
        ),
        (r#"{"session_id": 1, "hash_ids": [0]}"#, Some(Format::Mooncake)),
        (r#"{"session_id": 1}"#, Some(Format::Sessions)),
        (r#"{"timestamp": 1, "input_tokens": 1}"#, Some(Format::Sessions)),
        (r#"{"homing": 1}"#, Some(Format::Log)),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n", Some(Format::Azure)),
        ("timestamp,input,output", None),
        ("{}", None),
        ("{", None),
        ("[1]", None),
        ("", None),
    ] {
        assert_eq!(Format::sniff(line.as_bytes()), format, "{line}");
    }
    for format in Format::ALL {
        assert_eq!(Format::named(format.name()), Some(format));
    }
    let unknown = |text: &str| {
        Reader::open(text.as_bytes(), options())
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(unknown("").unwrap(), "file:0: there is nothing in it");
    assert!(
        unknown("\n\nhello\n")
            .unwrap()
            .starts_with("file:3: no known format: expected JSON with")
    );
}

#[test]
fn lines_far_out_of_order_are_refused() {
    let mut text = String::new();
    for at in (0..300).chain([5, 300]) {
        let _ = writeln!(
            text,
            r#"{{"timestamp":{at},"input_length":4,"output_length":1,"hash_ids":[0]}}"#
        );
    }
    let results = read(&text);
    let errors: Vec<String> = results
        .iter()
        .filter_map(|r| r.as_ref().err())
        .map(ToString::to_string)
        .collect();
    let expected =
        "file:301: arrives before the line that stands 100 lines or more before it: the trace must be sorted by time";
    assert_eq!(errors, [expected]);
    assert_eq!(results.len(), 302);
}
