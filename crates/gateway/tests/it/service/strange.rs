//! Are engines understood that speak HTTP in their own ways? Servers of a few lines that do one strange thing each.

use homing_platform::HttpClient;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Engine, Gateway, events, text_of};

/// A request that was read: its first line, and its body.
struct Asked {
    line: String,
    body: String,
}

/// Reads one request; `None` if there is none any more.
async fn read(stream: &mut TcpStream, left: &mut Vec<u8>) -> Option<Asked> {
    loop {
        if let Some(end) = left.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&left[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length: usize = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
            if left.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&left[end + 4..end + 4 + length]).into_owned();
                left.drain(..end + 4 + length);
                let line = head.lines().next().unwrap_or_default().to_owned();
                return Some(Asked { line, body });
            }
        }
        match stream.read_buf(left).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// What every worker says of itself; `None` for what is asked of a model.
fn about(asked: &Asked) -> Option<String> {
    let answer = match asked.line.split(' ').nth(1)? {
        "/v1/models" => r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#,
        // Loads are asked for now and then, and are no requests.
        path if path.starts_with("/v1/") && path != "/v1/loads" && path != "/v1/load_lora_adapter" => return None,
        _ => "{}",
    };
    let length = answer.len();
    Some(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}"
    ))
}

/// A worker that answers requests for a model with `answer`.
async fn worker<F>(answer: impl Fn(Asked, TcpStream) -> F + Clone + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = Option<TcpStream>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut left = Vec::new();
                while let Some(asked) = read(&mut stream, &mut left).await {
                    if let Some(said) = about(&asked) {
                        stream.write_all(said.as_bytes()).await.unwrap();
                        continue;
                    }
                    match answer(asked, stream).await {
                        Some(back) => stream = back,
                        None => return,
                    }
                }
            });
        }
    });
    address
}

