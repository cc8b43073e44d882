//! What is said to a handoff, and what does it say?

use homing_domain::{Blocks, RankId, WorkerId};
use homing_load::End;
use homing_profile::{Millis, Time};

use crate::meeting::Meeting;
use crate::pool::{PoolPhase, Require};
use crate::refused::Denial;

/// One choice for a request, numbered from 0. What was booked for it, and the KV that it led to, are named by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn(pub u16);

/// One request to an engine, numbered from 0 within the client's request and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leg(pub u16);

/// A side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The prompt.
    Prefill,
    /// The output; or all of it, where one worker serves the whole request.
    Decode,
}

impl Side {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Something that is booked: one side of one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// The choice.
    pub turn: Turn,
    /// The side.
    pub side: Side,
}

/// How KV gets from one worker to the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// What the prefill leg answers goes into the decode leg, which begins after it (vLLM).
    ByResult,
    /// Both legs begin at once and meet (SGLang).
    Rendezvous(Meeting),
}

/// Whether one worker may serve the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alone {
    /// Never: two are required.
    Never,
    /// Where it is better, or there is no other way.
    Allowed,
    /// It has to: enough prefills have failed.
    Only,
}

/// What is to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Who serves the request: two workers or one.
    Request(Alone),
    /// Who takes over KV that is staged already.
    DecodeFor {
        /// The choice that led to it.
        turn: Turn,
        /// Where it is.
        prefill: RankId,
    },
}

/// Workers that failed. They are not to be chosen for this request; for the whole of it those of both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tried {
    /// As prefill workers.
    pub prefill: Vec<WorkerId>,
    /// As decode workers, or alone.
    pub decode: Vec<WorkerId>,
}

/// What was chosen, and is booked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Two workers.
    Pair {
        /// Who computes the prompt.
        prefill: RankId,
        /// Who generates.
        decode: RankId,
        /// How KV gets from one to the other.
        means: Means,
    },
    /// One for all of it.
    Whole(RankId),
    /// One that takes over what is staged.
    Decode(RankId),
}

/// KV that waits to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Staged {
    /// How much it is.
    pub blocks: Blocks,
    /// When the engine drops it, where it says so.
    pub expires: Option<Time>,
}

/// What a prefill leg led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefilled {
    /// KV waits to be fetched.
    Staged(Staged),
    /// The answer ended with its first token, which the prefill worker gave: no decode leg is needed. KV may wait none the less, if the
    /// engine did not know that it would be the last token.
    Answered(Option<Staged>),
}

/// How far a leg that failed got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The engine has not begun with it: it could not be reached, or said no at once.
    Refused,
    /// It took the request up and said itself that it failed, so it lives. It may have read KV.
    Said,
    /// It may have begun, and broke off.
    Unknown,
    /// It may have begun, and nothing was heard of it in time.
    Silent,
    /// Some of the answer has come (decode only), and it can go on elsewhere or not.
    Answering(Resume),
}

/// Whether an answer that broke off can go on elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resume {
    /// It can: the next question contains what was generated.
    Possible,
    /// It cannot.
    Impossible,
}

/// Why a prefill leg failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrefillFailure {
    /// The engine, or whoever watches over it, has too much to do.
    Busy {
        /// The name of the limit.
        limit: String,
        /// Prompt tokens that are queued.
        queued: u64,
        /// The maximum.
        most: u64,
    },
    /// The worker cannot be met: it has no endpoint for it. Nothing was begun.
    NoRendezvous,
    /// Something else.
    Other {
        /// How far it got.
        reach: Reach,
        /// Why, in words.
        words: String,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The answer to [`Command::Choose`]: this was chosen and is booked.
    Chosen {
        /// The question.
        turn: Turn,
        /// What was chosen.
        choice: Choice,
    },
    /// The answer to [`Command::Choose`]: nobody, and nothing is booked.
    Nowhere {
        /// The question.
        turn: Turn,
        /// Why.
        why: Denial,
    },
    /// A prefill leg was answered.
    PrefillDone {
        /// Which.
        leg: Leg,
        /// What it led to.
        result: Prefilled,
    },
    /// A prefill leg failed.
    PrefillFailed {
        /// Which.
        leg: Leg,
        /// Why.
        why: PrefillFailure,
    },
    /// The first of a decode leg's answer came: its KV has been read.
    DecodeBegan {
        /// Which.
        leg: Leg,
    },
    /// A decode leg ended as it should.
    DecodeDone {
        /// Which.
        leg: Leg,
    },
    /// A decode leg failed.
    DecodeFailed {
        /// Which.
        leg: Leg,
        /// How far it got.
        reach: Reach,
        /// Why, in words.
        words: String,
    },
    /// Nobody waits for the answer any more.
    ClientGone,
    /// A worker went.
    WorkerGone(WorkerId),
    /// What became of the model's prefill workers. May be said again.
    Pool(PoolPhase),
    /// Time passed.
    Tick,
}

