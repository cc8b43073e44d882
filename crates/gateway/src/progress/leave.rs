//! A request that waits at a worker leaves it when the worker hangs or goes down.
//!
//! **Invariant:** a request leaves only before its client got anything, only if another worker can serve it, and only if the budget
//! of retries has one left. Otherwise it stays: the worker may still answer.
//!
//! **Invariant:** what the worker says later is not read: its connection is closed, and its booking has ended.

use std::pin::pin;
use std::sync::Arc;

use homing_domain::RankId;
use homing_scheduler::Pin;
use homing_telemetry::TryFailure;

use super::{Delivered, ExpectedAnswer, Loss, MOVE_AGAIN, RankWatch};
use crate::booked::Booked;
use crate::refusal::Refuse;
use crate::sending::{Failed, Tried};
use crate::trip::{NoAnswer, Trip};
use crate::worker::Worker;

/// Whether a request may leave the rank that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Yes,
    NotNow,
}

impl Trip {
    /// Asks one worker, and gives it up when its rank is lost and the request may leave.
    pub(crate) async fn try_until_lost(&self, worker: &Arc<Worker>, mut booked: Booked, rank: RankId) -> Tried {
        let watch = worker.progress.watch(rank.dp);
        booked.expected = Some(self.expected(&booked));
        let mut attempt = pin!(self.way.try_at(worker, Some(booked), rank));
        let Some(mut watch) = watch else { return attempt.await };
        loop {
            let loss = tokio::select! {
                biased;
                tried = &mut attempt => return tried,
                loss = watch.loss() => loss,
            };
            if self.leave(worker, loss) == Leave::Yes {
                return Tried::Failed(Failed {
                    why: loss.why().to_owned(),
                    kind: match loss {
                        Loss::Stalled => TryFailure::Stalled,
                        Loss::Down(_) => TryFailure::Down,
                    },
                    said: None,
                });
            }
            tokio::select! {
                biased;
                tried = &mut attempt => return tried,
                () = tokio::time::sleep(MOVE_AGAIN) => {}
            }
        }
    }

    fn expected(&self, booked: &Booked) -> ExpectedAnswer {
        ExpectedAnswer {
            prompt: self.question.prompt,
            cached: booked.cached(),
            delivery: match self.way.ask.delivery {
                homing_protocol::Delivery::Streamed => Delivered::Streamed,
                homing_protocol::Delivery::Whole => Delivered::InOnePiece,
            },
        }
    }

    fn leave(&self, worker: &Worker, loss: Loss) -> Leave {
        if let Some(pin) = self.question.wanted.pinned {
            // A pinned request cannot go elsewhere: it waits for a worker that hangs, and is told if the worker is down.
            let is_over = pin.worker == worker.id && matches!(loss, Loss::Down(_));
            return if is_over { Leave::Yes } else { Leave::NotNow };
        }
        let gateway = &self.way.gateway;
        let has_try_left = self.tries + 1 < gateway.config.load().serve.retries.tries;
        if !has_try_left || !self.others_can_serve(worker) {
            return Leave::NotNow;
        }
        if !gateway.budget.spend() {
            gateway.metrics.gateway.unspent_retries.add(1);
            return Leave::NotNow;
        }
        gateway.metrics.gateway.moved_requests.add(1);
        tracing::info!(
            request = %self.question.id, worker = %worker.name, why = loss.why(), "request moved from a lost worker"
        );
        Leave::Yes
    }

    fn others_can_serve(&self, worker: &Worker) -> bool {
        let mut question = self.question.clone();
        question.wanted.tried.push(worker.id);
        self.lane.consider(&question).is_ok()
    }

    /// The refusal of a request that is pinned to a worker which is down or hangs.
    pub(crate) fn pinned_to_lost(&self) -> Option<NoAnswer> {
        let Pin { worker, .. } = self.question.wanted.pinned?;
        let table = self.way.gateway.table.load();
        let worker = table.workers.get(&worker)?;
        let message = if worker.is_down() {
            format!("worker {} is down", worker.name)
        } else if worker.is_stalled() {
            format!("worker {} makes no progress", worker.name)
        } else {
            return None;
        };
        Some(NoAnswer::Refused(Refuse::unavailable(message)))
    }
}

impl RankWatch {
    /// The same as a future of its own, for streams.
    pub(crate) async fn into_loss(mut self) -> Loss {
        self.loss().await
    }
}
