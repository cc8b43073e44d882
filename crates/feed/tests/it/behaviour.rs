//! What does the feed do when? One test for each behaviour that everything else leans on.

use crate::support::{Bed, RANK, SIBLING, batch, clear, remove, source, store};
use homing_domain::{KvChange, Label, RankId, Removed, Sequence, Stored, StoredBlock, WorkerId};
use homing_feed::{
    ClearReach, Command, Coverage, FeedConfig, Identity, Input, Part, Recovery, Reply, Source, State, What, Why,
};

fn upto(newest: u64) -> Vec<u64> {
    (0..=newest).collect()
}

mod discovery {
    use super::*;

    #[test]
    fn alone_it_starts_the_restore() {
        for (recovery, expected) in [
            (Recovery::List, What::List),
            (Recovery::Replay, What::Replay { from: Sequence(0) }),
        ] {
            let mut bed = Bed::new();
            bed.join(RANK, source(recovery));
            assert_eq!(bed.asked().1, expected);
            assert_eq!(bed.state(), State::Repairing);
        }
    }

    #[test]
    fn without_a_subscription_nothing_is_asked() {
        let mut bed = Bed::new();
        let source = source(Recovery::List);
        bed.say(Input::Discovered { rank: RANK, source });
        bed.pass(60_000);
        bed.asks_nothing();
        let why = Why::Disconnected;
        assert!(matches!(bed.state(), State::Stale { why: found, .. } if found == why));
    }

    #[test]
    fn who_it_is_may_be_learnt_on_the_first_contact() {
        let mut bed = Bed::new();
        bed.say(Input::Discovered {
            rank: RANK,
            source: source(Recovery::List),
        });
        let identity = Identity { engine: 9, agent: 9 };
        bed.join(
            RANK,
            Source {
                identity,
                ..source(Recovery::List)
            },
        );
        assert_eq!(bed.asked().1, What::List);
        assert_eq!((bed.status().identity, bed.status().counters.restarts), (identity, 0));
    }

    #[test]
    fn a_second_time_changes_nothing() {
        let mut bed = Bed::live(Recovery::Replay, 3);
        let source = source(Recovery::Replay);
        bed.say(Input::Discovered { rank: RANK, source });
        bed.asks_nothing();
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        bed.say(Input::Discovered { rank: RANK, source });
        assert_eq!(bed.commands(), []);
        bed.replay(ask, (3..=9).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.cursor()), (State::Live, Some(9)));
    }

    #[test]
    fn with_another_engine_it_starts_anew_and_the_old_content_is_void_at_once() {
        let mut bed = Bed::live(Recovery::List, 3);
        let epoch = bed.status().epoch;
        let identity = Identity { engine: 2, agent: 0 };
        bed.say(Input::Discovered {
            rank: RANK,
            source: Source {
                identity,
                ..source(Recovery::List)
            },
        });
        assert_eq!(bed.held(), []);
        assert!(bed.status().epoch > epoch);
        assert_eq!(bed.asked().1, What::List);
        assert_eq!(bed.status().counters.restarts, 1);
    }

    /// An agent lives anew, which is known before the end of the subscription to its former life.
    fn with_another_agent() -> Bed {
        let mut bed = Bed::live(Recovery::List, 1);
        let source = Source {
            identity: Identity { engine: 1, agent: 7 },
            ..source(Recovery::List)
        };
        bed.say(Input::Discovered { rank: RANK, source });
        let (ask, _) = bed.asked();
        bed.list(ask, 1, Coverage::Complete, [0, 1]);
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![0, 1]));
        bed
    }

    #[test]
    fn a_batch_of_a_former_life_that_looks_like_the_next_is_not_applied() {
        let mut bed = with_another_agent();
        bed.hear(store(9, 2));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(1) });
        bed.replay(ask, [store(1, 1)]);
        assert_eq!(
            (bed.state(), bed.cursor(), bed.held()),
            (State::Live, Some(1), vec![0, 1])
        );
        // The same with a list, where a replay cannot be had.
        bed.hear(store(9, 3));
        let (ask, _) = bed.asked();
        bed.part(ask, Part::Gone);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::List);
        bed.list(ask, 2, Coverage::Complete, [0, 1, 2]);
        assert_eq!(
            (bed.state(), bed.cursor(), bed.held()),
            (State::Live, Some(2), vec![0, 1, 2])
        );
    }

    #[test]
    fn a_batch_that_the_new_agent_has_sent_as_well_proves_the_subscription() {
        let mut bed = with_another_agent();
        bed.hear(store(1, 2));
        let (ask, _) = bed.asked();
        bed.hear(store(1, 3));
        bed.replay(ask, [store(1, 1), store(1, 2)]);
        assert_eq!((bed.state(), bed.cursor()), (State::Live, Some(3)));
        bed.hear(store(1, 4));
        bed.asks_nothing();
        assert_eq!(bed.held(), upto(4));
    }

    #[test]
    fn a_heartbeat_of_the_new_agent_proves_the_subscription() {
        let mut bed = with_another_agent();
        let identity = Identity { engine: 1, agent: 7 };
        let newest = Some((Sequence(1), store(1, 1).digest));
        bed.say(Input::Heartbeat {
            rank: RANK,
            identity,
            newest,
        });
        bed.hear(store(1, 2));
        bed.asks_nothing();
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(2)));
    }

    #[test]
    fn with_another_agent_the_old_view_serves_until_the_new_one_is_in_place() {
        let mut bed = Bed::live(Recovery::List, 3);
        let identity = Identity { engine: 1, agent: 7 };
        bed.say(Input::Discovered {
            rank: RANK,
            source: Source {
                identity,
                ..source(Recovery::List)
            },
        });
        let (ask, what) = bed.asked();
        assert_eq!(what, What::List);
        assert_eq!(bed.held(), upto(3));
        bed.part(ask, Part::ListHead(bed.head(8, Coverage::Complete)));
        bed.part(ask, Part::ListItems(Bed::items([5, 6])));
        assert_eq!(bed.held(), upto(3));
        bed.part(ask, Part::ListEnd { items: 2 });
        assert_eq!((bed.held(), bed.cursor()), (vec![5, 6], Some(8)));
        assert_eq!((bed.state(), bed.status().counters.agent_restarts), (State::Live, 1));
    }
}

