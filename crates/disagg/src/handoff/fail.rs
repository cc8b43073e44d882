//! What if something goes wrong?

use homing_domain::WorkerId;
use homing_load::End;
use homing_profile::Time;

use super::{
    Client, Command, Fate, Handoff, Leg, Need, Outcome, Pair, PoolPhase, PrefillFailure, Reach, Resume, Side, State,
    Turn, blame::Blame, no_prefill,
};
use crate::bugs::planted;
use crate::refused::{Denial, Retry};

impl Handoff {
    pub(super) fn nowhere(&mut self, now: Time, turn: Turn, why: Denial, out: &mut Vec<Command>) {
        self.withdrawn.retain(|open| *open != turn);
        match self.state {
            State::Choosing { turn: open, need, .. } if open == turn => match need {
                Need::Request(_) if self.pardon() => self.ask(out),
                Need::Request(_) => {
                    let words = match self.last.take() {
                        Some(last) => format!("{}; before that: {last}", why.words),
                        None => why.words,
                    };
                    self.refuse(Denial { words, ..why }, out);
                }
                Need::DecodeFor { .. } => {
                    self.let_lapse(now, out);
                    self.again(why.words, out);
                }
            },
            _ => (),
        }
    }

    pub(super) fn prefill_failed(&mut self, now: Time, leg: Leg, why: PrefillFailure, out: &mut Vec<Command>) {
        let (pair, decode) = match &mut self.state {
            State::Prefilling { pair, leg: open, .. } if *open == leg => (*pair, None),
            State::Meeting {
                pair, prefill, decode, ..
            } if *prefill == Some(leg) => (*pair, Some(*decode)),
            State::Generating { prefill, .. } if *prefill == Some(leg) => {
                *prefill = None;
                return;
            }
            _ => return,
        };
        if let Some(leg) = decode.filter(|_| !planted!(self.settings.bug, OtherLegForgotten)) {
            out.push(Command::Cancel { leg });
        }
        let (fate, words) = match why {
            PrefillFailure::NoRendezvous if self.client == Client::Waits && decode.is_some() => {
                return self.by_result_instead(now, pair, out);
            }
            PrefillFailure::NoRendezvous => (Some(Fate::NotStaged), "it cannot be met".to_owned()),
            PrefillFailure::Busy { limit, queued, most } => {
                self.settle(Fate::NotStaged, out);
                self.end_seat(Side::Prefill, End::Failed, out);
                self.end_seat(Side::Decode, End::Cancelled, out);
                let words = format!(
                    "prefill worker {} has too much to do: {limit} is {most}, and {queued} prompt tokens are queued",
                    pair.prefill
                );
                let retry = Retry::Soon;
                return self.refuse(Denial { retry, words }, out);
            }
            PrefillFailure::Other { reach, words } => match reach {
                Reach::Refused => (Some(Fate::NotStaged), words),
                Reach::Said | Reach::Unknown | Reach::Silent | Reach::Answering(_) => (None, words),
            },
        };
        self.lose_prefill(now, pair, (fate, words), out);
    }

    /// The prefill worker did not do it: another one, if there are tries left.
    fn lose_prefill(&mut self, now: Time, pair: Pair, (fate, words): (Option<Fate>, String), out: &mut Vec<Command>) {
        match fate {
            Some(fate) => self.settle(fate, out),
            None => self.let_lapse(now, out),
        }
        self.end_seat(Side::Prefill, End::Failed, out);
        if planted!(self.settings.bug, DecodeSeatKept) {
            self.seats.clear();
        }
        self.end_seat(Side::Decode, End::Cancelled, out);
        self.prefill_is_to_blame(pair.prefill);
        self.again(words, out);
    }

