//! An index that was kept once, rebuilt from what its keeper recorded: nothing comes in any more, and time stands still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homing_domain::RankId;
use homing_feed::{Feed, FeedConfig, Input};
use homing_index::{Index, IndexConfig, IndexError, Reader};
use homing_telemetry::Metrics;

use crate::board::Standing;
use crate::keeper::{Snapshot, View};
use crate::tally::Tally;

/// An index without a writer. It answers as a [`crate::Keeper`] does.
#[derive(Debug)]
pub struct Still {
    /// Written while it is rebuilt, listed afterwards.
    feed: Mutex<Feed>,
    reader: Reader,
    now_ms: u64,
}

impl Still {
    /// An empty one. Feed and index must be limited as the recorded ones were.
    pub fn new(feed: FeedConfig, index: IndexConfig) -> Self {
        let feed = Feed::new(feed, Index::new(index));
        Self {
            reader: feed.reader(),
            feed: Mutex::new(feed),
            now_ms: 0,
        }
    }

    /// This was told to the recorded feed at this time. The questions that it leads to were asked then, and their answers
    /// come as inputs. An error was one then, too.
    pub fn happened(&mut self, now_ms: u64, input: Input) -> Result<(), IndexError> {
        self.now_ms = self.now_ms.max(now_ms);
        let feed = self.feed.get_mut().unwrap_or_else(PoisonError::into_inner);
        let stepped = feed.step(self.now_ms, input);
        while feed.next_command().is_some() {}
        stepped
    }

    /// The recorded index was given so much time for housekeeping.
    pub fn maintained(&mut self, work: u32) {
        let feed = self.feed.get_mut().unwrap_or_else(PoisonError::into_inner);
        feed.maintain(work);
    }

    /// Tells the metrics how it is.
    pub fn tell(&self, metrics: &Metrics) {
        Tally::default().follow(&self.feed(), self.now_ms, metrics);
    }

    /// The time at which it stands still.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A reader of the index.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// How good the views were at the end.
    pub fn standing(&self) -> Arc<Standing> {
        Arc::new(Standing::of(&self.feed(), self.now_ms))
    }

    /// How things were at the end.
    pub fn view(&self) -> View {
        View::of(&self.feed(), self.now_ms, |_| None)
    }

    /// What a rank held at the end; `None` if there was no such rank.
    pub fn list(&self, rank: RankId) -> Option<Snapshot> {
        Snapshot::of(&self.feed(), self.now_ms, rank)
    }

    fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
