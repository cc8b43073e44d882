//! KV events that are none: bytes that no engine would send, from a publisher that the operator named.
//!
//! Whatever comes, the process lives, its memory stays bounded, and the next good batch of the same engine is understood, over the same
//! connection or, where the protocol of the socket was broken, over the next one.

use std::time::{Duration, Instant};

use serde_json::json;

use super::harness::{DEADLINE, Process, post_json};
use super::publisher::{Publisher, Subscriber, batch_message, frame, greeting, message, pack, ready};

/// What is sent.
enum Attack {
    /// A batch with this payload.
    Payload(Vec<u8>),
    /// These bytes, once there is a subscription.
    Bytes(Vec<u8>),
    /// This in place of the greeting, then nothing.
    Greeting(Vec<u8>),
    /// This in place of the command that ends the handshake.
    Ready(Vec<u8>),
}
use Attack::{Bytes, Greeting, Payload, Ready};

struct Case {
    name: &'static str,
    attack: Attack,
    /// Whether the connection is to end.
    ends: bool,
}

/// Tokens of a block of the good batches.
const BLOCK_TOKENS: u64 = 4;

fn raw(head: &[u8], length: u32, rest: &[u8]) -> Vec<u8> {
    [head, &length.to_be_bytes(), rest].concat()
}

fn batches() -> Vec<(&'static str, Vec<u8>)> {
    use pack::{batch, float, list, map, nil, number, signed, text};
    let outer = |events: Vec<u8>| list(&[float(1.0), events, number(0)]);
    vec![
        ("nil", nil()),
        ("a number", number(7)),
        ("a text", text("BlockStored")),
        ("a byte that means nothing", vec![0xc1]),
        ("noise", (0..=255).rev().collect()),
        (
            "a list that is cut off",
            list(&[float(1.0), list(&[]), number(0)])[..8].to_vec(),
        ),
        ("an empty list", list(&[])),
        ("a list of one", list(&[float(1.0)])),
        ("a list of 2^32 - 1", raw(b"\xdd", u32::MAX, &[])),
        ("a map of 2^32 - 1", raw(b"\xdf", u32::MAX, &[])),
        ("a map without events", map(&[("ts", float(1.0))])),
        (
            "a map with events twice",
            map(&[("events", list(&[])), ("events", list(&[]))]),
        ),
        (
            "a map whose keys are numbers",
            [&b"\x81"[..], &number(1), &number(2)].concat(),
        ),
        ("lists 100,000 deep", [vec![0x91; 100_000], vec![0xc0]].concat()),
        ("maps 100,000 deep", [b"\x81\xa1a".repeat(100_000), vec![0xc0]].concat()),
        (
            "an event of lists 100,000 deep",
            outer([vec![0x91; 100_001], vec![0xc0]].concat()),
        ),
        ("a time that is a text", list(&[text("now"), list(&[]), number(0)])),
        (
            "a time that is no number",
            list(&[float(f64::NAN), list(&[]), number(0)]),
        ),
        ("a time of 2^64 - 1", list(&[number(u64::MAX), list(&[]), number(0)])),
        ("events that are nil", outer(nil())),
        ("events that are a map", outer(map(&[("a", nil())]))),
        ("events that are 2^32 - 1", outer(raw(b"\xdd", u32::MAX, &[]))),
        ("a text of 2^32 - 1 bytes", outer(raw(b"\xdb", u32::MAX, b"abc"))),
        ("bytes of 2^32 - 1 bytes", outer(raw(b"\xc6", u32::MAX, b"abc"))),
        (
            "an extension of 2^32 - 1 bytes",
            outer(raw(b"\xc9", u32::MAX, b"\x01abc")),
        ),
        ("a rank below zero", list(&[float(1.0), list(&[]), signed(-1)])),
        ("a rank of 2^40", list(&[float(1.0), list(&[]), number(1 << 40)])),
        ("another rank", list(&[float(1.0), list(&[]), number(9)])),
        ("bytes behind the batch", [batch(&[]), vec![0; 100]].concat()),
    ]
}

