//! All ranks of one index, fed by one input after the other.

use std::collections::BTreeMap;

use homing_domain::{RankId, WorkerId};
use homing_index::{Index, IndexError, Reader};

use crate::bugs::planted;
use crate::config::FeedConfig;
use crate::protocol::{Command, Input, Notice, Reply, Source};
use crate::rank::Rank;
use crate::shared::Shared;
use crate::status::RankStatus;

/// Keeps the index of one model true to what its ranks hold. See the crate's documentation.
#[derive(Debug)]
pub struct Feed {
    shared: Shared,
    ranks: BTreeMap<RankId, Rank>,
    /// Parts of answers to questions that are not known any more.
    late_answers: u64,
    /// Things that were said of ranks that are not here.
    unknown_ranks: u64,
}

impl Feed {
    /// A feed of no ranks, over an index that nobody else writes to.
    pub fn new(config: FeedConfig, index: Index) -> Self {
        Self {
            shared: Shared::new(config, index),
            ranks: BTreeMap::new(),
            late_answers: 0,
            unknown_ranks: 0,
        }
    }

    /// From now on, what happens to the views is kept for [`Feed::take_notices`].
    #[must_use]
    pub fn with_notices(mut self) -> Self {
        self.shared.notices = Some(Vec::new());
        self
    }

    /// Something happened at `now_ms`, a time in milliseconds that does not go back. If it is Unix time, the lag behind
    /// the engines is measured. An error means that a rank was refused because the index has no room for it.
    pub fn step(&mut self, now_ms: u64, input: Input) -> Result<(), IndexError> {
        match input {
            Input::Discovered { rank, source } => self.discovered(now_ms, rank, source)?,
            Input::Left(rank) => self.left(rank),
            Input::WorkerLeft(worker) => {
                let ranks: Vec<RankId> = self.ranks_of(worker).collect();
                for rank in ranks {
                    self.left(rank);
                }
            }
            Input::Connected(rank) => self.with(rank, |rank, shared| rank.connected(now_ms, shared)),
            Input::Disconnected(rank) => self.with(rank, |rank, shared| rank.disconnected(now_ms, shared)),
            Input::Heard { rank, batch } => self.with(rank, |rank, shared| rank.heard(now_ms, batch, shared)),
            Input::Heartbeat { rank, identity, newest } => {
                self.with(rank, |rank, shared| rank.heartbeat(now_ms, identity, newest, shared));
            }
            Input::Overflowed { rank, highest } => {
                self.with(rank, |rank, shared| rank.overflowed(now_ms, highest, shared));
            }
            Input::Doubted(rank) => self.with(rank, |rank, _| rank.doubted()),
            Input::Reply(reply) => self.replied(now_ms, reply),
            Input::Tick => self
                .ranks
                .values_mut()
                .for_each(|rank| rank.tick(now_ms, &mut self.shared)),
        }
        self.clear_siblings(now_ms);
        self.take_turns(now_ms);
        Ok(())
    }

    /// The next thing to be done outside.
    pub fn next_command(&mut self) -> Option<Command> {
        self.shared.commands.pop_front()
    }

    /// What happened to the views since this was last called.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.shared.notices.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A reader of the index.
    pub fn reader(&self) -> Reader {
        self.shared.index.reader()
    }

    /// The index, to look at.
    pub fn index(&self) -> &Index {
        &self.shared.index
    }

    /// Housekeeping of the index, as [`Index::maintain`] says.
    pub fn maintain(&mut self, work: u32) -> homing_index::Pending {
        self.shared.index.maintain(work)
    }

    /// What a rank's view holds, as of the position in its [`RankStatus`].
    pub fn list(&self, rank: RankId) -> Option<homing_index::Listing> {
        let rank = self.ranks.get(&rank)?;
        self.shared.index.list(rank.serving.slot).ok()
    }

    /// The last batch that was applied to a rank's view.
    pub fn position(&self, rank: RankId) -> Option<(homing_domain::Sequence, homing_domain::Digest)> {
        let track = &self.ranks.get(&rank)?.serving;
        let crate::Cursor::Live(sequence) = track.cursor else {
            return None;
        };
        Some((sequence, track.history.digest_of(sequence)?))
    }

