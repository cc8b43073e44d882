//! What if all goes well?

use homing_domain::RankId;
use homing_load::End;
use homing_profile::Time;

use super::{
    Alone, Choice, Client, Command, Fate, Handoff, Kv, KvState, Leg, Means, Need, Outcome, Pair, Prefilled, Seat, Side,
    State, Turn, With,
};
use crate::bugs::planted;
use crate::refused::{Denial, Retry};

impl Handoff {
    pub(super) fn chosen(&mut self, now: Time, turn: Turn, choice: Choice, out: &mut Vec<Command>) {
        let need = match self.state {
            State::Choosing { turn: open, need, .. } if open == turn => need,
            _ => return self.give_back_late(turn, &choice, out),
        };
        match (need, choice) {
            (Need::Request(_), Choice::Pair { prefill, decode, means }) => {
                self.take_pair(now, (turn, prefill, decode), means, out);
            }
            (Need::Request(alone), Choice::Whole(rank))
                if alone != Alone::Never || planted!(self.settings.bug, RequireIgnored) =>
            {
                self.take_seat(turn, Side::Decode);
                let leg = self.next_leg();
                let until = now + self.settings.prefill_within + self.settings.begin_within;
                self.state = State::Asked { turn, rank, leg, until };
                let with = With::Whole;
                out.push(Command::StartDecode { leg, turn, rank, with });
            }
            (Need::DecodeFor { prefill, .. }, Choice::Decode(decode)) => {
                self.take_seat(turn, Side::Decode);
                let pair = Pair {
                    turn: self.kv.map_or(turn, |kv| kv.turn),
                    prefill,
                    decode: Some(decode),
                };
                self.hand_over(now, pair, turn, out);
            }
            (_, other) => {
                give_back(turn, &other, out);
                self.let_lapse(now, out);
                let words = "what was chosen is not what may serve this request".to_owned();
                self.refuse(
                    Denial {
                        retry: Retry::Soon,
                        words,
                    },
                    out,
                );
            }
        }
    }

    fn take_seat(&mut self, turn: Turn, side: Side) {
        self.seats.push(Seat { turn, side });
    }

    fn take_pair(
        &mut self,
        now: Time,
        (turn, prefill, decode): (Turn, RankId, RankId),
        means: Means,
        out: &mut Vec<Command>,
    ) {
        self.pairs = self.pairs.saturating_add(1);
        self.take_seat(turn, Side::Decode);
        self.take_seat(turn, Side::Prefill);
        let pair = Pair {
            turn,
            prefill,
            decode: Some(decode),
        };
        let leg = self.next_leg();
        self.kv = Some(Kv {
            turn,
            rank: prefill,
            leg,
            state: KvState::Unborn,
        });
        match &means {
            Means::ByResult => {
                let until = now + self.settings.prefill_within;
                self.state = State::Prefilling { pair, leg, until };
                out.push(Command::StartPrefill {
                    leg,
                    turn,
                    rank: prefill,
                    means,
                });
            }
            Means::Rendezvous(meeting) => {
                let with = With::Rendezvous(meeting.clone());
                let until = now + self.settings.prefill_within + self.settings.begin_within;
                let until = Some(until).filter(|_| !planted!(self.settings.bug, MeetingUnlimited));
                out.push(Command::StartPrefill {
                    leg,
                    turn,
                    rank: prefill,
                    means,
                });
                let other = self.next_leg();
                self.state = State::Meeting {
                    pair,
                    prefill: Some(leg),
                    decode: other,
                    until,
                };
                out.push(Command::StartDecode {
                    leg: other,
                    turn,
                    rank: decode,
                    with,
                });
            }
        }
    }

    /// The same worker computes the prompt, and hands it over by its result.
    pub(super) fn by_result_instead(&mut self, now: Time, pair: Pair, out: &mut Vec<Command>) {
        let leg = self.next_leg();
        if let Some(kv) = &mut self.kv {
            kv.leg = leg;
        }
        let until = now + self.settings.prefill_within;
        self.state = State::Prefilling { pair, leg, until };
        out.push(Command::StartPrefill {
            leg,
            turn: pair.turn,
            rank: pair.prefill,
            means: Means::ByResult,
        });
    }

    /// Whoever was chosen after the question was withdrawn is let go. What was answered before is not looked at again.
    fn give_back_late(&mut self, turn: Turn, choice: &Choice, out: &mut Vec<Command>) {
        if let Some(at) = self.withdrawn.iter().position(|open| *open == turn) {
            self.withdrawn.swap_remove(at);
            if !planted!(self.settings.bug, LateChoiceKept) {
                give_back(turn, choice, out);
            }
        }
    }

    pub(super) fn prefill_done(&mut self, now: Time, leg: Leg, result: Prefilled, out: &mut Vec<Command>) {
        match self.state {
            State::Prefilling { pair, leg: open, .. } if open == leg || planted!(self.settings.bug, LateWordTaken) => {
                self.end_seat(Side::Prefill, End::Finished, out);
                let (staged, answered) = match result {
                    Prefilled::Staged(staged) => (Some(staged), false),
                    Prefilled::Answered(staged) => (staged, true),
                };
                if answered {
                    self.tell(Outcome::Served, out);
                }
                let Some(staged) = staged else {
                    self.settle(Fate::NotStaged, out);
                    self.end_seat(Side::Decode, End::Cancelled, out);
                    self.state = State::Over;
                    return;
                };
                if let Some(kv) = &mut self.kv {
                    kv.state = KvState::Staged(staged);
                }
                if answered || self.client == Client::Gone {
                    self.drain(now, pair, out);
                } else {
                    self.hand_over(now, pair, pair.turn, out);
                }
            }
            State::Meeting { ref mut prefill, .. } if *prefill == Some(leg) => {
                *prefill = None;
                self.end_seat(Side::Prefill, End::Finished, out);
            }
            State::Generating { ref mut prefill, .. } if *prefill == Some(leg) => *prefill = None,
            _ => (),
        }
    }

