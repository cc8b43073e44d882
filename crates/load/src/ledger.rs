//! Which bookings are there? A slab of them, and lists through it: by when they were last heard of, and for each rank all of
//! them and those without a first token, oldest first. Everything is constant time.

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, RequestId, Tokens};
use homing_profile::{Millis, Time};

use crate::booking::Ticket;
use crate::prompts::Tail;
use crate::rank::Ahead;

const NONE: u32 = u32::MAX;
/// Prompts that are assumed to be computed in one step, at most.
const MOST_IN_STEP: usize = 32;

/// The lists that a booking can be in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// All bookings, the one heard of the longest ago first.
    Heard = 0,
    /// Those of a rank.
    Rank = 1,
    /// Those of a rank without a first token.
    Pending = 2,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl List {
    pub(crate) fn first(self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its prompt is to be computed here.
    Prefill,
    /// Its prompt is computed elsewhere, and its KV has not come.
    Awaiting,
    Decoding,
}

/// One booking.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) fence: u64,
    pub(crate) id: RequestId,
    pub(crate) place: u32,
    pub(crate) stage: Stage,
    /// Prompt tokens that are not cached; none if they do not count.
    pub(crate) uncached: u32,
    /// What these take by the profile beyond the step that they are in, in microseconds.
    pub(crate) work: u64,
    pub(crate) prompt: u32,
    pub(crate) expected: u32,
    pub(crate) generated: u32,
    /// Blocks of the prompt that are not in the tree.
    pub(crate) private_blocks: u64,
    pub(crate) tail: Option<Tail>,
    pub(crate) output_blocks: u64,
    /// Blocks of output that are expected beyond these.
    pub(crate) coming: u64,
    pub(crate) output_parts: u64,
    /// What the profile says of its prefill.
    pub(crate) prefill: Millis,
    /// Until its first token, as predicted with the factor but without the residual.
    pub(crate) predicted: Millis,
    /// Nothing else was to be done on the rank when it was booked.
    pub(crate) met_idle: bool,
    pub(crate) booked: Time,
    pub(crate) heard: Time,
    pub(crate) adapter: Option<AdapterName>,
    /// Kept for as long as the tree may look at it.
    pub(crate) keys: Arc<[BlockKey]>,
    links: [Link; 3],
}

impl Entry {
    /// Whose it is, and its ticket; `at` is its place in the ledger.
    pub(crate) fn named(&self, at: u32) -> (RequestId, Ticket) {
        let fence = self.fence;
        (self.id.clone(), Ticket { at, fence })
    }

    pub(crate) fn new(fence: u64, id: RequestId, place: u32, now: Time) -> Self {
        Self {
            fence,
            id,
            place,
            stage: Stage::Prefill,
            uncached: 0,
            work: 0,
            prompt: 0,
            expected: 0,
            generated: 0,
            private_blocks: 0,
            tail: None,
            output_blocks: 0,
            coming: 0,
            output_parts: 0,
            prefill: Millis::ZERO,
            predicted: Millis::ZERO,
            met_idle: false,
            booked: now,
            heard: now,
            adapter: None,
            keys: Arc::from([]),
            links: [Link {
                before: NONE,
                after: NONE,
            }; 3],
        }
    }
}

/// All bookings.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    live: usize,
}

impl Ledger {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn add(&mut self, entry: Entry) -> u32 {
        self.live += 1;
        if let Some(at) = self.free.pop() {
            self.entries[at as usize] = Some(entry);
            return at;
        }
        self.entries.push(Some(entry));
        (self.entries.len() - 1) as u32
    }

    pub(crate) fn take(&mut self, at: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.free.push(at);
        self.live -= 1;
        Some(entry)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    /// What the prompts at the head of a list that fit into one step are, together. The first always does.
    pub(crate) fn batch(&self, pending: List, chunk: Tokens) -> Ahead {
        let mut tokens = 0_u32;
        let mut work = 0;
        let mut next = pending.first();
        for _ in 0..MOST_IN_STEP {
            let Some(entry) = next.and_then(|at| self.get(at)) else {
                break;
            };
            let with = tokens.saturating_add(entry.uncached);
            if tokens > 0 && with > chunk.0 {
                break;
            }
            tokens = with;
            work += entry.work;
            next = Some(entry.links[By::Pending as usize].after);
        }
        Ahead {
            tokens: u64::from(tokens),
            work,
        }
    }

    pub(crate) fn push(&mut self, list: &mut List, by: By, at: u32) {
        let before = list.last;
        self.link(at, by, Link { before, after: NONE });
        match self.get_mut(before) {
            Some(entry) => entry.links[by as usize].after = at,
            None => list.first = at,
        }
        list.last = at;
    }

    pub(crate) fn unlink(&mut self, list: &mut List, by: By, at: u32) {
        let Some(Link { before, after }) = self.get(at).map(|entry| entry.links[by as usize]) else {
            return;
        };
        match self.get_mut(before) {
            Some(entry) => entry.links[by as usize].after = after,
            None => list.first = after,
        }
        match self.get_mut(after) {
            Some(entry) => entry.links[by as usize].before = before,
            None => list.last = before,
        }
    }

    fn link(&mut self, at: u32, by: By, link: Link) {
        if let Some(entry) = self.get_mut(at) {
            entry.links[by as usize] = link;
        }
    }
}
