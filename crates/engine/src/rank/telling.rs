//! What does a rank tell of its cache, and how busy is it?

use homing_domain::{Digest, KvBatch};

use super::Rank;
use crate::bugs::planted;
use crate::pool::Change;
use crate::request::{EventBatch, Load, Outcome, TraceRecord};
use crate::time::Time;

impl Rank {
    pub(crate) fn load(&self) -> Load {
        let transit = self.transit.counts();
        Load {
            running: self.running.len() as u32 + u32::from(self.sglang.chunked.is_some()),
            waiting: self.waiting.len() as u32,
            waiting_tokens: self.waiting_tokens,
            blocks: self.pool.counts(),
            preemptions: self.preemptions,
            prefix_queries: self.prefix_queries,
            prefix_hits: self.prefix_hits,
            staged: transit.staged,
            staged_blocks: transit.staged_blocks,
            incoming: transit.incoming,
            incoming_blocks: transit.incoming_blocks,
            external_queries: transit.external_queries,
            external_hits: transit.external_hits,
        }
    }

    pub(super) fn report(&mut self, at: Time, out: &mut Outcome) {
        (out.rank, out.at, out.load) = (self.dp, at, self.load());
        out.trace.append(&mut self.trace);
    }

    pub(super) fn note_trace(&mut self, at: Time) {
        let (rank, block_size) = (self.dp, self.config.block_size.get());
        self.trace.extend(self.pool.take_trace().map(|line| TraceRecord {
            at,
            rank,
            act: line.act,
            blocks: line.blocks,
            block_size,
            counts: line.counts,
        }));
    }

    pub(super) fn events(&mut self, at: Time) -> Option<EventBatch> {
        if !self.pool.has_changes() {
            return None;
        }
        let sequence = self.next_batch;
        if !planted!(self.config.bug, NumberRepeated) || sequence.0.is_multiple_of(2) {
            self.next_batch = sequence.next();
        }
        let mut name = [0; 24];
        for (part, value) in [self.life, u64::from(self.dp.0), sequence.0].into_iter().enumerate() {
            name[8 * part..8 * (part + 1)].copy_from_slice(&value.to_le_bytes());
        }
        let changes = self.pool.take_changes().into_iter();
        let (changes, tokens) = changes.map(|Change { change, tokens }| (change, tokens)).unzip();
        Some(EventBatch {
            batch: KvBatch {
                sequence,
                digest: Digest::of(&name),
                sent_ms: Some(at.millis() as u64),
                changes,
            },
            tokens,
        })
    }
}