mod first_contact {
    use super::*;

    #[test]
    fn a_stream_replayed_from_its_beginning_is_complete() {
        assert_eq!(Bed::live(Recovery::Replay, 5).status().coverage, Coverage::Complete);
    }

    #[test]
    fn a_stream_replayed_from_later_on_is_warming() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::Replay));
        let (ask, _) = bed.asked();
        bed.replay(ask, (40..=42).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![40, 41, 42]));
    }

    #[test]
    fn a_source_that_keeps_nothing_is_warming_from_what_it_says_next() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::LiveOnly));
        assert_eq!(bed.state(), State::Warming);
        bed.hear(store(1, 17));
        assert_eq!(
            (bed.state(), bed.held(), bed.cursor()),
            (State::Warming, vec![17], Some(17))
        );
    }

    #[test]
    fn a_source_that_has_said_nothing_yet_is_asked_twice_and_then_believed() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::Replay));
        let (first, _) = bed.asked();
        bed.replay(first, []);
        let (second, _) = bed.asked();
        assert_ne!(first, second);
        bed.replay(second, []);
        assert_eq!(bed.state(), State::Warming);
        bed.hear(store(1, 0));
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![0]));
    }

    #[test]
    fn a_clear_needs_no_restore() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::List));
        let (ask, _) = bed.asked();
        bed.hear(clear(1, 30));
        assert_eq!(bed.commands(), [Command::Cancel(ask)]);
        assert_eq!((bed.state(), bed.cursor()), (State::Live, Some(30)));
        bed.hear(store(1, 31));
        assert_eq!(bed.held(), [31]);
    }

    #[test]
    fn a_list_that_is_not_complete_is_warming_and_one_that_is_ends_it() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::List));
        let (ask, _) = bed.asked();
        bed.list(ask, 9, Coverage::Warming, [8, 9]);
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![8, 9]));
        bed.hear(remove(1, 10, 77));
        assert_eq!(
            bed.status().counters.unknown_removals,
            0,
            "it may have been stored before we listened"
        );
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        let (ask, _) = bed.asked();
        bed.part(ask, Part::Gone);
        let (ask, _) = bed.asked();
        bed.list(ask, 12, Coverage::Complete, [8, 9, 12]);
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![8, 9, 12]));
    }
}