fn events() -> Vec<(&'static str, Vec<u8>)> {
    use pack::{list, map, nil, number, numbers, signed, stored, text};
    let event = |tag: &str, fields: &[Vec<u8>]| list(&[&[text(tag)], fields].concat());
    let store = |hashes: Vec<u8>, parent: Vec<u8>, tokens: Vec<u8>, size: Vec<u8>| {
        event("BlockStored", &[hashes, parent, tokens, size, nil(), text("GPU")])
    };
    let one = || numbers([900]);
    let four = || numbers(0..4);
    vec![
        ("an event that is a number", number(1)),
        ("an event that is nil", nil()),
        ("an empty event", list(&[])),
        ("an event without a name", list(&[number(1), number(2)])),
        ("an unknown event", event("BlockStolen", &[one()])),
        (
            "an event whose name has a megabyte",
            event(&"B".repeat(1 << 20), &[one()]),
        ),
        (
            "an event whose name is no UTF-8",
            [&b"\x91\xa4\xff\xfe\xfd\xfc"[..]].concat(),
        ),
        ("a store of nothing", event("BlockStored", &[])),
        ("a store whose blocks are nil", store(nil(), nil(), four(), number(4))),
        (
            "a store whose blocks are a text",
            store(text("abc"), nil(), four(), number(4)),
        ),
        (
            "a store whose blocks are lists",
            store(list(&[list(&[nil()])]), nil(), four(), number(4)),
        ),
        (
            "a store of an empty list of blocks",
            store(list(&[]), nil(), list(&[]), number(4)),
        ),
        (
            "fewer tokens than the blocks have",
            store(numbers(900..910), nil(), four(), number(4)),
        ),
        (
            "more tokens than the blocks have",
            store(one(), nil(), numbers(0..400), number(4)),
        ),
        (
            "tokens of 64 bits",
            store(one(), nil(), numbers([u64::MAX; 4]), number(4)),
        ),
        (
            "tokens below zero",
            store(
                one(),
                nil(),
                list(&[signed(-1), signed(-2), signed(-3), signed(-4)]),
                number(4),
            ),
        ),
        (
            "tokens that are texts",
            store(one(), nil(), list(&[text("a"), text("b")]), number(4)),
        ),
        ("blocks of no tokens", store(one(), nil(), list(&[]), number(0))),
        ("blocks of 2^63 tokens", store(one(), nil(), four(), number(1 << 63))),
        ("blocks of -4 tokens", store(one(), nil(), four(), signed(-4))),
        ("blocks of 5 tokens", store(one(), nil(), numbers(0..5), number(5))),
        (
            "a block of a million tokens",
            store(one(), nil(), numbers(0..1_000_000), number(1_000_000)),
        ),
        ("a block that is its own parent", stored(901, Some(901), 0..4)),
        ("a block whose parent is unknown", stored(902, Some(u64::MAX), 0..4)),
        (
            "a parent that is a map",
            store(one(), map(&[("a", nil())]), four(), number(4)),
        ),
        (
            "one block a thousand times",
            store(
                numbers([903; 1000]),
                nil(),
                numbers((0..4000).map(|at| at % 4)),
                number(4),
            ),
        ),
        (
            "an unknown place",
            event("BlockStored", &[one(), nil(), four(), number(4), nil(), text("MARS")]),
        ),
        (
            "a place that is no text",
            event("BlockStored", &[one(), nil(), four(), number(4), nil(), number(3)]),
        ),
        ("an adapter of a megabyte", {
            event(
                "BlockStored",
                &[
                    one(),
                    nil(),
                    four(),
                    number(4),
                    number(1),
                    text("GPU"),
                    text(&"a".repeat(1 << 20)),
                ],
            )
        }),
        ("extra keys that are a number", {
            event(
                "BlockStored",
                &[one(), nil(), four(), number(4), nil(), text("GPU"), nil(), number(5)],
            )
        }),
        ("extra keys that are deep", {
            let deep = [vec![0x91; 10_000], vec![0xc0]].concat();
            event(
                "BlockStored",
                &[one(), nil(), four(), number(4), nil(), text("GPU"), nil(), deep],
            )
        }),
        ("a cache group of 2^63", {
            let fields = [
                one(),
                nil(),
                four(),
                number(4),
                nil(),
                text("GPU"),
                nil(),
                nil(),
                number(1 << 63),
            ];
            event("BlockStored", &fields)
        }),
        ("a map of a store with a field twice", {
            let twice = [
                ("type", text("BlockStored")),
                ("block_hashes", one()),
                ("block_hashes", nil()),
            ];
            map(&twice)
        }),
        ("the removal of nothing", event("BlockRemoved", &[])),
        ("the removal of nil", event("BlockRemoved", &[nil()])),
        (
            "the removal of 100,000 unknown blocks",
            event("BlockRemoved", &[numbers(1 << 40..(1 << 40) + 100_000)]),
        ),
        (
            "a removal at an unknown place",
            event("BlockRemoved", &[one(), text("MARS")]),
        ),
    ]
}

