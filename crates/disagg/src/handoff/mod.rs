//! What happens next to a request that two workers may serve?
//!
//! A [`Handoff`] is told what happened and answers with what is to be done. Its driver, the gateway or the simulator, does it and
//! tells the results:
//!
//! ```
//! use homing_disagg::{Choice, Command, Handoff, HandoffSettings, Input, Leg, Outcome, PoolPhase, Turn};
//! use homing_domain::RankId;
//! use homing_profile::Time;
//!
//! let mut commands = Vec::new();
//! let mut handoff = Handoff::begin(HandoffSettings::default(), PoolPhase::Active, &mut commands);
//! assert!(matches!(commands[0], Command::Choose { turn: Turn(0), .. }));
//! commands.clear();
//! let chosen = Input::Chosen { turn: Turn(0), choice: Choice::Whole(RankId::new(1, 0)) };
//! handoff.on(Time::ZERO, chosen, &mut commands);
//! assert!(matches!(commands[0], Command::StartDecode { leg: Leg(0), .. }));
//! commands.clear();
//! handoff.on(Time::ZERO, Input::DecodeDone { leg: Leg(0) }, &mut commands);
//! assert!(commands.contains(&Command::Finish(Outcome::Served)) && handoff.is_over());
//! ```
//!
//! **Invariant:** [`Command::Finish`] comes exactly once. Of each choice that was made every seat gets one [`Command::EndSeat`], and of
//! each pair the KV gets one [`Command::Settle`], whatever happens in whatever order.
//!
//! **Invariant:** a leg that was begun either ends by itself or is cancelled before the handoff is over.
//!
//! **Invariant:** while the handoff waits for an engine and no answer has begun, [`Handoff::next_timer`] says until when. An answer
//! that has begun is the driver's to watch: when it stalls, [`Input::DecodeFailed`] says so.
//!
//! **Invariant:** a client's leaving ends no leg through which KV is on its way.
//!
//! Words about legs that are not under way any more change nothing, so that drivers need not order them.
//!
//! Cost: a few dozen nanoseconds for an input; what is kept does not grow but for the workers that were tried.

mod blame;
mod fail;
mod step;
mod words;

use homing_domain::{RankId, WorkerId};
use homing_load::End;
use homing_profile::Time;

use crate::bugs::planted;
use crate::pool::{PoolPhase, Require};
use crate::refused::{Denial, Retry};

use blame::Mercy;
pub use words::{
    Alone, Choice, Command, Fate, HandoffSettings, Input, Leg, Means, Need, Outcome, PrefillFailure, Prefilled, Reach,
    Resume, Seat, Side, Staged, Tried, Turn, With,
};

/// Whether somebody waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Waits,
    Gone,
}

/// Two workers at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    turn: Turn,
    prefill: RankId,
    /// None if it went while the prompt was computed.
    decode: Option<RankId>,
}

/// Where things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// A question is open.
    Choosing {
        turn: Turn,
        need: Need,
        until: Option<Time>,
    },
    /// The prompt is computed; by result.
    Prefilling { pair: Pair, leg: Leg, until: Time },
    /// KV is staged, and a decode leg is on its way to fetch it.
    HandingOver {
        pair: Pair,
        seat: Turn,
        decode: RankId,
        leg: Leg,
        until: Option<Time>,
    },
    /// Both legs are under way, and the answer has not begun. The prefill leg may have ended.
    Meeting {
        pair: Pair,
        prefill: Option<Leg>,
        decode: Leg,
        until: Option<Time>,
    },
    /// One worker was asked for everything, and the answer has not begun.
    Asked {
        turn: Turn,
        rank: RankId,
        leg: Leg,
        until: Time,
    },
    /// The answer comes. A prefill leg may still have to say that it has ended.
    Generating {
        rank: RankId,
        leg: Leg,
        prefill: Option<Leg>,
    },
    /// Nobody waits, and a leg fetches KV so that it is let go.
    Draining { decode: RankId, leg: Leg, until: Time },
    /// Nothing more happens.
    Over,
}

