//! Bodies of requests that take memory: unfinished ones, ones in tiny chunks, slow ones.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use super::harness::{Connection, FakeEngine, Process, Response, get, post_json, wait_until};

const MIB: u64 = 1 << 20;
/// The budget of these tests.
const BUDGET: u64 = 64 * MIB;
const HELD: &str = "homing_http_held_body_bytes";

fn serve(engine: &FakeEngine, variables: &[(&str, &str)]) -> Process {
    let url = engine.url();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--worker",
        &url,
        "--health-interval",
        "200ms",
    ];
    let budget = BUDGET.to_string();
    let base = [
        ("HOMING_SERVE_BODY_BUDGET_BYTES", budget.as_str()),
        ("HOMING_SERVE_REQUEST_TIMEOUT", "1h"),
    ];
    let gateway = Process::start_with(&arguments, &[&base, variables].concat());
    gateway.wait_ready();
    gateway
}

fn metric(gateway: &Process, name: &str) -> Option<u64> {
    let page = get(&gateway.operators(), "/metrics", &[]).text();
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}

fn begin_body(gateway: &Process, length: u64) -> Connection {
    let mut connection = Connection::open(&gateway.address());
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.send(head).unwrap();
    connection
}

fn is_refused_for_memory(response: &Response) -> bool {
    response.status == 503
        && response.header("retry-after").is_some()
        && response
            .error_message()
            .is_some_and(|message| message.contains("memory"))
}

#[test]
fn unfinished_bodies_stay_within_the_budget_and_others_are_served() {
    const CONNECTIONS: u64 = 24;
    const SENT: u64 = 12 * MIB;
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine, &[]);
    let before = gateway.rss_bytes();
    let piece = vec![b'x'; MIB as usize];
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..CONNECTIONS {
        let mut connection = begin_body(&gateway, 59 * MIB);
        // One that is refused ends before all was taken.
        let sent = (0..SENT / MIB).try_for_each(|_| connection.stream.write_all(&piece));
        connection.set_deadline(Duration::from_millis(50));
        match connection.read_response() {
            Ok(response) => {
                assert!(
                    is_refused_for_memory(&response),
                    "{}: {}",
                    response.status,
                    response.text()
                );
                refused += 1;
            }
            Err(error) if sent.is_err() => panic!("refused without an answer: {error}"),
            Err(_) => held.push(connection),
        }
    }
    let grown = gateway.peak_rss_bytes() - before;
    println!("{grown} bytes for {} bodies, {refused} refused", held.len());
    assert!(
        grown < BUDGET * 12 / 10,
        "{} MiB for bodies, more than 1.2 times the budget of {} MiB",
        grown / MIB,
        BUDGET / MIB
    );
    assert!(refused > 0 && !held.is_empty());
    // Its share is what is left: the client is not shut out, and another one less so.
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    let mut other = begin_body_from("127.0.0.2", &gateway, body.to_string().len() as u64);
    other.send(body.to_string()).unwrap();
    assert_eq!(other.read_response().unwrap().status, 200);
    drop(held);
    wait_until("all memory is given back", || metric(&gateway, HELD) == Some(0));
    assert_eq!(post_json(&gateway.address(), "/v1/completions", &[], &body).status, 200);
}

/// The same from another address of this machine.
fn begin_body_from(source: &str, gateway: &Process, length: u64) -> Connection {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let source: std::net::SocketAddr = format!("{source}:0").parse().unwrap();
    let address: std::net::SocketAddr = gateway.address().parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut connection = Connection::of(socket.into());
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
    connection.send(head).unwrap();
    connection
}

#[test]
fn a_body_in_chunks_of_one_byte_takes_about_its_own_size() {
    const BYTES: usize = 4 << 20;
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine, &[]);
    let before = gateway.rss_bytes();
    let mut connection = Connection::open(&gateway.address());
    connection
        .send("POST /v1/completions HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    let chunks = b"1\r\nx\r\n".repeat(1 << 12);
    for _ in 0..BYTES >> 12 {
        connection.stream.write_all(&chunks).unwrap();
    }
    let grown = gateway.peak_rss_bytes() - before;
    println!("{grown} bytes for {BYTES}");
    // The buffer, the one that it took the place of, and what sockets and the allocator keep.
    assert!(
        grown < 3 * BYTES as u64 + 16 * MIB,
        "{} MiB for a body of {} MiB",
        grown / MIB,
        BYTES as u64 / MIB
    );
    // The connection breaks.
    drop(connection);
    wait_until("all memory is given back", || metric(&gateway, HELD) == Some(0));
}

#[test]
fn an_upload_that_trickles_is_cut() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine, &[("HOMING_SERVE_UPLOAD_WINDOW", "1s")]);
    let mut connection = begin_body(&gateway, 100_000);
    connection.set_deadline(Duration::from_millis(100));
    let mut answer = None;
    // A byte every 100 ms, far below 1 KiB/s.
    for _ in 0..150 {
        if connection.send(" ").is_err() {
            break;
        }
        if let Ok(response) = connection.read_response() {
            answer = Some(response);
            break;
        }
    }
    let answer = answer.expect("a slow upload is cut before 15 s");
    assert_eq!(answer.status, 408, "{}", answer.text());
    assert!(answer.error_message().is_some());
    wait_until("all memory is given back", || metric(&gateway, HELD) == Some(0));
    assert_eq!(
        metric(&gateway, r#"homing_http_refused_bodies_total{reason="too_slow"}"#),
        Some(1)
    );
}

#[test]
fn what_a_request_held_is_given_back_when_it_ends() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine, &[]);
    let prompt = "a".repeat(1 << 20);
    for body in [
        json!({ "model": "tiny", "prompt": prompt, "max_tokens": 1 }),
        // What is sent on differs from what came.
        json!({ "model": "tiny", "prompt": prompt, "max_tokens": 1, "stream": true }),
        json!({ "model": "unknown", "prompt": prompt }),
        json!([prompt]),
    ] {
        post_json(&gateway.address(), "/v1/completions", &[], &body);
    }
    wait_until("all memory is given back", || metric(&gateway, HELD) == Some(0));
    assert!(metric(&gateway, "homing_http_body_budget_bytes") == Some(BUDGET));
}
