//! Requests that are under way.

use std::sync::Arc;

use homing_domain::{BlockKey, RankId, Tokens, WorkerId};
use homing_load::Ticket;
use homing_profile::{Millis, Time};
use homing_scheduler::queue::Tenant;
use homing_trace::{Request, Text};

use super::record::{End, Record};

/// A request, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNo(pub u64);

/// Where a request is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// About to ask a router, since then.
    Asks(Time),
    /// With its router, since then.
    Waits(Time),
    /// On its way to a rank, or there.
    Goes(Going),
}

/// An attempt that was let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) ticket: Ticket,
    pub(crate) rank: RankId,
    pub(crate) since: Time,
    pub(crate) predicted_cached: Tokens,
    pub(crate) predicted_first_token: Millis,
    /// When its first token was generated, in this attempt.
    pub(crate) first_token: Option<Time>,
    /// Tokens that its router was told of.
    pub(crate) generated: u32,
    /// When its router last heard of it, and whether it knows of a first token.
    pub(crate) heard: Time,
    pub(crate) heard_first: bool,
    pub(crate) booked: Booked,
}

/// Whether a router still has the booking of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booked {
    Yes,
    /// The rank went, and the booking with it. Whether it comes back does not matter.
    No,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: CallNo,
    pub(crate) request: Request,
    /// Its whole prompt as the client wrote it.
    pub(crate) text: Text,
    pub(crate) asked: Tokens,
    /// The prompt of the present attempt: with what was said already, if it goes on elsewhere.
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) keys: Arc<[BlockKey]>,
    pub(crate) router: u32,
    pub(crate) arrived: Time,
    pub(crate) stage: Stage,
    pub(crate) attempt: u32,
    pub(crate) tried: Vec<WorkerId>,
    /// All that was said in answer, over all attempts.
    pub(crate) said: Vec<u32>,
    pub(crate) first_token: Option<Time>,
    pub(crate) queued: Millis,
    /// What the last attempt was predicted to be, and what it was.
    pub(crate) last: Option<Going>,
    pub(crate) cached: Tokens,
    /// Its class and tenant, as routers know them.
    pub(crate) class: usize,
    pub(crate) tenant: Tenant,
    /// By when it must have begun.
    pub(crate) deadline: Option<Time>,
    /// So long its client does not read the end of its answer.
    pub(crate) reads_late: Option<Millis>,
}

impl Call {
    /// Tokens that it is still to generate.
    pub(crate) fn left(&self) -> u32 {
        self.request.output.0.max(1).saturating_sub(self.said.len() as u32)
    }

    pub(crate) fn going(&self) -> Option<&Going> {
        match &self.stage {
            Stage::Goes(going) => Some(going),
            Stage::Asks(_) | Stage::Waits(_) => None,
        }
    }

    pub(crate) fn going_mut(&mut self) -> Option<&mut Going> {
        match &mut self.stage {
            Stage::Goes(going) => Some(going),
            Stage::Asks(_) | Stage::Waits(_) => None,
        }
    }

    /// The present attempt is over, and it asks again.
    pub(crate) fn asks(&mut self, now: Time) {
        if let Stage::Goes(going) = self.stage {
            self.last = Some(going);
        }
        self.stage = Stage::Asks(now);
    }

    pub(crate) fn record(&self, now: Time, end: End) -> Record {
        let last = self.going().copied().or(self.last);
        let served = last.and_then(|last| Some(last.first_token?.since(last.since)));
        Record {
            number: self.number.0,
            router: self.router,
            rank: last.map(|last| last.rank),
            arrived: self.arrived,
            queued: self.queued,
            first_token: self.first_token.map(|first| first.since(self.arrived)),
            whole: now.since(self.arrived),
            prompt: self.asked,
            output: Tokens(self.said.len() as u32),
            cached: self.cached,
            predicted_cached: last.map_or(Tokens(0), |last| last.predicted_cached),
            predicted_first_token: last.map_or(Millis::ZERO, |last| last.predicted_first_token),
            served_first_token: served,
            attempts: self.attempt + 1,
            end,
        }
    }
}
