//! Where do two requests of SGLang meet?
//!
//! **Invariant:** a room is empty, or one waits in it; two who meet leave it empty.

use std::sync::Mutex;
use std::time::Duration;

use rustc_hash::FxHashMap;
use thiserror::Error;
use tokio::sync::oneshot;

use super::ledger::Kept;
use crate::faults::locked;

/// Rooms in which someone waits, of one worker.
const MOST_ROOMS: usize = 65_536;

/// Why two did not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum RoomError {
    /// The other side did not come.
    #[error("the other side of bootstrap room {0} did not come in time")]
    Late(u64),
    /// Someone of the same side is there.
    #[error("bootstrap room {0} is taken")]
    Taken(u64),
    /// There are too many.
    #[error("{MOST_ROOMS} rooms are in use")]
    Full,
}

/// What the side that computes gets.
#[derive(Debug)]
pub(super) struct PrefillSide {
    /// To be told when it is staged.
    pub(super) told: oneshot::Sender<Kept>,
    /// Comes when the other side has it.
    pub(super) sent: oneshot::Receiver<()>,
}

/// What the side that takes over gets.
#[derive(Debug)]
pub(super) struct DecodeSide {
    pub(super) told: oneshot::Receiver<Kept>,
    pub(super) sent: oneshot::Sender<()>,
}

#[derive(Debug)]
enum Waiting {
    Prefill(oneshot::Sender<PrefillSide>),
    Decode(oneshot::Sender<DecodeSide>),
}

#[derive(Debug, Default)]
pub(super) struct Rooms(Mutex<FxHashMap<u64, Waiting>>);

/// Empties a room when whoever waited in it leaves alone.
struct Leave<'a> {
    rooms: &'a Rooms,
    room: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut rooms = locked(&self.rooms.0);
        let alone = rooms.get(&self.room).is_some_and(Waiting::is_gone);
        if alone {
            rooms.remove(&self.room);
        }
    }
}

impl Waiting {
    fn is_gone(&self) -> bool {
        match self {
            Self::Prefill(to) => to.is_closed(),
            Self::Decode(to) => to.is_closed(),
        }
    }
}

impl Rooms {
    pub(super) fn waiting(&self) -> usize {
        locked(&self.0).len()
    }

    /// The side that computes comes, and waits for the other one.
    pub(super) async fn prefill(&self, room: u64, patience: Duration) -> Result<PrefillSide, RoomError> {
        let (own, other) = pair();
        let waits = {
            let mut rooms = locked(&self.0);
            match rooms.remove(&room) {
                Some(Waiting::Decode(to)) => match to.send(other) {
                    Ok(()) => return Ok(own),
                    // It has gone: as if it had not been there.
                    Err(_) => Self::enter(&mut rooms, room, Waiting::Prefill)?,
                },
                Some(there) if !there.is_gone() => {
                    rooms.insert(room, there);
                    return Err(RoomError::Taken(room));
                }
                _ => Self::enter(&mut rooms, room, Waiting::Prefill)?,
            }
        };
        self.wait(room, waits, patience).await
    }

    /// The side that takes over comes, and waits for the other one.
    pub(super) async fn decode(&self, room: u64, patience: Duration) -> Result<DecodeSide, RoomError> {
        let (other, own) = pair();
        let waits = {
            let mut rooms = locked(&self.0);
            match rooms.remove(&room) {
                Some(Waiting::Prefill(to)) => match to.send(other) {
                    Ok(()) => return Ok(own),
                    Err(_) => Self::enter(&mut rooms, room, Waiting::Decode)?,
                },
                Some(there) if !there.is_gone() => {
                    rooms.insert(room, there);
                    return Err(RoomError::Taken(room));
                }
                _ => Self::enter(&mut rooms, room, Waiting::Decode)?,
            }
        };
        self.wait(room, waits, patience).await
    }

    fn enter<T>(
        rooms: &mut FxHashMap<u64, Waiting>,
        room: u64,
        as_side: impl FnOnce(oneshot::Sender<T>) -> Waiting,
    ) -> Result<oneshot::Receiver<T>, RoomError> {
        if rooms.len() >= MOST_ROOMS {
            return Err(RoomError::Full);
        }
        let (to, from) = oneshot::channel();
        rooms.insert(room, as_side(to));
        Ok(from)
    }

    async fn wait<T>(&self, room: u64, waits: oneshot::Receiver<T>, patience: Duration) -> Result<T, RoomError> {
        // Declared first, so that it is dropped last: by then the receiver is gone.
        let _leave = Leave { rooms: self, room };
        let waits = waits;
        let met = tokio::time::timeout(patience, waits).await;
        met.ok().and_then(Result::ok).ok_or(RoomError::Late(room))
    }
}

fn pair() -> (PrefillSide, DecodeSide) {
    let (tell, told) = oneshot::channel();
    let (done, sent) = oneshot::channel();
    (PrefillSide { told: tell, sent }, DecodeSide { told, sent: done })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_first_waits_for_the_other() {
        for decode_first in [true, false] {
            let rooms = Rooms::default();
            let both = async {
                if decode_first {
                    let (decode, prefill) = tokio::join!(rooms.decode(7, LONG), rooms.prefill(7, LONG));
                    (prefill, decode)
                } else {
                    tokio::join!(rooms.prefill(7, LONG), rooms.decode(7, LONG))
                }
            };
            let (prefill, decode) = both.await;
            decode.unwrap().sent.send(()).unwrap();
            prefill.unwrap().sent.await.unwrap();
            assert_eq!(rooms.waiting(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_leaves_the_room_empty() {
        let rooms = Rooms::default();
        assert_eq!(rooms.prefill(7, LONG).await.unwrap_err(), RoomError::Late(7));
        assert_eq!(rooms.waiting(), 0);
        // One that is dropped while it waits, too.
        drop(tokio::time::timeout(Duration::from_secs(1), rooms.decode(7, LONG)).await);
        assert_eq!(rooms.waiting(), 0);
        let twice = tokio::join!(rooms.prefill(7, LONG), rooms.prefill(7, LONG));
        assert_eq!(twice.1.unwrap_err(), RoomError::Taken(7));
    }
}
