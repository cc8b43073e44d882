//! Answers of engines that two readers could understand differently.
//!
//! The client gets an error that says why, nothing that is hidden in an answer becomes the answer to another request, and the connection to
//! the engine is not used again.

use std::time::Duration;

use serde_json::json;

use super::harness::{Connection, FakeEngine, Process, Reply, post_json, request};

const BODY: &str = r#"{"choices":[{"text":"yes"}]}"#;
/// An answer that no request asked for.
const HIDDEN: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n{\"hidden\":\"words\"}";

/// Names and answers, with one hidden behind each.
fn answers() -> Vec<(&'static str, String)> {
    let size = BODY.len();
    let chunked = format!("{size:x}\r\n{BODY}\r\n0\r\n\r\n");
    let head = |headers: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}\r\n");
    let chunks = |body: String| head("transfer-encoding: chunked\r\n") + &body;
    let encoding = "transfer-encoding: chunked\r\n";
    let length = format!("content-length: {size}\r\n");
    vec![
        (
            "a length before an encoding",
            head(&format!("{length}{encoding}")) + &chunked,
        ),
        (
            "an encoding before a length",
            head(&format!("{encoding}{length}")) + &chunked,
        ),
        (
            "a length of 0 beside an encoding",
            head(&format!("content-length: 0\r\n{encoding}")) + &chunked,
        ),
        ("two lengths", head(&format!("{length}content-length: 0\r\n")) + BODY),
        ("the same length twice", head(&format!("{length}{length}")) + BODY),
        (
            "two lengths in one header",
            head(&format!("content-length: {size}, {size}\r\n")) + BODY,
        ),
        (
            "a length with a plus",
            head(&format!("content-length: +{size}\r\n")) + BODY,
        ),
        (
            "a length of 30 digits",
            head(&format!("content-length: {}\r\n", "9".repeat(30))) + BODY,
        ),
        ("chunked twice", head(&format!("{encoding}{encoding}")) + &chunked),
        ("two encodings", head("transfer-encoding: gzip, chunked\r\n") + &chunked),
        (
            "an unknown encoding",
            head("transfer-encoding: xchunked\r\n") + &chunked,
        ),
        (
            "an encoding in HTTP/1.0",
            head(encoding).replace("HTTP/1.1", "HTTP/1.0") + &chunked,
        ),
        (
            "a space before a colon",
            head(&format!("content-length : {size}\r\n")) + BODY,
        ),
        ("a folded header", head(&format!("x: y\r\n z\r\n{length}")) + BODY),
        (
            "a header that ends with a line feed",
            head(&format!("x: y\n{length}")) + BODY,
        ),
        (
            "a control character in a header",
            head(&format!("x: \x01\r\n{length}")) + BODY,
        ),
        ("a header without a colon", head(&format!("abc\r\n{length}")) + BODY),
        (
            "a space behind the size of a chunk",
            chunks(format!("{size:x} \r\n{BODY}\r\n0\r\n\r\n")),
        ),
        (
            "a size of a chunk with 0x",
            chunks(format!("0x{size:x}\r\n{BODY}\r\n0\r\n\r\n")),
        ),
        (
            "a size of a chunk that ends with a line feed",
            chunks(format!("{size:x}\n{BODY}\r\n0\r\n\r\n")),
        ),
        (
            "a chunk that is longer than its size",
            chunks(format!("1\r\n{BODY}\r\n0\r\n\r\n")),
        ),
        ("another protocol", format!("HTTP/2.0 200 OK\r\n{length}\r\n{BODY}")),
        ("no protocol", format!("hello\r\n\r\n{BODY}")),
        (
            "a head of 100,000 bytes",
            head(&format!("x: {}\r\n{length}", "y".repeat(100_000))) + BODY,
        ),
        (
            "1,000 headers",
            head(&format!("{}{length}", "x: y\r\n".repeat(1_000))) + BODY,
        ),
    ]
}

#[test]
fn an_answer_is_read_in_one_way_or_is_an_error() {
    let answers = answers();
    let hidden: Vec<String> = answers.iter().map(|(_, answer)| format!("{answer}{HIDDEN}")).collect();
    let engine = FakeEngine::start_with("tiny", move |request| {
        let number = request.target.split_once("case=").map(|(_, number)| number);
        match number.and_then(|number| number.parse::<usize>().ok()) {
            Some(number) => Reply::Bytes(hidden[number].clone().into_bytes()),
            None => Reply::Usual,
        }
    });
    // One try, and failures that do not take the only worker out of service.
    let options = [
        "--tries",
        "1",
        "--health-failures",
        "1000",
        "--health-failure-rate",
        "1",
    ];
    let mut gateway = Process::serve(&[&engine.url()], &options);
    let address = gateway.wait_ready().address();
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    let mut failures = Vec::new();
    for (number, (name, _)) in answers.iter().enumerate() {
        engine.take_requests();
        let mut connection = Connection::open(&address);
        connection.set_deadline(Duration::from_secs(10));
        let target = format!("/v1/completions?case={number}");
        connection
            .send(request("POST", &target, &[], body.to_string().as_bytes()))
            .unwrap();
        let response = match connection.read_response() {
            Ok(response) => response,
            Err(error) => {
                failures.push(format!("{name}: no answer: {error}"));
                continue;
            }
        };
        let message = response.error_message().unwrap_or_default();
        if response.status != 502 || message.is_empty() || response.text().contains("hidden") {
            failures.push(format!("{name}: {} {}", response.status, response.text()));
        }
        let attacked = engine.requests_to("/v1/completions");
        // Nothing of the answer may be left on the connection of the next request.
        let usual = post_json(&address, "/v1/completions", &[], &body);
        if usual.status != 200 || usual.text().contains("hidden") {
            failures.push(format!(
                "{name}, then a good request: {} {}",
                usual.status,
                usual.text()
            ));
        }
        let next = engine.wait_requests_to("/v1/completions", attacked.len() + 1).pop();
        let is_reused = next.is_some_and(|next| attacked.iter().any(|request| request.connection == next.connection));
        if is_reused || attacked.len() != 1 {
            failures.push(format!(
                "{name}: {} requests, the connection is used again: {is_reused}",
                attacked.len()
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures of {}:\n{}",
        failures.len(),
        answers.len(),
        failures.join("\n")
    );
    assert!(
        gateway.is_running() && !gateway.stderr().contains("panicked"),
        "{}",
        gateway.stderr()
    );
}
