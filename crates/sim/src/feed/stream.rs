//! What did a source send, and what can it send again?

use std::collections::VecDeque;

use homing_domain::{Digest, KvBatch, KvChange, Sequence};

use homing_trace::rng::mix;

/// The numbered batches of one life of one source.
#[derive(Debug)]
pub struct Stream {
    /// Which life: no two streams in a world have the same.
    pub life: u64,
    /// The number of the next batch.
    pub next: u64,
    newest: Option<(Sequence, Digest)>,
    ring: VecDeque<KvBatch>,
    ring_size: usize,
}

impl Stream {
    /// A stream that begins with number 0 and keeps so many batches.
    pub fn new(life: u64, ring_size: usize) -> Self {
        Self {
            life,
            next: 0,
            newest: None,
            ring: VecDeque::new(),
            ring_size,
        }
    }

    /// Goes on where another stream was, without what that kept.
    pub fn resume(&mut self, other: &Self) {
        self.next = other.next;
        self.newest = other.newest;
    }

    /// Says something.
    pub fn emit(&mut self, sent_ms: Option<u64>, changes: Vec<KvChange>) -> KvBatch {
        let batch = KvBatch {
            sequence: Sequence(self.next),
            digest: Digest(mix(mix(self.life) ^ self.next)),
            sent_ms,
            changes,
        };
        self.pass(batch.clone());
        batch
    }

    /// Passes on what another said, under its number.
    pub fn pass(&mut self, batch: KvBatch) {
        self.next = batch.sequence.0 + 1;
        self.newest = Some((batch.sequence, batch.digest));
        self.ring.push_back(batch);
        while self.ring.len() > self.ring_size {
            self.ring.pop_front();
        }
    }

    /// The last batch, if there was one.
    pub const fn newest(&self) -> Option<(Sequence, Digest)> {
        self.newest
    }

    /// What is still there from a number on.
    pub fn from(&self, from: Sequence) -> Vec<KvBatch> {
        let wanted = self.ring.iter().filter(|batch| batch.sequence >= from);
        wanted.cloned().collect()
    }

    /// Whether the batch with this number is still there.
    pub fn has(&self, sequence: Sequence) -> bool {
        self.ring.iter().any(|batch| batch.sequence == sequence)
    }
}
