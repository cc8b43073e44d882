//! Prompts here, answers there: what happens to requests that two workers may serve?
//!
//! Each request is driven by the same [`Handoff`] as in the gateway. Its legs go to engines, its KV over the link of the worker that
//! holds it; what is staged stays there under the engine's lease.
//!
//! - this file: what such a fleet is, and what is known of a request; `drive`: what a handoff wants done;
//! - `legs`: requests at engines; `moves`: KV on its way; `watch`: what must hold.
//!
//! **Invariant:** engines are told what became of each transfer exactly once.
//!
//! It does not restart routers and lets no worker leave: in such fleets those faults are not drawn.

mod drive;
mod legs;
mod moves;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use homing_disagg::{Fate, Handoff, HandoffSettings, Hold, Input, Leg, Means, Need, Reach, Side, Staged, Turn, With};
use homing_domain::{AdapterName, BlockKey, RankId, Role, Tokens};
use homing_load::Ticket;
use homing_profile::{Millis, Time};

use super::link::{LinkSpec, TransferNo};
pub(crate) use moves::Moves;

/// A fleet whose first workers compute prompts and whose others generate; or in which everybody can do both.
#[derive(Clone, Debug)]
pub struct SplitSetup {
    /// How many compute prompts. The rest generate, and serve whole requests where their kind can. With 0 everybody can do either, and
    /// all of it.
    pub prefill: u32,
    /// Over which KV leaves each worker.
    pub link: LinkSpec,
    /// How long engines hold KV for others.
    pub lease: Millis,
    /// How requests are driven.
    pub handoff: HandoffSettings,
}

impl SplitSetup {
    /// What a worker is for.
    pub const fn role(&self, worker: u32) -> Role {
        if self.prefill == 0 {
            Role::Both
        } else if worker < self.prefill {
            Role::Prefill
        } else {
            Role::Decode
        }
    }
}

/// What happened to requests that two workers could serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Choices of two.
    pub pairs: u64,
    /// Choices of one.
    pub whole: u64,
    /// Transfers that arrived.
    pub moved: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Leases that ended.
    pub lapsed: u64,
    /// Legs that failed.
    pub failed: u64,
    /// Legs that only fetched KV so that it was let go.
    pub drained: u64,
}

/// A request under way, until nothing of it is left anywhere.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) handoff: Handoff,
    pub(crate) router: u32,
    /// The prompt of the present choice.
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) keys: Arc<[BlockKey]>,
    pub(crate) adapter: Option<AdapterName>,
    pub(crate) priority: i32,
    pub(crate) turns: BTreeMap<Turn, Booked>,
    pub(crate) legs: BTreeMap<Leg, LegState>,
    /// The question that waits at the router, and since when.
    pub(crate) waits: Option<(Turn, Need, Time)>,
    pub(crate) timer: Option<Time>,
    /// Inputs that the handoff has not processed, and whether its driver is at it: effects of one request may change another
    /// whose commands are not all carried out yet.
    pub(crate) inputs: VecDeque<Input>,
    pub(crate) is_driven: bool,
}

/// What is booked for one choice.
#[derive(Debug, Default)]
pub(crate) struct Booked {
    pub(crate) prefill: Option<SeatOf>,
    pub(crate) decode: Option<SeatOf>,
    pub(crate) hold: Option<Hold>,
    /// What was said of its KV.
    pub(crate) fate: Option<Fate>,
    /// The prefill legs of it.
    pub(crate) prefills: Vec<Leg>,
}

/// A booking that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatOf {
    pub(crate) ticket: Ticket,
    pub(crate) rank: RankId,
    pub(crate) generated: u32,
    pub(crate) cached: Option<Tokens>,
}

impl Booked {
    pub(crate) fn seat(&mut self, side: Side) -> &mut Option<SeatOf> {
        match side {
            Side::Prefill => &mut self.prefill,
            Side::Decode => &mut self.decode,
        }
    }
}

/// What a leg is.
#[derive(Clone, Debug)]
pub(crate) enum LegKind {
    Prefill(Means),
    Decode(With),
}

/// Where a leg is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LegAt {
    /// On its way to the worker.
    Sent,
    /// There, and waits for the other leg.
    Door,
    /// In the engine's hands.
    Engine,
    /// The engine waits for its KV, of which nothing is on its way.
    Reserved,
    /// Its KV is on its way.
    Moving(TransferNo),
    /// Nothing more comes of it.
    Over,
}

#[derive(Clone, Debug)]
pub(crate) struct LegState {
    pub(crate) turn: Turn,
    pub(crate) rank: RankId,
    pub(crate) kind: LegKind,
    pub(crate) at: LegAt,
    /// What it left at its engine.
    pub(crate) staged: Option<Staged>,
    pub(crate) cached: Tokens,
    pub(crate) generated: u32,
    /// The first token.
    pub(crate) token: u32,
    /// Tokens that the engine misses.
    pub(crate) missing: Tokens,
}

impl LegState {
    pub(crate) fn new(turn: Turn, rank: RankId, kind: LegKind) -> Self {
        Self {
            turn,
            rank,
            kind,
            at: LegAt::Sent,
            staged: None,
            cached: Tokens(0),
            generated: 0,
            token: 0,
            missing: Tokens(0),
        }
    }

    pub(crate) fn meets(&self) -> bool {
        matches!(
            self.kind,
            LegKind::Prefill(Means::Rendezvous(_)) | LegKind::Decode(With::Rendezvous(_))
        )
    }
}

/// What a router hears of a leg.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// A prompt was computed.
    Prefilled,
    /// The first token came.
    Began,
    /// There are more tokens.
    Progress,
    /// The answer is whole.
    Done,
    /// It failed.
    Failed(Reach),
}
