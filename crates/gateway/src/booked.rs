//! What is booked, in somebody's hands.
//!
//! **Invariant:** every booking that the router made is ended exactly once, because whoever was to have it holds a [`Booked`] or a [`Half`], and
//! dropping one ends it.

use std::sync::Arc;
use std::time::Duration;

use homing_disagg::{Fate, Hold, Staged};
use homing_domain::{RankId, Tokens};
use homing_load::{End, Ticket};
use homing_router::{Ended, Routed};
use homing_scheduler::Decision;

use crate::adapters::Inside;
use crate::lane::Lane;
use crate::progress::ExpectedAnswer;

/// A booking in somebody's hands.
#[derive(Debug)]
pub(crate) struct Booked {
    lane: Arc<Lane>,
    pub(crate) routed: Routed,
    /// What is booked for its prompt, if another worker computes it. Taken by whoever sees to that.
    pub(crate) half: Option<Half>,
    first: bool,
    told: u32,
    /// Keeps its adapter where it is.
    pub(crate) inside: Option<Inside>,
    /// The answer that its worker should give, where its silence would say something.
    pub(crate) expected: Option<ExpectedAnswer>,
    /// What it took to decide, when it was asked for.
    pub(crate) took: Deciding,
}

/// How long it took to decide about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deciding {
    /// To look into the index.
    pub(crate) lookup: Duration,
    /// To decide, or to find that it has to wait.
    pub(crate) decide: Duration,
}

impl Booked {
    pub(crate) fn new(lane: &Arc<Lane>, mut routed: Routed) -> Self {
        let prefill = routed.halves.as_mut().and_then(|halves| halves.prefill.as_mut());
        let half = prefill.map(|prefill| Half {
            lane: lane.clone(),
            ticket: prefill.ticket.take(),
            hold: prefill.hold.take(),
            decision: Arc::new(prefill.decision.clone()),
            cached: prefill.cached,
            told: None,
            staged: false,
        });
        Self {
            lane: lane.clone(),
            routed,
            half,
            first: false,
            told: 0,
            inside: None,
            expected: None,
            took: Deciding::default(),
        }
    }

    pub(crate) fn rank(&self) -> RankId {
        self.routed.decision.chosen.rank
    }

    /// Why one worker serves it or two, as JSON, where there was a choice.
    pub(crate) fn why(&self) -> Option<Arc<str>> {
        let halves = self.routed.halves.as_ref()?;
        Some(halves.why.to_json().into())
    }

    /// Tokens that are predicted to come from the cache.
    pub(crate) fn cached(&self) -> Tokens {
        self.routed.cached
    }

    /// So many tokens came so far.
    pub(crate) fn output(&mut self, generated: u32) {
        let Some(ticket) = self.routed.ticket else { return };
        if !self.first && generated > 0 {
            self.first = true;
            self.lane.router.prefill_done(self.lane.now(), ticket);
            self.lane.settle();
        }
        // A block's worth at a time: the router counts in blocks.
        let block = self.lane.subject.block_size.get();
        if generated / block > self.told / block {
            self.told = generated;
            self.lane.router.output(self.lane.now(), ticket, Tokens(generated));
        }
    }

    /// It ended. `cached` is what the engine says came from its cache.
    pub(crate) fn end(mut self, end: End, generated: u32, cached: Option<Tokens>) {
        if let Some(ticket) = self.routed.ticket.take() {
            let ended = Ended {
                end,
                generated: Some(Tokens(generated)),
                cached,
            };
            self.close(ticket, &ended);
        }
    }

    fn close(&self, ticket: Ticket, ended: &Ended) {
        self.lane.router.done(self.lane.now(), ticket, ended);
        self.lane.settle();
    }
}

/// What is booked for a prompt that another worker computes, and the room for its KV. However whoever holds it ends, both end with it.
#[derive(Debug)]
pub(crate) struct Half {
    lane: Arc<Lane>,
    ticket: Option<Ticket>,
    hold: Option<Hold>,
    pub(crate) decision: Arc<Decision>,
    /// Tokens that are predicted to come from the cache.
    pub(crate) cached: Tokens,
    /// What the engine says came from its cache.
    pub(crate) told: Option<Tokens>,
    staged: bool,
}

impl Half {
    /// So much waits to be fetched.
    pub(crate) fn staged(&mut self, staged: &Staged) {
        self.staged = true;
        if let Some(hold) = self.hold {
            self.lane.router.staged(hold, staged);
        }
    }

    /// A decode worker is on its way to fetch it.
    pub(crate) fn moving(&self, to: RankId) {
        if let Some(hold) = self.hold {
            self.lane.router.moving(hold, to);
        }
    }

    /// What became of the KV.
    pub(crate) fn settle(&mut self, fate: Fate) {
        if let Some(hold) = self.hold.take() {
            self.lane.router.settle(self.lane.now(), hold, fate);
            self.lane.settle();
        }
    }

    /// The prompt was computed, or not.
    pub(crate) fn end(&mut self, end: End) {
        let Some(ticket) = self.ticket.take() else { return };
        let now = self.lane.now();
        if end == End::Finished {
            self.lane.router.prefill_done(now, ticket);
        }
        let ended = Ended {
            end,
            generated: Some(Tokens(0)),
            cached: self.told,
        };
        self.lane.router.done(now, ticket, &ended);
        self.lane.settle();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.end(End::Cancelled);
        let fate = if self.staged {
            Fate::Lapses(self.lane.now() + self.lane.lease)
        } else {
            Fate::NotStaged
        };
        self.settle(fate);
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        if let Some(ticket) = self.routed.ticket.take() {
            let ended = Ended {
                end: End::Cancelled,
                generated: None,
                cached: None,
            };
            self.close(ticket, &ended);
        }
    }
}
