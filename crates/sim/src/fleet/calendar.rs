//! What is due when?
//!
//! **Invariant:** of what is due at the same moment, what was entered first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use homing_disagg::Leg;
use homing_domain::{KvBatch, RankId, RequestId, Tokens};
use homing_feed::{Ask, AskId, Identity};
use homing_load::Ticket;
use homing_profile::Time;

use super::calls::CallNo;
use super::split::Word;

/// Something that is due.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// A step of a worker's engine ends, or something else is to be looked at there.
    Wake { worker: u32 },
    /// A request reaches a worker.
    Dispatched { call: CallNo, attempt: u32 },
    /// A router hears that a request's first token came, or that it has so many now.
    Progress { call: CallNo, attempt: u32, tokens: Tokens },
    /// A router hears that a request's answer is whole.
    Finished { call: CallNo, attempt: u32, cached: Tokens },
    /// A router hears that a request failed where it was.
    Broken { call: CallNo, attempt: u32 },
    /// A client does not want its answer any more.
    GivenUp { call: CallNo },
    /// A batch of events reaches a router.
    Batch {
        router: u32,
        life: u64,
        rank: RankId,
        subscription: u64,
        batch: Arc<KvBatch>,
    },
    /// A router's question reaches a worker.
    Asked { router: u32, life: u64, ask: Ask },
    /// An answer reaches a router: batches of a replay, or none if it failed.
    Answered {
        router: u32,
        life: u64,
        ask: AskId,
        rank: RankId,
        batches: Option<Vec<Arc<KvBatch>>>,
    },
    /// A subscription stands.
    Subscribed {
        router: u32,
        life: u64,
        rank: RankId,
        subscription: u64,
    },
    /// A subscription broke, and the router notices.
    Unsubscribed {
        router: u32,
        life: u64,
        rank: RankId,
        subscription: u64,
    },
    /// A router hears what holds of a worker: whether it is there, and whether it takes requests.
    Discovers { router: u32, life: u64, worker: u32 },
    /// A router hears that a request is still alive.
    Touch { call: CallNo, attempt: u32 },
    /// A router hears once more that a request ended.
    LateWord { router: u32, life: u64, ticket: Ticket },
    /// A router asks all workers how busy they are.
    Poll { router: u32, life: u64 },
    /// Time passes for a router.
    Tick { router: u32, life: u64 },
    /// A fault begins or ends.
    Fault { fault: usize, ends: bool },
    /// Whether somebody still waits though a rank does nothing.
    LookAgain {
        router: u32,
        call: CallNo,
        rank: RankId,
        looks: u32,
    },
    /// A leg of a request that two workers may serve reaches its worker.
    LegArrives { call: CallNo, leg: Leg },
    /// The other leg has come to it.
    LegMeets { call: CallNo, leg: Leg },
    /// A router hears of a leg.
    LegWord { call: CallNo, leg: Leg, word: Word },
    /// Time passed for a handoff.
    HandoffTick { call: CallNo },
    /// A router hears that all parts of a request are alive.
    TouchAll { call: CallNo },
    /// KV may have arrived from a worker.
    LinkWakes { worker: u32 },
    /// Room may have come at a worker.
    Poke { worker: u32 },
    /// It is known that a worker died.
    WorkerGone { worker: u32 },
    /// All is looked at.
    Check,
}

/// Which life of an engine a stream belongs to, as far as routers can see: they cannot.
pub(crate) const IDENTITY: Identity = Identity { engine: 0, agent: 0 };

#[derive(Debug)]
struct Entry {
    at: Time,
    number: u64,
    due: Due,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Everything that is due.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    entries: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Calendar {
    pub(crate) fn enter(&mut self, at: Time, due: Due) {
        self.number += 1;
        let number = self.number;
        self.entries.push(Reverse(Entry { at, number, due }));
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    pub(crate) fn take(&mut self) -> Option<(Time, Due)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.due))
    }
}

/// A request's name for routers.
pub(crate) fn request_id(call: CallNo, attempt: u32) -> RequestId {
    RequestId::new(format!("{}.{attempt}", call.0))
}
