//! What happens to bytes that no good client sends? What reaches a worker is looked at byte by byte.

use std::time::Duration;

use homing_telemetry::TurnedAway;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Engine, Gateway};
use crate::security::raw::{Recorder, all, answers, before, connect, exchange, status, until};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
const BODY: &str = r#"{"model":"tiny","prompt":"x"}"#;

fn post(headers: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/completions HTTP/1.1\r\nhost: gateway\r\n{headers}\r\n{body}").into_bytes()
}

/// A request that a smuggler hides behind another.
const HIDDEN: &str = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-hidden: yes\r\ncontent-length: 0\r\n\r\n";

fn refused(gateway: &Gateway, why: TurnedAway) -> u64 {
    gateway.metrics.gateway.refused_connections.of(why).get()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_read_in_two_ways_reaches_nobody() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[]).await;
    let chunked = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let length = BODY.len();
    let cases = [
        (
            "both",
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            chunked.clone(),
        ),
        (
            "both, otherwise",
            "transfer-encoding: chunked\r\ncontent-length: 4\r\n".to_owned(),
            chunked.clone(),
        ),
        (
            "two lengths",
            format!("content-length: {length}\r\ncontent-length: 5\r\n"),
            BODY.to_owned(),
        ),
        (
            "one length twice",
            format!("content-length: {length}\r\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
        (
            "a list of lengths",
            format!("content-length: {length}, {length}\r\n"),
            BODY.to_owned(),
        ),
        ("a sign", format!("content-length: +{length}\r\n"), BODY.to_owned()),
        ("hexadecimal", "content-length: 0x1d\r\n".to_owned(), BODY.to_owned()),
        (
            "a space before the colon",
            "transfer-encoding : chunked\r\n".to_owned(),
            chunked.clone(),
        ),
        (
            "another encoding",
            "transfer-encoding: gzip, chunked\r\n".to_owned(),
            chunked.clone(),
        ),
        (
            "an encoding twice",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
            chunked.clone(),
        ),
        (
            "an odd encoding",
            "transfer-encoding: \x0bchunked\r\n".to_owned(),
            chunked.clone(),
        ),
        (
            "a continued line",
            format!("content-length: {length}\r\nx: a\r\n transfer-encoding: chunked\r\n"),
            BODY.to_owned(),
        ),
        (
            "a bare line feed",
            format!("x: a\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
        (
            "a bare carriage return",
            format!("x: a\rcontent-length: 3\r\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
        (
            "a zero byte",
            format!("x: a\0b\r\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
        (
            "two hosts",
            format!("host: other\r\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
        (
            "no colon",
            format!("content-length {length}\r\ncontent-length: {length}\r\n"),
            BODY.to_owned(),
        ),
    ];
    let count = cases.len() as u64;
    for (what, headers, body) in cases {
        let bytes = [post(&headers, &body), HIDDEN.as_bytes().to_vec()].concat();
        let answer = exchange(&gateway.url, &bytes).await;
        assert_eq!(status(&answer), 400, "{what}: {answer}");
        assert_eq!(
            answer.matches("HTTP/1.1").count(),
            1,
            "{what}: what follows is not answered: {answer}"
        );
        let said: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(said["error"]["type"], "BadRequestError", "{what}: {answer}");
    }
    assert_eq!(worker.seen(), [""; 0]);
    assert_eq!(refused(&gateway, TurnedAway::Malformed), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_are_none_reach_nobody_and_good_ones_arrive_whole() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[]).await;
    let length = BODY.len();
    for (what, body) in [
        ("no size", format!("\r\n{BODY}\r\n0\r\n\r\n")),
        ("a sign", format!("-1\r\n{BODY}\r\n0\r\n\r\n")),
        ("no number", format!("xyz\r\n{BODY}\r\n0\r\n\r\n")),
        ("too large", format!("ffffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n")),
        ("no line feed", format!("{length:x}\r{BODY}\r\n0\r\n\r\n")),
        ("a prefix", format!("0x{length:x}\r\n{BODY}\r\n0\r\n\r\n")),
        ("too short", format!("2\r\n{BODY}\r\n0\r\n\r\n")),
    ] {
        let answer = exchange(&gateway.url, &post("transfer-encoding: chunked\r\n", &body)).await;
        assert!(answer.is_empty() || status(&answer) == 400, "{what}: {answer}");
    }
    assert_eq!(worker.seen(), [""; 0]);
    let (one, two) = BODY.split_at(7);
    let body = format!(
        "{:x}\r\n{one}\r\n{:x};ext=1\r\n{two}\r\n0\r\n\r\n{HIDDEN}",
        one.len(),
        two.len()
    );
    let answer = exchange(&gateway.url, &post("transfer-encoding: chunked\r\n", &body)).await;
    assert_eq!(status(&answer), 200, "{answer}");
    assert_eq!(
        answer.matches("HTTP/1.1").count(),
        1,
        "what follows a body in chunks is not read: {answer}"
    );
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    let seen = worker.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let sent = seen[0].to_lowercase();
    assert!(
        sent.contains(&format!("content-length: {length}")) && !sent.contains("transfer-encoding"),
        "{sent}"
    );
    assert!(seen[0].ends_with(BODY), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_one_after_the_other_in_one_piece_are_answered_in_their_order() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[]).await;
    // Empty lines before a request are no request.
    let mut bytes = b"\r\n\r\n".to_vec();
    for number in 0..3 {
        let body = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "y".repeat(number * 50));
        bytes.extend(post(&format!("content-length: {}\r\n", body.len()), &body));
    }
    let malformed = post("content-length: 1\r\ncontent-length: 1\r\n", "x");
    let mut stream = connect(&gateway.url).await;
    // In pieces of all sizes, so that heads and bodies are cut everywhere.
    for piece in [bytes, malformed].concat().chunks(37) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    let found = answers(&mut stream, 4).await;
    let statuses: Vec<u16> = found.iter().map(|answer| status(answer)).collect();
    assert_eq!(statuses, [200, 200, 200, 400]);
    assert_eq!(all(&mut stream).await, "");
    let lengths: Vec<usize> = worker
        .seen()
        .iter()
        .map(|request| request.matches('y').count())
        .collect();
    assert_eq!(lengths, [1, 51, 101], "the y of `tiny` and those of the prompt");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_connection_and_our_own_stay_here() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[("serve.worker-key", "key-of-the-engines")]).await;
    let headers = format!(
        "connection: keep-alive, x-private\r\nconnection: authorization, x-request-id\r\nx-private: 1\r\nkeep-alive: timeout=5\r\n\
         te: trailers\r\nproxy-authorization: Basic abc\r\nupgrade: h2c\r\nx-homing-session: s\r\nx-custom: 2\r\n\
         authorization: Bearer of-the-client\r\ncontent-length: {}\r\n",
        BODY.len()
    );
    let mut stream = connect(&gateway.url).await;
    stream.write_all(&post(&headers, BODY)).await.unwrap();
    assert_eq!(status(&answers(&mut stream, 1).await[0]), 200);
    let seen = worker.seen();
    let sent = seen[0].to_lowercase();
    for gone in [
        "x-private",
        "keep-alive",
        "te:",
        "proxy-authorization",
        "upgrade",
        "x-homing",
        "of-the-client",
        "connection",
        "x-custom",
    ] {
        assert!(!sent.contains(gone), "{gone} in {sent}");
    }
    for there in ["authorization: bearer key-of-the-engines", "x-request-id: "] {
        assert!(sent.contains(there), "{there} is missing in {sent}");
    }
    let asked = worker
        .everything()
        .into_iter()
        .find(|request| request.starts_with("GET /v1/models"));
    let asked = asked.unwrap().to_lowercase();
    assert!(asked.contains("authorization: bearer key-of-the-engines"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_with_line_breaks_break_no_line() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[]).await;
    for (hint, allowed) in [
        (json!({ "session": "a\r\nx-injected: 1" }), [200, 400]),
        (json!({ "tenant": "a\r\n\r\nGET /injected HTTP/1.1" }), [200, 400]),
        (json!({ "worker": "a\r\nx-injected: 1" }), [400, 400]),
    ] {
        let body = json!({ "model": "tiny", "prompt": "x", "homing": hint });
        let response = gateway.send("/v1/completions", &body).await;
        assert!(allowed.contains(&response.status().as_u16()), "{hint}: {response:?}");
        assert!(response.headers().get("x-injected").is_none(), "{response:?}");
    }
    for request in worker.seen() {
        let head = request.split("\r\n\r\n").next().unwrap();
        assert!(!head.contains("injected"), "{request}");
        assert!(!request.contains("LEFT OVER"), "{request}");
    }
    // In a header it cannot even be said.
    let bytes = post(
        &format!("x-homing-session: a\rb\r\ncontent-length: {}\r\n", BODY.len()),
        BODY,
    );
    assert_eq!(status(&exchange(&gateway.url, &bytes).await), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_answers_in_two_ways_is_not_passed_on() {
    for (what, answer) in [
        (
            "a continued line",
            "HTTP/1.1 200 OK\r\nx-a: 1\r\n x-injected: 1\r\ncontent-length: 2\r\n\r\n{}",
        ),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 40\r\n\r\n{}",
        ),
        (
            "a zero byte",
            "HTTP/1.1 200 OK\r\nx-a: a\0b\r\ncontent-length: 2\r\n\r\n{}",
        ),
        (
            "no chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        ),
        ("no status", "HTTP/1.1 abc OK\r\ncontent-length: 2\r\n\r\n{}"),
    ] {
        let worker = Recorder::start(answer).await;
        let gateway = before(&worker, &[("serve.tries", "1")]).await;
        let mut stream = connect(&gateway.url).await;
        let bytes = post(&format!("content-length: {}\r\n", BODY.len()), BODY);
        stream.write_all(&bytes).await.unwrap();
        let found = answers(&mut stream, 1).await;
        assert_eq!(status(&found[0]), 502, "{what}: {found:?}");
        assert!(!found[0].contains("x-injected"), "{what}: {found:?}");
    }
    // Headers that belong to the engine's connection do not reach the client, whatever it calls them.
    let worker = Recorder::start(
        "HTTP/1.1 200 OK\r\nconnection: keep-alive, retry-after\r\nretry-after: 1\r\nx-homing-served-by: liar\r\n\
         content-type: application/json\r\ncache-control: no-store\r\nx-private: 1\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await;
    let gateway = before(&worker, &[]).await;
    let response = gateway
        .send("/v1/completions", &json!({ "model": "tiny", "prompt": "x" }))
        .await;
    assert_eq!(response.status(), 200);
    let has = |name: &str| response.headers().contains_key(name);
    assert!(
        has("cache-control") && !has("retry-after") && !has("x-private"),
        "{response:?}"
    );
    assert_eq!(
        response.headers()["x-homing-served-by"],
        format!("http://{}", worker.address).as_str()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_much_get_431_and_those_that_just_fit_are_answered() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(
        &worker,
        &[("serve.max-header-bytes", "8KiB"), ("serve.max-headers", "16")],
    )
    .await;
    let length = format!("content-length: {}\r\n", BODY.len());
    let long = |bytes: usize| post(&format!("x-long: {}\r\n{length}", "a".repeat(bytes)), BODY);
    let many = |count: usize| {
        let more: Vec<String> = (0..count).map(|number| format!("x-{number}: 1\r\n")).collect();
        post(&format!("{}{length}", more.concat()), BODY)
    };
    for (bytes, expected, why) in [
        (long(7_000), 200, None),
        (long(8_192), 431, Some(TurnedAway::HeaderSize)),
        (long(4 << 20), 431, Some(TurnedAway::HeaderSize)),
        (many(14), 200, None),
        (many(15), 431, Some(TurnedAway::HeaderCount)),
        (many(500), 431, Some(TurnedAway::HeaderCount)),
    ] {
        let counted = why.map_or(0, |why| refused(&gateway, why));
        let mut stream = connect(&gateway.url).await;
        let (mut reading, mut writing) = stream.split();
        let sending = async { drop(writing.write_all(&bytes).await) };
        let reading = async {
            let mut came = Vec::new();
            while !came.windows(4).any(|four| four == b"\r\n\r\n") {
                assert!(
                    reading.read_buf(&mut came).await.unwrap() > 0,
                    "it ends without an answer"
                );
            }
            String::from_utf8(came).unwrap()
        };
        let ((), answer) = tokio::join!(sending, reading);
        assert_eq!(status(&answer), expected, "{} bytes: {answer}", bytes.len());
        if let Some(why) = why {
            assert_eq!(refused(&gateway, why), counted + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_long_get_413() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[("serve.max-request-bytes", "1KiB")]).await;
    let long = json!({ "model": "tiny", "prompt": "x".repeat(2_000) }).to_string();
    let chunked = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    for (headers, body) in [
        (format!("content-length: {}\r\n", long.len()), &long),
        ("transfer-encoding: chunked\r\n".to_owned(), &chunked),
    ] {
        let mut stream = connect(&gateway.url).await;
        stream.write_all(&post(&headers, body)).await.unwrap();
        assert_eq!(status(&answers(&mut stream, 1).await[0]), 413);
    }
    assert_eq!(worker.seen(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_slowly_gets_408_and_who_sends_nothing_is_closed() {
    let worker = Recorder::start(ANSWER).await;
    let quick = [
        ("serve.header-timeout", "1s"),
        ("serve.client-idle", "8s"),
        ("serve.request-timeout", "1s"),
    ];
    let gateway = before(&worker, &quick).await;
    // A byte now and then keeps nothing open.
    let mut slow = connect(&gateway.url).await;
    let (mut reading, mut writing) = slow.split();
    let dripping = async {
        for byte in b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-slow: yes"
            .iter()
            .cycle()
        {
            // Nothing is concluded from this pause: it is how slowly this client sends.
            tokio::time::sleep(Duration::from_millis(20)).await;
            if writing.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
    };
    let answer = tokio::select! {
        answer = all(&mut reading) => answer,
        () = dripping => String::new(),
    };
    if !answer.is_empty() {
        assert_eq!(status(&answer), 408, "{answer}");
    }
    until("it to be counted", || refused(&gateway, TurnedAway::HeaderTime) >= 1).await;
    // One that stops in the middle is told so.
    let stopped = told(&gateway.url, b"POST /v1/completions HTTP/1.1\r\nhost:").await;
    assert_eq!(status(&stopped), 408, "{stopped}");
    // One that says nothing is closed without a word.
    assert_eq!(exchange(&gateway.url, b"").await, "");
    until("it to be counted", || refused(&gateway, TurnedAway::HeaderTime) >= 3).await;
    // A body that does not come ends with 408 as well.
    let answer = told(&gateway.url, &post("content-length: 10\r\n", "{")).await;
    assert_eq!(status(&answer), 408, "{answer}");
    // One that was answered may be idle for longer than a head may take, and not for ever.
    let mut idle = connect(&gateway.url).await;
    let good = post(&format!("content-length: {}\r\n", BODY.len()), BODY);
    let before = refused(&gateway, TurnedAway::HeaderTime);
    for _ in 0..2 {
        idle.write_all(&good).await.unwrap();
        assert_eq!(status(&answers(&mut idle, 1).await[0]), 200);
        // A connection that begins now and sends nothing is closed meanwhile.
        assert_eq!(exchange(&gateway.url, b"").await, "");
    }
    assert_eq!(all(&mut idle).await, "");
    until("the two silent connections to be counted", || {
        refused(&gateway, TurnedAway::HeaderTime) >= before + 2
    })
    .await;
    assert_eq!(refused(&gateway, TurnedAway::HeaderTime), before + 2);
}

/// What is answered to these bytes. Asked again where this side was too slow to send them at all.
async fn told(url: &str, bytes: &[u8]) -> String {
    for _ in 0..20 {
        let answer = exchange(url, bytes).await;
        if !answer.is_empty() {
            return answer;
        }
    }
    String::new()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_take_longer_than_a_connection_may_be_idle() {
    let engines = [Engine::start(&[("mock.speedup", "1")])];
    let quick = [("serve.header-timeout", "2s"), ("serve.client-idle", "2s")];
    let gateway = Gateway::before(&engines, &quick).await;
    let asked = json!({ "model": "tiny", "prompt": "x", "max_tokens": 500, "temperature": 0 });
    let events = gateway.stream("/v1/completions", &asked).await;
    let finish = events
        .iter()
        .rev()
        .find_map(|event| event["choices"][0]["finish_reason"].as_str());
    assert_eq!(finish, Some("length"));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_may_be_get_503() {
    let worker = Recorder::start(ANSWER).await;
    for (setting, why) in [
        ("serve.max-connections", TurnedAway::Total),
        ("serve.max-connections-per-client", TurnedAway::Client),
    ] {
        let gateway = before(&worker, &[(setting, "3")]).await;
        let good = post(&format!("content-length: {}\r\n", BODY.len()), BODY);
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut stream = connect(&gateway.url).await;
            stream.write_all(&good).await.unwrap();
            assert_eq!(status(&answers(&mut stream, 1).await[0]), 200);
            open.push(stream);
        }
        let turned = exchange(&gateway.url, &good).await;
        assert_eq!(status(&turned), 503, "{turned}");
        assert!(
            turned.contains("retry-after: 1") && turned.contains("too many connections"),
            "{turned}"
        );
        assert_eq!(refused(&gateway, why), 1);
        drop(open);
        gateway
            .wait("room", async || {
                let mut stream = connect(&gateway.url).await;
                let sent = stream.write_all(&good).await;
                sent.is_ok()
                    && answers(&mut stream, 1)
                        .await
                        .first()
                        .is_some_and(|answer| status(answer) == 200)
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_text_or_too_deep_are_refused_and_nobody_falls_over() {
    let worker = Recorder::start(ANSWER).await;
    let gateway = before(&worker, &[]).await;
    let deep = format!(
        r#"{{"model":"tiny","prompt":{}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let deep_objects = format!(
        r#"{{"model":"tiny","homing":{}1{}}}"#,
        r#"{"a":"#.repeat(50_000),
        "}".repeat(50_000)
    );
    let wide = format!(r#"{{"model":"tiny",{}"prompt":"x"}}"#, r#""a":1,"#.repeat(50_000));
    for (what, body) in [
        ("deep lists", deep.into_bytes()),
        ("deep objects", deep_objects.into_bytes()),
        ("many fields", wide.into_bytes()),
        (
            "no UTF-8 in a model",
            b"{\"model\":\"\xff\xfe\",\"prompt\":\"x\"}".to_vec(),
        ),
        ("no JSON", b"\xff\xfe\x00".to_vec()),
        ("nothing", Vec::new()),
    ] {
        let request = gateway
            .client
            .post(format!("{}/v1/completions", gateway.url))
            .body(body);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert!((400..=413).contains(&status), "{what}: {status}");
        let said: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert!(said["error"]["message"].is_string(), "{what}: {said}");
    }
    // Paths and headers that are no text.
    for bytes in [
        b"POST /v1/\xff\xfe HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".to_vec(),
        b"GET /v1/models/%ff%00%0d%0a HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-homing-session: \xff\xfe\r\ncontent-length: 2\r\n\r\n{}"
            .to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ] {
        let mut stream = connect(&gateway.url).await;
        stream.write_all(&bytes).await.unwrap();
        let found = answers(&mut stream, 1).await;
        let refused = found.first().is_none_or(|answer| (400..=505).contains(&status(answer)));
        assert!(refused, "{found:?}");
    }
    assert_eq!(worker.seen(), [""; 0]);
    let still = gateway
        .send("/v1/completions", &json!({ "model": "tiny", "prompt": "x" }))
        .await;
    assert_eq!(still.status(), 200);
}