    /// KV is staged. It goes to the decode worker that has a place for it, or one is chosen.
    fn hand_over(&mut self, now: Time, pair: Pair, seat: Turn, out: &mut Vec<Command>) {
        let usable = self.usable_until();
        if usable.is_some_and(|usable| usable <= now) {
            self.let_lapse(now, out);
            self.end_seat(Side::Decode, End::Cancelled, out);
            return self.again("the staged KV lapsed before it could be fetched".to_owned(), out);
        }
        let (Some(decode), Some(kv)) = (pair.decode, self.kv) else {
            return self.choose_decode(pair, out);
        };
        let limit = now + self.settings.begin_within;
        let until = Some(usable.map_or(limit, |usable| usable.min(limit)));
        let leg = self.next_leg();
        self.state = State::HandingOver {
            pair,
            seat,
            decode,
            leg,
            until,
        };
        let with = With::ResultOf {
            turn: kv.turn,
            leg: kv.leg,
        };
        out.push(Command::StartDecode {
            leg,
            turn: seat,
            rank: decode,
            with,
        });
    }

    /// Nobody has touched the KV, and it needs a decode worker.
    pub(super) fn choose_decode(&mut self, pair: Pair, out: &mut Vec<Command>) {
        let need = Need::DecodeFor {
            turn: pair.turn,
            prefill: pair.prefill,
        };
        let until = self.usable_until();
        self.choose(need, until, out);
    }

    /// Nobody waits for KV that is staged: the decode worker that has a place for it fetches it, or it lapses.
    fn drain(&mut self, now: Time, pair: Pair, out: &mut Vec<Command>) {
        let lapsed = self.usable_until().is_some_and(|usable| usable <= now);
        let (Some(decode), Some(kv), false) = (pair.decode, self.kv, lapsed) else {
            self.let_lapse(now, out);
            self.end_seat(Side::Decode, End::Cancelled, out);
            self.state = State::Over;
            return;
        };
        let leg = self.next_leg();
        let until = now + self.settings.drain_within;
        self.state = State::Draining { decode, leg, until };
        let with = With::OneToken {
            turn: kv.turn,
            leg: kv.leg,
        };
        out.push(Command::StartDecode {
            leg,
            turn: pair.turn,
            rank: decode,
            with,
        });
    }

    pub(super) fn decode_began(&mut self, leg: Leg, out: &mut Vec<Command>) {
        self.first_came(leg, out);
        if let (Client::Gone, State::Generating { leg: open, prefill, .. }) = (self.client, self.state)
            && open == leg
        {
            // It has done what it was for.
            out.push(Command::Cancel { leg });
            self.over(prefill, End::Cancelled, out);
        }
    }

    /// The first of an answer came: what it is made of has been read. The leg may have ended since.
    pub(super) fn first_came(&mut self, leg: Leg, out: &mut Vec<Command>) {
        let (rank, prefill) = match self.state {
            State::HandingOver { decode, leg: open, .. } if open == leg => (decode, None),
            State::Meeting {
                pair, prefill, decode, ..
            } if decode == leg => (pair.decode.unwrap_or(pair.prefill), prefill),
            State::Asked { rank, leg: open, .. } if open == leg => (rank, None),
            State::Draining { leg: open, .. } if open == leg => return self.settle(Fate::Drained, out),
            _ => return,
        };
        self.settle(Fate::HandedOver, out);
        self.end_seat(Side::Prefill, End::Finished, out);
        self.state = State::Generating { rank, leg, prefill };
    }

    pub(super) fn decode_done(&mut self, leg: Leg, out: &mut Vec<Command>) {
        self.first_came(leg, out);
        match self.state {
            State::Generating { leg: open, prefill, .. } if open == leg => {
                self.tell(Outcome::Served, out);
                self.over(prefill, End::Finished, out);
            }
            State::Draining { leg: open, .. } if open == leg => self.over(None, End::Cancelled, out),
            _ => (),
        }
    }

    /// Everything has been handed over: ends what is left. A prefill leg of which nothing more was heard has nothing more to say.
    pub(super) fn over(&mut self, prefill: Option<Leg>, end: End, out: &mut Vec<Command>) {
        out.extend(prefill.map(|leg| Command::Cancel { leg }));
        self.end_seat(Side::Decode, end, out);
        self.state = State::Over;
    }
}

/// Ends what was booked for a choice that is not taken.
fn give_back(turn: Turn, choice: &Choice, out: &mut Vec<Command>) {
    let mut end = |side| {
        out.push(Command::EndSeat {
            seat: Seat { turn, side },
            end: End::Cancelled,
        });
    };
    end(Side::Decode);
    if let Choice::Pair { .. } = choice {
        end(Side::Prefill);
        let fate = Fate::NotStaged;
        out.push(Command::Settle { turn, fate });
    }
}
