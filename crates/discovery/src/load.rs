//! How busy does a worker say it is?
//!
//! vLLM says it on its metrics page, SGLang at an address of its own, which was another before; a worker of which it is not known
//! what it is is asked in every way.
//!
//! **Invariant:** a page is scanned as it comes and never kept, and at most [`MAX_PAGE`] bytes of it are read.
//!
//! Cost of scanning a page: the bytes are looked at once, and no memory is taken for a line.

use std::collections::BTreeSet;
use std::time::Duration;

use homing_config::HttpUrl;
use homing_domain::{BlockSize, Blocks, DpRank};
use homing_load::Report;
use homing_platform::HttpClient;
use homing_profile::Time;
use homing_wire::Dialect;
use serde::Deserialize;

use crate::activity::{ADAPTERS, Activity};
use crate::ask::{AskError, Question};
use crate::lines::{Lines, Sample};

/// The longest page that is read, in bytes.
pub const MAX_PAGE: usize = 8 << 20;
/// Ranks of which loads are kept; what is said of others is left out.
pub const MAX_RANKS: u16 = 1024;

const METRICS: &str = "/metrics";
const LOADS: &str = "/v1/loads?include=core";
const OLD_LOADS: &str = "/get_load";

/// The names that vLLM and SGLang have used.
const RUNNING: &[&str] = &["vllm:num_requests_running", "sglang:num_running_reqs"];
const WAITING: &[&str] = &["vllm:num_requests_waiting", "sglang:num_queue_reqs"];
const USAGE: &[&str] = &[
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
];
const USED_TOKENS: &[&str] = &["sglang:num_used_tokens"];
const CACHE: &str = "vllm:cache_config_info";
const ALL: &[&str] = &[
    RUNNING[0],
    RUNNING[1],
    WAITING[0],
    WAITING[1],
    USAGE[0],
    USAGE[1],
    USAGE[2],
    USED_TOKENS[0],
    CACHE,
    ADAPTERS,
];

/// How busy one rank is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// Which.
    pub dp: DpRank,
    /// What it said. `at` is when it was asked, so that it is never taken for newer than it is.
    pub report: Report,
    /// The share of its cache that is in use, from 0 to 1, where it says so.
    pub usage: Option<f64>,
}

/// How a worker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its metrics page.
    Metrics,
    /// SGLang's own address.
    Loads,
    /// That of SGLang before.
    OldLoads,
}

/// What must be known of a worker to understand what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Tokens of its blocks.
    pub block_size: Option<BlockSize>,
    /// Blocks of each rank.
    pub blocks: Option<Blocks>,
}

/// What a page says of one rank, before it is made a report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    is_named: bool,
    running: f64,
    waiting: f64,
    usage: Option<f64>,
    used_tokens: Option<f64>,
    blocks: Option<u32>,
    block_size: Option<u32>,
}

/// What a metrics page says of all ranks.
#[derive(Debug, Default)]
pub struct Page {
    lines: Lines,
    ranks: Vec<Seen>,
    activity: Activity,
}

/// An entry of SGLang's answer, as it is and as it was. What is left out is 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    dp_rank: u16,
    num_running_reqs: Option<u32>,
    num_reqs: u32,
    num_waiting_reqs: u32,
    num_used_tokens: Option<u64>,
    num_tokens: Option<u64>,
    token_usage: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Entries {
    loads: Vec<Entry>,
}

impl Way {
    /// The ways to ask a worker, the likeliest first.
    pub fn of(dialect: Option<Dialect>) -> &'static [Self] {
        match dialect {
            Some(Dialect::Vllm) => &[Self::Metrics],
            Some(Dialect::Sglang) => &[Self::Loads, Self::OldLoads, Self::Metrics],
            // It says nothing that is understood here.
            Some(Dialect::TrtLlm) => &[],
            None => &[Self::Metrics, Self::Loads, Self::OldLoads],
        }
    }

    /// Asks a worker in this way. `at` is the time of the question.
    pub(crate) async fn ask(self, asking: &Asking<'_>) -> Result<Polled, AskError> {
        match self {
            Self::Metrics => {
                let mut page = Page::default();
                let asked = asking.question(METRICS);
                asked.stream(|piece| page.take(piece)).await?;
                let (loads, active) = page.end_with_adapters(asking.at, asking.scale);
                if loads.is_empty() {
                    return Err(AskError::Unexpected {
                        path: METRICS.to_owned(),
                        why: "it says nothing of running requests".to_owned(),
                    });
                }
                Ok(Polled { loads, active })
            }
            Self::Loads => {
                let entries: Entries = asking.question(LOADS).json().await?;
                Ok(Polled::of(loads_of(&entries.loads, asking)))
            }
            Self::OldLoads => {
                let entries: Vec<Entry> = asking.question(OLD_LOADS).json().await?;
                Ok(Polled::of(loads_of(&entries, asking)))
            }
        }
    }
}

