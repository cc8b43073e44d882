//! How fast is the engine that needs no GPU? Steps of the model on one core, and streams that the server holds at once.
//!
//! No peer takes part: the figures are measured against limits of our own.
//!
//! Steps are counted by the time that their thread was on a core, as Linux keeps it in `/proc`, so that other work on this
//! machine does not count; where there is no such file, by the clock. Streams are counted where they arrive: one is open from
//! the first of its words to the last, and its text must be the one that the same prompt got when it was alone.

use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use homing_config::{Config, Inputs, KnobId, resolve};
use homing_domain::{BlockSize, Blocks, DpRank};
use homing_engine::{Engine, EngineConfig, Events, Outcome, Request, Time};
use homing_mock::Service;
use homing_profile::{Timing, builtin};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::args::{MockArgs, Size};
use crate::lineup::OURS;
use crate::report::{About, Better, Report, section};
use crate::targets::Target;

/// Sequences that a step computes.
const SEQUENCES: u32 = 64;
const CACHE_TOKENS: u32 = 320_000;
const STEPS_GOAL: f64 = 200_000.0;
const STREAMS_GOAL: usize = 5_000;
/// Words of each stream, and different prompts.
const WORDS: usize = 64;
const PROMPTS: usize = 16;
/// How long the streams may take in all.
const PATIENCE: Duration = Duration::from_mins(5);

type Failure = Box<dyn Error + Send + Sync>;

/// Measures, and says what holds.
pub fn run(args: &MockArgs, report: &mut Report) -> Result<Vec<Target>, Failure> {
    let steps = steps(args.size, report)?;
    let streams = args.size.pick(STREAMS_GOAL, 200);
    let held = streams_held(streams, report)?;
    let floor = |name: &str, ours: f64, goal: f64| Target {
        name: name.to_owned(),
        ours: Some(ours),
        peer: None,
        ratio: Some(ours / goal),
        goal,
        met: ours >= goal,
    };
    Ok(vec![
        floor("steps of 64 sequences per second on one core", steps, STEPS_GOAL),
        floor(
            "streams open at once, each of which ended rightly",
            held as f64,
            STREAMS_GOAL as f64,
        ),
    ])
}

/// Steps per second of vLLM with blocks of 16, and of others for comparison.
fn steps(size: Size, report: &mut Report) -> Result<f64, Failure> {
    let timing = Timing::measured(builtin::load("h200-llama-3.1-8b")?);
    let vllm = EngineConfig::vllm(Blocks(CACHE_TOKENS / 16), timing.clone());
    let sglang = EngineConfig::sglang(Blocks(CACHE_TOKENS), timing);
    let page = BlockSize::new(16).ok_or("16 is not 0")?;
    let silent = EngineConfig {
        events: Events::Off,
        ..vllm.clone()
    };
    let mut first = None;
    for (case, config) in [
        ("vLLM, blocks of 16", vllm),
        ("vLLM, blocks of 16, no events", silent),
        ("SGLang, pages of 16", sglang.clone().with_block_size(page)),
        ("SGLang, pages of 1", sglang),
    ] {
        let (rate, tokens) = rate(config, size.pick(100_000, 2_000))?;
        first.get_or_insert(rate);
        for (metric, value) in [("steps per second of one core", rate), ("tokens per step", tokens)] {
            let about = About {
                section: section::MOCK,
                case,
                metric,
                better: Better::Higher,
            };
            report.single(about, OURS, value);
        }
        eprintln!("{case}: {rate:.0} steps per second");
    }
    Ok(first.unwrap_or(0.0))
}

/// Steps per second, and tokens per step. 64 sequences run all the time: prompts of 1,000 tokens, of which others share the
/// first half, and answers of 200 to 500. The cache is full, so every new block evicts one. Best of five rounds.
fn rate(config: EngineConfig, round: u64) -> Result<(f64, f64), Failure> {
    let mut engine = Engine::new(EngineConfig {
        max_running: SEQUENCES,
        ..config
    })?;
    let prompts: Vec<Arc<[u32]>> = (0..500_u32).map(prompt).collect();
    let mut next = 0_u64;
    let mut submit = |engine: &mut Engine| {
        next += 1;
        let prompt = Arc::clone(&prompts[(next * 7_919 % 500) as usize]);
        engine.submit(Request::plain(next, prompt, 200 + (next % 300) as u32))
    };
    for _ in 0..SEQUENCES {
        submit(&mut engine)?;
    }
    let (mut now, mut outcome) = (Time::ZERO, Outcome::default());
    let (mut steps, mut tokens, mut best) = (0_u64, 0_usize, 0.0_f64);
    for rounds in 1..=5 {
        let start = busy();
        while steps < rounds * round {
            while engine.poll(now, &mut outcome) {
                steps += 1;
                tokens += outcome.tokens.len();
                for _ in &outcome.finished {
                    submit(&mut engine)?;
                }
            }
            now = engine.wake_at().ok_or("there is always someone running")?;
        }
        best = best.max(round as f64 / busy().saturating_sub(start).as_secs_f64());
    }
    engine.load(DpRank(0)).ok_or("there is a rank")?;
    Ok((best, tokens as f64 / steps as f64))
}

