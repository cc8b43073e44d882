//! What does it cost to read how busy an engine is?
//!
//!     cargo run --release -p homing-discovery --example cost [FILE]
//!
//! A metrics page, of a file or made up like vLLM's, is scanned in pieces of 16 KiB; one thread, the best of many rounds.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use homing_discovery::load::{Page, Scale};
use homing_profile::Time;

const ROUNDS: usize = 500;
const PIECE: usize = 16 << 10;
/// vLLM 0.32 has about so many lines besides gauges for each engine, most of them buckets of histograms.
const BUCKETS: usize = 420;

fn main() -> Result<(), Box<dyn Error>> {
    let page = match std::env::args().nth(1) {
        Some(file) => std::fs::read_to_string(file)?,
        None => page(8)?,
    };
    let mut best = Duration::MAX;
    let mut ranks = 0;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut read = Page::default();
        for piece in black_box(page.as_bytes()).chunks(PIECE) {
            read.take(piece);
        }
        ranks = black_box(read.end(Time::ZERO, Scale::default())).len();
        best = best.min(began.elapsed());
    }
    let (lines, bytes) = (page.lines().count(), page.len());
    println!(
        "{lines} lines, {bytes} bytes, {ranks} ranks: {:.1} us",
        best.as_secs_f64() * 1e6
    );
    println!("{:.0} ns per line", best.as_secs_f64() * 1e9 / lines as f64);
    Ok(())
}

fn page(engines: usize) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    for engine in 0..engines {
        let labels = format!("engine=\"{engine}\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"");
        writeln!(page, "vllm:num_requests_running{{{labels}}} 12.0")?;
        writeln!(page, "vllm:num_requests_waiting{{{labels}}} 3.0")?;
        writeln!(page, "vllm:kv_cache_usage_perc{{{labels}}} 0.51")?;
        writeln!(
            page,
            "vllm:cache_config_info{{block_size=\"16\",{labels},num_gpu_blocks=\"27000\"}} 1.0"
        )?;
        for bucket in 0..BUCKETS {
            writeln!(
                page,
                "vllm:time_to_first_token_seconds_bucket{{{labels},le=\"{bucket}\"}} 17.0"
            )?;
        }
    }
    Ok(page)
}
