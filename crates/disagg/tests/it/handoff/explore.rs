//! Whatever happens in whatever order: is nothing freed twice, nothing lost, and is there always an end?

use std::collections::HashMap;

use homing_disagg::{Bug, Input, Require};
use proptest::prelude::*;

use crate::handoff::broken;
use crate::handoff::world::{Disturbances, World, settings};

const ALL: Disturbances = Disturbances {
    client: 1,
    workers: 1,
    pools: 1,
    late_words: 1,
};

/// Inputs in a row. A request that goes well has four: chosen, prefill done, decode began, done. With three tries, two pairs and one
/// disturbance of each kind nothing takes longer than this.
const DEPTH: usize = 24;

struct Explorer {
    /// For each world that was visited how many inputs were left then.
    visited: HashMap<u64, usize>,
    /// How it was reached, for whoever reads why it failed.
    path: Vec<Option<Input>>,
    ended: usize,
    /// Worlds from which more could have happened than was looked at.
    cut: usize,
}

impl Explorer {
    fn explore(require: Require, bug: Option<Bug>, depth: usize) -> Result<Self, String> {
        let mut explorer = Self {
            visited: HashMap::new(),
            path: Vec::new(),
            ended: 0,
            cut: 0,
        };
        let world = World::begin(settings(require, bug), ALL)?;
        explorer.visit(&world, depth)?;
        Ok(explorer)
    }

    fn visit(&mut self, world: &World, left: usize) -> Result<(), String> {
        let known = self.visited.entry(world.fingerprint()).or_insert(0);
        let new = *known == 0;
        if *known > left {
            return Ok(());
        }
        *known = left + 1;
        if new {
            self.ended += usize::from(world.is_over());
            world
                .ends(World::silence)
                .map_err(|why| self.told(&format!("in silence: {why}")))?;
            world
                .ends(World::failure)
                .map_err(|why| self.told(&format!("when all fails: {why}")))?;
        }
        if left == 0 {
            self.cut += usize::from(!world.moves().is_empty());
            return Ok(());
        }
        for step in world.moves() {
            let mut next = world.clone();
            self.path.push(step.clone());
            next.go(step.as_ref()).map_err(|why| self.told(&why))?;
            self.visit(&next, left - 1)?;
            self.path.pop();
        }
        Ok(())
    }

    fn told(&self, why: &str) -> String {
        let steps: Vec<String> = self.path.iter().map(|step| format!("  {step:?}")).collect();
        format!("{why}; after\n{}", steps.join("\n"))
    }
}

#[test]
fn every_order_of_what_can_happen_ends_with_everything_given_back_once() {
    for require in [Require::No, Require::Yes] {
        let explorer = Explorer::explore(require, None, DEPTH).unwrap_or_else(|why| panic!("{require:?}: {why}"));
        let (worlds, ended, cut) = (explorer.visited.len(), explorer.ended, explorer.cut);
        println!("{require:?}: {worlds} worlds within {DEPTH} inputs, {ended} of them at an end");
        assert_eq!(cut, 0, "more can happen: the depth is too small to have seen all");
        assert!(
            worlds > 100_000 && ended > 10_000,
            "{worlds} worlds, {ended} ends: too few to mean anything"
        );
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = |require| match bug {
            // It ends as it should; only nobody is served.
            Bug::SilenceOfOne => broken::check(require, Some(bug)).err(),
            _ => Explorer::explore(require, Some(bug), DEPTH).err(),
        };
        let why = [Require::No, Require::Yes].into_iter().find_map(found);
        let why = why.unwrap_or_else(|| panic!("{bug:?} was not found"));
        println!("{bug:?}: {}", why.lines().next().unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Beyond that depth, and with more disturbances: arbitrary ways through it.
    #[test]
    fn arbitrary_ways_end_as_well(steps in prop::collection::vec(any::<prop::sample::Index>(), 0..60), required: bool) {
        let require = if required { Require::Yes } else { Require::No };
        let mut settings = settings(require, None);
        (settings.turns, settings.pairs, settings.rechoices) = (6, 4, 3);
        let many = Disturbances { client: 1, workers: 3, pools: 6, late_words: 4 };
        let mut world = World::begin(settings, many).map_err(TestCaseError::fail)?;
        for step in steps {
            let moves = world.moves();
            if moves.is_empty() {
                break;
            }
            let step = &moves[step.index(moves.len())];
            world.go(step.as_ref()).map_err(TestCaseError::fail)?;
            world.ends(World::silence).map_err(TestCaseError::fail)?;
        }
    }
}