async fn before(workers: &[SocketAddr], settings: &[(&str, &str)]) -> Gateway {
    let workers: Vec<String> = workers
        .iter()
        .map(|address| format!("http://{address},model=tiny,cache-view=none"))
        .collect();
    // What is asked of a worker when it comes is not what it is strange about.
    let quiet = [("serve.policy", "round-robin"), ("serve.check-workers", "none")];
    let gateway = Gateway::start(&workers, &[&quiet, settings].concat()).await;
    gateway.wait_workers(workers.len()).await;
    gateway
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

async fn chunk(stream: &mut TcpStream, text: &str) {
    let framed = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(framed.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

fn asked() -> Value {
    json!({ "model": "tiny", "prompt": "x", "max_tokens": 3, "stream": true })
}

fn piece(text: &str, finish: Option<&str>) -> String {
    json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny",
        "choices": [{ "index": 0, "text": text, "finish_reason": finish }]
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_may_be_split_and_joined_anywhere() {
    let stream = format!(
        ": a comment\r\n\r\ndata: {}\r\n\r\ndata: {}\n\nevent: x\ndata: {}\ndata:\n\n: ping\n\ndata: [DONE]\n\n",
        piece("one ", None),
        piece("two ", None),
        piece("three", Some("length"))
    );
    for size in [1, 2, 3, 7, 64, 100_000] {
        let text = stream.clone();
        let address = worker(move |_, mut stream| {
            let text = text.clone();
            async move {
                stream.write_all(HEAD.as_bytes()).await.unwrap();
                for part in text.as_bytes().chunks(size) {
                    chunk(&mut stream, std::str::from_utf8(part).unwrap()).await;
                }
                chunk(&mut stream, "").await;
                Some(stream)
            }
        })
        .await;
        let gateway = before(&[address], &[]).await;
        let through = gateway.send("/v1/completions", &asked()).await.text().await.unwrap();
        assert_eq!(through, stream, "in pieces of {size} bytes: nothing is encoded anew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_dies_before_its_first_event_is_asked_for_elsewhere() {
    let dying = worker(|_, mut stream| async move {
        stream.write_all(HEAD.as_bytes()).await.unwrap();
        chunk(&mut stream, ": keep alive\n\n").await;
        None
    })
    .await;
    let failing = worker(|_, mut stream| async move {
        stream.write_all(HEAD.as_bytes()).await.unwrap();
        chunk(
            &mut stream,
            "data: {\"error\":{\"message\":\"EngineCore is dead\",\"code\":500}}\n\n",
        )
        .await;
        chunk(&mut stream, "").await;
        Some(stream)
    })
    .await;
    let good = Engine::start(&[]);
    let gateway = before(&[dying, failing, good.place.address], &[]).await;
    for _ in 0..6 {
        let text = gateway.send("/v1/completions", &asked()).await.text().await.unwrap();
        assert_eq!(events(&text).len(), 3, "{text}");
    }
    assert!(
        gateway
            .metrics
            .gateway
            .failed_tries
            .of(homing_telemetry::TryFailure::Broken)
            .get()
            > 0
    );
    assert!(
        gateway
            .metrics
            .gateway
            .failed_tries
            .of(homing_telemetry::TryFailure::Status)
            .get()
            > 0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_worker_closed_while_it_was_idle_costs_nothing() {
    let closed = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (closed.clone(), Arc::new(Mutex::new(HashSet::new())));
    // Answers, and closes the connection as soon as the next request comes over it.
    let address = worker(move |_, mut stream| {
        let first = seen.lock().unwrap().insert(stream.peer_addr().unwrap());
        counted.fetch_add(usize::from(!first), SeqCst);
        async move {
            if !first {
                return None;
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer.as_bytes()).await.unwrap();
            Some(stream)
        }
    })
    .await;
    let gateway = before(
        &[address],
        &[("serve.tries", "1"), ("serve.threads", "1"), ("serve.idle", "1h")],
    )
    .await;
    for turn in 0..5 {
        let (status, answer) = gateway
            .post("/v1/completions", &json!({ "model": "tiny", "prompt": "x" }))
            .await;
        assert_eq!(status, 200, "turn {turn}: {answer}");
    }
    assert_eq!(
        closed.load(SeqCst),
        4,
        "all but the first came over a connection that was closed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_goes_silent_in_the_middle_is_given_up() {
    let silent = worker(|asked, mut stream| async move {
        assert!(asked.body.contains("\"stream\":true"), "{}", asked.body);
        stream.write_all(HEAD.as_bytes()).await.unwrap();
        chunk(&mut stream, &format!("data: {}\n\n", piece("begun ", None))).await;
        // The connection stays open, and nothing more comes over it.
        std::future::pending::<()>().await;
        None
    })
    .await;
    let gateway = before(&[silent], &[("serve.silence-timeout", "200ms")]).await;
    let text = gateway.send("/v1/completions", &asked()).await.text().await.unwrap();
    assert!(text.starts_with("data: {") && text.contains("begun "), "{text}");
    assert!(
        text.contains("\"error\"") && text.contains("said nothing for 200ms"),
        "{text}"
    );
    gateway
        .wait("rest", async || gateway.metrics.gateway.running_requests.get() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_says_in_one_piece_with_an_error_is_passed_on() {
    let failing = worker(|_, mut stream| async move {
        stream.write_all(HEAD.as_bytes()).await.unwrap();
        chunk(&mut stream, &format!("data: {}\n\n", piece("one ", None))).await;
        let error = r#"{"error":{"message":"EngineCore is dead","code":500}}"#;
        let both = format!("data: {}\n\ndata: {error}\n\n", piece("two ", None));
        chunk(&mut stream, &both).await;
        chunk(&mut stream, "").await;
        Some(stream)
    })
    .await;
    let gateway = before(&[failing], &[]).await;
    let text = gateway.send("/v1/completions", &asked()).await.text().await.unwrap();
    // It was heard, so whoever went on would go on behind it.
    let (said, error) = text.split_once("\"error\"").expect("an error at the end");
    assert!(said.contains("one ") && said.contains("two "), "{text}");
    assert!(error.contains("EngineCore is dead"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_no_engine_for_ever() {
    let endless = worker(|_, mut stream| async move {
        stream.write_all(HEAD.as_bytes()).await.unwrap();
        let text = format!("data: {}\n\n", piece(&"x".repeat(4096), None));
        let framed = format!("{:x}\r\n{text}\r\n", text.len());
        while stream.write_all(framed.as_bytes()).await.is_ok() {}
        None
    })
    .await;
    let gateway = before(
        &[endless],
        &[("serve.client-stall", "300ms"), ("serve.migrations", "0")],
    )
    .await;
    let mut client = TcpStream::connect(gateway.url.trim_start_matches("http://"))
        .await
        .unwrap();
    let body = asked().to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let ended = &gateway.metrics.gateway.ended_requests;
    let given_up = || ended.of(homing_telemetry::RequestEnd::Cancelled).get();
    gateway.wait("it to be given up", async || given_up() == 1).await;
    gateway
        .wait("rest", async || gateway.metrics.gateway.running_requests.get() == 0)
        .await;
    let fleet = gateway.admin("/admin/fleet").await;
    assert_eq!(fleet["workers"][0]["in_flight"], 0, "{fleet}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_lose_no_request() {
    const USERS: usize = 16;
    let settings = [("mock.speedup", "5"), ("mock.max-running", "256")];
    let mut engines: Vec<Engine> = (0..3).map(|_| Engine::start(&settings)).collect();
    let gateway = Gateway::before(&engines, &[]).await;
    let going = std::sync::atomic::AtomicBool::new(true);
    let answered = AtomicUsize::new(0);
    let user = async |number: u32| {
        let mut turns = 0;
        while going.load(SeqCst) {
            let text = crate::harness::prompt(number * 1_000 + turns, 80);
            let asked = json!({ "model": "tiny", "messages": [{ "role": "user", "content": text }], "max_tokens": 12, "temperature": 0 });
            let events = gateway.stream("/v1/chat/completions", &asked).await;
            assert!(!text_of(&events).is_empty());
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
            turns += 1;
            answered.fetch_add(1, SeqCst);
        }
        turns
    };
    let wait_for_answers = async |more: usize| {
        let enough = answered.load(SeqCst) + more;
        gateway.wait("answers", async || answered.load(SeqCst) >= enough).await;
    };
    let restarting = async {
        for engine in &mut engines {
            wait_for_answers(USERS).await;
            let port = engine.place.address.port().to_string();
            let sockets: Vec<String> = [&engine.place.ranks[0].0, &engine.place.ranks[0].1]
                .iter()
                .map(|socket| (*socket).clone().unwrap())
                .collect();
            engine.kill();
            // The other engines serve everything meanwhile.
            wait_for_answers(USERS).await;
            let more = [
                &settings[..],
                &[
                    ("mock.port", &port),
                    ("mock.events", &sockets[0]),
                    ("mock.replay", &sockets[1]),
                ],
            ]
            .concat();
            *engine = Engine::start_again(&more);
            gateway.wait_workers(3).await;
        }
        going.store(false, SeqCst);
    };
    let users = futures_util::future::join_all((0..USERS as u32).map(user));
    let (turns, ()) = tokio::join!(users, restarting);
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    assert_eq!(gateway.metrics.gateway.broken_answers.get(), 0);
    assert_eq!(
        gateway
            .metrics
            .gateway
            .ended_requests
            .of(homing_telemetry::RequestEnd::Failed)
            .get(),
        0
    );
}

/// A worker that keeps its responses, and says of each request which worker it is.
async fn keeper(number: usize) -> SocketAddr {
    worker(move |asked, mut stream| async move {
        let path = asked.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        if body["stream"] == true {
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            let created =
                json!({ "type": "response.created", "response": { "id": format!("resp_streamed_{number}") } });
            chunk(&mut stream, &format!("event: response.created\ndata: {created}\n\n")).await;
            let completed = json!({ "type": "response.completed", "response": { "status": "completed" } });
            chunk(
                &mut stream,
                &format!("event: response.completed\ndata: {completed}\n\n"),
            )
            .await;
            chunk(&mut stream, "").await;
            return Some(stream);
        }
        let kept = path.contains(&format!("_{number}"));
        let status = if path == "/v1/responses" || kept {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let id = format!("resp_whole_{number}");
        let said =
            json!({ "id": id, "status": "completed", "asked": asked.line, "after": body["previous_response_id"] });
        let said = said.to_string();
        let length = said.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{said}");
        stream.write_all(head.as_bytes()).await.unwrap();
        Some(stream)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_on_from_a_response_goes_where_it_is_kept() {
    let workers = [keeper(0).await, keeper(1).await, keeper(2).await];
    let gateway = before(&workers, &[]).await;
    for number in 0..3 {
        let streamed = json!({ "model": "tiny", "input": "x", "stream": true });
        let streamed = gateway.send("/v1/responses", &streamed).await.text().await.unwrap();
        let streamed = streamed.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let whole = gateway
            .ok("/v1/responses", &json!({ "model": "tiny", "input": "x" }))
            .await;
        for response in [streamed, whole["id"].as_str().unwrap()] {
            let mut homes = HashSet::new();
            // By turns it would go elsewhere twice.
            for _ in 0..3 {
                let next = json!({ "model": "tiny", "input": "y", "previous_response_id": response });
                let next = gateway.ok("/v1/responses", &next).await;
                homes.insert(next["after"].as_str().unwrap().to_owned());
            }
            let about = HttpClient::default()
                .get(format!("{}/v1/responses/{response}", gateway.url))
                .send()
                .await
                .unwrap();
            assert_eq!(about.status(), 200, "{number}: it is asked for where it is stored");
            let about: Value = about.json().await.unwrap();
            let home = homes.iter().next().unwrap();
            assert_eq!(about["asked"], format!("get /v1/responses/{home} http/1.1"));
            assert_eq!(homes.len(), 1, "{number}: {response}, {homes:?}");
        }
    }
    let unknown = gateway.send("/v1/responses/resp_x/cancel", &json!({})).await;
    assert_eq!(unknown.status(), 404);
    let why: Value = unknown.json().await.unwrap();
    assert!(why["error"]["message"].as_str().unwrap().contains("resp_x"), "{why}");
}
