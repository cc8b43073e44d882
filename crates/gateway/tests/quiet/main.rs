//! Is nothing of a prompt, and no key, in anything that the gateway logs, keeps or tells, however much is logged?

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

#[path = "../service/harness.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod harness;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use homing_config::keys::{KeySpec, Quota, digest};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use harness::{Engine, Gateway, file};

/// What a client asks. It must be nowhere.
const PROMPT: &str = "mellifluous-tamarind-prompt";
/// What stands in keys and tokens. It must be nowhere.
const SECRET: &str = "zanzibar-petrichor-secret";

/// All that is logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An engine that repeats what it was asked in every error, as real ones do.
async fn parrot() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(repeat(stream));
        }
    });
    address
}

async fn repeat(mut stream: TcpStream) {
    let mut came = Vec::new();
    loop {
        let Some(end) = came.windows(4).position(|four| four == b"\r\n\r\n") else {
            if !matches!(stream.read_buf(&mut came).await, Ok(1..)) {
                return;
            }
            continue;
        };
        let head = String::from_utf8_lossy(&came[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length: usize = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        if came.len() < end + 4 + length {
            if !matches!(stream.read_buf(&mut came).await, Ok(1..)) {
                return;
            }
            continue;
        }
        let body = String::from_utf8_lossy(&came[end + 4..end + 4 + length]).into_owned();
        came.drain(..end + 4 + length);
        let asked = body.replace(['"', '\\'], "'");
        let (status, kind, said) = match head.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => ("200 OK", "application/json", r#"{"data":[{"id":"parrot"}]}"#.to_owned()),
            path if path.starts_with("/v1/") && asked.contains("'stream':true") => {
                let begun = r#"data: {"choices":[{"index":0,"text":"a","delta":{"content":"a"}}]}"#;
                let error = format!(r#"data: {{"error":{{"message":"cannot compute {asked}","code":500}}}}"#);
                ("200 OK", "text/event-stream", format!("{begun}\n\n{error}\n\n"))
            }
            path if path.starts_with("/v1/") => {
                let error = format!(r#"{{"error":{{"message":"cannot compute {asked}","code":500}}}}"#);
                ("500 Internal Server Error", "application/json", error)
            }
            _ => ("200 OK", "application/json", "{}".to_owned()),
        };
        let length = said.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{said}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Bodies in which the marker stands wherever a prompt can.
fn bodies(model: &str) -> Vec<(&'static str, String)> {
    let chat =
        |message: &str, more: &str| format!(r#"{{"model":"{model}","max_tokens":4,"messages":[{message}]{more}}}"#);
    let user = format!(r#"{{"role":"user","content":"{PROMPT}"}}"#);
    let odd_role = format!(r#"{{"role":"{PROMPT}","content":"x"}}"#);
    let odd_part = format!(r#"{{"role":"user","content":[{{"type":"{PROMPT}","{PROMPT}":1}}]}}"#);
    let url = format!("data:image/png;base64,{PROMPT}");
    let picture = format!(r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}"#);
    let function = format!(r#"{{"name":"{PROMPT}","description":"{PROMPT}"}}"#);
    let tool = format!(r#","tools":[{{"type":"function","function":{function}}}]"#);
    let text = |more: &str| format!(r#"{{"model":"{model}","prompt":"{PROMPT}"{more}}}"#);
    vec![
        ("/v1/chat/completions", chat(&user, "")),
        ("/v1/chat/completions", chat(&user, r#","stream":true"#)),
        ("/v1/chat/completions", chat(&user, &tool)),
        ("/v1/chat/completions", chat(&odd_role, "")),
        ("/v1/chat/completions", chat(&odd_part, "")),
        ("/v1/chat/completions", chat(&picture, "")),
        (
            "/v1/chat/completions",
            chat(&user, &format!(r#","{PROMPT}":"{PROMPT}""#)),
        ),
        ("/v1/completions", text(r#","max_tokens":4"#)),
        ("/v1/completions", text(r#","max_tokens":4,"stream":true"#)),
        (
            "/v1/completions",
            text(&format!(r#","max_tokens":4,"suffix":"{PROMPT}""#)),
        ),
        ("/v1/messages", chat(&user, &format!(r#","system":"{PROMPT}""#))),
        (
            "/v1/responses",
            format!(r#"{{"model":"{model}","input":"{PROMPT}","max_output_tokens":4}}"#),
        ),
        ("/v1/embeddings", format!(r#"{{"model":"{model}","input":"{PROMPT}"}}"#)),
        ("/tokenize", text("")),
        // What cannot be read.
        ("/v1/completions", format!(r#"{{"model":"{model}","prompt":"{PROMPT}"#)),
        ("/v1/completions", format!(r#"{{"model":"{model}","prompt":{PROMPT}}}"#)),
        ("/v1/completions", text(&format!(r#","max_tokens":"{PROMPT}""#))),
        (
            "/v1/chat/completions",
            format!(r#"{{"model":"{model}","messages":"{PROMPT}"}}"#),
        ),
        ("/v1/chat/completions", PROMPT.to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_prompts_nor_keys_are_logged_kept_or_told() {
    let logged = Logged::default();
    let sink = logged.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .init();
    let key = format!("homing-sk-{SECRET}");
    let spec = KeySpec {
        digest: digest(key.as_bytes()),
        tenant: "own".to_owned(),
        name: None,
        priority: 0,
        quota: Quota::default(),
    };
    let (keys, log) = (file("quiet-keys.toml"), file("quiet.jsonl"));
    std::fs::write(&keys, spec.to_toml()).unwrap();
    let _ = std::fs::remove_file(&log);
    let engine = Engine::start(&[]);
    let workers = [
        engine.spec(""),
        format!("http://{},model=parrot,cache-view=approximate", parrot().await),
    ];
    let worker_key = format!("engines-{SECRET}");
    let register = format!("workers-{SECRET}");
    let settings = [
        ("serve.keys", keys.to_str().unwrap()),
        ("serve.log", log.to_str().unwrap()),
        ("serve.worker-key", &worker_key),
        ("serve.register-token", &register),
        ("serve.tries", "2"),
        ("health.failures", "1000"),
        ("health.failure-rate", "1"),
    ];
    let mut gateway = Gateway::start(&workers, &settings).await;
    gateway.wait_workers(2).await;
    let bearer = format!("Bearer {key}");
    let mut statuses = Vec::new();
    let mut post = async |target: &str, body: String, headers: &[(&str, &str)]| {
        let mut request = gateway.client.post(format!("{}{target}", gateway.url)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        statuses.push(answer.status().as_u16());
        let _ = answer.bytes().await;
    };
    for model in ["tiny", "parrot"] {
        for (target, body) in bodies(model) {
            post(target, body.clone(), &[("authorization", &bearer)]).await;
            post(target, body, &[("x-api-key", &key)]).await;
        }
    }
    let ask = format!(r#"{{"model":"tiny","prompt":"{PROMPT}","max_tokens":2}}"#);
    let wrong = format!("Bearer wrong-{SECRET}");
    post("/v1/completions", ask.clone(), &[("authorization", &wrong)]).await;
    post(
        &format!("/v1/{PROMPT}?key={SECRET}"),
        ask.clone(),
        &[("x-api-key", &key)],
    )
    .await;
    post(
        &format!("/v1/completions?prompt={PROMPT}"),
        ask.clone(),
        &[("x-api-key", &key), ("cookie", SECRET)],
    )
    .await;
    post("/v1/completions", ask, &[("x-api-key", &key), ("x-odd", PROMPT)]).await;
    for wanted in [200, 400, 401, 404, 500] {
        assert!(statuses.contains(&wanted), "no {wanted} among {statuses:?}");
    }
    let mut told = Vec::new();
    for target in ["/admin/decisions?limit=1000", "/admin/fleet", "/admin/workers"] {
        let found: Value = gateway.admin(target).await;
        told.push((target, found.to_string()));
    }
    assert!(
        told[0].1.contains("said that it failed"),
        "the engine's words are kept back: {}",
        told[0].1
    );
    told.push(("the metrics", gateway.metrics.render()));
    gateway.end().await.unwrap();
    told.push(("the request log", std::fs::read_to_string(&log).unwrap()));
    assert!(told[4].1.lines().count() > 3, "requests are logged");
    let text = String::from_utf8_lossy(&logged.0.lock().unwrap()).into_owned();
    assert!(text.contains("TRACE") && text.contains("DEBUG"), "everything is logged");
    // The engine is in this process as well, and what it logs would be there.
    told.push(("the logs", text));
    for (place, text) in told {
        for secret in [PROMPT, SECRET] {
            let found = text.find(secret);
            let near =
                found.map(|at| String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(300)..at + 30]).into_owned());
            assert_eq!(near, None, "{secret} is in {place}");
        }
    }
}
