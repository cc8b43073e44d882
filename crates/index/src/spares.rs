//! Who makes the next chunk? The system clears two mebibytes at their first touch, which takes longer than the writer
//! should. So the writer only takes the room for a chunk that it will need soon and puts it on a shelf, somebody beside it
//! clears it, and the writer takes the chunk when it is there. It never waits for that: what is not there in time it
//! clears itself.
//!
//! This crate starts no thread. Whoever owns the writer's thread holds a [`Spares`] and has [`Spares::make`] called on
//! another one when [`Spares::is_wanted`]. While nobody holds one, the writer makes its chunks a little at a time.
//!
//! A part of the index (log, records, samples, labels, names) asks for one chunk when its last is half full, and asks for none while
//! [`MOST`] are on the shelf. So an index that does not grow has none, and one that rests gives them up
//! ([`Stock::relax`]).
//!
//! **Invariant:** the writer only ever *tries* to lock the shelf; who makes chunks holds the lock for as long as it takes to put one
//! there or to take one away.

use std::sync::{Arc, PoisonError, TryLockError};

use crate::chunk::{CHUNK_WORDS, Chunk, Spare};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Chunks on the shelf, cleared or not, for which the writer asks at most: one for each part of the index.
const MOST: u64 = 5;

/// What the writer and those who make chunks for it share.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// How many are asked for, and how many are ready: as on the shelf, changed by who has the lock and looked at
    /// without it.
    asked: AtomicU64,
    ready: AtomicU64,
    shelf: Mutex<Shelf>,
    /// Cloned into every handle: how many there are tells whether the writer can count on somebody.
    handles: Arc<()>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Room that is to be cleared. The writer puts it here, and takes it back where it is needed before anybody began.
    asked: Vec<Spare>,
    /// Of zeros. Put here by who cleared it, taken by the writer.
    ready: Vec<Chunk>,
}

impl Stock {
    fn is_tended(&self) -> bool {
        Arc::strong_count(&self.handles) > 1
    }

    /// The writer will need one. Says whether it has asked, or need not.
    fn ask(&self) -> bool {
        if self.count() >= MOST {
            return true;
        }
        let spare = Spare::new();
        self.try_shelf(|shelf| shelf.asked.push(spare)).is_some()
    }

    /// Takes one back that nobody has begun to clear.
    fn withdraw(&self) -> Option<Spare> {
        if self.asked.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.try_shelf(|shelf| shelf.asked.pop()).flatten()
    }

    /// A chunk of zeros, if one is there and nobody is at the shelf.
    fn take(&self) -> Option<Chunk> {
        if self.ready.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.try_shelf(|shelf| shelf.ready.pop()).flatten()
    }

