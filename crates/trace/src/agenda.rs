//! Which request is due next?
//!
//! The part of a driver that reads a trace: requests that arrive at their time, and those that wait for the one before them in their
//! session. The simulator asks it in virtual time, a live replay in real time.
//!
//! **Invariant:** a request that follows another is given out after that one was given out and [`Agenda::ended`] was called for it,
//! and no request twice.
//!
//! **Invariant:** times given out never decrease as long as `ended` is called with times that do not lie before the last of them.
//!
//! Cost: it reads ahead no further than the next arrival. Of sessions that are not over it keeps the requests that wait, at most as
//! many as it is allowed; of the others, when they ended, for the last [`MAX_SESSIONS`].

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::error::TraceError;
use crate::format::MAX_SESSIONS;
use crate::recent::Recent;
use crate::request::{Arrival, Request, SessionId};
use crate::transform::Traffic;

/// Why there is no next request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AgendaError {
    /// The trace has an error. Asking again goes on behind it.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Too many requests wait for others of their session.
    #[error("{limit} requests wait for earlier ones of their sessions already")]
    TooManyWait {
        /// As many as may.
        limit: usize,
    },
}

/// Requests of a trace, each when it is due.
#[derive(Debug)]
pub struct Agenda<I> {
    traffic: I,
    /// The next one of the trace.
    next: Option<Request>,
    ready: BinaryHeap<Reverse<Due>>,
    busy: FxHashMap<SessionId, Session>,
    ended: Recent<Time>,
    waiting: usize,
    limit: usize,
    numbered: u64,
}

/// A session with requests that were given out, or are about to be, and are not over.
#[derive(Debug, Default)]
struct Session {
    open: u32,
    waiting: VecDeque<Request>,
}

impl<I: Traffic> Agenda<I> {
    /// All of a trace; at most `limit` requests wait for others of their session.
    pub fn new(traffic: I, limit: usize) -> Self {
        Self {
            traffic,
            next: None,
            ready: BinaryHeap::new(),
            busy: FxHashMap::default(),
            ended: Recent::new(MAX_SESSIONS),
            waiting: 0,
            limit,
            numbered: 0,
        }
    }

    /// When the next request is due, as far as is known now. None if the trace is over or all that is left waits for others to
    /// end.
    pub fn due(&mut self) -> Result<Option<Time>, AgendaError> {
        loop {
            if self.next.is_none() {
                self.next = self.traffic.next().transpose()?;
            }
            let due = self.ready.peek().map(|Reverse(due)| due.time);
            let (Some(request), due) = (&self.next, due) else {
                return Ok(due);
            };
            if due.is_some_and(|due| due < request.arrival.earliest()) {
                return Ok(due);
            }
            self.take()?;
        }
    }

    /// The next request with the time at which it is due.
    pub fn pop(&mut self) -> Result<Option<(Time, Request)>, AgendaError> {
        self.due()?;
        Ok(self.ready.pop().map(|Reverse(due)| (due.time, due.request)))
    }

    /// A request of this session is over: those that follow it may come.
    pub fn ended(&mut self, session: SessionId, at: Time) {
        let Some(state) = self.busy.get_mut(&session) else {
            return;
        };
        state.open = state.open.saturating_sub(1);
        if state.open > 0 {
            return;
        }
        let Some(request) = state.waiting.pop_front() else {
            self.busy.remove(&session);
            self.ended.insert(session, at);
            return;
        };
        state.open = 1;
        self.waiting -= 1;
        self.ready(at_last(&request, Some(at)), request);
    }

    /// Whether a session has requests that are not over or wait. One that has none may still go on.
    pub fn is_busy(&self, session: SessionId) -> bool {
        self.busy.contains_key(&session)
    }

    /// Takes the next request of the trace: it is due, or it waits.
    fn take(&mut self) -> Result<(), AgendaError> {
        let Some(request) = self.next.take() else {
            return Ok(());
        };
        let Some(session) = request.session else {
            let time = request.arrival.earliest();
            self.ready(time, request);
            return Ok(());
        };
        let limit = self.limit;
        let state = self.busy.entry(session).or_default();
        let follows = matches!(request.arrival, Arrival::Follows { .. });
        if follows && state.open > 0 {
            if self.waiting >= limit {
                return Err(AgendaError::TooManyWait { limit });
            }
            self.waiting += 1;
            state.waiting.push_back(request);
            return Ok(());
        }
        state.open += 1;
        let ended = self.ended.remove(session);
        self.ready(at_last(&request, ended), request);
        Ok(())
    }

    fn ready(&mut self, time: Time, request: Request) {
        self.numbered += 1;
        self.ready.push(Reverse(Due {
            time,
            number: self.numbered,
            request,
        }));
    }
}

/// When a request arrives whose predecessor ended at this time, if it is known.
fn at_last(request: &Request, ended: Option<Time>) -> Time {
    match (request.arrival, ended) {
        (Arrival::Follows { earliest, think }, Some(ended)) => earliest.max(ended + Millis(think.0.max(0.0))),
        (arrival, _) => arrival.earliest(),
    }
}

/// A request with its time. Ordered by time, then as they became due.
#[derive(Debug)]
struct Due {
    time: Time,
    number: u64,
    request: Request,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}