fn envelopes() -> Vec<(&'static str, Vec<u8>, bool)> {
    let good = pack::batch(&[]);
    let number = 1_u64.to_be_bytes();
    let long = |flags: u8, size: u64| [&[flags][..], &size.to_be_bytes()].concat();
    vec![
        ("a message of one frame", message(&[&good]), false),
        ("a message of two frames", message(&[&number, &good]), false),
        (
            "a message of four frames",
            message(&[b"", b"kv-events", &number, &good]),
            false,
        ),
        ("a message of 17 frames", message(&[b"kv-events".as_slice(); 17]), true),
        ("a message that is empty", message(&[b"kv-events", &number, b""]), false),
        (
            "a number of 7 bytes",
            message(&[b"kv-events", &number[1..], &good]),
            false,
        ),
        (
            "a number of 9 bytes",
            message(&[b"kv-events", b"\0\0\0\0\0\0\0\0\x01", &good]),
            false,
        ),
        ("no number", message(&[b"kv-events", b"", &good]), false),
        (
            "a topic of a megabyte",
            message(&[&[b'k'; 1 << 20], &number, &good]),
            false,
        ),
        ("a frame of 2^63 bytes", long(2, 1 << 63), true),
        ("a frame of 2^64 - 1 bytes", long(3, u64::MAX), true),
        (
            "a message of 65 MiB",
            [frame(1, b"kv-events"), frame(1, &number), long(2, 65 << 20)].concat(),
            true,
        ),
        ("flags that mean nothing", vec![0xf8, 0], true),
        ("a command with more to come", frame(5, b"\x04PING\0\0"), true),
        ("a command of nothing", frame(4, b""), true),
        ("a command whose name is longer than it", frame(4, b"\xffabc"), true),
        ("an unknown command", frame(4, b"\x07UNKNOWNabc"), false),
        ("a second end of the handshake", ready(b"PUB"), true),
        ("an error", frame(4, b"\x05ERROR\x02no"), true),
        ("a ping without a time", frame(4, b"\x04PING"), true),
        (
            "a ping of 60,000 bytes",
            frame(4, &[b"\x04PING\0\0".as_slice(), &[b'c'; 60_000]].concat()),
            true,
        ),
        ("a command of 20 MiB", long(6, 20 << 20), true),
    ]
}

fn handshakes() -> Vec<(&'static str, Attack)> {
    let changed = |at: usize, byte: u8| {
        let mut greeting = greeting();
        greeting[at] = byte;
        Greeting(greeting)
    };
    let metadata = |bytes: &[u8]| Ready(frame(4, &[b"\x05READY".as_slice(), bytes].concat()));
    vec![
        ("a greeting of zeros", Greeting(vec![0; 64])),
        (
            "a greeting of HTTP",
            Greeting(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".repeat(2)),
        ),
        ("a greeting of ZMTP 1", changed(10, 0)),
        (
            "a greeting with authentication",
            Greeting({
                let mut greeting = greeting();
                greeting[12..17].copy_from_slice(b"CURVE");
                greeting
            }),
        ),
        ("a socket of another type", Ready(ready(b"DEALER"))),
        ("a socket type of a megabyte", Ready(ready(&[b'P'; 1 << 20]))),
        ("no socket type", metadata(b"")),
        (
            "metadata that is longer than its command",
            metadata(b"\x0bSocket-Type\xff\xff\xff\xffPUB"),
        ),
        ("metadata that is cut off", metadata(b"\x0bSocket")),
        (
            "a message before the handshake ends",
            Ready(message(&[b"kv-events", b"", b""])),
        ),
        ("an error in place of the handshake", Ready(frame(4, b"\x05ERROR\x00"))),
    ]
}

fn table() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, payload) in batches() {
        let attack = Payload(payload);
        cases.push(Case {
            name,
            attack,
            ends: false,
        });
    }
    for (name, event) in events() {
        let attack = Payload(pack::batch(&[event]));
        cases.push(Case {
            name,
            attack,
            ends: false,
        });
    }
    for (name, bytes, ends) in envelopes() {
        let attack = Bytes(bytes);
        cases.push(Case { name, attack, ends });
    }
    for (name, attack) in handshakes() {
        cases.push(Case {
            name,
            attack,
            ends: true,
        });
    }
    for (name, number) in [
        ("a number far ahead", 1 << 62),
        ("the last number", u64::MAX),
        ("a number again", 0),
    ] {
        let attack = Bytes(batch_message(number, &pack::batch(&[pack::stored(904, None, 0..4)])));
        cases.push(Case {
            name,
            attack,
            ends: false,
        });
    }
    cases
}

/// One case and the worker whose publisher it plays.
struct Played<'a> {
    case: &'a Case,
    number: u64,
    publisher: &'a Publisher,
    index: &'a str,
}

