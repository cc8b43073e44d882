//! What does a rank hold? Listed and encoded once for all who ask at the same time.
//!
//! The index's writer is held only for the listing itself; encoding and compressing go on elsewhere while events are
//! applied again, and what is encoded is sent while the rest is still being encoded.
//!
//! **Invariant:** a list carries the identity under which its content was in the index: who finds the shelf's generation
//! changed around the listing lists again.
//!
//! **Invariant:** at most [`MAX_LISTS`] lists are in memory, each for [`LIFETIME`] at most, however slow those who take
//! them are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use homing_domain::{KeyHasher, RankId};
use homing_feed::Coverage;
use homing_keeper::{Fleet, Keeper, Snapshot};
use homing_telemetry::Metrics;
use homing_wire::frame::{FrameError, Heartbeat, SnapshotHeader, SnapshotWriter};
use thiserror::Error;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::shelf::{Generation, Refusal, Shelf, Standing};

/// How many lists may be in memory at once, over all ranks.
pub const MAX_LISTS: usize = 8;
/// How long a list is kept for those who have not taken all of it.
pub const LIFETIME: Duration = Duration::from_mins(2);
/// How long one waits for its turn.
const TURN: Duration = Duration::from_secs(2);
/// How often a listing is tried again because the view was replaced under it.
const TRIES: u32 = 3;
/// Bytes of a piece that is sent.
const PIECE: usize = 64 << 10;

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListError {
    /// The rank cannot be served now.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Too many are being made.
    #[error("{MAX_LISTS} lists are being made or sent already; try again in a moment")]
    Busy,
    /// The view was replaced again and again while it was listed.
    #[error("the view of this rank was replaced while it was listed; try again in a moment")]
    Unsteady,
    /// The index is gone.
    #[error("there is no index of this rank any more")]
    NoIndex,
    /// It could not be encoded.
    #[error("the list cannot be encoded: {0}")]
    Encoding(#[from] FrameError),
    /// Those who asked did not take it in time.
    #[error("the list was not taken within {LIFETIME:?}")]
    Expired,
}

/// Makes lists.
#[derive(Debug)]
pub(crate) struct Lists {
    fleet: Arc<Fleet>,
    metrics: Arc<Metrics>,
    turns: Arc<Semaphore>,
    /// What is being made, by rank. An entry whose list is gone is replaced by the next.
    making: Mutex<HashMap<RankId, Weak<List>>>,
}

/// One list, from when it was asked for to when all have taken it.
#[derive(Debug)]
pub(crate) struct List {
    made: Mutex<Made>,
    changed: Notify,
    metrics: Arc<Metrics>,
    /// Makes it, and ends with it.
    maker: OnceLock<AbortHandle>,
}

#[derive(Debug)]
struct Made {
    /// What it is a list of, once that is known.
    generation: Option<Generation>,
    pieces: Vec<Bytes>,
    progress: Progress,
    /// Held while there are pieces.
    turn: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Making,
    Done,
    Failed(ListError),
}

impl Lists {
    pub(crate) fn new(fleet: Arc<Fleet>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            fleet,
            metrics,
            turns: Arc::new(Semaphore::new(MAX_LISTS)),
            making: Mutex::default(),
        })
    }

    /// The list of a rank: one that is being made, or a new one. Its beginning is there, or it has failed.
    pub(crate) async fn get(self: &Arc<Self>, rank: &Arc<Shelf>) -> Result<Arc<List>, ListError> {
        let list = self.join(rank);
        list.begun().await?;
        Ok(list)
    }

    fn join(self: &Arc<Self>, rank: &Arc<Shelf>) -> Arc<List> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let id = rank.owner().rank;
        let under_way = making.get(&id).and_then(Weak::upgrade);
        if let Some(list) = under_way.filter(|list| list.is_joinable(rank)) {
            self.metrics.agent.shared_lists.add(1);
            return list;
        }
        let list = Arc::new(List {
            made: Mutex::new(Made {
                generation: None,
                pieces: Vec::new(),
                progress: Progress::Making,
                turn: None,
            }),
            changed: Notify::new(),
            metrics: self.metrics.clone(),
            maker: OnceLock::new(),
        });
        making.insert(id, Arc::downgrade(&list));
        let maker = tokio::spawn(self.clone().make(rank.clone(), Arc::downgrade(&list)));
        // It was just made, so nobody else has set it.
        let _ = list.maker.set(maker.abort_handle());
        list
    }

    /// Makes a list for as long as somebody wants it, and forgets it in time.
    async fn make(self: Arc<Self>, rank: Arc<Shelf>, list: Weak<List>) {
        if let Err(error) = self.try_make(&rank, &list).await
            && let Some(list) = list.upgrade()
        {
            self.metrics.agent.failed_lists.add(1);
            tracing::info!(rank = %rank.owner().rank, %error, "no list");
            list.end(Progress::Failed(error));
            return;
        }
        // What is kept for those who are slow must not keep the index.
        drop(self);
        tokio::time::sleep(LIFETIME).await;
        if let Some(list) = list.upgrade() {
            list.metrics.agent.failed_lists.add(1);
            list.expire();
        }
    }

    async fn try_make(&self, rank: &Arc<Shelf>, list: &Weak<List>) -> Result<(), ListError> {
        // What cannot be served is said at once.
        rank.standing()?;
        let turn = tokio::time::timeout(TURN, self.turns.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or(ListError::Busy)?;
        let (standing, snapshot) = self.snapshot(rank).await?;
        let Some(wanted) = list.upgrade() else { return Ok(()) };
        wanted.begin(standing.generation, turn);
        drop(wanted);
        let (hasher, list) = (*self.fleet.hasher(), list.clone());
        let encoded = tokio::task::spawn_blocking(move || encode(&hasher, &standing.beat, snapshot, &list)).await;
        encoded.unwrap_or(Err(ListError::NoIndex))
    }

    async fn snapshot(&self, rank: &Shelf) -> Result<(Standing, Snapshot), ListError> {
        let keeper = self.keeper(rank).ok_or(ListError::NoIndex)?;
        for _ in 0..TRIES {
            let standing = rank.standing()?;
            let listed = keeper.list(rank.owner().rank).await;
            let snapshot = listed.ok().flatten().ok_or(ListError::NoIndex)?;
            self.metrics.agent.listing_hold.observe(snapshot.held);
            if rank.is_current(standing.generation) {
                return Ok((standing, snapshot));
            }
        }
        Err(ListError::Unsteady)
    }

    fn keeper(&self, rank: &Shelf) -> Option<&Keeper> {
        let mut keepers = self.fleet.keepers();
        let found = keepers.find(|(subject, _)| **subject == rank.owner().subject);
        found.map(|(_, keeper)| keeper)
    }
}