    pub(super) fn decode_failed(
        &mut self,
        now: Time,
        leg: Leg,
        (reach, words): (Reach, String),
        out: &mut Vec<Command>,
    ) {
        if matches!(reach, Reach::Answering(_)) {
            self.first_came(leg, out);
        }
        match self.state {
            State::HandingOver {
                pair,
                leg: open,
                decode,
                ..
            } if open == leg => {
                self.end_seat(Side::Decode, End::Failed, out);
                let decode = Some(decode);
                let blame = self.blame(Pair { decode, ..pair }, reach);
                self.lay_to(blame, Pair { decode, ..pair });
                let untouched = reach == Reach::Refused || planted!(self.settings.bug, KvReadTwice);
                if untouched && self.client == Client::Waits && self.take_turn() {
                    self.last = Some(words);
                    let pair = Pair { decode: None, ..pair };
                    return self.choose_decode_in_time(now, pair, out);
                }
                self.let_lapse(now, out);
                self.again(words, out);
            }
            State::Meeting { pair, decode, .. } if decode == leg => {
                let blame = self.blame(pair, reach);
                self.end_meeting(now, blame, words, out);
            }
            State::Asked { rank, leg: open, .. } if open == leg => {
                self.end_seat(Side::Decode, End::Failed, out);
                self.decode_is_to_blame(rank);
                self.again(words, out);
            }
            State::Generating {
                rank,
                leg: open,
                prefill,
            } if open == leg => {
                out.extend(prefill.map(|leg| Command::Cancel { leg }));
                self.end_seat(Side::Decode, End::Failed, out);
                self.decode_is_to_blame(rank);
                if reach == Reach::Answering(Resume::Impossible) {
                    self.tell(Outcome::Failed(words), out);
                    self.state = State::Over;
                } else {
                    self.again(words, out);
                }
            }
            State::Draining { leg: open, .. } if open == leg => {
                self.let_lapse(now, out);
                self.over(None, End::Failed, out);
            }
            _ => (),
        }
    }

    /// A try for another decode worker, which counts as others do.
    fn take_turn(&mut self) -> bool {
        if planted!(self.settings.bug, TriesUnbounded) {
            return true;
        }
        if self.turns + 1 >= self.settings.turns {
            return false;
        }
        self.turns += 1;
        true
    }

    fn choose_decode_in_time(&mut self, now: Time, pair: Pair, out: &mut Vec<Command>) {
        if self.usable_until().is_some_and(|usable| usable <= now) {
            self.let_lapse(now, out);
            return self.again("the staged KV lapsed before it could be fetched".to_owned(), out);
        }
        self.choose_decode(pair, out);
    }

    /// Ends both legs of a meeting, and all that belongs to it.
    fn end_meeting(&mut self, now: Time, blame: Blame, words: String, out: &mut Vec<Command>) {
        let State::Meeting { pair, prefill, .. } = self.state else {
            return;
        };
        if let Some(leg) = prefill.filter(|_| !planted!(self.settings.bug, OtherLegForgotten)) {
            out.push(Command::Cancel { leg });
        }
        self.let_lapse(now, out);
        let (first, second) = match blame {
            Blame::Prefill => (End::Failed, End::Cancelled),
            Blame::Decode => (End::Cancelled, End::Failed),
            Blame::Either => (End::Failed, End::Failed),
        };
        self.end_seat(Side::Prefill, first, out);
        self.end_seat(Side::Decode, second, out);
        self.lay_to(blame, pair);
        self.again(words, out);
    }

    pub(super) fn client_gone(&mut self, now: Time, out: &mut Vec<Command>) {
        if self.client == Client::Gone {
            return;
        }
        self.client = Client::Gone;
        self.tell(Outcome::Left, out);
        match self.state {
            State::Choosing { turn, .. } => {
                self.withdraw(turn, out);
                self.let_lapse(now, out);
                self.state = State::Over;
            }
            State::Asked { leg, .. } => {
                out.push(Command::Cancel { leg });
                self.over(None, End::Cancelled, out);
            }
            State::Generating { leg, prefill, .. } => {
                out.push(Command::Cancel { leg });
                self.over(prefill, End::Cancelled, out);
            }
            State::Prefilling { leg, .. } if planted!(self.settings.bug, LeavingForgetsKv) => {
                out.push(Command::Cancel { leg });
                self.kv = None;
                self.end_seat(Side::Prefill, End::Cancelled, out);
                self.over(None, End::Cancelled, out);
            }
            // KV is on its way: it goes on until it has arrived.
            State::Prefilling { .. }
            | State::HandingOver { .. }
            | State::Meeting { .. }
            | State::Draining { .. }
            | State::Over => (),
        }
    }