/// What a worker said when it was asked how busy it is.
#[derive(Clone, Debug)]
pub(crate) struct Polled {
    pub(crate) loads: Vec<RankLoad>,
    /// The adapters that requests use there, where it says so.
    pub(crate) active: Option<BTreeSet<String>>,
}

impl Polled {
    fn of(loads: Vec<RankLoad>) -> Self {
        Self { loads, active: None }
    }
}

/// Whom, when and within which limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) client: &'a HttpClient,
    pub(crate) url: &'a HttpUrl,
    pub(crate) timeout: Duration,
    pub(crate) at: Time,
    pub(crate) scale: Scale,
}

impl<'a> Asking<'a> {
    fn question(&self, path: &'a str) -> Question<'a> {
        Question {
            client: self.client,
            url: self.url,
            path,
            timeout: self.timeout,
            limit: MAX_PAGE,
        }
    }
}

impl Page {
    /// Takes a piece of the page.
    pub fn take(&mut self, piece: &[u8]) {
        let (ranks, activity) = (&mut self.ranks, &mut self.activity);
        self.lines.take(piece, |line| see(ranks, activity, line));
    }

    /// What the page said, in the order of ranks.
    pub fn end(self, at: Time, scale: Scale) -> Vec<RankLoad> {
        self.end_with_adapters(at, scale).0
    }

    /// The same, and the adapters that requests use.
    fn end_with_adapters(mut self, at: Time, scale: Scale) -> (Vec<RankLoad>, Option<BTreeSet<String>>) {
        let (ranks, activity) = (&mut self.ranks, &mut self.activity);
        self.lines.end(|line| see(ranks, activity, line));
        let seen = self.ranks.iter().zip(0..).filter(|(seen, _)| seen.is_named);
        let loads = seen.map(|(seen, dp)| seen.load(DpRank(dp), at, scale)).collect();
        (loads, self.activity.end())
    }
}

fn see(ranks: &mut Vec<Seen>, activity: &mut Activity, line: &[u8]) {
    let is_engine = line.starts_with(b"vllm:") || line.starts_with(b"sglang:");
    let Some(sample) = is_engine.then(|| Sample::of(line, ALL)).flatten() else {
        return;
    };
    if sample.name == ADAPTERS.as_bytes() {
        activity.see(&sample);
        return;
    }
    let rank: Option<u16> = sample.number("engine").or_else(|| sample.number("dp_rank"));
    let rank = rank.unwrap_or(0);
    if rank >= MAX_RANKS {
        return;
    }
    if ranks.len() <= usize::from(rank) {
        ranks.resize(usize::from(rank) + 1, Seen::default());
    }
    let seen = &mut ranks[usize::from(rank)];
    let is = |names: &[&str]| names.iter().any(|name| name.as_bytes() == sample.name);
    if is(RUNNING) {
        seen.is_named = true;
        seen.running = sample.value;
    } else if is(WAITING) {
        seen.waiting = sample.value;
    } else if is(USAGE) {
        seen.usage = Some(sample.value);
    } else if is(USED_TOKENS) {
        seen.used_tokens = Some(sample.value);
    } else {
        seen.blocks = sample.number("num_gpu_blocks");
        seen.block_size = sample.number("block_size");
    }
}

impl Seen {
    fn load(&self, dp: DpRank, at: Time, scale: Scale) -> RankLoad {
        let usage = self
            .usage
            .filter(|usage| usage.is_finite())
            .map(|usage| usage.clamp(0.0, 1.0));
        let blocks = self.blocks.or(scale.blocks.map(|blocks| blocks.0));
        let size = self.block_size.or(scale.block_size.map(BlockSize::get));
        let of_tokens = self.used_tokens.map(|tokens| blocks_of(tokens, size));
        let of_usage = || Some(usage? * f64::from(blocks?));
        RankLoad {
            dp,
            report: Report {
                at,
                // Numbers that are none become 0, and those that are too large the largest.
                running: self.running.round() as u32,
                waiting: self.waiting.round() as u32,
                used_blocks: of_tokens.or_else(of_usage).unwrap_or(0.0).round() as u32,
            },
            usage,
        }
    }
}

fn blocks_of(tokens: f64, block_size: Option<u32>) -> f64 {
    (tokens / f64::from(block_size.unwrap_or(1).max(1))).ceil()
}

fn loads_of(entries: &[Entry], asking: &Asking<'_>) -> Vec<RankLoad> {
    let load = |entry: &Entry| {
        let running = entry.num_running_reqs;
        let running = running.unwrap_or(entry.num_reqs.saturating_sub(entry.num_waiting_reqs));
        let tokens = entry.num_used_tokens.or(entry.num_tokens).unwrap_or(0);
        let size = asking.scale.block_size.map(BlockSize::get);
        let usage = entry.token_usage.filter(|usage| usage.is_finite());
        RankLoad {
            dp: DpRank(entry.dp_rank),
            report: Report {
                at: asking.at,
                running,
                waiting: entry.num_waiting_reqs,
                used_blocks: blocks_of(tokens as f64, size) as u32,
            },
            usage: usage.map(|usage| usage.clamp(0.0, 1.0)),
        }
    };
    let known = entries.iter().filter(|entry| entry.dp_rank < MAX_RANKS);
    known.map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VLLM: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="32",engine="1",num_gpu_blocks="None"} 1.0
python_info{version="3.11"} 1.0
"#;

