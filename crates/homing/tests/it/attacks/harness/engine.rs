//! An engine that answers what a test says, and records byte for byte what reaches it.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Connection, Message};
use super::wait_until;

/// A request that reached an engine.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Without chunk sizes.
    pub body: Vec<u8>,
    /// As it came.
    pub raw: Vec<u8>,
    /// The connection that it came over: they are counted from 1.
    pub connection: u64,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().find(same).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether it only asks what the engine is or how it is.
    pub fn is_probe(&self) -> bool {
        let known = [
            "/health",
            "/metrics",
            "/version",
            "/v1/models",
            "/server_info",
            "/get_server_info",
            "/kv_event_sources",
            "/v1/loads",
            "/get_load",
        ];
        self.method == "GET" && known.contains(&self.path())
    }
}

/// What an engine does with a request.
pub enum Reply {
    /// Answers as a well-behaved engine.
    Usual,
    /// Sends these bytes, and keeps the connection.
    Bytes(Vec<u8>),
}

type Handler = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

/// An engine of one model on threads. It ends when dropped; its connections are cut then.
pub struct FakeEngine {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    model: String,
    handler: Box<Handler>,
    /// Requests for a model, and what is unknown.
    requests: Mutex<Vec<ReceivedRequest>>,
    probes: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

impl FakeEngine {
    /// An engine that answers well.
    pub fn start(model: &str) -> Self {
        Self::start_with(model, |_| Reply::Usual)
    }

    /// An engine that answers every request, probes included, as `handler` says.
    pub fn start_with(model: &str, handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            model: model.to_owned(),
            handler: Box::new(handler),
            requests: Mutex::default(),
            probes: Mutex::default(),
            connections: AtomicU64::new(0),
            streams: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let engine = Self {
            address,
            state: state.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if state.is_over.load(Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = state.connections.fetch_add(1, Relaxed) + 1;
                if let Ok(copy) = stream.try_clone() {
                    state.streams.lock().unwrap().push(copy);
                }
                let state = state.clone();
                std::thread::spawn(move || {
                    let shared = stream.try_clone();
                    let _ = state.serve(stream, number);
                    // A copy of it is kept, so dropping it does not close it.
                    let _ = shared.map(|stream| stream.shutdown(std::net::Shutdown::Both));
                });
            }
        });
        engine
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests for a model so far, and whatever else is no probe.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// The same, and forgets them.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.state.requests.lock().unwrap())
    }

    /// Questions what it is and how it is.
    pub fn probes(&self) -> Vec<ReceivedRequest> {
        self.state.probes.lock().unwrap().clone()
    }
    /// Requests to this path so far. Prompts are tokenized by the engine as well, at `/tokenize`, where the gateway has no tokenizer.
    pub fn requests_to(&self, path: &str) -> Vec<ReceivedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.path() == path);
        requests
    }

    /// Waits for so many requests to this path.
    pub fn wait_requests_to(&self, path: &str, count: usize) -> Vec<ReceivedRequest> {
        wait_until(&format!("{count} requests to {path} at the engine"), || {
            let requests = self.state.requests.lock().unwrap();
            requests.iter().filter(|request| request.path() == path).count() >= count
        });
        self.requests_to(path)
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.state.is_over.store(true, Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        for stream in self.state.streams.lock().unwrap().drain(..) {
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
    }
}

impl State {
    fn serve(&self, stream: TcpStream, number: u64) -> io::Result<()> {
        let mut connection = Connection::of(stream);
        connection.stream.set_read_timeout(None)?;
        while let Some(message) = connection.read_request()? {
            let request = received(message, number);
            let record = if request.is_probe() {
                &self.probes
            } else {
                &self.requests
            };
            record.lock().unwrap().push(request.clone());
            match (self.handler)(&request) {
                Reply::Usual => connection.send(self.usual(&request))?,
                Reply::Bytes(bytes) => connection.send(bytes)?,
            }
            connection.stream.flush()?;
        }
        Ok(())
    }

    fn usual(&self, request: &ReceivedRequest) -> Vec<u8> {
        let model = &self.model;
        let usage = json!({ "prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4 });
        match (request.method.as_str(), request.path()) {
            ("GET", "/health") => answer_with(200, &[], b""),
            ("GET", "/version") => answer_json(200, &json!({ "version": "0.11.0" })),
            ("GET", "/metrics") => {
                answer_with(200, &[("content-type", "text/plain")], b"vllm:num_requests_running 0\n")
            }
            ("GET", "/v1/models") => {
                let card = json!({ "id": model, "object": "model", "owned_by": "vllm", "max_model_len": 100_000 });
                answer_json(200, &json!({ "object": "list", "data": [card] }))
            }
            ("POST", "/v1/chat/completions") => {
                let message = json!({ "role": "assistant", "content": "yes" });
                let choices = json!([{ "index": 0, "message": message, "finish_reason": "stop" }]);
                let body = json!({
                    "id": "chatcmpl-1", "object": "chat.completion", "model": model, "choices": choices, "usage": usage
                });
                answer_json(200, &body)
            }
            ("POST", "/v1/completions") => {
                let choices = json!([{ "index": 0, "text": "yes", "finish_reason": "stop" }]);
                let body = json!({
                    "id": "cmpl-1", "object": "text_completion", "model": model, "choices": choices, "usage": usage
                });
                answer_json(200, &body)
            }
            ("POST", "/tokenize") => {
                // A token for every sixteenth byte of what is asked.
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let prompt = body["prompt"]
                    .as_str()
                    .map_or_else(|| body["messages"].to_string(), str::to_owned);
                let tokens: Vec<u8> = prompt.bytes().step_by(16).collect();
                answer_json(
                    200,
                    &json!({ "count": tokens.len(), "max_model_len": 100_000, "tokens": tokens }),
                )
            }
            ("POST", _) => answer_json(200, &json!({ "object": "anything", "model": model, "usage": usage })),
            _ => answer_json(404, &json!({ "detail": "Not Found" })),
        }
    }
}

fn received(message: Message, connection: u64) -> ReceivedRequest {
    let mut words = message.first_line.split(' ').map(str::to_owned);
    ReceivedRequest {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        headers: message.headers,
        body: message.body,
        raw: message.raw,
        connection,
    }
}

/// An answer with its length.
pub fn answer_with(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn answer_json(status: u16, body: &Value) -> Vec<u8> {
    answer_with(
        status,
        &[("content-type", "application/json")],
        body.to_string().as_bytes(),
    )
}