    /// Does this with the shelf, unless somebody else is there.
    fn try_shelf<T>(&self, act: impl FnOnce(&mut Shelf) -> T) -> Option<T> {
        match self.shelf.try_lock() {
            Ok(mut guard) => Some(self.change(&mut guard, act)),
            Err(TryLockError::Poisoned(error)) => Some(self.change(&mut error.into_inner(), act)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn change<T>(&self, on_it: &mut Shelf, act: impl FnOnce(&mut Shelf) -> T) -> T {
        let done = act(on_it);
        self.asked.store(on_it.asked.len() as u64, Ordering::Relaxed);
        self.ready.store(on_it.ready.len() as u64, Ordering::Relaxed);
        done
    }

    /// Gives up what is on the shelf: nothing is going on. What is being cleared goes the next time.
    pub(crate) fn relax(&self) {
        if self.count() > 0 {
            // Given back to the system after the lock is.
            drop(self.try_shelf(std::mem::take));
        }
    }

    fn count(&self) -> u64 {
        self.asked.load(Ordering::Relaxed) + self.ready.load(Ordering::Relaxed)
    }

    /// Bytes on the shelf that were touched.
    pub(crate) fn bytes(&self) -> u64 {
        self.ready.load(Ordering::Relaxed) * CHUNK_WORDS as u64 * 8
    }
}

/// For whoever makes chunks beside the writer. It may outlive the index, which then wants no more.
#[derive(Clone, Debug)]
pub struct Spares {
    stock: Arc<Stock>,
    _handle: Arc<()>,
}

impl Spares {
    pub(crate) fn of(stock: &Arc<Stock>) -> Self {
        Self {
            stock: stock.clone(),
            _handle: stock.handles.clone(),
        }
    }

    /// Whether a chunk is to be made. To ask costs one memory access.
    pub fn is_wanted(&self) -> bool {
        self.stock.asked.load(Ordering::Relaxed) > 0
    }

    /// Makes one chunk if one is wanted, and says whether it did. Takes some hundred microseconds, and may be called on
    /// several threads.
    pub fn make(&self) -> bool {
        let Some(spare) = self.at_shelf(|shelf| shelf.asked.pop()) else {
            return false;
        };
        let chunk = spare.into_chunk();
        self.at_shelf(|shelf| shelf.ready.push(chunk));
        true
    }

    fn at_shelf<T>(&self, act: impl FnOnce(&mut Shelf) -> T) -> T {
        let mut guard = self.stock.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        self.stock.change(&mut guard, act)
    }
}

/// The next chunk of one part of the index, made ready before it is needed. The writer's.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    stock: Arc<Stock>,
    next: Next,
}

#[derive(Debug, Default)]
enum Next {
    #[default]
    Nothing,
    /// Somebody else was asked for it.
    Asked,
    /// The writer makes it itself.
    InTheMaking(Spare),
    /// Of zeros, or used before, with whatever was in it.
    Ready(Chunk),
}

impl Reserve {
    pub(crate) fn of(stock: &Arc<Stock>) -> Self {
        Self {
            stock: stock.clone(),
            next: Next::Nothing,
        }
    }

    /// A chunk will be needed soon: asks for it, looks whether it has come, or does a little of the work of making it.
    pub(crate) fn prepare(&mut self) {
        match &mut self.next {
            Next::Ready(_) => {}
            Next::InTheMaking(spare) => spare.clear_more(),
            Next::Nothing if self.stock.is_tended() => {
                if self.stock.ask() {
                    self.next = Next::Asked;
                }
            }
            Next::Nothing => self.next = Next::InTheMaking(Spare::new()),
            Next::Asked => {
                if let Some(chunk) = self.stock.take() {
                    self.next = Next::Ready(chunk);
                } else if !self.stock.is_tended() {
                    self.release();
                }
            }
        }
    }

    /// Keeps a chunk that is not needed any more for the next time.
    pub(crate) fn keep(&mut self, chunk: Chunk) {
        self.release();
        self.next = Next::Ready(chunk);
    }

    /// A chunk, with whatever work is left done now: of zeros, unless one was kept.
    pub(crate) fn take(&mut self) -> Chunk {
        match std::mem::take(&mut self.next) {
            Next::Ready(chunk) => chunk,
            Next::InTheMaking(spare) => spare.into_chunk(),
            // If it is being cleared at this moment, it will serve whoever needs the next.
            Next::Asked => self
                .stock
                .take()
                .unwrap_or_else(|| self.stock.withdraw().unwrap_or_else(Spare::new).into_chunk()),
            Next::Nothing => Spare::new().into_chunk(),
        }
    }

    /// Gives up what was made ready.
    pub(crate) fn release(&mut self) {
        if matches!(std::mem::take(&mut self.next), Next::Asked) {
            drop(self.stock.withdraw());
        }
    }

    /// Whether nothing is kept or in the making here.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.next, Next::Nothing | Next::Asked)
    }

    /// How many chunks are kept or in the making here.
    pub(crate) fn len(&self) -> usize {
        usize::from(!self.is_empty())
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    #[test]
    fn without_anybody_who_makes_chunks_the_writer_does_a_little_at_a_time() {
        let stock = Arc::new(Stock::default());
        let mut reserve = Reserve::of(&stock);
        reserve.prepare();
        reserve.prepare();
        assert_eq!((reserve.len(), stock.count()), (1, 0));
        assert!(reserve.take().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(reserve.is_empty());
    }

    #[test]
    fn what_was_asked_for_is_made_once_and_taken() {
        let stock = Arc::new(Stock::default());
        let spares = Spares::of(&stock);
        let mut parts = [Reserve::of(&stock), Reserve::of(&stock)];
        assert!(!spares.is_wanted() && !spares.make());
        for part in &mut parts {
            part.prepare();
            part.prepare();
        }
        assert!(spares.make() && spares.make() && !spares.make());
        assert_eq!(stock.bytes(), 2 * CHUNK_WORDS as u64 * 8);
        let addresses = parts.each_mut().map(|part| {
            part.prepare();
            assert_eq!(part.len(), 1);
            part.take().as_ptr().addr()
        });
        assert_ne!(addresses[0], addresses[1]);
        assert_eq!((stock.bytes(), spares.is_wanted()), (0, false));
    }

    #[test]
    fn a_chunk_that_comes_too_late_serves_the_next_and_is_given_up_at_rest() {
        let stock = Arc::new(Stock::default());
        let spares = Spares::of(&stock);
        let mut reserve = Reserve::of(&stock);
        reserve.prepare();
        // Nobody has begun: the writer makes its own, and none is wanted any more.
        reserve.take();
        assert!(!spares.is_wanted());
        reserve.prepare();
        let begun = spares.at_shelf(|shelf| shelf.asked.pop());
        reserve.take();
        let late = begun.expect("it was asked for").into_chunk();
        spares.at_shelf(|shelf| shelf.ready.push(late));
        reserve.prepare();
        reserve.prepare();
        assert_eq!((reserve.len(), stock.bytes()), (1, 0));
        // At rest nothing is left, not even of what was asked for.
        assert!(spares.make());
        reserve.release();
        stock.relax();
        assert_eq!((reserve.len(), stock.bytes(), spares.is_wanted()), (0, 0, false));
        reserve.prepare();
        reserve.release();
        assert!(!spares.is_wanted());
    }

    #[test]
    fn the_writer_does_not_wait_for_who_is_at_the_shelf_or_left() {
        let stock = Arc::new(Stock::default());
        let spares = Spares::of(&stock);
        let mut reserve = Reserve::of(&stock);
        reserve.prepare();
        spares.make();
        let shelf = stock.shelf.lock().unwrap();
        reserve.prepare();
        assert!(reserve.is_empty());
        assert!(reserve.take().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        drop(shelf);
        reserve.prepare();
        drop(spares);
        reserve.prepare();
        assert_eq!(reserve.len(), 1, "what is there is taken");
        reserve.release();
        reserve.prepare();
        assert!(matches!(reserve.next, Next::InTheMaking(_)), "nobody would make one");
    }

    #[test]
    fn no_more_than_a_few_are_ever_kept() {
        let stock = Arc::new(Stock::default());
        let spares = Spares::of(&stock);
        for _ in 0..2 * MOST {
            assert!(stock.ask());
        }
        while spares.make() {}
        assert_eq!(stock.bytes(), MOST * CHUNK_WORDS as u64 * 8);
    }
}

/// Under the memory model: `RUSTFLAGS="--cfg loom" cargo test -p homing-index --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// A part that asks twice, and somebody who makes: whoever is late, the part has two chunks of zeros, and what is
    /// left on the shelf is what came too late.
    #[test]
    fn loom_every_chunk_is_handed_out_once() {
        loom::model(|| {
            let stock = Arc::new(Stock::default());
            let spares = Spares::of(&stock);
            let mut reserve = Reserve::of(&stock);
            reserve.prepare();
            let maker = loom::thread::spawn(move || usize::from(spares.make()));
            reserve.prepare();
            let chunk = reserve.take();
            let word = || chunk[0].load(Ordering::Relaxed);
            assert_eq!(word(), 0);
            chunk[0].store(7, Ordering::Relaxed);
            reserve.prepare();
            let made = maker.join().unwrap();
            let next = reserve.take();
            assert_eq!((word(), next[0].load(Ordering::Relaxed)), (7, 0));
            let shelf = stock.shelf.lock().unwrap();
            assert!(shelf.ready.len() <= made);
            assert_eq!(stock.count(), (shelf.asked.len() + shelf.ready.len()) as u64);
            assert!(stock.count() <= 1, "one that came too late at most");
        });
    }
}
