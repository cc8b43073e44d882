//! Engines that store blocks as fast as their socket takes them.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::harness::{FakeEngine, Process, get, wait_until};

/// Blocks that the engine stores, each in a batch of its own.
const BLOCKS: u64 = 400_000;
/// Blocks of one prompt.
const CHAIN: u64 = 100;
const BLOCK_TOKENS: u64 = 16;
/// Batches that the engine sends again when it is asked.
const RING: u64 = 10_000;
/// Live batches that are sent before the first replay is answered: more than are kept during a repair.
const AHEAD: u64 = 1_500;

/// A publisher of KV events, with a replay socket: ZMTP by hand, so that nothing but the peer limits it. It ends when dropped.
struct Publisher {
    events: SocketAddr,
    replay: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Batches below this number may be sent.
    limit: AtomicU64,
    /// Batches below this number have been sent or are being sent.
    next: AtomicU64,
    replays: AtomicU64,
    is_over: AtomicBool,
}

impl Publisher {
    /// A publisher that has published so many batches to nobody.
    fn start(published: u64) -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let (events, replay) = (bind(), bind());
        let state = Arc::new(State::default());
        state.limit.store(published, SeqCst);
        state.next.store(published, SeqCst);
        let publisher = Self {
            events: events.local_addr().expect("it is bound"),
            replay: replay.local_addr().expect("it is bound"),
            state: state.clone(),
        };
        accept(events, &state, State::publish);
        accept(replay, &state, State::answer);
        publisher
    }

    /// What `--worker` is given for an engine with these events.
    fn worker(&self, engine: &FakeEngine) -> String {
        format!("{},events=tcp://{}", engine.url(), self.events)
    }

    fn worker_with_replay(&self, engine: &FakeEngine) -> String {
        format!("{},replay=tcp://{}", self.worker(engine), self.replay)
    }

    /// From now on batches below this number are sent.
    fn publish(&self, limit: u64) {
        self.state.limit.store(limit, SeqCst);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        for address in [self.events, self.replay] {
            let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        }
    }
}

fn accept(listener: TcpListener, state: &Arc<State>, serve: fn(&State, TcpStream) -> io::Result<()>) {
    let state = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if state.is_over.load(SeqCst) {
                return;
            }
            let state = state.clone();
            std::thread::spawn(move || serve(&state, stream));
        }
    });
}