/// Writes the list piece by piece, until it is done or nobody wants it any more.
fn encode(hasher: &KeyHasher, who: &Heartbeat, snapshot: Snapshot, list: &Weak<List>) -> Result<(), ListError> {
    let header = SnapshotHeader {
        at: Heartbeat {
            // That of the listing; the shelf may have been read a batch earlier.
            position: snapshot.position.map(crate::shelf::position),
            ..*who
        },
        complete: snapshot.status.coverage == Coverage::Complete,
        truncated: snapshot.listing.truncated,
        items: Some(snapshot.listing.items.len() as u64),
    };
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::new(hasher, &header, &mut out)?;
    for item in snapshot.listing.items {
        writer.item(&item, &mut out)?;
        if out.len() >= PIECE {
            let Some(list) = list.upgrade() else { return Ok(()) };
            list.push(std::mem::take(&mut out).into());
        }
    }
    writer.finish(&mut out)?;
    if let Some(list) = list.upgrade() {
        list.push(out.into());
        list.end(Progress::Done);
    }
    Ok(())
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(maker) = self.maker.get() {
            maker.abort();
        }
    }
}

impl List {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody who asks now may have it: it is being made, and still is what the rank holds or held a moment ago.
    fn is_joinable(&self, rank: &Shelf) -> bool {
        let made = self.made();
        let is_current = made.generation.is_none_or(|generation| rank.is_current(generation));
        made.progress == Progress::Making && is_current
    }

    fn begin(&self, generation: Generation, turn: OwnedSemaphorePermit) {
        let mut made = self.made();
        made.generation = Some(generation);
        made.turn = Some(turn);
    }

    fn push(&self, piece: Bytes) {
        let mut made = self.made();
        if made.progress == Progress::Making {
            made.pieces.push(piece);
        }
        drop(made);
        self.changed.notify_waiters();
    }

    fn end(&self, progress: Progress) {
        let mut made = self.made();
        if made.progress == Progress::Making {
            made.progress = progress;
        }
        drop(made);
        self.changed.notify_waiters();
    }

    fn expire(&self) {
        let mut made = self.made();
        made.progress = Progress::Failed(ListError::Expired);
        made.pieces = Vec::new();
        made.turn = None;
        drop(made);
        self.changed.notify_waiters();
    }

    async fn begun(&self) -> Result<(), ListError> {
        self.piece(0).await.map(|_| ())
    }

    /// A piece, as soon as it is there; `None` after the last.
    async fn piece(&self, number: usize) -> Result<Option<Bytes>, ListError> {
        loop {
            let changed = self.changed.notified();
            {
                let made = self.made();
                match (made.pieces.get(number), &made.progress) {
                    (_, Progress::Failed(error)) => return Err(error.clone()),
                    (Some(piece), _) => return Ok(Some(piece.clone())),
                    (None, Progress::Done) => return Ok(None),
                    (None, Progress::Making) => {}
                }
            }
            changed.await;
        }
    }

    /// All of it. A list that fails on the way ends with an error, so that it is not taken for a whole one.
    pub(crate) fn stream(self: Arc<Self>) -> impl Stream<Item = Result<Bytes, ListError>> {
        stream::unfold((self, 0), |(list, number)| async move {
            match list.piece(number).await {
                Ok(Some(piece)) => {
                    list.metrics.agent.list_bytes.add(piece.len() as u64);
                    Some((Ok(piece), (list, number + 1)))
                }
                Ok(None) => {
                    list.metrics.agent.served_lists.add(1);
                    None
                }
                // Nothing follows an error: the connection is ended with it.
                Err(error) => Some((Err(error), (list, usize::MAX))),
            }
        })
    }
}