impl Played<'_> {
    fn worker(&self) -> String {
        format!("http://worker-{}:8000", self.number)
    }

    /// Tokens of a block that no other batch has.
    fn tokens(&self, place: u64) -> std::ops::Range<u64> {
        let begin = 1_000_000 + (self.number * 10 + place) * BLOCK_TOKENS;
        begin..begin + BLOCK_TOKENS
    }

    /// How many blocks of such a prompt the worker is known to hold.
    fn known_blocks(&self, place: u64) -> u64 {
        let tokens: Vec<u64> = self.tokens(place).collect();
        let answer = post_json(self.index, "/v1/overlap", &[], &json!({ "tokens": tokens })).json();
        let ranks = answer["ranks"].as_array().cloned().unwrap_or_default();
        let ours = ranks.iter().find(|rank| rank["worker"] == self.worker());
        ours.and_then(|rank| rank["blocks"]["device"].as_u64()).unwrap_or(0)
    }

    /// Publishes a block, again and again, until it is known. The connection may end meanwhile.
    fn publish(&self, subscriber: &mut Option<Subscriber>, place: u64, next: &mut u64) -> Result<u64, String> {
        let payload = pack::batch(&[pack::stored(self.number * 10 + place, None, self.tokens(place))]);
        let until = Instant::now() + DEADLINE;
        let mut ended = 0;
        while Instant::now() < until {
            if subscriber.is_none() {
                let accepted = self.publisher.subscriber();
                *subscriber = Some(accepted.map_err(|error| format!("nobody connects again: {error}"))?);
            }
            let connection = subscriber.as_mut().expect("there is one");
            let sent = connection.send(&batch_message(*next, &payload));
            *next += 1;
            for _ in 0..20 {
                if sent.is_err() || connection.turn().is_err() {
                    *subscriber = None;
                    ended += 1;
                    break;
                }
                if self.known_blocks(place) == 1 {
                    return Ok(ended);
                }
            }
        }
        Err("a good batch is not understood".to_owned())
    }

    fn play(&self) -> Result<(), String> {
        let named = |why: String| format!("{}: {why}", self.case.name);
        match &self.case.attack {
            Greeting(bytes) => self.strange_handshake(bytes, &[]).map_err(named)?,
            Ready(bytes) => self.strange_handshake(&greeting(), bytes).map_err(named)?,
            Payload(_) | Bytes(_) => {}
        }
        let mut next = 0;
        let mut subscriber = None;
        self.publish(&mut subscriber, 0, &mut next).map_err(named)?;
        let attack = match &self.case.attack {
            Payload(payload) => batch_message(next, payload),
            Bytes(bytes) => bytes.clone(),
            Greeting(_) | Ready(_) => return Ok(()),
        };
        if matches!(self.case.attack, Payload(_)) {
            next += 1;
        }
        let connection = subscriber.as_mut().expect("a batch was published over it");
        // It may be cut before all was taken.
        let sent = connection.send(&attack);
        if self.case.ends {
            let until = Instant::now() + Duration::from_secs(20);
            while sent.is_ok() && connection.turn().is_ok() {
                if Instant::now() > until {
                    return Err(named("the connection goes on".to_owned()));
                }
            }
            subscriber = None;
        }
        match self.publish(&mut subscriber, 1, &mut next) {
            Ok(ended) if ended > 0 && !self.case.ends => Err(named("the connection ended".to_owned())),
            Ok(_) => Ok(()),
            Err(why) => Err(named(why)),
        }
    }

    /// Plays a handshake that cannot succeed, to its end.
    fn strange_handshake(&self, greeting: &[u8], ready: &[u8]) -> Result<(), String> {
        let stream = self.publisher.accept().map_err(|error| error.to_string())?;
        match Subscriber::shake_hands(stream, greeting, ready) {
            Err(_) => Ok(()),
            Ok(_) => Err("the handshake succeeded".to_owned()),
        }
    }
}

#[test]
fn whatever_a_publisher_sends_the_next_good_batch_is_understood() {
    let cases = table();
    assert!(cases.len() >= 37, "{}", cases.len());
    let publishers: Vec<Publisher> = cases.iter().map(|_| Publisher::bind()).collect();
    let workers: Vec<String> = publishers
        .iter()
        .enumerate()
        .map(|(number, publisher)| {
            let endpoint = publisher.endpoint();
            format!(
                "http://worker-{number}:8000,model=tiny,block-size={BLOCK_TOKENS},events={endpoint},topic=kv-events"
            )
        })
        .collect();
    let mut arguments = vec!["index", "--listen", "127.0.0.1:0"];
    arguments.extend(workers.iter().flat_map(|worker| ["--worker", worker]));
    let mut index = Process::start(&arguments);
    let address = index.address();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let played = cases
            .iter()
            .zip(&publishers)
            .enumerate()
            .map(|(number, (case, publisher))| {
                let played = Played {
                    case,
                    number: number as u64,
                    publisher,
                    index: &address,
                };
                scope.spawn(move || played.play())
            });
        let threads: Vec<_> = played.collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        ended.filter_map(Result::err).collect()
    });
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    assert!(
        index.is_running() && !index.stderr().contains("panicked"),
        "{}",
        index.stderr()
    );
    assert!(index.peak_rss_bytes() < 1 << 30, "{} bytes", index.peak_rss_bytes());
}