/// What is known of the KV of a pair whose fate has not been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KvState {
    /// The prompt is being computed.
    Unborn,
    /// It waits.
    Staged(Staged),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kv {
    turn: Turn,
    rank: RankId,
    /// The prefill leg.
    leg: Leg,
    state: KvState,
}

/// The plan of one request.
#[derive(Clone, Debug)]
pub struct Handoff {
    settings: HandoffSettings,
    state: State,
    client: Client,
    pool: PoolPhase,
    tried: Tried,
    /// Those of them that failed together with another one, which may be the one to blame: they are asked again rather than nobody.
    suspects: Tried,
    mercy: Mercy,
    /// Decode workers that said that they could not go on with KV of others.
    spoke: Vec<WorkerId>,
    /// Questions so far, for their numbers.
    turn: u16,
    /// Those that came of failures, and those of which a pair came.
    turns: u16,
    pairs: u16,
    rechoices: u16,
    leg: u16,
    /// What is booked and has not ended. At most two.
    seats: Vec<Seat>,
    /// At most one: the fate of one is told before the next pair is chosen.
    kv: Option<Kv>,
    /// Questions that were withdrawn and may be answered none the less. Bounded by the number of questions.
    withdrawn: Vec<Turn>,
    /// What failed last.
    last: Option<String>,
    told: bool,
}

impl Handoff {
    /// Begins. The first commands are in `out`.
    pub fn begin(settings: HandoffSettings, pool: PoolPhase, out: &mut Vec<Command>) -> Self {
        let mut handoff = Self {
            settings,
            state: State::Over,
            client: Client::Waits,
            pool,
            tried: Tried::default(),
            suspects: Tried::default(),
            mercy: Mercy::None,
            spoke: Vec::new(),
            turn: 0,
            turns: 0,
            pairs: 0,
            rechoices: 0,
            leg: 0,
            seats: Vec::new(),
            kv: None,
            withdrawn: Vec::new(),
            last: None,
            told: false,
        };
        if handoff.lacks_prefill() {
            handoff.refuse(no_prefill(), out);
        } else {
            handoff.ask(out);
        }
        handoff
    }

    /// Something happened. What is to be done is added to `out`.
    pub fn on(&mut self, now: Time, input: Input, out: &mut Vec<Command>) {
        match input {
            Input::Chosen { turn, choice } => self.chosen(now, turn, choice, out),
            Input::Nowhere { turn, why } => self.nowhere(now, turn, why, out),
            Input::PrefillDone { leg, result } => self.prefill_done(now, leg, result, out),
            Input::PrefillFailed { leg, why } => self.prefill_failed(now, leg, why, out),
            Input::DecodeBegan { leg } => self.decode_began(leg, out),
            Input::DecodeDone { leg } => self.decode_done(leg, out),
            Input::DecodeFailed { leg, reach, words } => self.decode_failed(now, leg, (reach, words), out),
            Input::ClientGone => self.client_gone(now, out),
            Input::WorkerGone(worker) => self.worker_gone(now, worker, out),
            Input::Pool(phase) => self.pool_changed(phase, out),
            Input::Tick => self.tick(now, out),
        }
    }

    /// When [`Input::Tick`] is due, if nothing else happens before.
    pub fn next_timer(&self) -> Option<Time> {
        match self.state {
            State::Choosing { until, .. } | State::HandingOver { until, .. } | State::Meeting { until, .. } => until,
            State::Prefilling { until, .. } | State::Asked { until, .. } | State::Draining { until, .. } => Some(until),
            State::Generating { .. } | State::Over => None,
        }
    }

    /// Whether nothing more happens: the outcome is told, no leg is under way, nothing is booked, and all KV is accounted for.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether the answer is on its way.
    pub fn is_answering(&self) -> bool {
        matches!(self.state, State::Generating { .. })
    }

