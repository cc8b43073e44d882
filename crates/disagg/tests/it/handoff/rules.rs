//! What is done when? A list of rules.

use homing_disagg::{
    Alone, Choice, Command, Fate, Handoff, HandoffSettings, Input, Leg, Means, Meeting, Need, Outcome, PoolPhase,
    PrefillFailure, Prefilled, Reach, Require, Resume, Retry, Seat, Side, Staged, Tried, Turn, With,
};
use homing_domain::{Blocks, RankId, WorkerId};
use homing_load::End;
use homing_profile::{Millis, Time};

use crate::handoff::world::{decode_failed, nowhere, prefill_done, prefill_failed};

const PREFILL: RankId = RankId::new(1, 0);
const DECODE: RankId = RankId::new(11, 0);

/// A handoff, the time, and what it said last.
struct Plan {
    handoff: Handoff,
    now: Time,
    said: Vec<Command>,
}

impl Plan {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut HandoffSettings)) -> Self {
        let mut settings = HandoffSettings::default();
        change(&mut settings);
        let mut said = Vec::new();
        let handoff = Handoff::begin(settings, PoolPhase::Active, &mut said);
        let now = Time::from_millis(1_000.0);
        Self { handoff, now, said }
    }

    fn hear(&mut self, input: Input) -> &[Command] {
        self.said.clear();
        self.handoff.on(self.now, input, &mut self.said);
        &self.said
    }

    fn pass(&mut self, millis: f64) -> &[Command] {
        self.now = self.now + Millis(millis);
        self.hear(Input::Tick)
    }

    /// Both workers are chosen, and the prompt is handed over by result.
    fn prefilling() -> Self {
        let mut plan = Self::new();
        plan.hear(pair(0, Means::ByResult));
        plan
    }

    /// KV is staged, and the decode leg is on its way.
    fn handing_over() -> Self {
        let mut plan = Self::prefilling();
        plan.hear(prefill_done(Leg(0), None));
        plan
    }

    /// Both legs are on their way.
    fn meeting() -> Self {
        let mut plan = Self::new();
        plan.hear(pair(0, Means::Rendezvous(meeting())));
        plan
    }
}

fn meeting() -> Meeting {
    Meeting {
        host: "p".into(),
        port: 8_998,
        room: 4,
    }
}

fn pair(turn: u16, means: Means) -> Input {
    let choice = Choice::Pair {
        prefill: PREFILL,
        decode: DECODE,
        means,
    };
    Input::Chosen {
        turn: Turn(turn),
        choice,
    }
}

fn end(turn: u16, side: Side, end: End) -> Command {
    let seat = Seat { turn: Turn(turn), side };
    Command::EndSeat { seat, end }
}

fn settle(turn: u16, fate: Fate) -> Command {
    Command::Settle { turn: Turn(turn), fate }
}

fn cancel(leg: u16) -> Command {
    Command::Cancel { leg: Leg(leg) }
}

fn choose(turn: u16, alone: Alone, prefill: &[u32], decode: &[u32]) -> Command {
    let workers = |list: &[u32]| list.iter().map(|worker| WorkerId(*worker)).collect();
    Command::Choose {
        turn: Turn(turn),
        need: Need::Request(alone),
        tried: Tried {
            prefill: workers(prefill),
            decode: workers(decode),
        },
    }
}

fn start_decode(leg: u16, with: With) -> Command {
    Command::StartDecode {
        leg: Leg(leg),
        turn: Turn(0),
        rank: DECODE,
        with,
    }
}

const RESULT: With = With::ResultOf {
    turn: Turn(0),
    leg: Leg(0),
};

#[test]
fn by_result_decode_begins_when_prefill_has_ended_and_each_side_is_freed_in_its_time() {
    let mut plan = Plan::new();
    assert_eq!(plan.said, [choose(0, Alone::Allowed, &[], &[])]);
    let prefill = Command::StartPrefill {
        leg: Leg(0),
        turn: Turn(0),
        rank: PREFILL,
        means: Means::ByResult,
    };
    assert_eq!(plan.hear(pair(0, Means::ByResult)), [prefill]);
    let handed = [end(0, Side::Prefill, End::Finished), start_decode(1, RESULT)];
    assert_eq!(plan.hear(prefill_done(Leg(0), None)), handed);
    assert_eq!(
        plan.hear(Input::DecodeBegan { leg: Leg(1) }),
        [settle(0, Fate::HandedOver)]
    );
    assert!(plan.handoff.is_answering() && plan.handoff.next_timer().is_none());
    let served = [Command::Finish(Outcome::Served), end(0, Side::Decode, End::Finished)];
    assert_eq!(plan.hear(Input::DecodeDone { leg: Leg(1) }), served);
    assert!(plan.handoff.is_over());
}