mod gaps {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_from_the_cursor_itself() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) });
        assert_eq!((bed.state(), bed.held()), (State::Repairing, upto(5)));
        bed.hear(store(1, 10));
        bed.replay(ask, (5..=8).map(|number| store(1, number)));
        assert_eq!(
            (bed.state(), bed.held(), bed.cursor()),
            (State::Live, upto(10), Some(10))
        );
        let counters = bed.status().counters;
        assert_eq!((counters.gaps, counters.replays, counters.repaired), (1, 1, 2));
    }

    #[test]
    fn a_replay_that_does_not_contain_the_cursor_proves_nothing() {
        let mut bed = Bed::live(Recovery::List, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        bed.replay(ask, (6..=9).map(|number| store(1, number)));
        assert_eq!(bed.held(), upto(5), "nothing of it is applied");
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) }, "a second request");
        bed.replay(ask, (6..=9).map(|number| store(1, number)));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::List);
        bed.list(ask, 9, Coverage::Complete, 2..=9);
        assert_eq!((bed.state(), bed.held()), (State::Live, (2..=9).collect()));
    }

    #[test]
    fn without_a_list_what_is_left_of_the_stream_is_taken_and_said_to_be_warming() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 99));
        for _ in 0..2 {
            let (ask, what) = bed.asked();
            assert_eq!(what, What::Replay { from: Sequence(5) });
            bed.replay(ask, (97..=99).map(|number| store(1, number)));
        }
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(0) });
        assert_eq!(bed.held(), upto(5), "the old view serves until then");
        bed.replay(ask, (97..=99).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![97, 98, 99]));
    }

    #[test]
    fn a_source_that_keeps_nothing_is_reset_honestly() {
        let mut bed = Bed::live(Recovery::LiveOnly, 5);
        bed.hear(store(1, 9));
        assert_eq!(
            (bed.state(), bed.held(), bed.cursor()),
            (State::Warming, vec![9], Some(9))
        );
        assert_eq!(bed.status().counters.resets, 1);
        bed.asks_nothing();
    }

    #[test]
    fn a_replay_counts_as_far_as_it_is_contiguous() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 20));
        let (ask, _) = bed.asked();
        bed.replay(ask, [5, 6, 7, 12, 13].map(|number| store(1, number)));
        assert_eq!(bed.cursor(), Some(7));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(7) });
        bed.replay(ask, (7..=20).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(20)));
    }

    #[test]
    fn a_hole_that_stays_after_a_second_request_is_gone() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::Replay));
        for from in [0, 3] {
            let (ask, what) = bed.asked();
            assert_eq!(what, What::Replay { from: Sequence(from) });
            bed.replay(ask, [2, 3, 6, 7].map(|number| store(1, number)));
        }
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) }, "from behind what is lost");
        bed.replay(ask, [6, 7].map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![6, 7]));
    }

    #[test]
    fn the_highest_number_ever_heard_is_reached_although_its_batch_was_dropped() {
        let mut bed = Bed::with(FeedConfig {
            buffer_batches: 3,
            ..FeedConfig::default()
        });
        bed.join(RANK, source(Recovery::Replay));
        for number in 10..=20 {
            bed.hear(store(1, number));
        }
        assert_eq!(bed.status().buffered, 3);
        let (ask, _) = bed.asked();
        bed.replay(ask, (0..=11).map(|number| store(1, number)));
        let (ask, what) = bed.asked();
        assert_eq!(
            what,
            What::Replay { from: Sequence(12) },
            "the head that was kept counts"
        );
        bed.replay(ask, (12..=20).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(20)));
        assert_eq!(bed.status().counters.dropped, 8);
    }

    #[test]
    fn what_a_full_lane_dropped_is_fetched() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.say(Input::Overflowed {
            rank: RANK,
            highest: Some(Sequence(8)),
        });
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) });
        bed.replay(ask, (5..=7).map(|number| store(1, number)));
        let (ask, _) = bed.asked();
        bed.replay(ask, (7..=8).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(8)));
    }
}

mod repeats {
    use super::*;

    #[test]
    fn each_batch_counts_once() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 5));
        bed.hear(store(1, 2));
        bed.hear(remove(1, 6, 5));
        bed.asks_nothing();
        assert_eq!(bed.held(), [0, 1, 2, 3, 4], "one copy came, one went");
        assert_eq!(bed.status().counters.repeats, 2);
    }
}

mod clears {
    use super::*;

