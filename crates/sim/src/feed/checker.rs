//! What must be true, and what is said when it is not?

use std::fmt;

use homing_domain::{BlockKey, RankId, Tier};
use homing_feed::{Bug, RankStatus, State};
use homing_index::Answer;

use super::cache::Entry;
use super::campaign::bug_name;
use super::events::Place;
use super::views::View;
use super::world::World;

/// What was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A view that claims to be verified holds only what its source held a short while ago.
    NotTooMuch,
    /// A live view holds everything that its source has held for a while.
    NotTooLittle,
    /// A lookup says the same as the list of what is held.
    Lookup,
    /// A live view has read everything that its feed was told of.
    ReadAllItHeard,
    /// A view that replaces another is whole.
    WholeWhenShown,
    /// A clear of all tiers makes everything right at once.
    ClearIsEnough,
    /// What a former life of an engine held is forgotten at once.
    VoidAtOnce,
    /// What is passed on to others is what happened to the view.
    Notices,
    /// Limits are kept.
    Bounds,
    /// Every repair ends.
    RepairsEnd,
    /// After the faults every view is right.
    Converged,
    /// After a clear every view is complete.
    ExactAfterClear,
    /// When everybody has left, nothing remains.
    NothingLeft,
    /// The same seed gives the same log.
    Deterministic,
    /// Nothing panics.
    NoPanic,
}

impl Check {
    /// What was expected, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotTooMuch => "a view that claims to be verified holds only what its source held within the lag",
            Self::NotTooLittle => "a live view holds all that its source has held for longer than the lag",
            Self::Lookup => "a lookup agrees with what the source held within the lag",
            Self::ReadAllItHeard => "a live view has read every batch that its feed was told of",
            Self::WholeWhenShown => "a view that takes the place of another has read all that its feed was told of",
            Self::ClearIsEnough => "the newest batch, if it clears all tiers, is applied at once and ends every repair",
            Self::VoidAtOnce => "what an engine held is void as soon as the feed is told that it lives anew",
            Self::Notices => "notices tell all that happens to a view",
            Self::Bounds => "limits are kept",
            Self::RepairsEnd => "every repair ends",
            Self::Converged => {
                "after the faults have stopped every view equals its source, or is honestly a part of it"
            }
            Self::ExactAfterClear => "after everything was cleared once, every view is complete and equals its source",
            Self::NothingLeft => "when all ranks have left, the index is empty",
            Self::NoPanic => "nothing panics",
            Self::Deterministic => "the same seed gives the same log",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What repeats it.
    pub seed: u64,
    /// The mistake that was switched on.
    pub bug: Option<Bug>,
    /// What was checked.
    pub check: Check,
    /// When.
    pub at_ms: u64,
    /// In which router.
    pub router: usize,
    /// Of which rank.
    pub rank: Option<RankId>,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {} ms, router {}", self.seed, self.at_ms, self.router)?;
        if let Some(rank) = self.rank {
            write!(f, ", rank {rank}")?;
        }
        let bug = self
            .bug
            .map(|bug| format!(" --bug {}", bug_name(bug)))
            .unwrap_or_default();
        write!(
            f,
            "\n  expected: {}\n  found:    {}\n  repeat:   homing sim feed --seed {}{bug} --trace",
            self.check.words(),
            self.found,
            self.seed
        )
    }
}

impl World {
    /// Something is wrong. The first thing counts.
    pub(super) fn violate(&mut self, check: Check, router: usize, rank: Option<RankId>, found: String) {
        let at_ms = self.now_ms;
        self.log.note(&[99], || format!("{at_ms:>6} r{router} WRONG: {found}"));
        self.violation.get_or_insert(Violation {
            seed: 0,
            bug: None,
            check,
            at_ms,
            router,
            rank,
            found,
        });
    }

    /// Every view that claims to be verified is compared with the truth.
    pub(super) fn check_views(&mut self) {
        for router in 0..self.routers.len() {
            self.check_places(router);
            let ranks: Vec<RankId> = self.routers[router].links.keys().copied().collect();
            for rank in ranks {
                if let Some(status) = self.routers[router].feed.status(self.now_ms, rank) {
                    self.log_status(router, &status);
                    if matches!(status.state, State::Live | State::Warming) {
                        self.check_view(router, &status);
                    }
                }
            }
        }
    }

    fn check_view(&mut self, router: usize, status: &RankStatus) {
        self.compared += 1;
        let rank = status.rank;
        let Some(view) = View::of(&self.routers[router], rank, &self.blocks) else {
            return;
        };
        let from_ms = self.now_ms.saturating_sub(self.setup.lag_ms());
        let place = Place::of(rank);
        if let Some(found) = self.too_much(router, place, &view, from_ms) {
            self.violate(Check::NotTooMuch, router, Some(rank), describe(status, &found));
        }
        let must_be_complete = status.state == State::Live && !view.is_truncated;
        if must_be_complete && let Some(found) = self.too_little(place, &view, from_ms) {
            self.violate(Check::NotTooLittle, router, Some(rank), describe(status, &found));
        }
        if let Some(found) = self.wrong_lookup(router, status, must_be_complete) {
            self.violate(Check::Lookup, router, Some(rank), describe(status, &found));
        }
    }

