//! How many steps does a model of an engine make in a second of one core?
//!
//!     cargo run --release -p homing-engine --example steps
//!
//! 64 sequences run all the time: prompts of 1,000 tokens, of which others share the first half, and answers of 200 to 500. The
//! cache is full, so every new block evicts one. Best of five rounds of 100,000 steps.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use homing_domain::{BlockSize, Blocks, DpRank};
use homing_engine::{Engine, EngineConfig, Events, Outcome, Request, Time};
use homing_profile::{Timing, builtin};

const SEQUENCES: u32 = 64;
const ROUND: u64 = 100_000;
const CACHE_TOKENS: u32 = 320_000;

fn main() -> Result<(), Box<dyn Error>> {
    let timing = Timing::measured(builtin::load("h200-llama-3.1-8b")?);
    let vllm = EngineConfig::vllm(Blocks(CACHE_TOKENS / 16), timing.clone());
    let sglang = EngineConfig::sglang(Blocks(CACHE_TOKENS), timing);
    let page = BlockSize::new(16).ok_or("it is not 0")?;
    let silent = EngineConfig {
        events: Events::Off,
        ..vllm.clone()
    };
    for (name, config) in [
        ("vLLM, blocks of 16", vllm),
        ("vLLM, blocks of 16, no events", silent),
        ("SGLang, pages of 16", sglang.clone().with_block_size(page)),
        ("SGLang, pages of 1", sglang),
    ] {
        let (rate, tokens) = measure(config)?;
        println!("{name:32} {rate:>9.0} steps per second, {tokens:.1} tokens each");
    }
    Ok(())
}

/// Steps per second, and tokens per step.
fn measure(config: EngineConfig) -> Result<(f64, f64), Box<dyn Error>> {
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
    for round in 1..=5 {
        let start = Instant::now();
        while steps < round * ROUND {
            while engine.poll(now, &mut outcome) {
                steps += 1;
                tokens += outcome.tokens.len();
                for _ in &outcome.finished {
                    submit(&mut engine)?;
                }
            }
            now = engine.wake_at().ok_or("there is always someone running")?;
        }
        best = best.max(ROUND as f64 / start.elapsed().as_secs_f64());
    }
    let load = engine.load(DpRank(0)).ok_or("there is a rank")?;
    assert_eq!(load.blocks.free, 0, "the cache is full");
    Ok((best, tokens as f64 / steps as f64))
}

fn prompt(number: u32) -> Arc<[u32]> {
    let token = |place: u32| {
        let family = if place < 500 { number % 50 } else { 1_000 + number };
        family * 1_000 + place
    };
    (0..1_000).map(token).collect()
}