    #[test]
    fn a_clear_cancels_repairs_and_becomes_the_cursor() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        let epoch = bed.status().epoch;
        bed.hear(clear(1, 12));
        assert_eq!(bed.commands(), [Command::Cancel(ask)]);
        assert!(bed.status().epoch > epoch);
        assert_eq!((bed.state(), bed.held(), bed.cursor()), (State::Live, vec![], Some(12)));
        bed.replay(ask, (5..=9).map(|number| store(1, number)));
        assert_eq!(bed.held(), [], "an answer to an old epoch");
        assert_eq!(bed.feed.late_answers(), 6);
        bed.hear(store(1, 13));
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![13]));
    }

    #[test]
    fn an_old_clear_is_ignored() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(clear(1, 6));
        bed.hear(store(1, 7));
        bed.hear(clear(1, 6));
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![7]));
    }

    #[test]
    fn what_was_heard_above_it_is_kept() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 13));
        bed.hear(store(1, 15));
        bed.commands();
        bed.hear(clear(1, 12));
        assert_eq!((bed.held(), bed.cursor()), (vec![13], Some(13)));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(13) });
        bed.replay(ask, (13..=15).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![13, 14, 15]));
    }

    #[test]
    fn a_clear_of_one_tier_is_an_ordinary_event() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        let scope = homing_domain::ClearScope::Only(homing_domain::Tier::Device);
        bed.hear(batch(1, 9, vec![KvChange::Cleared(scope)]));
        assert_eq!((bed.state(), bed.held()), (State::Repairing, upto(5)));
        let (ask, _) = bed.asked();
        bed.replay(ask, (5..=8).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![]));
    }

    #[test]
    fn warming_ends_with_a_clear() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::LiveOnly));
        bed.hear(store(1, 17));
        bed.hear(clear(1, 18));
        assert_eq!(bed.state(), State::Live);
    }

    fn of_a_worker() -> Bed {
        let mut bed = Bed::new();
        let source = Source {
            clear_reach: ClearReach::Worker,
            ..source(Recovery::Replay)
        };
        for rank in [RANK, SIBLING] {
            bed.join(rank, source);
            let (_, ask, _) = bed.asked_of();
            for part in (0..=5)
                .map(|number| Part::Batch(store(1, number)))
                .chain([Part::ReplayEnd])
            {
                bed.say(Input::Reply(Reply { ask, rank, part }));
            }
            assert_eq!(bed.held_by(rank), upto(5));
        }
        bed
    }

    fn sibling_hears(bed: &mut Bed, number: u64) {
        bed.say(Input::Heard {
            rank: SIBLING,
            batch: store(1, number),
        });
    }

    #[test]
    fn a_clear_of_a_worker_empties_every_rank_of_it() {
        let mut bed = of_a_worker();
        bed.hear(clear(1, 6));
        assert_eq!((bed.held(), bed.held_by(SIBLING)), (vec![], vec![]));
        sibling_hears(&mut bed, 5);
        assert_eq!(bed.held_by(SIBLING), [], "at its old cursor: stale");
        sibling_hears(&mut bed, 9);
        assert_eq!(bed.held_by(SIBLING), [9], "above it: fresh, without a repair");
        bed.asks_nothing();
        let status = bed.feed.status(bed.now, SIBLING).unwrap();
        assert_eq!((status.state, status.cursor), (State::Live, Some(Sequence(9))));
    }

    #[test]
    fn what_a_sibling_had_heard_above_its_cursor_is_repaired() {
        let mut bed = of_a_worker();
        sibling_hears(&mut bed, 8);
        bed.commands();
        bed.hear(clear(1, 6));
        assert_eq!(bed.held_by(SIBLING), []);
        let (rank, ask, what) = bed.asked_of();
        assert_eq!((rank, what), (SIBLING, What::Replay { from: Sequence(5) }));
        for part in (5..=8)
            .map(|number| Part::Batch(store(1, number)))
            .chain([Part::ReplayEnd])
        {
            bed.say(Input::Reply(Reply { ask, rank, part }));
        }
        assert_eq!(bed.held_by(SIBLING), [6, 7, 8]);
    }
}

mod restarts {
    use super::*;