#[test]
fn in_a_meeting_both_legs_begin_at_once() {
    let mut plan = Plan::new();
    let means = Means::Rendezvous(meeting());
    let both = [
        Command::StartPrefill {
            leg: Leg(0),
            turn: Turn(0),
            rank: PREFILL,
            means: means.clone(),
        },
        start_decode(1, With::Rendezvous(meeting())),
    ];
    assert_eq!(plan.hear(pair(0, means)), both);
    let began = [settle(0, Fate::HandedOver), end(0, Side::Prefill, End::Finished)];
    assert_eq!(plan.hear(Input::DecodeBegan { leg: Leg(1) }), began);
    assert_eq!(plan.hear(prefill_done(Leg(0), None)), []);
    assert_eq!(plan.hear(Input::DecodeDone { leg: Leg(1) }).len(), 2);
    assert!(plan.handoff.is_over());
}

#[test]
fn a_prefill_worker_that_cannot_be_met_hands_over_by_result_and_is_not_chosen_again() {
    let mut plan = Plan::meeting();
    let why = PrefillFailure::NoRendezvous;
    let by_result = Command::StartPrefill {
        leg: Leg(2),
        turn: Turn(0),
        rank: PREFILL,
        means: Means::ByResult,
    };
    assert_eq!(
        plan.hear(Input::PrefillFailed { leg: Leg(0), why }),
        [cancel(1), by_result]
    );
    let with = With::ResultOf {
        turn: Turn(0),
        leg: Leg(2),
    };
    let handed = [end(0, Side::Prefill, End::Finished), start_decode(3, with)];
    assert_eq!(plan.hear(prefill_done(Leg(2), None)), handed);
}

#[test]
fn an_answer_that_ends_with_its_first_token_needs_no_decode_leg() {
    let mut plan = Plan::prefilling();
    let result = Prefilled::Answered(None);
    let served = [
        end(0, Side::Prefill, End::Finished),
        Command::Finish(Outcome::Served),
        settle(0, Fate::NotStaged),
        end(0, Side::Decode, End::Cancelled),
    ];
    assert_eq!(plan.hear(Input::PrefillDone { leg: Leg(0), result }), served);
    assert!(plan.handoff.is_over());
}

#[test]
fn what_such_an_answer_staged_none_the_less_is_fetched_by_a_leg_of_one_token() {
    let mut plan = Plan::prefilling();
    let staged = Staged {
        blocks: Blocks(3),
        expires: None,
    };
    let result = Prefilled::Answered(Some(staged));
    let one_token = With::OneToken {
        turn: Turn(0),
        leg: Leg(0),
    };
    let drains = [
        end(0, Side::Prefill, End::Finished),
        Command::Finish(Outcome::Served),
        start_decode(1, one_token),
    ];
    assert_eq!(plan.hear(Input::PrefillDone { leg: Leg(0), result }), drains);
    let drained = [settle(0, Fate::Drained), end(0, Side::Decode, End::Cancelled)];
    assert_eq!(plan.hear(Input::DecodeDone { leg: Leg(1) }), drained);
    assert!(plan.handoff.is_over());
}

#[test]
fn prefill_that_is_refused_by_back_pressure_is_refused_with_numbers_and_not_queued_again() {
    let mut plan = Plan::prefilling();
    let why = PrefillFailure::Busy {
        limit: "max-queued-tokens".to_owned(),
        queued: 70_000,
        most: 65_536,
    };
    let said = plan.hear(Input::PrefillFailed { leg: Leg(0), why });
    let Some(Command::Finish(Outcome::Refused(denial))) = said.last() else {
        panic!("{said:?}");
    };
    assert_eq!(denial.retry, Retry::Soon);
    for part in ["max-queued-tokens", "65536", "70000"] {
        assert!(denial.words.contains(part), "{}", denial.words);
    }
    assert!(plan.handoff.is_over());
}

