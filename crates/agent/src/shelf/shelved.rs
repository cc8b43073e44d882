//! What is on a shelf: everything that must be read and changed together.

use bytes::Bytes;
use homing_domain::{Digest, KvBatch, Sequence};
use homing_telemetry::Metrics;
use homing_wire::frame::{FrameWriter, Heartbeat, Position};

use super::terms::{Generation, Refusal, Standing};
use crate::life::Life;
use crate::ring::{Ring, RingLimits, RingSize};

#[derive(Debug)]
pub(super) struct Shelved {
    pub(super) ring: Ring,
    /// The last batch in the view. The ring may be empty all the same.
    pub(super) position: Option<Position>,
    pub(super) life: Life,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    /// Whether the view was verified a short while ago.
    pub(super) vouched: Vouched,
    /// The newest batch that did not go onto the shelf, while the view is built anew: it may be the last of what is built.
    pub(super) unshelved: Option<KvBatch>,
    /// Where batches are encoded.
    pub(super) scratch: Vec<u8>,
    /// What the metrics were told.
    pub(super) told: RingSize,
    /// Whether the feed must be told that the engine lives anew. Taken by the witness.
    pub(super) wants_renewal: bool,
    pub(super) is_closed: bool,
}

/// Whether the view is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vouched {
    Yes,
    No(&'static str),
}

impl Shelved {
    /// Nothing is known, and the epoch is one that no other process has.
    pub(super) fn new(limits: RingLimits) -> Self {
        Self {
            ring: Ring::new(limits),
            position: None,
            life: Life::new(),
            epoch: fastrand::u64(..),
            generation: 0,
            vouched: Vouched::No("it was not connected to yet"),
            unshelved: None,
            scratch: Vec::new(),
            told: RingSize::default(),
            wants_renewal: false,
            is_closed: false,
        }
    }

    pub(super) fn standing(&self) -> Result<Standing, Refusal> {
        if self.is_closed {
            return Err(Refusal::NotReady("the agent is about to end"));
        }
        let incarnation = self.life.incarnation();
        let incarnation = incarnation.ok_or_else(|| Refusal::NotReady(self.life.words()))?;
        Ok(Standing {
            generation: Generation(self.generation),
            beat: Heartbeat {
                position: self.position,
                incarnation,
                epoch: self.epoch,
            },
            oldest: self.ring.oldest(),
        })
    }

    pub(super) fn begin_anew(&mut self) {
        self.generation += 1;
    }

    pub(super) fn change_epoch(&mut self) {
        self.ring.clear();
        self.epoch = self.epoch.wrapping_add(1);
        self.begin_anew();
    }

    pub(super) fn put(&mut self, batch: &KvBatch, frames: FrameWriter) {
        let at = position((batch.sequence, batch.digest));
        self.position = Some(at);
        self.scratch.clear();
        match frames.batch(batch, &mut self.scratch) {
            Ok(()) => self.ring.push(at, Bytes::copy_from_slice(&self.scratch)),
            Err(error) => {
                // It is in the view and cannot be sent: whoever watches must take a list.
                tracing::warn!(batch = %batch.sequence, %error, "a batch cannot be passed on");
                self.change_epoch();
            }
        }
    }

    pub(super) fn tell(&mut self, metrics: &Metrics) {
        let size = self.ring.size();
        metrics.agent.ring_batches.shift(self.told.batches, size.batches);
        metrics.agent.ring_bytes.shift(self.told.bytes, size.bytes);
        self.told = size;
    }
}

pub(crate) fn position((sequence, digest): (Sequence, Digest)) -> Position {
    Position { sequence, digest }
}