    /// A number that is the same for two handoffs that will behave the same, given the same settings. For tests that visit all of them.
    #[cfg(any(test, feature = "testing"))]
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (&self.state, &self.withdrawn).hash(&mut hasher);
        // What is over only has to give back what comes late.
        if !self.is_over() {
            (self.client, self.pool, &self.seats, self.kv, self.told).hash(&mut hasher);
            (&self.tried, &self.suspects, self.mercy, &self.spoke).hash(&mut hasher);
            (self.turn, self.turns, self.pairs, self.rechoices, self.leg).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn lacks_prefill(&self) -> bool {
        self.settings.require == Require::Yes && self.pool != PoolPhase::Active
    }

    fn alone(&self) -> Alone {
        match self.settings.require {
            Require::Yes => Alone::Never,
            Require::No if self.pairs >= self.settings.pairs => Alone::Only,
            Require::No => Alone::Allowed,
        }
    }

    /// Asks who shall serve the request.
    fn ask(&mut self, out: &mut Vec<Command>) {
        let need = Need::Request(self.alone());
        self.choose(need, None, out);
    }

    fn choose(&mut self, need: Need, until: Option<Time>, out: &mut Vec<Command>) {
        let turn = Turn(self.turn);
        self.turn = self.turn.saturating_add(1);
        self.state = State::Choosing { turn, need, until };
        out.push(Command::Choose {
            turn,
            need,
            tried: self.avoided(),
        });
    }

    fn withdraw(&mut self, turn: Turn, out: &mut Vec<Command>) {
        self.withdrawn.push(turn);
        out.push(Command::Withdraw { turn });
    }

    fn next_leg(&mut self) -> Leg {
        let leg = Leg(self.leg);
        self.leg = self.leg.saturating_add(1);
        leg
    }

    /// Ends what is booked on one side, if it is.
    fn end_seat(&mut self, side: Side, end: End, out: &mut Vec<Command>) {
        if let Some(at) = self.seats.iter().position(|seat| seat.side == side) {
            let seat = self.seats.swap_remove(at);
            out.push(Command::EndSeat { seat, end });
        }
    }

    /// Tells what became of the KV, if that was not told.
    fn settle(&mut self, fate: Fate, out: &mut Vec<Command>) {
        if let Some(kv) = self.kv.take() {
            out.push(Command::Settle { turn: kv.turn, fate });
        }
    }

    /// KV that nobody fetches stays until its engine drops it.
    fn let_lapse(&mut self, now: Time, out: &mut Vec<Command>) {
        let expires = match self.kv.map(|kv| kv.state) {
            Some(KvState::Staged(staged)) => staged.expires,
            _ => None,
        };
        let at = expires.unwrap_or(now + self.settings.lease);
        self.settle(Fate::Lapses(at.max(now)), out);
    }

    /// When KV counts as lapsed; none if its engine does not say when it drops it.
    fn usable_until(&self) -> Option<Time> {
        if planted!(self.settings.bug, LeaseIgnored) {
            return None;
        }
        let KvState::Staged(staged) = self.kv?.state else {
            return None;
        };
        let margin = self.settings.lease_margin.nanos();
        Some(Time(staged.expires?.0.saturating_sub(margin)))
    }

    /// Tells the outcome, if that was not told.
    fn tell(&mut self, outcome: Outcome, out: &mut Vec<Command>) {
        if !self.told {
            self.told = true;
            out.push(Command::Finish(outcome));
        }
    }

    fn refuse(&mut self, why: Denial, out: &mut Vec<Command>) {
        self.tell(Outcome::Refused(why), out);
        self.state = State::Over;
    }

    /// Nothing is booked and no KV is owed: tries again, if somebody waits and there are tries left.
    fn again(&mut self, words: String, out: &mut Vec<Command>) {
        if self.client == Client::Gone {
            self.state = State::Over;
            return;
        }
        self.turns = self.turns.saturating_add(1);
        if self.turns >= self.settings.turns && !planted!(self.settings.bug, TriesUnbounded) {
            self.tell(Outcome::Failed(words), out);
            self.state = State::Over;
            return;
        }
        self.last = Some(words);
        if self.lacks_prefill() {
            self.refuse(no_prefill(), out);
        } else {
            self.ask(out);
        }
    }
}

fn no_prefill() -> Denial {
    Denial {
        retry: Retry::Soon,
        words: "prefill and decode workers are required to serve this model together, and there is no prefill worker at present"
            .to_owned(),
    }
}
