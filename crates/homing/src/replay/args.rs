//! What can be asked of a replay?

use clap::{Args, Parser};

/// What arrives, and the fleet that it arrives at.
#[derive(Args, Clone, Debug)]
pub struct FleetArgs {
    /// A file (Mooncake, sessions, Azure CSV, our log), or a generator: chat, agents, documents or unrelated, with settings as in
    /// `chat:rate=5,requests=1000`
    #[arg(value_name = "TRACE")]
    pub trace: String,
    /// Workers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: u32,
    /// So many of them compute prompts, and the others take the KV over and answer; 0: all can do either, or all of it
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=4095))]
    pub prefill: Option<u32>,
    /// Workers that answer, beside those of --prefill: in place of --workers
    #[arg(long, value_name = "NUMBER", requires = "prefill", conflicts_with = "workers", value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub decode: Option<u32>,
    /// When two workers serve a request: `predicted` where that is predicted to be better, `always`, or by `rules`
    #[arg(long, value_name = "WHEN", default_value = "predicted")]
    pub apart: String,
    /// With `predicted`: what it weighs that those who generate wait while a prompt is computed among them, in its time for each of them
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1)]
    pub stall: f64,
    /// With `predicted`: by which share two have to be better than one
    #[arg(long, value_name = "SHARE", default_value_t = 0.02)]
    pub margin: f64,
    /// How two are chosen: `together`, or `one-after-the-other`
    #[arg(long, value_name = "HOW", default_value = "together")]
    pub pairs: String,
    /// How fast KV leaves a worker, in gigabytes per second
    #[arg(long, value_name = "NUMBER", default_value_t = 50.0)]
    pub kv_link: f64,
    /// How long a worker holds KV that nobody fetches
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub kv_lease: String,
    /// How long steps of the engines take: the name of a profile, or a file (JSON)
    #[arg(long, value_name = "NAME", default_value = "h200-llama-3.1-8b")]
    pub profile: String,
    /// What routers believe of that [default: the same]
    #[arg(long, value_name = "NAME")]
    pub believed_profile: Option<String>,
    /// How engines differ from their profile: `none`, or any of speed=0.3,overhead=1ms-5ms,noise=0.1,slow=1
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "speed=0.3,overhead=1ms-5ms,noise=0.1,slow=1"
    )]
    pub disparity: String,
    /// Blocks of cache of each worker, or `0.5x`: so many times the working set over all workers
    #[arg(long, value_name = "NUMBER", default_value = "49152")]
    pub blocks: String,
    /// Tokens of a block
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub block_size: u32,
    /// Tokens that one of the trace's hash_ids stands for
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub trace_block: u32,
    /// How many times as fast the trace runs
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// A part of the trace: `10m-20m`, or `1000` requests, or `500+1000` requests after 500
    #[arg(long, value_name = "PART")]
    pub slice: Option<String>,
    /// Work with an infinite cache as a share of the fleet's capacity, reached by copies of the trace that share nothing
    #[arg(long, value_name = "SHARE")]
    pub load: Option<f64>,
    /// So many copies of the trace at once
    #[arg(long, value_name = "NUMBER", conflicts_with = "load", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub copies: Option<u32>,
    /// Requests before this are served and not counted: a time, or a share of the trace such as 10%
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub warmup: String,
    /// What a request must meet to count as goodput
    #[arg(long, value_name = "OBJECTIVES", default_value = "ttft=2s,itl=50ms")]
    pub slo: String,
    /// What goes wrong: `crash:3@60s+30s,slow:1x4@10s+60s,...`, or a file with one on each line
    #[arg(long, value_name = "PLAN")]
    pub faults: Option<String>,
    /// Routers; each request comes to one of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub routers: u32,
    /// From the end of a step to a router that hears its events
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    pub event_lag: String,
    /// From where routers know caches: events, guess or nothing
    #[arg(long, value_name = "VIEW", default_value = "events")]
    pub cache_view: String,
    /// A request goes while the prompts ahead of it on some worker take no longer than this; else it waits in the router
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    pub start_within: String,
    /// Where all chance comes from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Runs at once [default: as many as there are cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `homing replay`.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "replay",
    about = "Run a trace through a simulated fleet under several policies, and compare them"
)]
pub struct ReplayArgs {
    /// What arrives, and at whom.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Policies, by name, with weights if need be (`time:decode=0.5`); or `all` [default: time,blocks,prefix-affinity,round-robin]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// So many runs of each policy, with seeds from --seed on, the same for all policies
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub report: Option<String>,
    /// Write what became of each request, with the decision about it, as a line of JSON each
    #[arg(long, value_name = "FILE")]
    pub records: Option<String>,
    /// Look for a better assignment than the policies found, with so many tries, on the first requests
    #[arg(long, value_name = "TRIES", num_args = 0..=1, default_missing_value = "200")]
    pub best_found: Option<u32>,
    /// Send the traffic to a running OpenAI endpoint instead; policies are simulated beside it if they are named
    #[arg(long, value_name = "URL")]
    pub live: Option<String>,
    /// The model to ask for there [default: the first that it has]
    #[arg(long, value_name = "NAME", requires = "live")]
    pub live_model: Option<String>,
    /// A header to send along, `Name: value`
    #[arg(long, value_name = "HEADER", requires = "live")]
    pub live_header: Vec<String>,
    /// The most requests under way at once there
    #[arg(long, value_name = "NUMBER", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub concurrency: u32,
}

/// `homing tune`.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "tune",
    about = "Search the settings and the fleet size that keep a promise, on the simulator"
)]
pub struct TuneArgs {
    /// What arrives, and at whom: `--workers` is the most there may be.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// The policy whose weights are varied
    #[arg(long, value_name = "NAME", default_value = "time")]
    pub policy: String,
    /// The share of requests that must be within the objectives
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub promise: f64,
    /// How long to search
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub budget: String,
    /// Stop after so many tries: with the same seed the same result
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tries: Option<u32>,
}