fn prompt(number: u32) -> Arc<[u32]> {
    let token = |place: u32| {
        let family = if place < 500 { number % 50 } else { 1_000 + number };
        family * 1_000 + place
    };
    (0..1_000).map(token).collect()
}

/// How long this thread was on a core.
fn busy() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let nanos = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = nanos.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// How many streams were open at once. All must have ended rightly.
fn streams_held(streams: usize, report: &mut Report) -> Result<usize, Failure> {
    let limit = rlimit::increase_nofile_limit(u64::MAX)?;
    if limit < 2 * streams as u64 + 100 {
        return Err(format!("{streams} streams need twice as many open files, and {limit} is the limit").into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let started = Instant::now();
    let (peak, wrong) = runtime.block_on(async { tokio::time::timeout(PATIENCE, hold(streams)).await })??;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{peak} of {streams} streams open at once, {wrong} ended wrongly, {seconds:.1} s in all");
    let words = (streams * WORDS) as f64 / seconds;
    for (metric, value, better) in [
        ("streams open at once", peak as f64, Better::Higher),
        ("streams that ended wrongly", wrong as f64, Better::Lower),
        (
            "words per second, server and clients on this machine",
            words,
            Better::Higher,
        ),
    ] {
        let case = "5,000 streams of 64 words";
        let about = About {
            section: section::MOCK,
            case,
            metric,
            better,
        };
        report.single(about, OURS, value);
    }
    // Those that ended wrongly were not held.
    Ok(peak.saturating_sub(wrong))
}

fn settings() -> Result<Config, Failure> {
    let typed = [
        ("mock.port", "0"),
        ("model", "tiny"),
        ("mock.max-running", "8192"),
        ("mock.blocks", "65536"),
        ("mock.answer-tokens", "0"),
    ];
    let mut flags = Vec::new();
    for (path, text) in typed {
        flags.push((KnobId::of_path(path).ok_or("no such setting")?, text.to_owned()));
    }
    let inputs = Inputs {
        flags,
        ..Inputs::default()
    };
    Ok(resolve(&inputs).map_err(|rejected| rejected.to_string())?.config)
}

async fn hold(streams: usize) -> Result<(usize, usize), Failure> {
    let service = Service::start(&settings()?).await?;
    let address = service.places().first().ok_or("there is a worker")?.address;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(service.run(async move { drop(stopped.await) }));
    let (open, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut alone = Vec::new();
    for number in 0..PROMPTS {
        alone.push(text(&stream(address, number, &open, &peak).await?)?);
    }
    peak.store(0, Ordering::Relaxed);
    let mut running = JoinSet::new();
    for number in 0..streams {
        let (open, peak) = (open.clone(), peak.clone());
        running.spawn(async move { (number % PROMPTS, stream(address, number % PROMPTS, &open, &peak).await) });
    }
    let mut wrong = 0;
    while let Some(ended) = running.join_next().await {
        let (number, said) = ended?;
        let said = said.and_then(|bytes| text(&bytes));
        wrong += usize::from(!said.is_ok_and(|said| said == alone[number]));
    }
    let _ = stop.send(());
    serving.await??;
    Ok((peak.load(Ordering::Relaxed), wrong))
}

/// One stream, from the question to the end; all bytes of the answer.
async fn stream(
    address: SocketAddr,
    number: usize,
    open: &AtomicUsize,
    peak: &AtomicUsize,
) -> Result<Vec<u8>, Failure> {
    let prompt: Vec<usize> = (0..32).map(|place| 1_000 * number + place).collect();
    let body = serde_json::json!({"prompt": prompt, "max_tokens": WORDS, "stream": true}).to_string();
    let mut question = format!("POST /v1/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    write!(
        question,
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(question.as_bytes()).await?;
    let (mut bytes, mut begun) = (Vec::new(), false);
    loop {
        let read = connection.read_buf(&mut bytes).await?;
        if !begun && contains(&bytes, b"data: ") {
            begun = true;
            peak.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        let tail = bytes.len().saturating_sub(read + 32);
        if read == 0 || contains(&bytes[tail..], b"data: [DONE]") {
            break;
        }
    }
    if begun {
        open.fetch_sub(1, Ordering::Relaxed);
    }
    Ok(bytes)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The words of an answer. A piece is a line of its own, whatever the transfer puts between pieces.
fn text(bytes: &[u8]) -> Result<String, Failure> {
    let (mut said, mut pieces, mut done) = (String::new(), 0, false);
    for line in String::from_utf8_lossy(bytes).lines() {
        match line.strip_prefix("data: ") {
            Some("[DONE]") => done = true,
            Some(data) => {
                let piece: serde_json::Value = serde_json::from_str(data)?;
                said.push_str(piece["choices"][0]["text"].as_str().ok_or("a piece without a text")?);
                pieces += 1;
            }
            None => {}
        }
    }
    if !done || pieces != WORDS {
        return Err(format!("{pieces} pieces, and the end is {done}").into());
    }
    Ok(said)
}