    /// How good each rank's view is.
    pub fn statuses(&self, now_ms: u64) -> impl Iterator<Item = RankStatus> + '_ {
        self.ranks.values().map(move |rank| rank.status(now_ms, &self.shared))
    }

    /// How good one rank's view is.
    pub fn status(&self, now_ms: u64, rank: RankId) -> Option<RankStatus> {
        Some(self.ranks.get(&rank)?.status(now_ms, &self.shared))
    }

    /// Batches of a rank that are kept for a repair; 0 if there is no such rank.
    pub fn buffered(&self, rank: RankId) -> usize {
        self.ranks.get(&rank).map_or(0, |rank| rank.buffer.len())
    }

    /// Sizes of one rank's view.
    pub fn rank_stats(&self, rank: RankId) -> Option<homing_index::RankStats> {
        self.shared.index.rank_stats(self.ranks.get(&rank)?.serving.slot).ok()
    }

    /// Repairs that were asked for and are not answered.
    pub fn repairs_under_way(&self) -> usize {
        self.shared.repairs_under_way()
    }

    /// Parts of answers that came after their question was forgotten.
    pub fn late_answers(&self) -> u64 {
        self.late_answers + self.ranks.values().map(|rank| rank.counters.late_answers).sum::<u64>()
    }

    /// Things that were said of ranks that are not here.
    pub fn unknown_ranks(&self) -> u64 {
        self.unknown_ranks
    }

    fn ranks_of(&self, worker: WorkerId) -> impl Iterator<Item = RankId> + '_ {
        self.ranks.keys().copied().filter(move |rank| rank.worker == worker)
    }

    fn with(&mut self, rank: RankId, act: impl FnOnce(&mut Rank, &mut Shared)) {
        match self.ranks.get_mut(&rank) {
            Some(rank) => act(rank, &mut self.shared),
            None => self.unknown_ranks += 1,
        }
    }

    fn discovered(&mut self, now_ms: u64, id: RankId, source: Source) -> Result<(), IndexError> {
        if let Some(rank) = self.ranks.get_mut(&id) {
            rank.discovered(now_ms, source, &mut self.shared);
            return Ok(());
        }
        let slot = self.shared.index.add_rank(id, source.copies)?;
        let mut rank = Rank::new(now_ms, id, source, slot, &self.shared);
        let siblings = self.ranks.values().filter(|rank| rank.id.worker == id.worker);
        rank.cleared_ms = siblings.filter_map(|sibling| sibling.cleared_ms).max();
        self.ranks.insert(id, rank);
        Ok(())
    }

    fn left(&mut self, rank: RankId) {
        match self.ranks.remove(&rank) {
            Some(rank) => rank.leave(&mut self.shared),
            None => self.unknown_ranks += 1,
        }
    }

    fn replied(&mut self, now_ms: u64, reply: Reply) {
        let asker = match self.shared.asker(reply.ask) {
            None if planted!(self.shared.config.bug, NoEpochCheck) => Some(reply.rank),
            asker => asker,
        };
        match asker.and_then(|rank| self.ranks.get_mut(&rank)) {
            Some(rank) => rank.reply(now_ms, reply, &mut self.shared),
            None => self.late_answers += 1,
        }
    }

    fn clear_siblings(&mut self, now_ms: u64) {
        for clear in std::mem::take(&mut self.shared.worker_clears) {
            if planted!(self.shared.config.bug, ClearOnOneRankOnly) {
                continue;
            }
            let siblings = self.ranks_of(clear.worker).filter(|rank| *rank != clear.rank);
            for sibling in siblings.collect::<Vec<RankId>>() {
                self.with(sibling, |rank, shared| {
                    rank.cleared_by_sibling(now_ms, clear.sent_ms, shared);
                });
            }
        }
    }

    fn take_turns(&mut self, now_ms: u64) {
        while let Some((rank, ask)) = self.shared.next_turn() {
            if let Some(rank) = self.ranks.get_mut(&rank) {
                rank.turn(now_ms, ask, &mut self.shared);
            }
        }
    }
}
