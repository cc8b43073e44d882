//! Is everything well in the end?

use homing_domain::RankId;
use homing_feed::{Coverage, Input, RankStatus, Recovery, State};

use super::checker::{Check, describe};
use super::events::Place;
use super::views::View;
use super::world::World;

impl World {
    /// The faults are long over and nothing happens: every view is what its source has, or honestly a part of it. It may
    /// just be verified in a way that looks like a repair, so it has some time to show that.
    pub(super) fn check_settled(&mut self, check: Check) {
        let begin_ms = self.now_ms;
        for router in 0..self.routers.len() {
            for place in self.places() {
                let until_ms = begin_ms + self.longest_wait_ms(router, place);
                while self.violation.is_none()
                    && let Some(found) = self.unsettled(router, place, check)
                {
                    if self.now_ms >= until_ms {
                        self.violate(check, router, Some(self.id(place)), found);
                    }
                    self.run_until(self.now_ms + self.setup.tick_ms);
                }
            }
        }
    }

    /// A doubted view may have to pause, begin empty, and pause twice as long before its source is asked again.
    fn longest_wait_ms(&self, router: usize, place: Place) -> u64 {
        let status = self.routers[router].feed.status(self.now_ms, self.id(place));
        let is_doubted = status.is_some_and(|status| status.counters.doubts > 0);
        let pauses_ms = if is_doubted {
            2 * self.setup.feed.max_drift_pause_ms()
        } else {
            0
        };
        self.setup.longest_repair_ms() + pauses_ms
    }

    fn unsettled(&self, router: usize, place: Place, check: Check) -> Option<String> {
        match self.routers[router].feed.status(self.now_ms, self.id(place)) {
            None => Some("the feed does not know it".to_owned()),
            Some(status) => {
                let found = self.wrong_in_the_end(router, place, &status, check)?;
                Some(describe(&status, &found))
            }
        }
    }

    fn wrong_in_the_end(&self, router: usize, place: Place, status: &RankStatus, check: Check) -> Option<String> {
        let worker = &self.workers[place.worker];
        let can_be_asked = worker.setup.recovery != Recovery::LiveOnly;
        let is_good = match status.state {
            State::Live | State::Warming => true,
            // Nobody can be asked whether the silence is true.
            State::Stale { why, .. } => !can_be_asked && why == homing_feed::Why::Silent,
            State::Repairing => false,
        };
        if !is_good {
            return Some(format!("it is {:?}", status.state));
        }
        let view = View::of(&self.routers[router], status.rank, &self.blocks)?;
        let held = worker.ranks[place.rank].cache.entries();
        let is_part = status.coverage == Coverage::Warming || view.is_truncated;
        let agent = worker.ranks[place.rank].agent.as_ref();
        if status.coverage == Coverage::Warming {
            let may_miss = match check {
                Check::ExactAfterClear => can_be_asked && agent.is_none() && self.has_short_ring(place),
                _ => agent.is_none_or(|agent| agent.coverage == Coverage::Warming),
            };
            if !may_miss {
                return Some("it says that it may miss something, but its source tells everything".to_owned());
            }
        }
        let ghost = view
            .entries
            .iter()
            .find(|(entry, copies)| held.get(entry) < Some(copies));
        if let Some(((key, tier), copies)) = ghost {
            let real = held.get(&(*key, *tier)).unwrap_or(&0);
            return Some(format!(
                "{copies} copies of block {:016x} on {tier:?}, its source has {real}",
                key.0
            ));
        }
        let missing = held.iter().find(|(entry, copies)| {
            view.entries.get(entry) < Some(copies) && self.is_reachable(place, entry.0, self.now_ms)
        });
        if !is_part && let Some(((key, tier), copies)) = missing {
            let seen = view.entries.get(&(*key, *tier)).unwrap_or(&0);
            return Some(format!(
                "{seen} copies of block {:016x} on {tier:?}, its source has {copies}",
                key.0
            ));
        }
        None
    }

    /// A ring that keeps less than what is under way proves nothing: when such a source is asked while batches fly, what
    /// was read last is gone.
    fn has_short_ring(&self, place: Place) -> bool {
        let worker = &self.workers[place.worker].setup;
        (worker.ring as u64) < 4 * (self.setup.delay_ms / worker.pause_ms + 2)
    }

    /// Everybody leaves.
    pub(super) fn check_nothing_is_left(&mut self) {
        if self.violation.is_some() {
            return;
        }
        for router in 0..self.routers.len() {
            let ranks: Vec<RankId> = self.routers[router].links.keys().copied().collect();
            for rank in ranks {
                self.forget_rank(router, rank);
                self.tell(router, Input::Left(rank));
            }
            while self.routers[router].feed.maintain(1 << 16).is_pending() {}
            let feed = &self.routers[router].feed;
            let (stats, repairs) = (feed.index().stats(), feed.repairs_under_way());
            if (stats.ranks, stats.entries, stats.blocks, repairs) != (0, 0, 0, 0) {
                let found = format!("{stats:?}, {repairs} repairs under way");
                self.violate(Check::NothingLeft, router, None, found);
            }
        }
    }
}
