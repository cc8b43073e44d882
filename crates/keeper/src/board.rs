//! How good are the views, for those who cannot wait for the writer? A board that it writes on and everybody reads.
//!
//! **Invariant:** what is on the board is at most one tick old, and a state that changed because of what a rank's own
//! source said is on it before the writer takes its next handful of orders.
//!
//! Cost: a comparison for each rank that was spoken of in a handful; all ranks are copied when one of them changed.

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use arc_swap::ArcSwap;
use homing_domain::RankId;
use homing_feed::{Coverage, Feed, Input, RankStatus, State};

/// How good the views of an index were at one moment.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// When.
    pub now_ms: u64,
    /// Each rank, ordered by its id.
    pub ranks: Vec<RankStatus>,
}

impl Standing {
    pub(crate) fn of(feed: &Feed, now_ms: u64) -> Self {
        Self {
            now_ms,
            ranks: feed.statuses(now_ms).collect(),
        }
    }

    /// How good the view of one rank was; `None` if there was no such rank.
    pub fn rank(&self, rank: RankId) -> Option<&RankStatus> {
        let place = self.ranks.binary_search_by_key(&rank, |status| status.rank).ok()?;
        self.ranks.get(place)
    }
}

pub(crate) type Standings = ArcSwap<Standing>;

/// The writer's side of the board.
#[derive(Debug, Default)]
pub(crate) struct Board {
    standings: Arc<Standings>,
    /// Ranks that were spoken of since they were last looked at.
    touched: BTreeSet<RankId>,
}

/// What must not be missing on the board.
fn essence(status: &RankStatus) -> (Discriminant<State>, Coverage) {
    (discriminant(&status.state), status.coverage)
}

impl Board {
    pub(crate) fn standings(&self) -> Arc<Standings> {
        self.standings.clone()
    }

    pub(crate) fn touched(&mut self, rank: RankId) {
        self.touched.insert(rank);
    }

    pub(crate) fn touched_by(&mut self, input: &Input) {
        match input {
            Input::Discovered { rank, .. }
            | Input::Left(rank)
            | Input::Connected(rank)
            | Input::Disconnected(rank)
            | Input::Heard { rank, .. }
            | Input::Heartbeat { rank, .. }
            | Input::Overflowed { rank, .. }
            | Input::Doubted(rank) => self.touched(*rank),
            Input::Reply(reply) => self.touched(reply.rank),
            // The next tick publishes all.
            Input::WorkerLeft(_) | Input::Tick => {}
        }
    }

    /// Publishes if the state of a rank that was spoken of changed.
    pub(crate) fn publish_changes(&mut self, now_ms: u64, feed: &Feed) {
        let known = self.standings.load();
        let changed = |rank: &RankId| {
            let now = feed.status(now_ms, *rank);
            known.rank(*rank).map(essence) != now.as_ref().map(essence)
        };
        if self.touched.iter().any(changed) {
            self.publish(now_ms, feed);
        }
        self.touched.clear();
    }

    pub(crate) fn publish(&mut self, now_ms: u64, feed: &Feed) {
        self.standings.store(Arc::new(Standing::of(feed, now_ms)));
        self.touched.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::{HashSeed, KeyHasher};
    use homing_feed::{ClearReach, FeedConfig, Identity, Recovery, Source};
    use homing_index::{Copies, Index, IndexConfig};

    #[test]
    fn a_change_is_on_the_board_without_a_tick_and_nothing_else_is() {
        let index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
        let mut feed = Feed::new(FeedConfig::default(), index);
        let mut board = Board::default();
        let seen = board.standings();
        let (rank, other) = (RankId::new(3, 1), RankId::new(9, 0));
        let source = Source {
            identity: Identity::default(),
            recovery: Recovery::LiveOnly,
            clear_reach: ClearReach::Rank,
            copies: Copies::Counted,
        };
        let mut tell = |now_ms, input: Input| {
            board.touched_by(&input);
            feed.step(now_ms, input).unwrap();
            board.publish_changes(now_ms, &feed);
        };
        tell(10, Input::Discovered { rank, source });
        assert!(matches!(
            seen.load().rank(rank).unwrap().state,
            State::Stale { since_ms: 10, .. }
        ));
        tell(20, Input::Connected(rank));
        assert_eq!(seen.load().rank(rank).unwrap().state, State::Warming);
        tell(30, Input::Connected(other));
        assert_eq!(seen.load().now_ms, 20, "nothing changed");
        tell(40, Input::Left(rank));
        assert!(seen.load().rank(rank).is_none());
    }
}