    #[test]
    fn a_known_number_with_another_digest_is_another_life() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(2, 3));
        assert_eq!(bed.held(), [], "void at once");
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(0) });
        bed.replay(ask, (0..=3).map(|number| store(2, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(3)));
        assert_eq!(bed.status().counters.restarts, 1);
    }

    #[test]
    fn a_life_that_has_already_passed_our_cursor_is_found_by_the_batch_at_it() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) });
        bed.hear(store(2, 6));
        assert_eq!(
            bed.held(),
            upto(5),
            "what would follow by number is not applied before the source is known"
        );
        bed.part(ask, Part::Batch(store(2, 5)));
        assert_eq!(bed.held(), []);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(0) });
        bed.replay(ask, (0..=6).map(|number| store(2, number)));
        assert_eq!(
            (bed.state(), bed.held(), bed.status().coverage),
            (State::Live, upto(6), Coverage::Complete)
        );
    }

    #[test]
    fn a_stream_far_behind_is_another_life() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::List));
        let (ask, _) = bed.asked();
        bed.list(ask, 5000, Coverage::Complete, [1, 2]);
        bed.hear(store(2, 0));
        assert_eq!(bed.held(), []);
        assert_eq!(bed.asked().1, What::List);
    }

    #[test]
    fn a_stream_a_little_behind_is_asked() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::List));
        let (ask, _) = bed.asked();
        bed.list(ask, 50, Coverage::Complete, [1, 2]);
        bed.hear(store(2, 0));
        let (ask, what) = bed.asked();
        assert_eq!((what, bed.held()), (What::Replay { from: Sequence(50) }, vec![1, 2]));
        bed.replay(ask, [store(1, 50)]);
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![1, 2]), "it was only late");
    }

    #[test]
    fn an_engine_that_has_said_nothing_since_its_restart_is_found_by_asking() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        for from in [5, 5, 0, 0] {
            let (ask, what) = bed.asked();
            assert_eq!(what, What::Replay { from: Sequence(from) });
            bed.replay(ask, []);
        }
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![]));
        bed.hear(store(2, 0));
        assert_eq!(
            (bed.state(), bed.held()),
            (State::Live, vec![0]),
            "a restart under watch is complete"
        );
    }

    #[test]
    fn an_engine_that_has_said_less_than_before_its_restart_is_found_by_what_it_said() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        for _ in 0..2 {
            let (ask, _) = bed.asked();
            bed.replay(ask, []);
        }
        let (ask, _) = bed.asked();
        assert_eq!(bed.held(), upto(5));
        bed.part(ask, Part::Batch(store(2, 0)));
        assert_eq!(
            (bed.held(), bed.status().counters.restarts),
            (vec![], 1),
            "void at once"
        );
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(0) });
        bed.replay(ask, (0..=2).map(|number| store(2, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(2)));
    }

    #[test]
    fn a_source_that_keeps_nothing_is_reset_on_every_connect() {
        let mut bed = Bed::live(Recovery::LiveOnly, 5);
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![]));
        bed.hear(store(2, 0));
        assert_eq!(bed.state(), State::Live);
        bed.hear(store(3, 0));
        assert_eq!(
            (bed.state(), bed.held(), bed.status().counters.restarts),
            (State::Live, vec![0], 1)
        );
    }
}

mod answers {
    use super::*;

    #[test]
    fn one_that_names_another_rank_is_refused() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        let part = Part::Batch(store(1, 5));
        bed.say(Input::Reply(Reply {
            ask,
            rank: RankId::new(2, 0),
            part,
        }));
        assert_eq!(bed.status().counters.foreign_answers, 1);
        assert_eq!(bed.held(), upto(5));
        bed.pass(1_000);
        let (ask, _) = bed.asked();
        bed.replay(ask, (5..=9).map(|number| store(1, number)));
        assert_eq!(bed.state(), State::Live);
    }

    #[test]
    fn after_the_worker_left_none_is_wanted() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        bed.say(Input::WorkerLeft(WorkerId(1)));
        assert_eq!(bed.commands(), [Command::Cancel(ask)]);
        bed.part(ask, Part::Batch(store(1, 5)));
        bed.hear(store(1, 10));
        assert_eq!(
            (bed.held(), bed.feed.index().stats().ranks, bed.feed.repairs_under_way()),
            (vec![], 0, 0)
        );
        assert_eq!((bed.feed.late_answers(), bed.feed.unknown_ranks()), (1, 1));
    }

    #[test]
    fn a_list_that_was_cut_off_is_not_shown() {
        let mut bed = Bed::new();
        bed.join(RANK, source(Recovery::List));
        let (ask, _) = bed.asked();
        bed.part(ask, Part::ListHead(bed.head(9, Coverage::Complete)));
        bed.part(ask, Part::ListItems(Bed::items(0..5)));
        bed.part(ask, Part::ListEnd { items: 6 });
        assert_eq!((bed.state(), bed.held()), (State::Repairing, vec![]));
        bed.pass(1_000);
        assert_eq!(bed.asked().1, What::List);
    }

    #[test]
    fn a_list_older_than_what_was_heard_is_shown_when_it_has_caught_up() {
        let mut bed = Bed::live(Recovery::List, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        bed.part(ask, Part::Gone);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::List);
        bed.list(ask, 7, Coverage::Complete, 0..=7);
        assert_eq!(bed.held(), upto(5), "8 is missing still");
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(7) });
        bed.replay(ask, (7..=8).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(9)));
    }
}

mod limits {
    use super::*;

