//! The index of one model at one block size, kept true: from outside.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use homing_domain::{Digest, RankId, Sequence};
use homing_feed::{Feed, FeedConfig, RankStatus};
use homing_index::{Index, IndexConfig, IndexError, Listing, RankStats, Reader, Stats};
use homing_telemetry::Metrics;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::board::{Board, Standing, Standings};
use crate::clock::Clock;
use crate::flow::{KeptBatches, PacedSender, Window};
use crate::lane::{Lanes, Parcel};
use crate::source::{Ear, Source, Trouble};
use crate::spares::SpareMaker;
use crate::tally::Tally;
use crate::writer::{Hooks, Order, Writer};

/// Orders that wait for the writer at most; what comes beyond waits in its lane.
const ORDERS: usize = 1024;

/// What a keeper is made of.
#[derive(Debug)]
pub struct KeeperConfig {
    /// The feed's limits and times.
    pub feed: FeedConfig,
    /// The index's bounds.
    pub index: IndexConfig,
    /// What else the writer does.
    pub hooks: Hooks,
}

/// The keeper's thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeeperGone {
    /// It cannot be asked any more.
    #[error("the index's writer has ended")]
    Ended,
    /// The index refused.
    #[error(transparent)]
    Refused(#[from] IndexError),
}

/// How things are.
#[derive(Clone, Debug)]
pub struct View {
    /// When.
    pub now_ms: u64,
    /// Each rank.
    pub ranks: Vec<ViewedRank>,
    /// The index as a whole.
    pub index: Stats,
}

/// How one rank is.
#[derive(Clone, Debug)]
pub struct ViewedRank {
    /// How good its view is.
    pub status: RankStatus,
    /// How large it is.
    pub stats: RankStats,
    /// The last thing that was wrong with its source, in words.
    pub trouble: Option<String>,
}

/// What a rank holds, at one position of its stream.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// How good the view is that was listed.
    pub status: RankStatus,
    /// The last batch that is contained.
    pub position: Option<(Sequence, Digest)>,
    /// What is held.
    pub listing: Listing,
    /// How long the writer did nothing else to list it.
    pub held: Duration,
}

impl View {
    pub(crate) fn of(feed: &Feed, now_ms: u64, trouble: impl Fn(RankId) -> Option<String>) -> Self {
        let ranks = feed.statuses(now_ms).map(|status| ViewedRank {
            stats: feed.rank_stats(status.rank).unwrap_or_default(),
            trouble: trouble(status.rank),
            status,
        });
        Self {
            now_ms,
            ranks: ranks.collect(),
            index: feed.index().stats(),
        }
    }
}

impl Snapshot {
    pub(crate) fn of(feed: &Feed, now_ms: u64, rank: RankId) -> Option<Self> {
        let started = Instant::now();
        let listing = feed.list(rank)?;
        Some(Self {
            status: feed.status(now_ms, rank)?,
            position: feed.position(rank),
            listing,
            held: started.elapsed(),
        })
    }
}

/// Keeps one index true. Dropping it ends its thread and everything that listens for it.
#[derive(Debug)]
pub struct Keeper {
    orders: mpsc::Sender<Order>,
    lanes: Lanes,
    /// Live batches of one rank that may be on their way at once.
    window_batches: usize,
    runtime: Handle,
    reader: Reader,
    /// Written by the writer's thread, read by anyone.
    standings: Arc<Standings>,
    /// Who listens; written when ranks join and leave.
    listening: Mutex<BTreeMap<RankId, AbortHandle>>,
}

impl Keeper {
    /// Starts the writer's thread, and the one that makes memory for it. Sockets are served by `runtime`.
    pub fn start(config: KeeperConfig, lanes: &Lanes, runtime: Handle, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let window_batches = config.feed.buffer_batches;
        let feed = Feed::new(config.feed, Index::new(config.index));
        let feed = match config.hooks.notice {
            Some(_) => feed.with_notices(),
            None => feed,
        };
        let reader = feed.reader();
        let spares = SpareMaker::start(feed.index())?;
        let board = Board::default();
        let standings = board.standings();
        let writer = Writer {
            feed,
            clock: Clock::start(),
            lanes: lanes.clone(),
            runtime: runtime.clone(),
            hooks: config.hooks,
            metrics,
            tally: Tally::default(),
            sources: HashMap::new(),
            asked: HashMap::new(),
            kept: KeptBatches::default(),
            board,
            spares,
        };
        let (orders, taken) = mpsc::channel(ORDERS);
        let timers = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        thread::Builder::new()
            .name("index-writer".to_owned())
            .spawn(move || timers.block_on(writer.run(taken)))?;
        Ok(Self {
            orders,
            lanes: lanes.clone(),
            window_batches,
            runtime,
            reader,
            standings,
            listening: Mutex::default(),
        })
    }

