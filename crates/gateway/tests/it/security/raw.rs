//! Bytes as they are: clients that send anything, and a worker that keeps everything it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{GUARD, Gateway};

/// Sends bytes, and reads all that comes until the connection ends.
pub async fn exchange(address: &str, bytes: &[u8]) -> String {
    let mut stream = connect(address).await;
    // Who is refused before all was sent has ended the connection.
    let _ = stream.write_all(bytes).await;
    all(&mut stream).await
}

pub async fn connect(address: &str) -> TcpStream {
    let address = address.trim_start_matches("http://");
    TcpStream::connect(address).await.unwrap()
}

/// All that comes until the connection ends.
pub async fn all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut came = Vec::new();
    let reading = async {
        // One that is reset has ended as well.
        while let Ok(1..) = stream.read_buf(&mut came).await {}
    };
    let ended = tokio::time::timeout(GUARD, reading).await;
    let text = String::from_utf8_lossy(&came).into_owned();
    assert!(ended.is_ok(), "the connection does not end: {text}");
    text
}

/// What comes until this many answers are complete, all of which say their length.
pub async fn answers(stream: &mut TcpStream, count: usize) -> Vec<String> {
    let mut came = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let reading = async {
        while found.len() < count {
            if let Some(length) = message(&came) {
                found.push(String::from_utf8_lossy(&came[..length]).into_owned());
                came.drain(..length);
            } else if !matches!(stream.read_buf(&mut came).await, Ok(1..)) {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(GUARD, reading).await;
    assert!(
        ended.is_ok(),
        "only {found:?} came, and {}",
        String::from_utf8_lossy(&came)
    );
    found
}

pub fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {answer:?}"))
}

/// The length of the message that bytes begin with, if all of it is there.
fn message(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length: usize = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
    (bytes.len() >= end + 4 + length).then_some(end + 4 + length)
}

/// A worker that keeps what it was sent for a model, byte for byte.
pub struct Recorder {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Answers every request for a model with `answer`.
    pub async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let keeping = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(record(stream, keeping.clone(), answer));
            }
        });
        Self { address, seen }
    }

    /// All requests that came, in their order; those that ask what it is are left out.
    pub fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let asks = |request: &&String| !request.starts_with("GET ");
        seen.iter().filter(asks).cloned().collect()
    }

    /// Those as well.
    pub fn everything(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub fn spec(&self) -> String {
        format!("http://{},model=tiny,cache-view=none", self.address)
    }
}

async fn record(mut stream: TcpStream, seen: Arc<Mutex<Vec<String>>>, answer: &'static str) {
    let mut came = Vec::new();
    loop {
        let Some(length) = message(&came) else {
            if !matches!(stream.read_buf(&mut came).await, Ok(1..)) {
                // What is left over is what must never come.
                if !came.is_empty() {
                    let rest = String::from_utf8_lossy(&came).into_owned();
                    seen.lock().unwrap().push(format!("LEFT OVER: {rest}"));
                }
                return;
            }
            continue;
        };
        let request = String::from_utf8_lossy(&came[..length]).into_owned();
        came.drain(..length);
        let about = match request.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => Some(r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#),
            path if path.starts_with("/v1/") => None,
            _ => Some("{}"),
        };
        seen.lock().unwrap().push(request);
        let said = match about {
            Some(body) => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
            None => answer.to_owned(),
        };
        if stream.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A gateway in front of a recorder.
pub async fn before(recorder: &Recorder, settings: &[(&str, &str)]) -> Gateway {
    let quick = [
        ("serve.policy", "round-robin"),
        ("serve.drain", "1s"),
        // What is asked of a worker when it comes is not what is looked at here.
        ("serve.check-workers", "none"),
    ];
    let gateway = Gateway::start(&[recorder.spec()], &[&quick, settings].concat()).await;
    gateway.wait_workers(1).await;
    gateway
}

/// Waits until something holds.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(GUARD, waiting).await;
    assert!(waited.is_ok(), "waited for {what}");
}