    #[test]
    fn a_repair_that_failed_for_good_leaves_the_view_and_says_since_when() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let mut tries = 0;
        while bed.state() == State::Repairing {
            for command in bed.commands() {
                if let Command::Ask(ask) = command {
                    tries += 1;
                    bed.part(ask.id, Part::Failed);
                }
            }
            bed.pass(50);
        }
        assert_eq!(tries, 8);
        let failed = bed.status();
        assert!(matches!(
            failed.state,
            State::Stale {
                why: Why::RepairFailed,
                ..
            }
        ));
        assert_eq!(
            (failed.cursor, failed.buffered, bed.held()),
            (Some(Sequence(5)), 0, upto(5))
        );
        // The next live batch starts another.
        bed.hear(store(1, 10));
        let (ask, _) = bed.asked();
        bed.replay(ask, (5..=10).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(10)));
    }

    #[test]
    fn a_timer_starts_another_as_well() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        while bed.state() == State::Repairing {
            for command in bed.commands() {
                if let Command::Ask(ask) = command {
                    bed.part(ask.id, Part::Failed);
                }
            }
            bed.pass(50);
        }
        bed.pass(30_000);
        let (ask, _) = bed.asked();
        bed.replay(ask, (5..=9).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(9)));
    }

    #[test]
    fn no_answer_is_an_answer_after_a_while() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 9));
        let (ask, _) = bed.asked();
        bed.pass(29_999);
        bed.asks_nothing();
        bed.pass(1);
        assert_eq!(bed.commands(), [Command::Cancel(ask)]);
        bed.pass(200);
        assert_eq!(bed.asked().1, What::Replay { from: Sequence(5) });
        assert_eq!(bed.status().counters.failed_tries, 1);
    }

    #[test]
    fn no_more_repairs_run_at_once_than_allowed() {
        let mut bed = Bed::with(FeedConfig {
            max_repairs: 4,
            ..FeedConfig::default()
        });
        for worker in 0..10 {
            bed.join(RankId::new(worker, 0), source(Recovery::Replay));
        }
        let mut waiting: Vec<_> = bed.commands();
        assert_eq!((waiting.len(), bed.feed.repairs_under_way()), (4, 4));
        let mut answered = 0;
        while let Some(Command::Ask(ask)) = waiting.pop() {
            answered += 1;
            for part in [Part::Batch(store(1, 0)), Part::ReplayEnd] {
                let (ask, rank) = (ask.id, ask.rank);
                bed.say(Input::Reply(Reply { ask, rank, part }));
            }
            assert!(bed.feed.repairs_under_way() <= 4);
            waiting.extend(bed.commands());
        }
        assert_eq!((answered, bed.feed.repairs_under_way()), (10, 0));
    }

    #[test]
    fn an_engine_whose_hole_is_never_filled_does_not_repair_for_ever() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.hear(store(1, 1_000_000));
        let mut asked = 0;
        for _ in 0..1_000 {
            for command in bed.commands() {
                if let Command::Ask(ask) = command {
                    asked += 1;
                    bed.replay(ask.id, (0..=5).map(|number| store(1, number)));
                }
            }
        }
        assert!(
            matches!(
                bed.state(),
                State::Stale {
                    why: Why::RepairFailed,
                    ..
                }
            ),
            "{:?}",
            bed.state()
        );
        assert!(asked <= 20, "{asked}");
    }
}

mod silence {
    use super::*;

    #[test]
    fn an_idle_source_is_asked_and_then_it_is_live() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.pass(2_500);
        let (ask, what) = bed.asked();
        assert_eq!((what, bed.state()), (What::Replay { from: Sequence(5) }, State::Live));
        bed.replay(ask, [store(1, 5)]);
        bed.pass(2_400);
        assert_eq!(bed.state(), State::Live);
        bed.asks_nothing();
    }

    #[test]
    fn one_that_does_not_answer_is_not() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.pass(2_500);
        bed.pass(2_501);
        assert!(matches!(bed.state(), State::Stale { why: Why::Silent, .. }));
    }

    #[test]
    fn what_was_lost_in_silence_is_found() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.pass(2_500);
        let (ask, _) = bed.asked();
        bed.replay(ask, (5..=8).map(|number| store(1, number)));
        assert_eq!(
            (bed.state(), bed.held(), bed.status().counters.gaps),
            (State::Live, upto(8), 1)
        );
    }

    #[test]
    fn a_batch_that_comes_meanwhile_need_not_wait() {
        let mut bed = Bed::live(Recovery::Replay, 5);
        bed.pass(2_500);
        let (ask, _) = bed.asked();
        bed.hear(store(1, 6));
        assert_eq!(bed.commands(), [Command::Cancel(ask)]);
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(6)));
    }

    #[test]
    fn a_source_that_cannot_be_asked_is_stale_when_silent() {
        let mut bed = Bed::live(Recovery::LiveOnly, 5);
        bed.pass(5_001);
        assert!(matches!(bed.state(), State::Stale { why: Why::Silent, .. }));
        bed.hear(store(1, 6));
        assert_eq!(bed.state(), State::Live);
    }

    fn beat(bed: &mut Bed, life: u64, newest: u64) {
        let newest = store(life, newest);
        bed.say(Input::Heartbeat {
            rank: RANK,
            identity: Identity { engine: 1, agent: 0 },
            newest: Some((newest.sequence, newest.digest)),
        });
    }

    #[test]
    fn a_heartbeat_verifies_or_tells_what_is_missing() {
        let mut bed = Bed::live(Recovery::List, 5);
        for _ in 0..10 {
            bed.pass(2_000);
            beat(&mut bed, 1, 5);
        }
        assert_eq!(bed.state(), State::Live);
        bed.asks_nothing();
        beat(&mut bed, 1, 7);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(5) });
        bed.replay(ask, (5..=7).map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(7)));
        beat(&mut bed, 2, 7);
        assert_eq!((bed.held(), bed.asked().1), (vec![], What::List));
    }
}

