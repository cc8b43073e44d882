//! Flow control: a source is not read while too much of what it sent is on its way to the index.
//!
//! **Invariant:** of one rank at most `feed.buffer-batches` live batches are between its socket and its view, those included that wait for a
//! repair; so the feed never has to drop one for their number.
//!
//! **Invariant:** the undecoded size of the batches between the sockets of a lane and the index is at most `events.lane-bytes`. A batch that
//! is larger waits until it has the lane to itself.
//!
//! What is not read stays in the sockets' buffers and then with the engine: TCP holds it back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_domain::RankId;
use homing_telemetry::{Metrics, ReadLimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::lane::Parcel;

/// Bytes that one permit stands for.
const GRAIN_BYTES: usize = 1 << 10;
/// How often the log says that reading from a source pauses.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Room that a batch takes on its way. Given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// In the window of its rank.
    batch: Option<OwnedSemaphorePermit>,
    /// In the bytes of its lane.
    #[expect(dead_code, reason = "it is held until it is dropped")]
    bytes: Option<OwnedSemaphorePermit>,
}

/// The queue of a lane, and the bytes that may be on their way through it.
#[derive(Clone, Debug)]
pub(crate) struct LaneQueue {
    parcels: mpsc::Sender<Parcel>,
    bytes: Arc<Semaphore>,
    max_permits: u32,
    metrics: Arc<Metrics>,
}

impl LaneQueue {
    pub(crate) fn new(parcels: mpsc::Sender<Parcel>, max_bytes: u64, metrics: Arc<Metrics>) -> Self {
        let max_permits = u32::try_from(max_bytes / GRAIN_BYTES as u64).unwrap_or(u32::MAX >> 3);
        let max_permits = max_permits.clamp(1, u32::MAX >> 3);
        Self {
            parcels,
            bytes: Arc::new(Semaphore::new(max_permits as usize)),
            max_permits,
            metrics,
        }
    }

    /// Waits for room.
    pub(crate) async fn send(&self, parcel: Parcel) -> Result<(), mpsc::error::SendError<Parcel>> {
        self.parcels.send(parcel).await
    }

    pub(crate) fn try_send(&self, parcel: Parcel) {
        let _ = self.parcels.try_send(parcel);
    }

    /// Waits for room for so many bytes outside the windows of ranks.
    pub(crate) async fn room(&self, bytes: usize) -> Room {
        Room {
            batch: None,
            bytes: self.bytes.clone().acquire_many_owned(self.permits(bytes)).await.ok(),
        }
    }

    fn permits(&self, bytes: usize) -> u32 {
        let permits = u32::try_from(bytes.div_ceil(GRAIN_BYTES)).unwrap_or(u32::MAX);
        permits.clamp(1, self.max_permits)
    }
}

/// How many live batches of one rank may be on their way.
#[derive(Clone, Debug)]
pub(crate) struct Window(Arc<Semaphore>);