    /// Something that the view holds and the source did not, since `from_ms`.
    fn too_much(&self, router: usize, place: Place, view: &View, from_ms: u64) -> Option<String> {
        let truth = &self.workers[place.worker].ranks[place.rank].truth;
        let excused_ms = self.excused_since(router, place);
        let from_ms = from_ms.min(excused_ms);
        // What was stored after a clear that was not read adds up with what it emptied.
        let believable = |copies: u32| if excused_ms == u64::MAX { copies } else { copies.min(1) };
        let wrong = |(entry, copies): &(&Entry, &u32)| truth.since(from_ms, **entry).most < believable(**copies);
        let (entry, copies) = view.entries.iter().find(wrong)?;
        let most = truth.since(from_ms, *entry).most;
        let last = match truth.last_held(*entry) {
            Some(at_ms) => format!("it went at {at_ms} ms"),
            None => "it never went".to_owned(),
        };
        let (key, tier) = entry;
        Some(format!(
            "{copies} copies of block {:016x} on {tier:?}, but its source had at most {most} since {from_ms} ms ({last})",
            key.0
        ))
    }

    /// Something that the source held ever since `from_ms`, and the view does not.
    fn too_little(&self, place: Place, view: &View, from_ms: u64) -> Option<String> {
        let truth = &self.workers[place.worker].ranks[place.rank].truth;
        truth.entries().find_map(|entry| {
            let fewest = truth.since(from_ms, entry).fewest;
            let copies = view.entries.get(&entry).copied().unwrap_or(0);
            let (key, tier) = entry;
            (copies < fewest && self.is_reachable(place, key, from_ms)).then(|| {
                format!(
                    "{copies} copies of block {:016x} on {tier:?}, but its source had at least {fewest} ever since {from_ms} ms",
                    key.0
                )
            })
        })
    }

    /// Whether all that lies before a block was held ever since. What lies behind a hole counts for nothing, and a view
    /// that came from a list need not know its place.
    pub(super) fn is_reachable(&self, place: Place, key: BlockKey, from_ms: u64) -> bool {
        let truth = &self.workers[place.worker].ranks[place.rank].truth;
        let is_held = |key: &BlockKey| {
            Tier::ALL
                .iter()
                .any(|tier| truth.since(from_ms, (*key, *tier)).fewest > 0)
        };
        self.blocks.path(key).iter().rev().skip(1).all(is_held)
    }

    /// A clear of a whole worker is on one stream only. As long as that stream was not read up to it, siblings may hold
    /// what it emptied: the earliest such moment.
    pub(super) fn excused_since(&self, router: usize, place: Place) -> u64 {
        let of_sibling =
            |clear: &&super::events::WorkerClear| clear.place.worker == place.worker && clear.place != place;
        let unread = |clear: &&super::events::WorkerClear| {
            let status = self.routers[router].feed.status(self.now_ms, self.id(clear.place));
            let worker = &self.workers[place.worker];
            let is_of_this_life = worker.stream(clear.place.rank).life == clear.life;
            let has_read = status.is_some_and(|status| {
                status.state == State::Live && status.cursor.is_some_and(|cursor| cursor >= clear.sequence)
            });
            // What is left of a former life counts as long as that may still be seen.
            let may_be_seen = self.now_ms <= worker.died_ms + self.setup.lag_ms();
            if is_of_this_life { !has_read } else { may_be_seen }
        };
        let clears = self.worker_clears.iter().filter(of_sibling).filter(unread);
        clears.map(|clear| clear.at_ms).min().unwrap_or(u64::MAX)
    }

    /// Readers look up one chain, and must not be told more or less than the source held.
    fn wrong_lookup(&self, router: usize, status: &RankStatus, must_be_complete: bool) -> Option<String> {
        let place = Place::of(status.rank);
        let truth = &self.workers[place.worker].ranks[place.rank].truth;
        let leaf = self.blocks.any(self.inputs.wrapping_mul(0x9e37_79b9) >> 8)?;
        let path = self.blocks.path(leaf);
        let mut answer = Answer::default();
        self.routers[router].reader.lookup(&path, &mut answer);
        let (_, slot) = answer.ranks().find(|(rank, _)| *rank == status.rank)?;
        let lag_from_ms = self.now_ms.saturating_sub(self.setup.lag_ms());
        let from_ms = lag_from_ms.min(self.excused_since(router, place));
        for deepest in [Tier::Device, Tier::External] {
            let tiers = || Tier::ALL.into_iter().filter(|tier| *tier <= deepest);
            let was_held = |key: &&_| tiers().any(|tier| truth.since(from_ms, (**key, tier)).most > 0);
            let is_held = |key: &&_| tiers().any(|tier| truth.since(lag_from_ms, (**key, tier)).fewest > 0);
            let most = path.iter().take_while(was_held).count();
            let least = if must_be_complete {
                path.iter().take_while(is_held).count()
            } else {
                0
            };
            let depth = answer.depth(slot, deepest).0 as usize;
            if depth > most || depth < least {
                return Some(format!(
                    "a lookup up to {deepest:?} found {depth} leading blocks, but its source had {least} to {most}"
                ));
            }
        }
        None
    }
}

pub(super) fn describe(status: &RankStatus, found: &str) -> String {
    let cursor = status.cursor.map_or("nowhere".to_owned(), |cursor| cursor.to_string());
    format!("{} at {cursor}: {found}", status.state.name())
}