    pub(super) fn worker_gone(&mut self, now: Time, worker: WorkerId, out: &mut Vec<Command>) {
        let words = || format!("worker {} went", worker.0);
        match self.state {
            State::Choosing {
                turn,
                need: Need::DecodeFor { prefill, .. },
                ..
            } if prefill.worker == worker => {
                self.withdraw(turn, out);
                self.settle(Fate::Gone, out);
                self.again(words(), out);
            }
            State::Prefilling { pair, leg, .. } if pair.prefill.worker == worker => {
                out.push(Command::Cancel { leg });
                self.lose_prefill(now, pair, (Some(Fate::Gone), words()), out);
            }
            State::Prefilling { ref mut pair, .. } if pair.decode.is_some_and(|decode| decode.worker == worker) => {
                pair.decode = None;
                self.end_seat(Side::Decode, End::Failed, out);
            }
            State::HandingOver { pair, leg, .. } if pair.prefill.worker == worker => {
                out.push(Command::Cancel { leg });
                self.lose_prefill(now, pair, (Some(Fate::Gone), words()), out);
            }
            State::HandingOver { decode, leg, .. } if decode.worker == worker => {
                out.push(Command::Cancel { leg });
                self.decode_failed(now, leg, (Reach::Unknown, words()), out);
            }
            State::Meeting { pair, decode, .. } if pair.prefill.worker == worker => {
                out.push(Command::Cancel { leg: decode });
                self.settle(Fate::Gone, out);
                self.end_meeting(now, Blame::Prefill, words(), out);
            }
            State::Meeting { pair, decode, .. } if pair.decode.is_some_and(|decode| decode.worker == worker) => {
                out.push(Command::Cancel { leg: decode });
                self.end_meeting(now, Blame::Decode, words(), out);
            }
            State::Draining { decode, leg, .. } => {
                let held = self.kv.is_some_and(|kv| kv.rank.worker == worker);
                if held || decode.worker == worker {
                    out.push(Command::Cancel { leg });
                    if held {
                        self.settle(Fate::Gone, out);
                    }
                    self.let_lapse(now, out);
                    self.over(None, End::Cancelled, out);
                }
            }
            // Where an answer is awaited or comes, it tells itself whether it goes on.
            _ => (),
        }
    }

    pub(super) fn pool_changed(&mut self, phase: PoolPhase, out: &mut Vec<Command>) {
        if phase == self.pool {
            return;
        }
        self.pool = phase;
        let State::Choosing {
            turn,
            need: Need::Request(_),
            ..
        } = self.state
        else {
            return;
        };
        if self.lacks_prefill() {
            self.withdraw(turn, out);
            self.refuse(no_prefill(), out);
        } else if self.rechoices < self.settings.rechoices {
            self.rechoices += 1;
            self.withdraw(turn, out);
            self.ask(out);
        }
    }

    pub(super) fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        if self.next_timer().is_none_or(|due| now < due) {
            return;
        }
        match self.state {
            State::Choosing { turn, .. } => {
                self.withdraw(turn, out);
                self.let_lapse(now, out);
                self.again("no decode worker was found before the staged KV lapsed".to_owned(), out);
            }
            State::Prefilling { pair, leg, .. } => {
                out.push(Command::Cancel { leg });
                let words = format!("prefill worker {} did not answer in time", pair.prefill);
                self.lose_prefill(now, pair, (None, words), out);
            }
            State::HandingOver { decode, leg, .. } => {
                out.push(Command::Cancel { leg });
                let words = format!("decode worker {decode} did not fetch the KV in time");
                self.decode_failed(now, leg, (Reach::Silent, words), out);
            }
            State::Meeting { prefill, decode, .. } => {
                out.push(Command::Cancel { leg: decode });
                let blame = if prefill.is_some() {
                    Blame::Either
                } else {
                    Blame::Decode
                };
                let words = "the two legs did not meet in time".to_owned();
                self.end_meeting(now, blame, words, out);
            }
            State::Asked { rank, leg, .. } => {
                out.push(Command::Cancel { leg });
                let words = format!("worker {rank} did not begin to answer in time");
                self.decode_failed(now, leg, (Reach::Silent, words), out);
            }
            State::Draining { leg, .. } => {
                out.push(Command::Cancel { leg });
                self.let_lapse(now, out);
                self.over(None, End::Cancelled, out);
            }
            State::Generating { .. } | State::Over => (),
        }
    }
}