impl Window {
    pub(crate) fn new(batches: usize) -> Self {
        Self(Arc::new(Semaphore::new(batches.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// The sending side of one rank's live batches.
#[derive(Debug)]
pub(crate) struct PacedSender {
    rank: RankId,
    queue: LaneQueue,
    window: Window,
    /// When the log last said that reading pauses, and the pauses since.
    reported: Option<Instant>,
    pauses: u64,
}

impl PacedSender {
    pub(crate) fn new(rank: RankId, queue: LaneQueue, window: Window) -> Self {
        Self {
            rank,
            queue,
            window,
            reported: None,
            pauses: 0,
        }
    }

    pub(crate) fn queue(&self) -> &LaneQueue {
        &self.queue
    }

    /// Waits for room for a live batch of so many bytes, and sends it.
    pub(crate) async fn send_batch(&mut self, bytes: usize, parcel: impl FnOnce(Room) -> Parcel) {
        let (window, total) = (self.window.0.clone(), self.queue.bytes.clone());
        let batch = match window.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.pause(ReadLimit::BufferBatches, window.acquire_owned()).await.ok(),
        };
        let permits = self.queue.permits(bytes);
        let bytes = if let Ok(permit) = total.clone().try_acquire_many_owned(permits) {
            Some(permit)
        } else {
            let room = total.acquire_many_owned(permits);
            self.pause(ReadLimit::LaneBytes, room).await.ok()
        };
        let room = Room { batch, bytes };
        if let Err(mpsc::error::TrySendError::Full(parcel)) = self.queue.parcels.try_send(parcel(room)) {
            let parcels = self.queue.parcels.clone();
            // If the lane is gone, so are we soon.
            let _ = self.pause(ReadLimit::LaneBatches, parcels.send(parcel)).await;
        }
    }

    /// Waits because of a limit, and tells of it.
    async fn pause<R>(&mut self, limit: ReadLimit, room: impl Future<Output = R>) -> R {
        let began = Instant::now();
        let result = room.await;
        let took = began.elapsed();
        self.queue.metrics.transport.read_pauses.of(limit).observe(took);
        self.pauses += 1;
        if self.reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            self.reported = Some(Instant::now());
            tracing::info!(
                rank = %self.rank,
                limit = limit.setting(),
                pauses = std::mem::take(&mut self.pauses),
                "events arrive faster than they are applied; reading from their source pauses"
            );
        }
        result
    }
}

/// Batches that the feed keeps for repairs, which still count in the windows of their ranks.
#[derive(Debug, Default)]
pub(crate) struct KeptBatches {
    ranks: HashMap<RankId, (Window, usize)>,
}

impl KeptBatches {
    /// A rank comes, with a window of its own.
    pub(crate) fn joined(&mut self, rank: RankId, window: Window) {
        self.ranks.insert(rank, (window, 0));
    }

    pub(crate) fn left(&mut self, rank: RankId) {
        self.ranks.remove(&rank);
    }

    /// The feed has processed a batch: its room is given back, unless the feed keeps it.
    pub(crate) fn processed(&mut self, rank: RankId, room: Room, is_kept: bool) {
        if let (true, Some(batch), Some((_, kept))) = (is_kept, room.batch, self.ranks.get_mut(&rank)) {
            batch.forget();
            *kept += 1;
        }
    }

    /// Gives back the room of batches that the feed does not keep any more.
    pub(crate) fn settle(&mut self, buffered: impl Fn(RankId) -> usize) {
        for (rank, (window, kept)) in self.ranks.iter_mut().filter(|(_, (_, kept))| *kept > 0) {
            let still = buffered(*rank).min(*kept);
            window.0.add_permits(*kept - still);
            *kept = still;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: RankId = RankId::new(1, 0);

    fn sender(batches: usize, bytes: u64) -> (PacedSender, mpsc::Receiver<Parcel>, Arc<Metrics>) {
        let (parcels, taken) = mpsc::channel(100);
        let metrics = Arc::new(Metrics::default());
        let queue = LaneQueue::new(parcels, bytes, metrics.clone());
        (PacedSender::new(RANK, queue, Window::new(batches)), taken, metrics)
    }

    fn parcel(room: Room) -> Parcel {
        let input = homing_feed::Input::Tick;
        Parcel::Input {
            rank: RANK,
            input,
            room,
        }
    }

    async fn fits(sender: &mut PacedSender, bytes: usize) -> bool {
        let sent = sender.send_batch(bytes, parcel);
        tokio::time::timeout(Duration::from_millis(1), sent).await.is_ok()
    }

    fn room(taken: &mut mpsc::Receiver<Parcel>) -> Room {
        match taken.try_recv() {
            Ok(Parcel::Input { room, .. }) => room,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_counts_batches_on_their_way_and_those_that_are_kept() {
        let (mut sender, mut taken, metrics) = sender(2, 1 << 20);
        let mut kept = KeptBatches::default();
        kept.joined(RANK, sender.window.clone());
        assert!(fits(&mut sender, 10).await && fits(&mut sender, 10).await);
        assert!(!fits(&mut sender, 10).await, "two are on their way");
        kept.processed(RANK, room(&mut taken), true);
        kept.settle(|_| 1);
        assert!(!fits(&mut sender, 10).await, "one is kept, and one is on its way");
        kept.processed(RANK, room(&mut taken), false);
        assert!(fits(&mut sender, 10).await);
        kept.settle(|_| 0);
        assert!(fits(&mut sender, 10).await, "what was kept has been applied");
        assert!(!fits(&mut sender, 10).await);
        // A dropped future pauses no source and takes no room.
        assert_eq!(metrics.transport.read_pauses.of(ReadLimit::BufferBatches).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded_and_what_is_too_large_goes_alone() {
        let (mut sender, mut taken, _) = sender(100, 10 << 10);
        assert!(fits(&mut sender, 9 << 10).await);
        assert!(!fits(&mut sender, 2 << 10).await);
        assert!(fits(&mut sender, 1 << 10).await);
        drop(room(&mut taken));
        assert!(!fits(&mut sender, 1 << 30).await, "it does not have the lane to itself");
        drop(room(&mut taken));
        assert!(fits(&mut sender, 1 << 30).await);
        assert!(!fits(&mut sender, 1).await);
    }

    #[tokio::test]
    async fn a_pause_is_measured_by_its_limit() {
        let (mut sender, mut taken, metrics) = sender(1, 1 << 20);
        sender.send_batch(1, parcel).await;
        let waits = async {
            tokio::task::yield_now().await;
            drop(room(&mut taken));
        };
        tokio::join!(sender.send_batch(1, parcel), waits);
        assert_eq!(metrics.transport.read_pauses.of(ReadLimit::BufferBatches).count(), 1);
        assert_eq!(metrics.transport.read_pauses.of(ReadLimit::LaneBytes).count(), 0);
    }
}