/// What a decode leg is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum With {
    /// What a prefill leg answered.
    ResultOf {
        /// The choice that led to it.
        turn: Turn,
        /// The leg.
        leg: Leg,
    },
    /// The same, for one token that nobody waits for, so that the engine that holds the KV lets it go.
    OneToken {
        /// The choice that led to it.
        turn: Turn,
        /// The leg.
        leg: Leg,
    },
    /// A meeting with a prefill leg that begins at the same time.
    Rendezvous(Meeting),
    /// Nothing: the worker serves the whole request.
    Whole,
}

/// What became of KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// There was none.
    NotStaged,
    /// A decode worker that goes on with it has read it.
    HandedOver,
    /// A decode leg that nobody waits for has read it.
    Drained,
    /// Its engine drops it then. Until then it counts.
    Lapses(Time),
    /// Its worker went, and it with it.
    Gone,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The answer is complete.
    Served,
    /// The client left.
    Left,
    /// It was not begun; whoever asked is told whether to ask again.
    Refused(Denial),
    /// It failed as often as it may.
    Failed(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Choose and book, the decode place first, and say what came out: [`Input::Chosen`] or [`Input::Nowhere`]. The answer may take its
    /// time; how long a request waits to be chosen for is the router's to limit.
    Choose {
        /// The number of the question.
        turn: Turn,
        /// What is to be chosen.
        need: Need,
        /// Whom not.
        tried: Tried,
    },
    /// Nobody waits for the answer to this question any more. If one comes none the less it is to be passed on.
    Withdraw {
        /// The question.
        turn: Turn,
    },
    /// Begin a prefill leg.
    StartPrefill {
        /// Its number.
        leg: Leg,
        /// The choice that it belongs to.
        turn: Turn,
        /// Where.
        rank: RankId,
        /// How its KV will be handed over.
        means: Means,
    },
    /// Begin a decode leg.
    StartDecode {
        /// Its number.
        leg: Leg,
        /// The choice that it belongs to.
        turn: Turn,
        /// Where.
        rank: RankId,
        /// What it is made of.
        with: With,
    },
    /// End a leg. Nothing that is said of it afterwards counts.
    Cancel {
        /// Which.
        leg: Leg,
    },
    /// End what is booked.
    EndSeat {
        /// What.
        seat: Seat,
        /// Why.
        end: End,
    },
    /// Say what became of the KV of a pair. Once for each pair that was chosen.
    Settle {
        /// The choice.
        turn: Turn,
        /// What became of it.
        fate: Fate,
    },
    /// The outcome for the client. Legs that nobody waits for may go on after it: see [`super::Handoff::is_over`].
    Finish(Outcome),
}

/// Limits and habits.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoffSettings {
    /// Whether two workers are required.
    pub require: Require,
    /// Choices for one request; when they are used up it has failed.
    pub turns: u16,
    /// Choices of which a pair may come; after them one worker serves the request, unless two are required.
    pub pairs: u16,
    /// Times that a question is asked anew because prefill workers came or went while it was open.
    pub rechoices: u16,
    /// A prefill leg is answered within this time.
    pub prefill_within: Millis,
    /// A decode leg begins within this time, and the two legs of a meeting within this and the other.
    pub begin_within: Millis,
    /// A leg that only fetches KV ends within this time.
    pub drain_within: Millis,
    /// So long before KV lapses it counts as lapsed.
    pub lease_margin: Millis,
    /// How long KV is staged where the engine does not say it.
    pub lease: Millis,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

impl Default for HandoffSettings {
    fn default() -> Self {
        Self {
            require: Require::No,
            turns: 4,
            pairs: 2,
            rechoices: 4,
            prefill_within: Millis(120_000.0),
            begin_within: Millis(60_000.0),
            drain_within: Millis(60_000.0),
            lease_margin: Millis(1_000.0),
            // What vLLM's connector waited before there were leases.
            lease: Millis(480_000.0),
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }
}