mod drift {
    use super::*;

    #[test]
    fn removals_of_unknown_blocks_beyond_a_rate_trigger_a_repair() {
        let mut bed = Bed::live(Recovery::List, 5);
        let labels = (1000..1031).map(Label::new).collect();
        bed.hear(batch(1, 6, vec![KvChange::Removed(Removed::plain(labels))]));
        bed.pass(100);
        bed.asks_nothing();
        bed.hear(remove(1, 7, 2000));
        bed.pass(100);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::List);
        assert_eq!(bed.held(), upto(5), "the view is not emptied for it");
        bed.list(ask, 7, Coverage::Complete, [1, 2]);
        assert_eq!(
            (bed.state(), bed.held(), bed.status().counters.drifts),
            (State::Live, vec![1, 2], 1)
        );
    }

    #[test]
    fn orphans_that_never_join_trigger_one() {
        let mut bed = Bed::live(Recovery::List, 5);
        let block = StoredBlock {
            label: Label::new(77),
            content: homing_domain::ContentHash(77),
        };
        let stored = Stored::plain(Some(Label::new(4242)), vec![block]);
        bed.hear(batch(1, 6, vec![KvChange::Stored(stored)]));
        let mut asked = Vec::new();
        for number in 7..30 {
            bed.hear(store(1, number));
            bed.pass(1_000);
            asked.extend(bed.commands());
        }
        assert!(
            matches!(asked[..], [Command::Ask(ask)] if ask.what == What::List),
            "{asked:?}"
        );
    }
}

mod doubt {
    use super::*;

    /// A view of blocks 1 to 5 that is wrong without having heard anything wrong: it holds 1 to 5, its source only 1 and 2.
    fn wrong(recovery: Recovery) -> Bed {
        let mut bed = Bed::live(recovery, 5);
        bed.say(Input::Doubted(RANK));
        assert_eq!(bed.held(), upto(5), "a word empties nothing");
        bed
    }

    #[test]
    fn a_view_that_is_doubted_is_built_anew_from_a_list() {
        let mut bed = wrong(Recovery::List);
        bed.pass(100);
        let (ask, what) = bed.asked();
        assert_eq!((what, bed.state(), bed.held()), (What::List, State::Repairing, upto(5)));
        bed.list(ask, 5, Coverage::Complete, [1, 2]);
        assert_eq!((bed.state(), bed.held()), (State::Live, vec![1, 2]));
        let counters = bed.status().counters;
        assert_eq!((counters.doubts, counters.drifts, counters.resets), (1, 1, 0));
    }

