//! What became of a request, told once: to its record, the metrics and the log.
//!
//! **Invariant:** an account is closed exactly once. Whoever drops one that is open says with it that the client went away.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use homing_domain::{AdapterName, BlockKey, BlockSize, Tokens};
use homing_protocol::Usage;
use homing_telemetry::RequestEnd;
use homing_trace::{Client, LogRecord};

use crate::gateway::Gateway;
use crate::keyring::Tab;
use crate::record::Record;
use crate::spans;

/// What is remembered of a request until it ends.
#[derive(Debug)]
pub(crate) struct Account {
    gateway: Arc<Gateway>,
    pub(crate) record: Arc<Record>,
    entry: Entry,
    began: Instant,
    first: Option<Duration>,
    /// Tokens of the answer that came so far.
    came: u64,
    closed: bool,
}

/// What the log wants to know of a request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) keys: Arc<[BlockKey]>,
    pub(crate) block: BlockSize,
    pub(crate) adapter: Option<AdapterName>,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Duration>,
    /// What it was charged.
    pub(crate) tab: Tab,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) end: RequestEnd,
    pub(crate) status: u16,
    pub(crate) usage: Option<Usage>,
    /// Tokens that came, as far as they were counted.
    pub(crate) output: u64,
}

impl Account {
    pub(crate) fn open(gateway: &Arc<Gateway>, record: Arc<Record>, entry: Entry, began: Instant) -> Self {
        gateway.records.push(record.clone());
        gateway.metrics.gateway.running_requests.raise();
        Self {
            gateway: gateway.clone(),
            record,
            entry,
            began,
            first: None,
            came: 0,
            closed: false,
        }
    }

    /// The first token came.
    pub(crate) fn first_token(&mut self) {
        if self.first.is_none() {
            let took = self.began.elapsed();
            self.first = Some(took);
            self.gateway.metrics.gateway.first_token.observe(took);
        }
    }

    /// So many tokens came so far: who goes away before the end has had them.
    pub(crate) fn came(&mut self, tokens: u64) {
        self.came = tokens;
    }

    pub(crate) fn close(mut self, ending: Ending) {
        self.tell(ending);
    }

    fn tell(&mut self, ending: Ending) {
        self.closed = true;
        let took = self.began.elapsed();
        let metrics = &self.gateway.metrics.gateway;
        metrics.ended_requests.of(ending.end).add(1);
        let output = ending.usage.map_or(ending.output, |usage| usage.completion);
        metrics.output_tokens.add(output);
        self.entry.tab.close(ending.end, ending.usage, output);
        metrics.request_duration.observe(took);
        let mut told = self.record.told();
        told.end = Some(match ending.end {
            RequestEnd::Served => "served",
            RequestEnd::Wrong => "wrong",
            RequestEnd::Refused => "refused",
            RequestEnd::Failed => "failed",
            RequestEnd::Cancelled => "cancelled",
        });
        told.status = (ending.status != 0).then_some(ending.status);
        told.cached = ending.usage.and_then(|usage| usage.cached);
        told.engine_prompt_tokens = ending.usage.map(|usage| usage.prompt);
        told.output_tokens = output;
        told.first_token_ms = self.first.map(millis);
        told.took_ms = Some(millis(took));
        drop(told);
        if let Some(exporter) = &self.gateway.exporter {
            exporter.tell(spans::of(&self.record, ending.end));
        }
        tracing::debug!(
            request = %self.record.id, model = &*self.record.model, status = ending.status, output, took_ms = millis(took), "ended"
        );
        let log = self.gateway.log.as_ref();
        if let Some(log) = log.filter(|_| ending.end == RequestEnd::Served) {
            log.write(&self.line(took, output, ending.usage));
        }
    }

    fn line(&self, took: Duration, output: u64, usage: Option<Usage>) -> LogRecord {
        let tokens = |count: u64| Tokens(u32::try_from(count).unwrap_or(u32::MAX));
        let prompt = usage
            .map_or(self.record.prompt_tokens, |usage| tokens(usage.prompt).0)
            .max(1);
        // A log in which a prompt has more blocks than tokens could not be read.
        let full = self.entry.block.full_blocks(Tokens(prompt)).0 as usize;
        let keys = &self.entry.keys[..self.entry.keys.len().min(full)];
        LogRecord {
            at: self.record.at.duration_since(UNIX_EPOCH).unwrap_or_default(),
            prompt: Tokens(prompt),
            output: tokens(output),
            block: self.entry.block,
            keys: keys.to_vec(),
            session: self.record.session.clone(),
            client: Client {
                tenant: self.record.tenant.clone(),
                class: None,
                priority: self.entry.priority,
            },
            adapter: self.entry.adapter.clone(),
            deadline: self.entry.deadline,
            first_token: self.first,
            took: Some(took),
            cached: usage.and_then(|usage| usage.cached).map(tokens),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.gateway.metrics.gateway.running_requests.lower();
        if !self.closed {
            self.tell(Ending {
                end: RequestEnd::Cancelled,
                status: 0,
                usage: None,
                output: self.came,
            });
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