impl State {
    fn publish(&self, mut stream: TcpStream) -> io::Result<()> {
        shake_hands(&mut stream, b"PUB")?;
        // The subscription, and behind it a ping.
        while !read_frame(&mut stream)?.1.starts_with(PING) {}
        stream.write_all(&PONG)?;
        stream.set_read_timeout(Some(Duration::from_millis(10)))?;
        while !self.is_over.load(SeqCst) {
            let (next, limit) = (self.next.load(SeqCst), self.limit.load(SeqCst));
            if next < limit {
                let upto = limit.min(next + 500);
                let mut bytes = Vec::new();
                (next..upto).for_each(|number| push_batch(&mut bytes, b"kv", number));
                self.next.store(upto, SeqCst);
                stream.write_all(&bytes)?;
                continue;
            }
            match read_frame(&mut stream) {
                Ok((_, frame)) if frame.starts_with(PING) => stream.write_all(&PONG)?,
                Ok(_) => (),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        shake_hands(&mut stream, b"ROUTER")?;
        let (mut is_last, mut request) = (false, Vec::new());
        while !is_last {
            (is_last, request) = read_frame(&mut stream)?;
        }
        let from = u64::from_be_bytes(request.try_into().map_err(|_| io::ErrorKind::InvalidData)?);
        let next = self.next.load(SeqCst);
        if self.replays.fetch_add(1, SeqCst) == 0 {
            // The engine goes on before it answers for the first time.
            while self.next.load(SeqCst) < next + AHEAD && !self.is_over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for first in (from.max(next.saturating_sub(RING))..next).step_by(500) {
            let mut bytes = Vec::new();
            (first..next.min(first + 500)).for_each(|number| push_batch(&mut bytes, b"", number));
            stream.write_all(&bytes)?;
        }
        let mut end = Vec::new();
        push_message(&mut end, &[b"", &u64::MAX.to_be_bytes(), b""]);
        stream.write_all(&end)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }
}

const PING: &[u8] = b"\x04PING";
const PONG: [u8; 7] = *b"\x04\x05\x04PONG";

fn shake_hands(stream: &mut TcpStream, socket_type: &[u8]) -> io::Result<()> {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    stream.read_exact(&mut greeting)?;
    let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    ready.push(socket_type.len() as u8);
    ready.extend_from_slice(socket_type);
    stream.write_all(&[4, ready.len() as u8])?;
    stream.write_all(&ready)?;
    read_frame(stream).map(drop)
}

/// A frame, and whether it is the last of its message.
fn read_frame(stream: &mut TcpStream) -> io::Result<(bool, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let mut frame = vec![0; usize::from(head[1])];
    stream.read_exact(&mut frame)?;
    Ok((head[0] == 0, frame))
}

fn push_message(bytes: &mut Vec<u8>, frames: &[&[u8]]) {
    for (number, frame) in (1..).zip(frames) {
        bytes.push(u8::from(number < frames.len()));
        bytes.push(u8::try_from(frame.len()).expect("frames are short"));
        bytes.extend_from_slice(frame);
    }
}

/// A batch that stores one block, as vLLM writes it.
fn push_batch(bytes: &mut Vec<u8>, topic: &[u8], number: u64) {
    let uint = |payload: &mut Vec<u8>, value: u64| {
        payload.push(0xcf);
        payload.extend_from_slice(&value.to_be_bytes());
    };
    let mut payload = b"\x92\xcb\0\0\0\0\0\0\0\0\x91\x96\xabBlockStored\x91".to_vec();
    uint(&mut payload, label(number));
    match number % CHAIN {
        0 => payload.push(0xc0),
        _ => uint(&mut payload, label(number - 1)),
    }
    payload.extend_from_slice(b"\xdc\0\x10");
    for token in 0..BLOCK_TOKENS {
        payload.push(0xce);
        payload.extend_from_slice(&((number * BLOCK_TOKENS + token) as u32).to_be_bytes());
    }
    payload.extend_from_slice(b"\x10\xc0");
    push_message(bytes, &[topic, &number.to_be_bytes(), &payload]);
}

fn label(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a gateway tells of itself.
struct Sample {
    metrics: BTreeMap<String, u64>,
    view: String,
    rss_mib: u64,
}

impl Sample {
    fn of(gateway: &Process) -> Self {
        let text = get(&gateway.operators(), "/metrics", &[]).text();
        let lines = text.lines().filter(|line| line.starts_with("homing_"));
        let metrics = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        let fleet = get(&gateway.operators(), "/admin/fleet", &[]).json();
        let view = fleet["workers"][0]["ranks"][0]["view"].as_str().unwrap_or("none");
        Self {
            metrics: metrics.collect(),
            view: view.to_owned(),
            rss_mib: gateway.rss_bytes() >> 20,
        }
    }

    fn metric(&self, name: &str) -> u64 {
        self.metrics.get(&format!("homing_{name}")).copied().unwrap_or(0)
    }

    fn stored(&self) -> u64 {
        self.metric("index_applied_events_total{change=\"stored\"}")
    }

    fn blocks(&self) -> u64 {
        self.metric("index_distinct_blocks")
    }

    fn evicted(&self) -> u64 {
        self.metric("index_evicted_blocks_total")
    }

    /// Batches that were lost on the way, and views that were emptied for it.
    fn losses(&self) -> [u64; 4] {
        let names = ["view_resets", "lane_overflows", "dropped_batches", "found_gaps"];
        names.map(|name| self.metric(&format!("feed_{name}_total")))
    }

    fn print(&self) {
        println!(
            "{:>9} stores applied, {:>9} blocks, {:>9} evicted, {:>5} MiB resident, view {}, lost {:?}",
            self.stored(),
            self.blocks(),
            self.evicted(),
            self.rss_mib,
            self.view,
            self.losses()
        );
    }
}

/// Waits until so many stores are applied and each block is kept or was evicted, or until something is lost.
fn wait_stored(gateway: &Process, count: u64) -> Sample {
    let mut last = Sample::of(gateway);
    wait_until(&format!("{count} stores are applied"), || {
        last = Sample::of(gateway);
        // Metrics are read while they change.
        let is_over = last.stored() >= count && last.blocks() + last.evicted() >= count;
        is_over || last.losses() != [0; 4]
    });
    last.print();
    last
}

#[test]
fn a_flood_of_blocks_does_not_lose_one() {
    let (engine, publisher) = (FakeEngine::start("tiny"), Publisher::start(0));
    let gateway = Process::serve(&[&publisher.worker(&engine)], &[]);
    gateway.wait_ready();
    publisher.publish(BLOCKS);
    let sample = wait_stored(&gateway, BLOCKS);
    assert_eq!(sample.losses(), [0; 4], "resets, overflows, drops, gaps");
    assert_eq!((sample.stored(), sample.blocks()), (BLOCKS, BLOCKS));
}

#[test]
fn a_flood_during_the_first_repair_does_not_lose_one() {
    let history = RING / 2;
    let (engine, publisher) = (FakeEngine::start("tiny"), Publisher::start(history));
    let gateway = Process::serve(&[&publisher.worker_with_replay(&engine)], &[]);
    wait_until("a replay is asked for", || publisher.state.replays.load(SeqCst) > 0);
    publisher.publish(BLOCKS);
    let sample = wait_stored(&gateway, BLOCKS);
    assert_eq!(sample.losses(), [0; 4], "resets, overflows, drops, gaps");
    assert_eq!((sample.stored(), sample.blocks()), (BLOCKS, BLOCKS));
    wait_until("the view is live", || Sample::of(&gateway).view == "live");
}

#[test]
fn blocks_beyond_the_capacity_are_evicted_and_memory_stays_bounded() {
    const CAPACITY: u64 = 100_000;
    // What may wait before a busy index (`events.lane-bytes`), and what the allocator keeps. Without eviction it would be 200 MiB more.
    const WAITING_MIB: u64 = 64;
    const ALLOCATOR_MIB: u64 = 48;
    let (engine, publisher) = (FakeEngine::start("tiny"), Publisher::start(0));
    let capacity = CAPACITY.to_string();
    let gateway = Process::serve(&[&publisher.worker(&engine)], &["--index-capacity-blocks", &capacity]);
    gateway.wait_ready();
    publisher.publish(CAPACITY);
    let full = wait_stored(&gateway, CAPACITY);
    assert_eq!((full.losses(), full.blocks(), full.evicted()), ([0; 4], CAPACITY, 0));
    let mut last = full.rss_mib;
    for round in 2..=8 {
        publisher.publish(round * CAPACITY);
        let sample = wait_stored(&gateway, round * CAPACITY);
        assert_eq!(sample.losses(), [0; 4], "resets, overflows, drops, gaps");
        assert!(sample.blocks() <= CAPACITY, "{} blocks", sample.blocks());
        last = sample.rss_mib;
    }
    assert!(
        last <= full.rss_mib + WAITING_MIB + ALLOCATOR_MIB,
        "{} MiB when full, {last} MiB after",
        full.rss_mib
    );
}
