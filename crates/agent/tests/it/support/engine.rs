//! An engine that a test steers: real sockets, real batches, and what is true after them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use homing_transport::testing::python;
use homing_wire::encode::{self, EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, VllmForm};

use super::{BLOCK_SIZE, Truth};

/// What an engine's HTTP server says about its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    At(u32),
    NotTold,
    /// There is no server.
    Absent,
}

/// Where an engine is and how it behaves. Stays the same when it restarts, but for its start.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    pub events: String,
    pub replay: String,
    pub port: u16,
    pub start: Start,
    /// Messages kept for the replay.
    pub kept: usize,
}

impl EngineSpec {
    /// On any ports.
    pub fn new(start: Start) -> Self {
        Self {
            events: "tcp://127.0.0.1:0".to_owned(),
            replay: "tcp://127.0.0.1:0".to_owned(),
            port: 0,
            start,
            kept: 10_000,
        }
    }
}

/// A running engine, and what it holds. Killed when it is dropped.
pub struct Engine {
    pub spec: EngineSpec,
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub truth: Truth,
    /// Batches of this life.
    pub batches: u64,
    /// Names of blocks are counted through all lives; times, too, so that no two messages are alike.
    next: u64,
}

impl Engine {
    pub fn start(spec: EngineSpec) -> Self {
        Self::live(spec, 1)
    }

    fn live(mut spec: EngineSpec, next: u64) -> Self {
        let start = match spec.start {
            Start::At(seconds) => seconds.to_string(),
            Start::NotTold => "-".to_owned(),
            Start::Absent => "absent".to_owned(),
        };
        let mut process = python()
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine.py"))
            .args([
                &spec.events,
                &spec.replay,
                &spec.port.to_string(),
                &start,
                &spec.kept.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let commands = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ok", events, replay, port] = words[..] else {
            panic!("the engine said {line:?}");
        };
        (spec.events, spec.replay, spec.port) = (events.to_owned(), replay.to_owned(), port.parse().unwrap());
        if spec.port == 0 {
            // Nobody listens there.
            spec.port = 1;
        }
        Self {
            spec,
            process,
            commands,
            answers,
            truth: Truth::new(),
            batches: 0,
            next,
        }
    }

    /// Kills it, and starts it anew at the same place.
    pub fn restart(self, start: Start) -> Self {
        let spec = EngineSpec {
            start,
            ..self.spec.clone()
        };
        let next = self.next;
        drop(self);
        Self::live(spec, next)
    }

    /// The same, and from now on it says word for word what it said before.
    pub fn restart_alike(mut self, start: Start) -> Self {
        self.next = 1;
        self.restart(start)
    }

    /// The worker's address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.spec.port)
    }

    /// As it is said to an agent.
    pub fn worker(&self) -> String {
        let replay = match self.spec.replay.as_str() {
            "-" => String::new(),
            replay => format!(",replay={replay}"),
        };
        format!(
            "{},events={}{replay},block-size={BLOCK_SIZE}",
            self.url(),
            self.spec.events
        )
    }

    /// Publishes a chain of so many blocks that begins at the root, and says its names and tokens.
    pub fn store(&mut self, blocks: u64) -> (Vec<u64>, Vec<u32>) {
        let (event, labels, tokens) = self.chain(blocks);
        self.send("publish", vec![event]);
        (labels, tokens)
    }

    /// The same, but nobody hears it.
    pub fn store_unheard(&mut self, blocks: u64) {
        let (event, ..) = self.chain(blocks);
        self.send("lose", vec![event]);
    }

    pub fn remove(&mut self, labels: &[u64]) {
        let event = EngineEvent::Removed(EngineRemoved {
            hashes: labels.iter().copied().map(EngineHash::Unsigned).collect(),
            medium: None,
            group: None,
            locality: None,
        });
        self.send("publish", vec![event]);
    }

    pub fn clear(&mut self) {
        self.send("publish", vec![EngineEvent::Cleared]);
    }

    fn chain(&mut self, blocks: u64) -> (EngineEvent, Vec<u64>, Vec<u32>) {
        // Spread as hashes are, and no two alike.
        let name = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let labels: Vec<u64> = (self.next..self.next + blocks).map(name).collect();
        self.next += blocks;
        // Small tokens make small messages; the digits of its name make every block another.
        let token = |label: u64, place: u32| (label >> (place * 4)) as u32 & 15;
        let tokens_of = |label: u64| (0..BLOCK_SIZE).map(move |place| token(label, place));
        let tokens: Vec<u32> = labels.iter().copied().flat_map(tokens_of).collect();
        let hashes = labels.iter().copied().map(EngineHash::Unsigned).collect();
        let stored = EngineStored::plain(None, hashes, tokens.clone(), BLOCK_SIZE);
        (EngineEvent::Stored(stored), labels, tokens)
    }

    fn send(&mut self, command: &str, events: Vec<EngineEvent>) {
        self.next += 1;
        let batch = EngineBatch {
            ts: 1e9 + self.next as f64,
            events,
            dp: None,
        };
        let payload = encode::vllm(&batch, VllmForm::Map);
        self.truth.apply(self.batches, &payload);
        writeln!(self.commands, "{command} {}", payload.len()).expect("the engine runs");
        self.commands.write_all(&payload).expect("the engine runs");
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        self.batches += 1;
        assert_eq!(line.trim_end(), format!("ok {}", self.batches));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
