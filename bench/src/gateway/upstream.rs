//! Workers that cost next to nothing: they say what engines say of themselves, publish what they cache, and answer with canned
//! pieces at a steady pace, each with the time at which it was sent.
//!
//! `homing mock` computes what an engine would do, which takes more of a core than any of the proxies that are measured here.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use homing_transport::zmq::{Endpoint, Exposure, PublishConfig, Publisher};
use homing_wire::encode::{EngineBatch, EngineEvent, EngineHash, EngineStored, VllmForm, vllm};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Failure;
use super::prompts::{Known, MODEL};
use crate::rng::mix;

/// Tokens of a block, as vLLM has it.
pub const BLOCK: usize = 16;
/// What stands before the time in each piece.
pub const MARK: &[u8] = b" at ";
/// Digits of the time.
pub const DIGITS: usize = 20;

/// How workers answer. Shared by all.
#[derive(Debug)]
pub struct Pace {
    /// When time began.
    pub epoch: Instant,
    /// Microseconds between two pieces of a stream.
    pub step: AtomicU64,
    /// After the first piece streams wait while this is true.
    pub hold: watch::Sender<bool>,
}

impl Pace {
    /// Pieces come at this pace.
    pub fn new(step: Duration) -> Arc<Self> {
        let pace = Self {
            epoch: Instant::now(),
            step: AtomicU64::new(0),
            hold: watch::Sender::new(false),
        };
        pace.set(step);
        Arc::new(pace)
    }

    /// From now on at this pace.
    pub fn set(&self, step: Duration) {
        self.step.store(step.as_micros() as u64, Relaxed);
    }

    /// Between two pieces of a stream.
    fn step(&self) -> Duration {
        Duration::from_micros(self.step.load(Relaxed))
    }

    /// Nanoseconds since time began.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// Where a worker is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it answers.
    pub address: SocketAddr,
    /// Where it publishes.
    pub events: String,
}

struct Worker {
    pace: Arc<Pace>,
    known: Known,
    running: AtomicU64,
    cache: Mutex<Cache>,
}

struct Cache {
    blocks: HashSet<u64>,
    publisher: Publisher,
    batches: u64,
    /// What was stored since the last batch.
    stored: Vec<EngineEvent>,
}

/// What a request asks for.
#[derive(Debug)]
struct Asked {
    chat: bool,
    pieces: usize,
    usage: bool,
    ids: bool,
    prompt: Arc<[u32]>,
    cached: usize,
    /// The name of the last block of the prompt.
    last: Option<u64>,
}

/// Starts so many workers. They end with the runtime.
pub async fn start(count: usize, pace: &Arc<Pace>, known: &Known) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::with_capacity(count);
    for _ in 0..count {
        let endpoint: Endpoint = "tcp://127.0.0.1:0".parse()?;
        let config = PublishConfig {
            high_water: 100_000,
            ..PublishConfig::default()
        };
        let publisher = Publisher::bind(&endpoint, Exposure::Loopback, config).await?;
        let events = publisher.endpoint().to_string();
        let worker = Arc::new(Worker {
            pace: pace.clone(),
            known: known.clone(),
            running: AtomicU64::new(0),
            cache: Mutex::new(Cache {
                blocks: HashSet::new(),
                publisher,
                batches: 0,
                stored: Vec::new(),
            }),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        places.push(Place { address, events });
        let telling = worker.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(telling.pace.step()).await;
                telling.cache.lock().unwrap_or_else(PoisonError::into_inner).publish();
            }
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let worker = worker.clone();
                // Whoever hangs up has had enough.
                tokio::spawn(async move { drop(worker.connection(stream).await) });
            }
        });
    }
    Ok(places)
}