#[test]
fn prefill_that_fails_is_tried_elsewhere_and_then_one_worker_serves() {
    let mut plan = Plan::prefilling();
    let failed = [
        settle(0, Fate::NotStaged),
        end(0, Side::Prefill, End::Failed),
        end(0, Side::Decode, End::Cancelled),
        choose(1, Alone::Allowed, &[1], &[]),
    ];
    assert_eq!(plan.hear(prefill_failed(Leg(0), Reach::Refused)), failed);
    let choice = Choice::Pair {
        prefill: RankId::new(2, 0),
        decode: DECODE,
        means: Means::ByResult,
    };
    plan.hear(Input::Chosen { turn: Turn(1), choice });
    let said = plan.hear(prefill_failed(Leg(1), Reach::Refused));
    assert_eq!(said.last(), Some(&choose(2, Alone::Only, &[1, 2], &[])));
}

#[test]
fn where_two_are_required_one_never_serves() {
    let mut plan = Plan::with(|settings| settings.require = Require::Yes);
    assert_eq!(plan.said, [choose(0, Alone::Never, &[], &[])]);
    let whole = Input::Chosen {
        turn: Turn(0),
        choice: Choice::Whole(DECODE),
    };
    let said = plan.hear(whole);
    assert_eq!(said[0], end(0, Side::Decode, End::Cancelled));
    assert!(matches!(&said[1], Command::Finish(Outcome::Refused(denial)) if denial.retry == Retry::Soon));
    let mut out = Vec::new();
    let settings = HandoffSettings {
        require: Require::Yes,
        ..HandoffSettings::default()
    };
    for phase in [PoolPhase::NotYet, PoolPhase::Gone] {
        let handoff = Handoff::begin(settings.clone(), phase, &mut out);
        assert!(handoff.is_over(), "there is no prefill worker");
    }
    assert!(matches!(out[0], Command::Finish(Outcome::Refused(_))));
}

#[test]
fn a_client_that_leaves_while_its_prompt_is_computed_leaves_nothing_behind() {
    let mut plan = Plan::prefilling();
    assert_eq!(plan.hear(Input::ClientGone), [Command::Finish(Outcome::Left)]);
    assert!(!plan.handoff.is_over());
    let one_token = With::OneToken {
        turn: Turn(0),
        leg: Leg(0),
    };
    let drains = [end(0, Side::Prefill, End::Finished), start_decode(1, one_token)];
    assert_eq!(plan.hear(prefill_done(Leg(0), None)), drains);
    let lapsed = plan.hear(decode_failed(Leg(1), Reach::Unknown));
    assert!(matches!(
        lapsed[0],
        Command::Settle {
            fate: Fate::Lapses(_),
            ..
        }
    ));
    assert!(plan.handoff.is_over());
}

#[test]
fn a_client_that_leaves_during_the_transfer_lets_it_finish_and_no_longer() {
    for mut plan in [Plan::handing_over(), Plan::meeting()] {
        assert_eq!(plan.hear(Input::ClientGone), [Command::Finish(Outcome::Left)]);
        let began = plan.hear(Input::DecodeBegan { leg: Leg(1) }).to_vec();
        assert!(began.contains(&settle(0, Fate::HandedOver)) && began.contains(&cancel(1)));
        assert!(plan.handoff.is_over());
    }
}

#[test]
fn a_client_that_leaves_during_the_answer_ends_it() {
    let mut plan = Plan::handing_over();
    plan.hear(Input::DecodeBegan { leg: Leg(1) });
    let left = [
        Command::Finish(Outcome::Left),
        cancel(1),
        end(0, Side::Decode, End::Cancelled),
    ];
    assert_eq!(plan.hear(Input::ClientGone), left);
}

#[test]
fn kv_that_nobody_has_touched_goes_to_another_decode_worker() {
    let mut plan = Plan::handing_over();
    let need = Need::DecodeFor {
        turn: Turn(0),
        prefill: PREFILL,
    };
    let tried = Tried {
        prefill: Vec::new(),
        decode: vec![DECODE.worker],
    };
    let again = Command::Choose {
        turn: Turn(1),
        need,
        tried,
    };
    let said = [end(0, Side::Decode, End::Failed), again];
    assert_eq!(plan.hear(decode_failed(Leg(1), Reach::Refused)), said);
    let other = RankId::new(12, 0);
    let start = Command::StartDecode {
        leg: Leg(2),
        turn: Turn(1),
        rank: other,
        with: RESULT,
    };
    let choice = Choice::Decode(other);
    assert_eq!(plan.hear(Input::Chosen { turn: Turn(1), choice }), [start]);
}

