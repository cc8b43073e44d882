//! What was told to proxies and has not ended: decisions that may still be booked, and bookings.
//!
//! **Invariant:** what is held ends exactly once: when it is told to have ended, or when nobody spoke of it for the time of its lease.
//!
//! **Invariant:** at most [`MOST`] are held.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use homing_discovery::Outcome;
use homing_domain::{RankId, excerpt};
use homing_protocol::Usage;
use homing_telemetry::RequestEnd;

use super::Understood;
use super::asked::{Done, Ended};
use crate::account::{Account, Ending};
use crate::flight::Flight;
use crate::refusal::Refuse;

/// Requests that have not ended.
const MOST: usize = 1 << 17;

/// A decision that is not booked.
pub(super) struct Considered {
    pub(super) understood: Understood,
    pub(super) rank: RankId,
    pub(super) began: Instant,
}

/// A request that somebody sent to a worker.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) flight: Flight,
    pub(super) account: Account,
    pub(super) prompt: u32,
    pub(super) generated: u32,
}

/// What is held for somebody.
pub(super) enum Held {
    Considered(Box<Considered>),
    Running(Box<Running>),
}

struct Lease {
    held: Held,
    length: Duration,
    until: Instant,
}

/// All that is held, by its id.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<String, Lease>>);

impl std::fmt::Debug for Leases {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} leases", self.all().len())
    }
}

impl Leases {
    pub(super) fn is_full(&self) -> bool {
        self.all().len() >= MOST
    }

    /// Holds something for somebody.
    pub(super) fn hold(&self, id: &str, held: Held, length: Duration) -> Result<(), Refuse> {
        let mut all = self.all();
        if all.len() >= MOST {
            return Err(Refuse::unavailable("too many requests are not ended yet"));
        }
        let until = Instant::now() + length;
        all.insert(id.to_owned(), Lease { held, length, until });
        Ok(())
    }

    /// Takes a decision to book it. One that is booked stays.
    pub(super) fn considered(&self, id: &str) -> Result<Considered, Refuse> {
        let mut all = self.all();
        match all.remove(id) {
            Some(Lease {
                held: Held::Considered(considered),
                ..
            }) => Ok(*considered),
            Some(booked) => {
                all.insert(id.to_owned(), booked);
                Err(Refuse::wrong(409, format!("`{}` is booked already", excerpt(id))))
            }
            None => Err(unknown(id)),
        }
    }

    /// Does something with a booking, which is thereby spoken of.
    pub(super) fn running(&self, id: &str, act: impl FnOnce(&mut Running)) -> Result<(), Refuse> {
        let mut all = self.all();
        let lease = all.get_mut(id).ok_or_else(|| unknown(id))?;
        let Held::Running(running) = &mut lease.held else {
            return Err(Refuse::wrong(409, format!("`{}` is not booked", excerpt(id))));
        };
        act(running);
        lease.until = Instant::now() + lease.length;
        Ok(())
    }

    /// Takes what has ended.
    pub(super) fn end(&self, id: &str) -> Result<Held, Refuse> {
        let lease = self.all().remove(id);
        lease.map(|lease| lease.held).ok_or_else(|| unknown(id))
    }

    /// Ends what nobody spoke of for too long. Returns how many bookings those were.
    pub(super) fn expire(&self, now: Instant) -> u64 {
        // Dropped without the lock: to end a booking is work.
        let expired: Vec<Lease> = self
            .all()
            .extract_if(|_, lease| lease.until <= now)
            .map(|(_, lease)| lease)
            .collect();
        expired
            .iter()
            .filter(|lease| matches!(lease.held, Held::Running(_)))
            .count() as u64
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: &str) -> Refuse {
    let message = format!("`{}` is not known: it has ended, or its lease has", excerpt(id));
    Refuse::wrong(404, message)
}

impl Running {
    /// So many tokens came in all.
    pub(super) fn output(&mut self, generated: u32) {
        self.generated = self.generated.max(generated);
        if self.generated > 0 {
            self.account.first_token();
        }
        self.flight.output(u64::from(self.generated));
    }

    /// It ended. Who drops it says that the client went away.
    pub(super) fn end(mut self, done: &Done) {
        let output = u64::from(done.output_tokens.unwrap_or(self.generated));
        let usage = done.cached_tokens.map(|cached| Usage {
            prompt: u64::from(done.prompt_tokens.unwrap_or(self.prompt)),
            completion: output,
            cached: Some(u64::from(cached)),
            reasoning: None,
        });
        let (end, status) = match done.end {
            Ended::Cancelled => return,
            Ended::Failed => (RequestEnd::Failed, 502),
            Ended::Finished => (RequestEnd::Served, 200),
        };
        if end == RequestEnd::Served {
            self.account.first_token();
            self.flight.served(usage, output);
        } else {
            self.flight.failed(Outcome::Reset);
        }
        self.account.close(Ending {
            end,
            status,
            usage,
            output,
        });
    }
}