    /// A reader of the index.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// How good the views are, as of a short while ago: at most a tick (100 ms), and no change of a state that a rank's
    /// own source caused is missing for longer than the writer's present handful. Costs no more than a pointer.
    pub fn standing(&self) -> Arc<Standing> {
        self.standings.load_full()
    }

    /// A rank comes, and is listened to from now on.
    pub async fn join(&self, rank: RankId, source: Arc<dyn Source>) -> Result<(), KeeperGone> {
        let (trouble, window) = (Trouble::default(), Window::new(self.window_batches));
        let (done, joined) = oneshot::channel();
        let order = Order::Join {
            rank,
            source: source.clone(),
            trouble: trouble.clone(),
            window: window.clone(),
            done,
        };
        self.orders.send(order).await.map_err(|_| KeeperGone::Ended)?;
        joined.await.map_err(|_| KeeperGone::Ended)??;
        let lane = self.lanes.of(rank).clone();
        let parcel = Parcel::Join {
            rank,
            decoder: source.joining().decoder,
            writer: self.orders.clone(),
            trouble: trouble.clone(),
        };
        lane.send(parcel).await.map_err(|_| KeeperGone::Ended)?;
        let ear = Ear::new(rank, PacedSender::new(rank, lane, window), trouble);
        let task = self.runtime.spawn(source.listen(ear)).abort_handle();
        if let Some(before) = self.listening().insert(rank, task) {
            before.abort();
        }
        Ok(())
    }

    /// A rank leaves.
    pub async fn leave(&self, rank: RankId) {
        if let Some(task) = self.listening().remove(&rank) {
            task.abort();
        }
        let _ = self.lanes.of(rank).send(Parcel::Leave(rank)).await;
    }

    /// How things are now.
    pub async fn view(&self) -> Result<View, KeeperGone> {
        let (reply, view) = oneshot::channel();
        self.orders
            .send(Order::View(reply))
            .await
            .map_err(|_| KeeperGone::Ended)?;
        view.await.map_err(|_| KeeperGone::Ended)
    }

    /// What a rank holds now; `None` if there is no such rank.
    pub async fn list(&self, rank: RankId) -> Result<Option<Snapshot>, KeeperGone> {
        let (reply, snapshot) = oneshot::channel();
        let order = Order::List(rank, reply);
        self.orders.send(order).await.map_err(|_| KeeperGone::Ended)?;
        snapshot.await.map_err(|_| KeeperGone::Ended)
    }

    /// A rank's engine is known to live anew, from elsewhere than its stream: what it held is void. Not for ranks whose
    /// source says itself which life it is.
    pub async fn renew(&self, rank: RankId) -> Result<(), KeeperGone> {
        let order = Order::Renew(rank);
        self.orders.send(order).await.map_err(|_| KeeperGone::Ended)
    }

    /// Whoever relies on a rank's view found less there than it promised, again and again. It is built anew; where that was done a
    /// short while ago and did not help, or cannot be done, it begins again with nothing.
    pub async fn doubt(&self, rank: RankId) -> Result<(), KeeperGone> {
        let order = Order::Input(homing_feed::Input::Doubted(rank));
        self.orders.send(order).await.map_err(|_| KeeperGone::Ended)
    }

    fn listening(&self) -> std::sync::MutexGuard<'_, BTreeMap<RankId, AbortHandle>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for (rank, task) in std::mem::take(&mut *self.listening()) {
            task.abort();
            // So that the lane lets go of the writer. A full lane ends with the process.
            self.lanes.of(rank).try_send(Parcel::Leave(rank));
        }
    }
}