#[test]
fn kv_that_may_have_been_read_is_not_read_again() {
    let mut plan = Plan::handing_over();
    let said = plan.hear(decode_failed(Leg(1), Reach::Unknown)).to_vec();
    assert!(said.contains(&choose(1, Alone::Allowed, &[], &[11])), "{said:?}");
    assert!(said.iter().any(|command| matches!(
        command,
        Command::Settle {
            fate: Fate::Lapses(_),
            ..
        }
    )));
}

#[test]
fn of_two_that_are_silent_both_are_suspects_and_are_asked_again_rather_than_nobody() {
    let mut plan = Plan::handing_over();
    let said = plan.pass(60_000.0).to_vec();
    assert!(said.contains(&choose(1, Alone::Allowed, &[1], &[11])), "{said:?}");
    // No two that failed together are asked together.
    assert_eq!(plan.hear(nowhere(Turn(1))), [choose(2, Alone::Allowed, &[1], &[])]);
    assert_eq!(plan.hear(nowhere(Turn(2))), [choose(3, Alone::Allowed, &[], &[11])]);
    let said = plan.hear(nowhere(Turn(3)));
    assert!(matches!(said, [Command::Finish(Outcome::Refused(_))]), "{said:?}");
}

#[test]
fn after_each_failure_at_most_three_questions_are_asked_and_only_choices_count_as_tries() {
    let mut plan = Plan::with(|settings| (settings.turns, settings.pairs, settings.rechoices) = (2, 2, 0));
    plan.hear(pair(0, Means::ByResult));
    plan.hear(prefill_done(Leg(0), None));
    plan.pass(60_000.0);
    assert_eq!(plan.hear(nowhere(Turn(1))), [choose(2, Alone::Allowed, &[1], &[])]);
    assert_eq!(plan.hear(nowhere(Turn(2))), [choose(3, Alone::Allowed, &[], &[11])]);
    // The fourth question led to the second choice, which is the last.
    plan.hear(pair(3, Means::ByResult));
    plan.hear(prefill_done(Leg(2), None));
    let said = plan.pass(60_000.0);
    assert!(
        matches!(said.last(), Some(Command::Finish(Outcome::Failed(_)))),
        "{said:?}"
    );
}

#[test]
fn a_decode_worker_that_says_that_it_could_not_go_on_is_believed_once() {
    let mut plan = Plan::handing_over();
    let said = plan.hear(decode_failed(Leg(1), Reach::Said)).to_vec();
    assert!(said.contains(&choose(1, Alone::Allowed, &[1], &[])), "{said:?}");
    let choice = Choice::Pair {
        prefill: RankId::new(2, 0),
        decode: DECODE,
        means: Means::ByResult,
    };
    plan.hear(Input::Chosen { turn: Turn(1), choice });
    plan.hear(prefill_done(Leg(2), None));
    let said = plan.hear(decode_failed(Leg(3), Reach::Said)).to_vec();
    assert!(said.contains(&choose(2, Alone::Only, &[1, 2], &[11])), "{said:?}");
}

#[test]
fn decode_that_fails_after_the_transfer_repeats_prefill_if_the_answer_can_go_on() {
    for (resume, goes_on) in [(Resume::Possible, true), (Resume::Impossible, false)] {
        let mut plan = Plan::handing_over();
        plan.hear(Input::DecodeBegan { leg: Leg(1) });
        let said = plan.hear(decode_failed(Leg(1), Reach::Answering(resume))).to_vec();
        assert_eq!(said[0], end(0, Side::Decode, End::Failed));
        assert_eq!(matches!(said[1], Command::Choose { .. }), goes_on);
        assert_eq!(matches!(said[1], Command::Finish(Outcome::Failed(_))), !goes_on);
    }
}

#[test]
fn kv_is_fetched_before_it_lapses_or_computed_again() {
    let mut plan = Plan::prefilling();
    let soon = plan.now + Millis(500.0);
    let said = plan.hear(prefill_done(Leg(0), Some(soon))).to_vec();
    let again = [
        end(0, Side::Prefill, End::Finished),
        settle(0, Fate::Lapses(soon)),
        end(0, Side::Decode, End::Cancelled),
        choose(1, Alone::Allowed, &[], &[]),
    ];
    assert_eq!(said, again, "less than the margin is left");

    let mut plan = Plan::prefilling();
    let expires = plan.now + Millis(5_000.0);
    plan.hear(prefill_done(Leg(0), Some(expires)));
    assert_eq!(plan.handoff.next_timer(), Some(plan.now + Millis(4_000.0)));
    assert_eq!(plan.pass(3_999.0), []);
    let said = plan.pass(1.0);
    assert_eq!(said[0], cancel(1));
    assert_eq!(said[2], settle(0, Fate::Lapses(expires)));
}