impl Worker {
    async fn connection(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::with_capacity(16 << 10);
        loop {
            let head = loop {
                if let Some(end) = find(&buffer, b"\r\n\r\n") {
                    break end + 4;
                }
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            };
            let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
            let end = head + length(&text);
            while buffer.len() < end {
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            }
            let mut words = text.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match (method, path) {
                ("POST", "/v1/chat/completions" | "/v1/completions") => {
                    let asked = self.asked(path.ends_with("/chat/completions"), &buffer[head..end]);
                    buffer.drain(..end);
                    self.running.fetch_add(1, Relaxed);
                    let answered = self.answer(&mut stream, &asked).await;
                    self.running.fetch_sub(1, Relaxed);
                    answered?;
                }
                _ => {
                    buffer.drain(..end);
                    stream.write_all(&self.page(path)).await?;
                }
            }
        }
    }

    /// What an engine says of itself.
    fn page(&self, path: &str) -> Vec<u8> {
        let running = self.running.load(Relaxed);
        let page = match path {
            "/health" => String::new(),
            "/version" => r#"{"version":"0.32.0"}"#.to_owned(),
            "/v1/models" => format!(
                r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","created":1,"owned_by":"vllm","root":"{MODEL}","parent":null,"max_model_len":1000000}}]}}"#
            ),
            "/metrics" => format!(
                "vllm:num_requests_running{{engine=\"0\",model_name=\"{MODEL}\"}} {running}.0\n\
                 vllm:num_requests_waiting{{engine=\"0\",model_name=\"{MODEL}\"}} 0.0\n\
                 vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"{MODEL}\"}} 0.1\n\
                 vllm:cache_config_info{{block_size=\"{BLOCK}\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"4000000\"}} 1.0\n"
            ),
            _ => return b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}".to_vec(),
        };
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{page}",
            page.len()
        )
        .into()
    }

    fn asked(&self, chat: bool, body: &[u8]) -> Asked {
        let number = |key: &[u8]| -> usize {
            let after = find(body, key).map_or(&[][..], |at| &body[at + key.len()..]);
            let digits = after.iter().take_while(|byte| byte.is_ascii_digit());
            digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let prompt = known.get(number(b"\"bench\":")).cloned().unwrap_or_default();
        let (cached, last) = self.store(&prompt);
        Asked {
            chat,
            pieces: number(b"\"max_tokens\":").max(1),
            usage: find(body, b"\"include_usage\":true").is_some(),
            ids: find(body, b"\"return_token_ids\":true").is_some(),
            prompt,
            cached,
            last,
        }
    }

    /// Keeps the blocks of a prompt and tells of new ones. Tokens that it had before, and the name of the last block.
    fn store(&self, prompt: &[u32]) -> (usize, Option<u64>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut parent, mut had, mut new) = (None, 0, Vec::new());
        let mut last = None;
        for (place, block) in prompt.chunks_exact(BLOCK).enumerate() {
            let label = block
                .iter()
                .fold(last.unwrap_or(1), |label, token| mix(label ^ u64::from(*token)));
            last = Some(label);
            if cache.blocks.insert(label) {
                new.push(EngineHash::Unsigned(label));
            } else {
                (parent, had) = (Some(EngineHash::Unsigned(label)), place + 1);
            }
        }
        if !new.is_empty() {
            let tokens = prompt[had * BLOCK..(had + new.len()) * BLOCK].to_vec();
            let stored = EngineStored::plain(parent, new, tokens, BLOCK as u32);
            cache.stored.push(EngineEvent::Stored(stored));
        }
        // An engine computes at least the last token.
        (had.min(prompt.len().saturating_sub(1) / BLOCK) * BLOCK, last)
    }

    /// Tells of a block of an answer, as an engine does when it is full. Its name.
    fn generated(&self, seed: u64, parent: Option<u64>) -> Option<u64> {
        let tokens: Vec<u32> = (0..BLOCK as u64)
            .map(|place| (mix(seed + place) % 100_000) as u32)
            .collect();
        let label = mix(seed ^ parent.unwrap_or(1));
        let hashes = vec![EngineHash::Unsigned(label)];
        let stored = EngineStored::plain(parent.map(EngineHash::Unsigned), hashes, tokens, BLOCK as u32);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.stored.push(EngineEvent::Stored(stored));
        Some(label)
    }

    async fn answer(&self, stream: &mut TcpStream, asked: &Asked) -> io::Result<()> {
        const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n\
              content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(HEAD).await?;
        if asked.chat {
            stream.write_all(&opening(asked)).await?;
        }
        let mut piece = Piece::new(asked, "null");
        let last = Piece::new(asked, "\"length\"");
        let mut hold = self.pace.hold.subscribe();
        let mut due = tokio::time::Instant::now();
        let mut block = asked.last;
        for number in 1..=asked.pieces {
            if number == asked.pieces {
                piece = last.clone();
            }
            stream.write_all(piece.at(self.pace.now())).await?;
            if number % BLOCK == 0 {
                block = self.generated(self.pace.now(), block);
            }
            if number == 1 {
                // Its sender lives as long as this.
                let _ = hold.wait_for(|hold| !hold).await;
                due = tokio::time::Instant::now();
            }
            due += self.pace.step();
            if number < asked.pieces {
                tokio::time::sleep_until(due).await;
            }
        }
        if asked.usage {
            stream.write_all(&usage(asked)).await?;
        }
        stream.write_all(&chunk("data: [DONE]\n\n")).await?;
        stream.write_all(b"0\r\n\r\n").await
    }
}