    fn loads(page: &str, scale: Scale, piece: usize) -> Vec<(u16, u32, u32, u32)> {
        let mut read = Page::default();
        for piece in page.as_bytes().chunks(piece) {
            read.take(piece);
        }
        let short = |load: &RankLoad| {
            let report = load.report;
            (load.dp.0, report.running, report.waiting, report.used_blocks)
        };
        read.end(Time(7), scale).iter().map(short).collect()
    }

    #[test]
    fn each_engine_of_vllm_is_a_rank() {
        let scale = Scale::default();
        assert_eq!(loads(VLLM, scale, usize::MAX), [(0, 3, 2, 250), (1, 1, 0, 0)]);
        for piece in 1..80 {
            assert_eq!(loads(VLLM, scale, piece), [(0, 3, 2, 250), (1, 1, 0, 0)], "{piece}");
        }
    }

    #[test]
    fn sglang_counts_tokens() {
        let page = "sglang:num_running_reqs{tp_rank=\"0\"} 4\nsglang:num_queue_reqs 1\nsglang:num_used_tokens 100\nsglang:token_usage 0.5";
        let scale = Scale {
            block_size: BlockSize::new(16),
            blocks: None,
        };
        assert_eq!(loads(page, scale, usize::MAX), [(0, 4, 1, 7)]);
        assert_eq!(loads(page, Scale::default(), usize::MAX), [(0, 4, 1, 100)]);
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let page = "vllm:num_requests_running{engine=\"9999\"} 1\nvllm:num_requests_running{engine=\"x\"} -5\nvllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc 1e300";
        let scale = Scale {
            blocks: Some(Blocks(10)),
            ..Scale::default()
        };
        assert_eq!(loads(page, scale, usize::MAX), [(0, 0, 0, 10)]);
    }

    #[test]
    fn sglang_answers_are_read_as_they_are_and_were() {
        let asked = |text: &str| -> Vec<Entry> { serde_json::from_str(text).unwrap() };
        let client = HttpClient::default();
        let url = HttpUrl::parse("http://a").unwrap();
        let asking = Asking {
            client: &client,
            url: &url,
            timeout: Duration::ZERO,
            at: Time(1),
            scale: Scale {
                block_size: BlockSize::new(16),
                blocks: None,
            },
        };
        let new = asked(
            r#"[{"dp_rank": 1, "num_running_reqs": 2, "num_waiting_reqs": 3, "num_used_tokens": 33, "token_usage": 0.5}]"#,
        );
        let old = asked(r#"[{"dp_rank": 1, "num_reqs": 5, "num_waiting_reqs": 3, "num_tokens": 33}]"#);
        let reports = [new, old].map(|entries| loads_of(&entries, &asking)[0].report);
        assert_eq!(reports[0], reports[1]);
        let report = reports[0];
        assert_eq!((report.running, report.waiting, report.used_blocks), (2, 3, 3));
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(page in "(vllm:num_requests_running|vllm:kv_cache_usage_perc|sglang:num_used_tokens|vllm:cache_config_info|x)(\\{(engine|dp_rank|block_size)=\"[0-9x]{0,6}\"\\})? [0-9eE.+-]{0,8}\n?[\\x00-\\xff]{0,40}") {
            let _ = loads(&page, Scale::default(), 7);
        }
    }
}