#[test]
fn one_leg_that_hangs_ends_both() {
    let mut plan = Plan::meeting();
    let due = plan.handoff.next_timer().expect("there is a limit");
    let said = plan.pass(due.since(plan.now).0).to_vec();
    assert!(said.contains(&cancel(0)) && said.contains(&cancel(1)), "{said:?}");
    assert!(said.contains(&choose(1, Alone::Allowed, &[1], &[11])), "{said:?}");

    let mut plan = Plan::meeting();
    plan.hear(prefill_done(Leg(0), None));
    let said = plan.pass(due.since(plan.now).0).to_vec();
    assert!(
        said.contains(&choose(1, Alone::Allowed, &[], &[11])),
        "prefill did its part: {said:?}"
    );
}

#[test]
fn one_leg_of_a_meeting_that_fails_ends_the_other() {
    let mut plan = Plan::meeting();
    assert_eq!(plan.hear(prefill_failed(Leg(0), Reach::Unknown))[0], cancel(1));
    let mut plan = Plan::meeting();
    assert_eq!(plan.hear(decode_failed(Leg(1), Reach::Unknown))[0], cancel(0));
}

#[test]
fn a_prefill_worker_that_goes_takes_its_kv_with_it() {
    for mut plan in [Plan::prefilling(), Plan::handing_over(), Plan::meeting()] {
        let said = plan.hear(Input::WorkerGone(PREFILL.worker)).to_vec();
        assert!(said.contains(&settle(0, Fate::Gone)), "{said:?}");
        assert!(said.contains(&choose(1, Alone::Allowed, &[1], &[])), "{said:?}");
    }
}

#[test]
fn a_decode_worker_that_goes_while_the_prompt_is_computed_is_replaced_when_it_is_needed() {
    let mut plan = Plan::prefilling();
    assert_eq!(
        plan.hear(Input::WorkerGone(DECODE.worker)),
        [end(0, Side::Decode, End::Failed)]
    );
    let said = plan.hear(prefill_done(Leg(0), None));
    assert!(
        matches!(
            said[1],
            Command::Choose {
                need: Need::DecodeFor { .. },
                ..
            }
        ),
        "{said:?}"
    );
}

#[test]
fn a_question_is_asked_anew_when_prefill_workers_come_or_go_and_a_late_answer_is_given_back() {
    let mut plan = Plan::new();
    let anew = [Command::Withdraw { turn: Turn(0) }, choose(1, Alone::Allowed, &[], &[])];
    assert_eq!(plan.hear(Input::Pool(PoolPhase::Gone)), anew);
    assert_eq!(plan.hear(Input::Pool(PoolPhase::Gone)), [], "it was said before");
    let back = [
        end(0, Side::Decode, End::Cancelled),
        end(0, Side::Prefill, End::Cancelled),
        settle(0, Fate::NotStaged),
    ];
    assert_eq!(plan.hear(pair(0, Means::ByResult)), back);
    assert_eq!(plan.hear(pair(0, Means::ByResult)), [], "it was answered before");
}

#[test]
fn tries_are_bounded_and_the_last_failure_is_told() {
    let mut plan = Plan::with(|settings| settings.turns = 2);
    let whole = |turn| Input::Chosen {
        turn: Turn(turn),
        choice: Choice::Whole(DECODE),
    };
    plan.hear(whole(0));
    assert_eq!(
        plan.hear(decode_failed(Leg(0), Reach::Refused))[1],
        choose(1, Alone::Allowed, &[], &[11])
    );
    plan.hear(whole(1));
    let said = plan.hear(decode_failed(Leg(1), Reach::Refused));
    assert_eq!(said[1], Command::Finish(Outcome::Failed("broken".to_owned())));

    let mut plan = Plan::new();
    plan.hear(whole(0));
    plan.hear(decode_failed(Leg(0), Reach::Refused));
    let said = plan.hear(nowhere(Turn(1)));
    let [Command::Finish(Outcome::Refused(denial))] = said else {
        panic!("{said:?}");
    };
    assert_eq!(denial.words, "nobody; before that: broken");
}
