//! Engines, and the streams of events that they publish.

use std::collections::VecDeque;
use std::sync::Arc;

use homing_domain::{Digest, DpRank, KvBatch, RankId, Sequence, WorkerId};
use homing_engine::{ConfigError, Engine, RequestNo};
use homing_profile::Time;
use homing_scheduler::Duty;

use super::calls::CallNo;
use super::setup::Drawn;

/// Whether a worker can load adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    Works,
    Fails,
}

/// A process with an engine.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) engine: Engine,
    /// Whether it answers.
    pub(crate) up: bool,
    /// Whether it takes requests and does nothing.
    pub(crate) hangs: bool,
    /// Whether routers are told that it is there, and whether it takes new requests.
    pub(crate) listed: bool,
    pub(crate) duty: Duty,
    pub(crate) loading: Loading,
    /// When the engine is looked at next.
    pub(crate) wakes: Option<Time>,
    /// How much slower than its timing it is, without faults.
    pub(crate) slowdown: f64,
    /// Of a thousand batches: lost, repeated, late, misread.
    pub(crate) loss: u32,
    pub(crate) repeat: u32,
    pub(crate) reorder: u32,
    pub(crate) misread: u32,
    /// For each rank the last batch that it told of in this life, and when it did.
    pub(crate) newest: Vec<Option<(Sequence, Digest)>>,
    pub(crate) told: Vec<Time>,
    /// For each rank the last batches.
    rings: Vec<VecDeque<Arc<KvBatch>>>,
    ring: usize,
}

/// The number of an attempt, for engines.
pub(crate) fn request_no(call: CallNo, attempt: u32) -> RequestNo {
    RequestNo(call.0 << 8 | u64::from(attempt & 0xff))
}

/// The attempt of an engine's number.
pub(crate) fn attempt_of(request: RequestNo) -> (CallNo, u32) {
    (CallNo(request.0 >> 8), (request.0 & 0xff) as u32)
}

impl Worker {
    pub(crate) fn new(id: WorkerId, drawn: Drawn, ring: usize) -> Result<Self, ConfigError> {
        let ranks = usize::from(drawn.config.ranks);
        let mut engine = Engine::new(drawn.config)?;
        engine.set_slowdown(drawn.slowdown);
        Ok(Self {
            id,
            engine,
            up: true,
            hangs: false,
            listed: true,
            duty: Duty::Serving,
            loading: Loading::Works,
            wakes: None,
            slowdown: drawn.slowdown,
            loss: 0,
            repeat: 0,
            reorder: 0,
            misread: 0,
            newest: vec![None; ranks],
            told: vec![Time::ZERO; ranks],
            rings: vec![VecDeque::new(); ranks],
            ring,
        })
    }

    /// Whether it computes.
    pub(crate) const fn works(&self) -> bool {
        self.up && !self.hangs
    }

    /// Its ranks.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = RankId> + use<> {
        let worker = self.id;
        (0..self.engine.config().ranks).map(move |dp| RankId { worker, dp: DpRank(dp) })
    }

    /// Keeps a batch for those who ask for it again.
    pub(crate) fn keep(&mut self, dp: DpRank, batch: &Arc<KvBatch>, now: Time) {
        let at = usize::from(dp.0);
        if let (Some(newest), Some(told)) = (self.newest.get_mut(at), self.told.get_mut(at)) {
            *newest = Some((batch.sequence, batch.digest));
            *told = now;
        }
        if let Some(ring) = self.rings.get_mut(usize::from(dp.0)).filter(|_| self.ring > 0) {
            if ring.len() == self.ring {
                ring.pop_front();
            }
            ring.push_back(batch.clone());
        }
    }

    /// The batches from a number on, as far as they are still there.
    pub(crate) fn replay(&self, dp: DpRank, from: Sequence) -> Vec<Arc<KvBatch>> {
        let ring = self.rings.get(usize::from(dp.0)).into_iter().flatten();
        ring.filter(|batch| batch.sequence >= from).cloned().collect()
    }

    /// It dies. Returns the requests that are lost. What it kept is lost too.
    pub(crate) fn crash(&mut self, now: Time) -> Vec<RequestNo> {
        self.up = false;
        self.newest.fill(None);
        self.told.fill(now);
        self.wakes = None;
        self.rings.iter_mut().for_each(VecDeque::clear);
        self.engine.restart()
    }
}
