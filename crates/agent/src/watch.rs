//! How does somebody watch a rank? A stream of frames, read from the shelf at the watcher's own speed.
//!
//! First always a heartbeat, which says who speaks; then what was asked for from the ring and an end of replay; then what
//! comes, and a heartbeat now and then while nothing does.
//!
//! A heartbeat vouches: whoever hears it takes its view to be verified. So while the agent's own view is not, an end of
//! replay is sent in its place, which keeps the connection and says nothing but where the stream is.
//!
//! **Invariant:** a heartbeat is sent only when everything up to its position has been.
//!
//! **Invariant:** a watcher holds no batches but those that it is being sent. One that is slower than the ring is long is
//! ended, and so is every one when the stream does not go on; they come back and ask.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use homing_telemetry::Metrics;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::shelf::{Follow, Place, Reading, Shelf};

/// How many may watch at once, over all ranks. Further ones are refused.
pub const MAX_WATCHERS: usize = 4096;

/// Those who watch now.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: AtomicUsize,
}

/// One of them. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    metrics: Arc<Metrics>,
}

impl Seats {
    pub(crate) fn take(self: &Arc<Self>, metrics: &Arc<Metrics>) -> Option<Seat> {
        let take = |taken| (taken < MAX_WATCHERS).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, take).ok()?;
        metrics.agent.active_watchers.raise();
        Some(Seat {
            seats: self.clone(),
            metrics: metrics.clone(),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.fetch_sub(1, Relaxed);
        self.metrics.agent.active_watchers.lower();
    }
}

/// What is sent to one who watches.
pub(crate) struct Watch {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) place: Place,
    pub(crate) follow: Follow,
    pub(crate) heartbeat: Duration,
    pub(crate) seat: Seat,
}

struct Watcher {
    watch: Watch,
    beats: Interval,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Beginning,
    Replaying,
    Following(Beat),
    Over,
}

/// Whether it is time for a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    Due,
    NotDue,
}

impl Watch {
    pub(crate) fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let mut beats = interval(self.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is due at once, and what is sent first is one.
        beats.reset();
        let watcher = Watcher {
            watch: self,
            beats,
            phase: Phase::Beginning,
        };
        stream::unfold(watcher, |mut watcher| async move {
            let piece = watcher.next().await?;
            watcher.watch.seat.metrics.agent.watch_bytes.add(piece.len() as u64);
            Some((Ok(piece), watcher))
        })
    }
}

impl Watcher {
    /// The next piece; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        let source = self.watch.shelf.clone();
        loop {
            match self.phase {
                Phase::Over => return None,
                Phase::Beginning => {
                    self.phase = match self.watch.place.until {
                        Some(_) => Phase::Replaying,
                        None => Phase::Following(Beat::NotDue),
                    };
                    return Some(source.beat(&self.watch.place.standing.beat));
                }
                Phase::Replaying
                    if self
                        .watch
                        .place
                        .until
                        .is_none_or(|until| self.watch.place.mark >= until) =>
                {
                    self.phase = match self.watch.follow {
                        Follow::Yes => Phase::Following(Beat::NotDue),
                        Follow::No => Phase::Over,
                    };
                    return Some(source.end_of_replay(&self.watch.place.standing.beat));
                }
                Phase::Replaying | Phase::Following(_) => {}
            }
            // Made before it is looked at what there is, so that nothing is missed in between.
            let mut changed = pin!(source.changed());
            match source.read(&self.watch.place) {
                Reading::Frames(frames, next) => {
                    self.watch.place.mark = next;
                    return Some(joined(frames));
                }
                Reading::AllRead(beat) if self.phase == Phase::Following(Beat::Due) => {
                    self.phase = Phase::Following(Beat::NotDue);
                    return Some(beat);
                }
                Reading::AllRead(_) => {}
                Reading::Ended => return None,
                Reading::TooSlow => {
                    self.watch.seat.metrics.agent.slow_watchers.add(1);
                    return None;
                }
            }
            tokio::select! {
                () = &mut changed => {}
                _ = self.beats.tick() => self.phase = Phase::Following(Beat::Due),
            }
        }
    }
}

/// Few pieces are sent faster than many.
fn joined(mut frames: Vec<Bytes>) -> Bytes {
    if frames.len() == 1 {
        return frames.swap_remove(0);
    }
    let mut all = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
    for frame in frames {
        all.extend_from_slice(&frame);
    }
    all.freeze()
}
