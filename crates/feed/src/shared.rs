//! What do all ranks share? The index, the questions under way, and what is to be told outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homing_domain::{RankId, WorkerId};
use homing_index::Index;

use crate::config::FeedConfig;
use crate::protocol::{Ask, AskId, Command, Notice, What};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: FeedConfig,
    pub(crate) index: Index,
    /// To be done outside. Bounded by the number of ranks: each has one question under way, and its cancellation.
    pub(crate) commands: VecDeque<Command>,
    /// To be passed on, if somebody wants it.
    pub(crate) notices: Option<Vec<Notice>>,
    /// Clears of whole workers that were just read.
    pub(crate) worker_clears: Vec<WorkerClear>,
    /// Whose questions are under way.
    asked: BTreeMap<AskId, RankId>,
    permits: Permits,
    next_ask: u64,
    random: u64,
}

/// A clear of a whole worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerClear {
    pub(crate) worker: WorkerId,
    /// On whose stream it came.
    pub(crate) rank: RankId,
    /// When it was sent, by the engine's clock.
    pub(crate) sent_ms: Option<u64>,
}

/// Repairs that may run, and those that wait.
#[derive(Debug)]
struct Permits {
    held: BTreeSet<AskId>,
    waiting: VecDeque<(RankId, AskId)>,
}

impl Shared {
    pub(crate) fn new(config: FeedConfig, index: Index) -> Self {
        Self {
            config,
            index,
            commands: VecDeque::new(),
            notices: None,
            worker_clears: Vec::new(),
            asked: BTreeMap::new(),
            permits: Permits {
                held: BTreeSet::new(),
                waiting: VecDeque::new(),
            },
            next_ask: 0,
            random: config.seed,
        }
    }

    pub(crate) fn new_ask(&mut self) -> AskId {
        self.next_ask += 1;
        AskId(self.next_ask)
    }

    /// A repair waits for its turn.
    pub(crate) fn enqueue(&mut self, rank: RankId, ask: AskId) {
        self.permits.waiting.push_back((rank, ask));
    }

    /// The next repair whose turn it is. It may have been given up meanwhile.
    pub(crate) fn next_turn(&mut self) -> Option<(RankId, AskId)> {
        if self.permits.held.len() >= self.config.max_repairs {
            return None;
        }
        self.permits.waiting.pop_front()
    }

    /// Repairs that hold a permit.
    pub(crate) fn repairs_under_way(&self) -> usize {
        self.permits.held.len()
    }

    pub(crate) fn ask(&mut self, rank: RankId, id: AskId, what: What) {
        self.asked.insert(id, rank);
        self.commands.push_back(Command::Ask(Ask { id, rank, what }));
    }

    /// Whose question this is, if an answer to it is still wanted.
    pub(crate) fn asker(&self, ask: AskId) -> Option<RankId> {
        self.asked.get(&ask).copied()
    }

    pub(crate) fn hold(&mut self, ask: AskId) {
        self.permits.held.insert(ask);
    }

    /// The answer has come, or is not wanted any more.
    pub(crate) fn release(&mut self, ask: AskId) {
        self.asked.remove(&ask);
        self.permits.held.remove(&ask);
        self.permits.waiting.retain(|(_, waiting)| *waiting != ask);
    }

    pub(crate) fn cancel(&mut self, ask: AskId) {
        if self.asked.contains_key(&ask) {
            self.commands.push_back(Command::Cancel(ask));
        }
        self.release(ask);
    }

    pub(crate) fn notice(&mut self, notice: impl FnOnce() -> Notice) {
        if let Some(notices) = &mut self.notices {
            notices.push(notice());
        }
    }

    /// A time between half of `ms` and all of it.
    pub(crate) fn jittered(&mut self, ms: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ms / 2 + (mixed >> 33) % (ms / 2 + 1)
    }
}
