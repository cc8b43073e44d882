//! Whatever is said of pairs in whatever order: nothing stays booked or staged.

use homing_disagg::{Fate, Staged};
use homing_domain::{Blocks, Role};
use homing_load::End;
use homing_profile::Millis;
use homing_router::{CacheView, Effect, Ended, Routed, Verdict};
use proptest::prelude::*;

use crate::pairs::{apart, end, halves, required};
use crate::world::{World, config, finished, new_rank, rank};

#[derive(Clone, Debug)]
enum Step {
    Ask { prompt: u64, blocks: u64, required: bool },
    Staged(usize),
    Moving(usize),
    First(usize),
    EndDecode(usize, bool),
    EndPrefill(usize, bool),
    Settle(usize, u8),
    Pass(u32),
    Gone(u32),
    Up(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u64, 1..300_u64, any::<bool>()).prop_map(|(prompt, blocks, required)| Step::Ask { prompt, blocks, required }),
        2 => any::<usize>().prop_map(Step::Staged),
        2 => any::<usize>().prop_map(Step::Moving),
        2 => any::<usize>().prop_map(Step::First),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, well)| Step::EndDecode(at, well)),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, well)| Step::EndPrefill(at, well)),
        3 => (any::<usize>(), 0..5_u8).prop_map(|(at, fate)| Step::Settle(at, fate)),
        1 => (0..20_000_u32).prop_map(Step::Pass),
        1 => (0..5_u32).prop_map(Step::Gone),
        1 => (0..5_u32).prop_map(Step::Up),
    ]
}

fn role(worker: u32) -> Role {
    if worker < 2 { Role::Prefill } else { Role::Decode }
}

/// Carries out one step. Words may be said twice, too late, or about what is not there any more.
fn carry_out(world: &mut World, routed: &mut Vec<Routed>, (at, step): (usize, &Step)) {
    world.effects().into_iter().for_each(|effect| {
        if let Effect::Go { routed: goes, .. } = effect {
            routed.push(*goes);
        }
    });
    let find = |at: &usize| (!routed.is_empty()).then(|| &routed[at % routed.len()]);
    let prefill = |at: &usize| find(at).and_then(|routed| halves(routed).prefill.as_ref());
    let ended = |well: &bool| Ended {
        end: if *well { End::Finished } else { End::Failed },
        ..finished()
    };
    let (now, desk) = (world.now, &world.router);
    match step {
        Step::Ask {
            prompt,
            blocks,
            required: strict,
        } => {
            let asked = apart(&format!("r{at}"), *prompt, *blocks);
            let asked = if *strict { required(asked) } else { asked };
            if let Verdict::Go(goes) = desk.ask(now, asked) {
                routed.push(*goes);
            }
        }
        Step::Staged(at) => {
            let staged = Staged {
                blocks: Blocks(*at as u32 % 300),
                expires: None,
            };
            if let Some(prefill) = prefill(at) {
                desk.staged(prefill.hold.expect("it is booked"), &staged);
            }
        }
        Step::Moving(at) => {
            if let (Some(prefill), Some(of)) = (prefill(at), find(at)) {
                desk.moving(prefill.hold.expect("it is booked"), of.decision.chosen.rank);
            }
        }
        Step::First(at) => {
            if let Some(of) = find(at) {
                desk.prefill_done(now, of.ticket.expect("it is booked"));
            }
        }
        Step::EndDecode(at, well) => {
            if let Some(of) = find(at) {
                desk.done(now, of.ticket.expect("it is booked"), &ended(well));
            }
        }
        Step::EndPrefill(at, well) => {
            if let Some(prefill) = prefill(at) {
                desk.done(now, prefill.ticket.expect("it is booked"), &ended(well));
            }
        }
        Step::Settle(at, fate) => {
            if let Some(prefill) = prefill(at) {
                let lapses = Fate::Lapses(now + Millis(f64::from(*fate) * 1_000.0));
                let fates = [Fate::NotStaged, Fate::HandedOver, Fate::Drained, lapses, lapses];
                desk.settle(now, prefill.hold.expect("it is booked"), fates[usize::from(*fate)]);
            }
        }
        Step::Pass(millis) => world.pass(f64::from(*millis)),
        Step::Gone(worker) => {
            desk.rank_gone(now, rank(*worker));
        }
        Step::Up(worker) => {
            let mut new = new_rank(*worker, CacheView::Guess);
            new.facts.role = role(*worker);
            // It may be there.
            let _ = desk.rank_up(now, new);
        }
    }
    world.router.tick(world.now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_is_said_in_whatever_order_nothing_is_left(steps in prop::collection::vec(step(), 1..120)) {
        let mut config = config();
        config.apart.staging.most_blocks = 600;
        let mut world = World::with(5, "time", &config, |new| new.facts.role = role(new.facts.rank.worker.0));
        let mut routed = Vec::new();
        for step in steps.iter().enumerate() {
            carry_out(&mut world, &mut routed, step);
            let state = world.router.state(world.now);
            let on: u64 = state.ranks.iter().map(|rank| rank.staged.blocks).sum();
            prop_assert_eq!(on, state.staged_blocks);
        }
        for effect in world.effects() {
            if let Effect::Go { routed: goes, .. } = effect {
                routed.push(*goes);
            }
        }
        for round in 0..2 {
            for of in std::mem::take(&mut routed) {
                end(&world, &of);
            }
            // Whoever waited goes now, or is told that it does not.
            world.pass(70_000.0);
            world.router.tick(world.now);
            let goes = world.effects().into_iter().filter_map(|effect| match effect {
                Effect::Go { routed, .. } => Some(*routed),
                _ => None,
            });
            routed.extend(goes);
            prop_assert!(round == 0 || routed.is_empty());
        }
        let state = world.router.state(world.now);
        prop_assert!(state.at_rest && state.staged_blocks == 0, "{:?} {}", state.booked, state.staged_blocks);
    }
}
