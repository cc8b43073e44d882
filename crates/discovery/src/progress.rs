//! Questions to a worker that seems to hang: does its API server answer, do its counters move, does it generate?
//!
//! vLLM and SGLang count what the engine core computes on their metrics pages. Which names count is fixed here; what they sum up to
//! means nothing, only whether it changes.
//!
//! **Invariant:** numbers that the API server changes by itself (requests that came, queues) are not among them, because an
//! API server goes on while its engine core hangs.

use std::time::Duration;

use homing_config::HttpUrl;
use homing_domain::DpRank;
use homing_platform::{HttpClient, StatusCode};
use serde_json::json;

use crate::ask::Question;
use crate::health::Ping;
use crate::lines::{Lines, Sample};
use crate::load::{MAX_PAGE, MAX_RANKS};

const HEALTH: &str = "/health";
const METRICS: &str = "/metrics";
const COMPLETIONS: &str = "/v1/completions";
const MAX_HEALTH: usize = 64 << 10;

/// Counters of the engine core. vLLM counts the tokens of a prompt when its last chunk is computed, so the share of its cache in use,
/// which grows with every chunk, is among them.
const COUNTERS: &[&str] = &[
    "vllm:iteration_tokens_total_sum",
    "vllm:iteration_tokens_total_count",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:realtime_tokens_total",
    "sglang:cuda_graph_passes_total",
    "sglang:forward_execution_seconds_total",
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:token_usage",
    "sglang:num_used_tokens",
    "sglang:kv_used_tokens",
];

/// What a request for one token led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// The token came.
    Token,
    /// The worker refuses such requests.
    Refused,
    /// Nothing came in time, or the connection broke.
    Nothing,
}

/// Asks workers whether they make progress. Clones share connections.
#[derive(Clone, Debug)]
pub struct ProgressProbe {
    client: HttpClient,
}

impl ProgressProbe {
    /// With a client that may have TLS and an API key.
    pub fn new(client: HttpClient) -> Self {
        Self { client }
    }

    /// Whether the API server answers.
    pub async fn health(&self, url: &HttpUrl, timeout: Duration) -> Ping {
        let question = self.question(url, HEALTH, (timeout, MAX_HEALTH));
        match question.stream(|_| ()).await {
            Ok(()) => Ping::Answered,
            Err(error) if error.is_answer() => Ping::Answered,
            Err(crate::ask::AskError::TimedOut(_)) => Ping::TimedOut,
            Err(_) => Ping::Failed,
        }
    }

    /// The counters of each rank; nothing if the worker does not answer or has none.
    pub async fn counters(&self, url: &HttpUrl, timeout: Duration) -> Vec<(DpRank, u64)> {
        let mut page = CountersPage::default();
        let question = self.question(url, METRICS, (timeout, MAX_PAGE));
        match question.stream(|piece| page.take(piece)).await {
            Ok(()) => page.end(),
            Err(_) => Vec::new(),
        }
    }

    /// Lets a rank generate one token.
    pub async fn generate(&self, url: &HttpUrl, model: &str, rank: Option<DpRank>, timeout: Duration) -> Generated {
        let body = json!({ "model": model, "prompt": "1", "max_tokens": 1, "temperature": 0 });
        let mut request = self
            .client
            .post(format!("{url}{COMPLETIONS}"))
            .json(&body)
            .timeout(timeout);
        if let Some(rank) = rank {
            request = request.header("x-data-parallel-rank", rank.0.to_string());
        }
        match request.send().await {
            Ok(answer) if answer.status() == StatusCode::OK => Generated::Token,
            Ok(answer) if answer.status().is_client_error() => Generated::Refused,
            Ok(_) | Err(_) => Generated::Nothing,
        }
    }

    fn question<'a>(&'a self, url: &'a HttpUrl, path: &'a str, (timeout, limit): (Duration, usize)) -> Question<'a> {
        Question {
            client: &self.client,
            url,
            path,
            timeout,
            limit,
        }
    }
}

/// The counters of a metrics page, summed up for each rank.
#[derive(Debug, Default)]
struct CountersPage {
    lines: Lines,
    ranks: Vec<Option<u64>>,
}

impl CountersPage {
    fn take(&mut self, piece: &[u8]) {
        let ranks = &mut self.ranks;
        self.lines.take(piece, |line| count(ranks, line));
    }

    fn end(mut self) -> Vec<(DpRank, u64)> {
        let ranks = &mut self.ranks;
        self.lines.end(|line| count(ranks, line));
        let known = self.ranks.into_iter().zip(0..);
        known.filter_map(|(value, rank)| Some((DpRank(rank), value?))).collect()
    }
}

fn count(ranks: &mut Vec<Option<u64>>, line: &[u8]) {
    if !line.starts_with(b"vllm:") && !line.starts_with(b"sglang:") {
        return;
    }
    let Some(sample) = Sample::of(line, COUNTERS) else {
        return;
    };
    let rank: Option<u16> = sample.number("engine").or_else(|| sample.number("dp_rank"));
    let rank = usize::from(rank.unwrap_or(0));
    if rank >= usize::from(MAX_RANKS) {
        return;
    }
    if ranks.len() <= rank {
        ranks.resize(rank + 1, None);
    }
    let name = COUNTERS
        .iter()
        .position(|name| name.as_bytes() == sample.name)
        .unwrap_or(0);
    // Mixed, so that a gauge that falls does not make up for a counter that grows.
    let mixed = (sample.value.to_bits() ^ name as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23);
    let sum = ranks[rank].get_or_insert(0);
    *sum = sum.wrapping_add(mixed.wrapping_mul(0xff51_afd7_ed55_8ccd));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(page: &str) -> Vec<(u16, u64)> {
        let mut read = CountersPage::default();
        for piece in page.as_bytes().chunks(7) {
            read.take(piece);
        }
        read.end().iter().map(|(rank, value)| (rank.0, *value)).collect()
    }

    #[test]
    fn each_engine_has_its_own_counters() {
        let page = |tokens: &str| {
            format!(
                "vllm:iteration_tokens_total_count{{engine=\"0\"}} 5\nvllm:iteration_tokens_total_count{{engine=\"2\"}} {tokens}\n"
            )
        };
        let (before, after) = (counters(&page("7")), counters(&page("8")));
        assert_eq!(before.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1], after[1]);
        assert_eq!(counters(&page("7")), before);
    }

    #[test]
    fn queues_and_foreign_names_do_not_count() {
        assert!(counters("vllm:num_requests_waiting{engine=\"0\"} 5\nsglang:num_queue_reqs 4\nup 1\n").is_empty());
    }

    #[test]
    fn modes_of_one_counter_are_summed_up() {
        let page = |decode: u32| {
            format!(
                "sglang:realtime_tokens_total{{mode=\"prefill_compute\"}} 10\nsglang:realtime_tokens_total{{mode=\"decode\"}} {decode}\n"
            )
        };
        assert_eq!(counters(&page(1)).len(), 1);
        assert_ne!(counters(&page(1)), counters(&page(2)));
    }
}