impl Cache {
    /// Publishes what was stored, as an engine does at the end of a step: one batch for all its sequences.
    fn publish(&mut self) {
        if self.stored.is_empty() {
            return;
        }
        let batch = EngineBatch {
            ts: 1.0,
            events: std::mem::take(&mut self.stored),
            dp: None,
        };
        let payload = vllm(&batch, VllmForm::Map);
        self.publisher.publish(&[b"", &self.batches.to_be_bytes(), &payload]);
        self.batches += 1;
    }
}

const INTRODUCTION: &str = r#"data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1767225600,"model":"bench","choices":[{"index":0,"#;
const TEXT_INTRODUCTION: &str = r#"data: {"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion","created":1767225600,"model":"bench","choices":[{"index":0,"#;

fn opening(asked: &Asked) -> Vec<u8> {
    let ids = if asked.ids {
        serde_json::json!(&*asked.prompt).to_string()
    } else {
        "null".to_owned()
    };
    chunk(&format!(
        "{INTRODUCTION}\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}],\"prompt_token_ids\":{ids}}}\n\n"
    ))
}

fn usage(asked: &Asked) -> Vec<u8> {
    let (prompt, pieces) = (asked.prompt.len(), asked.pieces);
    let introduction = if asked.chat { INTRODUCTION } else { TEXT_INTRODUCTION };
    let introduction = introduction.trim_end_matches("{\"index\":0,");
    chunk(&format!(
        "{introduction}],\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{pieces},\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}}}\n\n",
        prompt + pieces,
        asked.cached,
    ))
}

/// A piece whose time is filled in when it is sent.
#[derive(Clone, Debug)]
struct Piece {
    bytes: Vec<u8>,
    time: usize,
}

impl Piece {
    fn new(asked: &Asked, finish: &str) -> Self {
        let ids = if asked.ids { "[12345]" } else { "null" };
        let says = format!(" at {:0DIGITS$}", 0);
        let event = if asked.chat {
            format!(
                "{INTRODUCTION}\"delta\":{{\"content\":\"{says}\"}},\"logprobs\":null,\"finish_reason\":{finish},\"token_ids\":{ids}}}]}}\n\n"
            )
        } else {
            format!(
                "{TEXT_INTRODUCTION}\"text\":\"{says}\",\"logprobs\":null,\"finish_reason\":{finish},\"stop_reason\":null,\"token_ids\":{ids}}}]}}\n\n"
            )
        };
        let bytes = chunk(&event);
        let time = find(&bytes, MARK).map_or(0, |at| at + MARK.len());
        Self { bytes, time }
    }

    fn at(&mut self, mut now: u64) -> &[u8] {
        for digit in self.bytes[self.time..self.time + DIGITS].iter_mut().rev() {
            *digit = b'0' + (now % 10) as u8;
            now /= 10;
        }
        &self.bytes
    }
}

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into()
}

fn length(head: &str) -> usize {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths
        .next()
        .and_then(|(_, length)| length.trim().parse().ok())
        .unwrap_or(0)
}

/// Where something stands first.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}