    #[test]
    fn without_a_list_it_is_built_anew_from_the_first_batch() {
        let mut bed = wrong(Recovery::Replay);
        bed.pass(100);
        let (ask, what) = bed.asked();
        assert_eq!(what, What::Replay { from: Sequence(0) });
        bed.replay(ask, upto(5).into_iter().map(|number| store(1, number)));
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(5)));
    }

    #[test]
    fn where_nobody_can_be_asked_it_begins_with_nothing() {
        let mut bed = wrong(Recovery::LiveOnly);
        bed.pass(100);
        bed.asks_nothing();
        assert_eq!((bed.held(), bed.status().counters.resets), (vec![], 1));
        assert_eq!(bed.status().coverage, Coverage::Warming);
        bed.hear(store(1, 6));
        assert_eq!(bed.held(), vec![6]);
    }

    #[test]
    fn a_doubt_that_stays_is_one_of_the_source_and_ends_with_nothing() {
        let mut bed = wrong(Recovery::List);
        bed.pass(100);
        let (ask, _) = bed.asked();
        bed.list(ask, 5, Coverage::Complete, upto(5));
        bed.say(Input::Doubted(RANK));
        let mut waited = 0;
        while bed.status().counters.resets == 0 {
            assert!(waited < 120, "it is not asked for ever");
            bed.pass(1_000);
            bed.hear(store(1, 6 + waited));
            bed.asks_nothing();
            waited += 1;
        }
        assert!(waited >= 60, "and not at once: {waited}");
        let next = 6 + waited;
        bed.hear(store(1, next));
        assert_eq!(
            (bed.state(), bed.held()),
            (State::Warming, vec![next - 1, next]),
            "the stream is read on"
        );
    }

    /// A view of blocks 0 to 5 that was doubted twice, began empty and has stored block 6 since.
    fn emptied() -> Bed {
        let mut bed = wrong(Recovery::List);
        bed.pass(100);
        let (ask, _) = bed.asked();
        bed.list(ask, 5, Coverage::Complete, upto(5));
        bed.say(Input::Doubted(RANK));
        bed.pass(60_000);
        bed.hear(store(1, 6));
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![6]));
        bed.commands();
        bed
    }

    /// Lets time pass with a probe answered every second, until the source is asked for a list.
    fn seconds_until_listed(bed: &mut Bed) -> (homing_feed::AskId, u64) {
        for second in 1..1_000 {
            bed.pass(1_000);
            for command in bed.commands() {
                match command {
                    Command::Ask(ask) if ask.what == What::List => return (ask.id, second),
                    Command::Ask(ask) => bed.replay(ask.id, [store(1, 6)]),
                    Command::Cancel(_) => (),
                }
            }
        }
        panic!("the source is not asked for a list");
    }

    #[test]
    fn a_view_that_began_empty_is_rebuilt_after_a_pause() {
        let mut bed = emptied();
        let (ask, seconds) = seconds_until_listed(&mut bed);
        assert_eq!(seconds, 120, "twice the pause of the first repair");
        assert_eq!(bed.held(), vec![6], "the old view is shown meanwhile");
        bed.list(ask, 6, Coverage::Complete, 0..=6);
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(6)));
    }

    #[test]
    fn a_rebuild_of_an_empty_view_that_fails_is_begun_again() {
        let mut bed = emptied();
        let (ask, _) = seconds_until_listed(&mut bed);
        bed.say(Input::Disconnected(RANK));
        bed.say(Input::Connected(RANK));
        bed.part(ask, Part::Failed);
        let (ask, seconds) = seconds_until_listed(&mut bed);
        assert!((110..=120).contains(&seconds), "{seconds}");
        bed.list(ask, 6, Coverage::Complete, 0..=6);
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(6)));
    }

    #[test]
    fn a_doubt_after_that_rebuild_empties_the_view_at_once_and_doubles_the_pause() {
        let mut bed = emptied();
        let (ask, _) = seconds_until_listed(&mut bed);
        bed.list(ask, 6, Coverage::Complete, 0..=6);
        bed.say(Input::Doubted(RANK));
        bed.pass(100);
        assert_eq!((bed.state(), bed.held()), (State::Warming, vec![]));
        let (ask, seconds) = seconds_until_listed(&mut bed);
        assert_eq!(seconds, 240);
        bed.list(ask, 6, Coverage::Complete, 0..=6);
        assert_eq!((bed.state(), bed.held()), (State::Live, upto(6)));
        assert_eq!(bed.status().counters.resets, 2);
    }

    #[test]
    fn a_view_that_says_itself_that_it_is_not_whole_is_left_as_it_is() {
        let mut bed = Bed::live(Recovery::List, 5);
        let labels = (1000..1032).map(Label::new).collect();
        bed.hear(batch(1, 6, vec![KvChange::Removed(Removed::plain(labels))]));
        bed.pass(100);
        let (ask, _) = bed.asked();
        bed.list(ask, 6, Coverage::Warming, [1, 2]);
        bed.say(Input::Doubted(RANK));
        for _ in 0..200 {
            bed.pass(1_000);
            for command in bed.commands() {
                let Command::Ask(ask) = command else { continue };
                assert!(
                    matches!(ask.what, What::Replay { .. }),
                    "only whether it is still there: {ask:?}"
                );
                bed.replay(ask.id, [store(1, 6)]);
            }
        }
        assert_eq!(bed.held(), vec![1, 2]);
    }
}
