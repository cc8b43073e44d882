//! Who makes the chunks that an index will need? A thread beside the writer's: the system clears a chunk at its first
//! touch, and the writer should not have to wait for that (see [`homing_index::Spares`]).
//!
//! **Invariant:** the thread sleeps unless a chunk is wanted, and ends when the writer does: it has nothing of the writer
//! but one end of a channel for a single word. The writer never waits for it.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use homing_index::{Index, Spares};

/// It touches memory, and nothing else.
const STACK: usize = 64 << 10;

/// The writer's end: wakes the thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct SpareMaker {
    spares: Spares,
    wake: SyncSender<()>,
}

impl SpareMaker {
    /// Starts the thread that makes chunks for this index.
    pub fn start(index: &Index) -> io::Result<Self> {
        let spares = index.spares();
        let making = spares.clone();
        let (wake, woken) = sync_channel(1);
        thread::Builder::new()
            .name("index-spares".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                for () in woken {
                    while making.make() {}
                }
            })?;
        Ok(Self { spares, wake })
    }

    /// Wakes the thread if a chunk is wanted. To be called after each piece of the writer's work; costs next to nothing
    /// where none is.
    pub fn tend(&self) {
        if self.spares.is_wanted() {
            // Where a call waits for the thread already it need not be called again.
            let _ = self.wake.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use homing_domain::{ContentHash, HashSeed, KeyHasher, Label, RankId, Stored, StoredBlock};
    use homing_index::{Copies, IndexConfig};

    use super::*;

    /// Waits until something is so.
    fn until(is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(20), "it never came to be so");
            thread::yield_now();
        }
    }

    /// One sequence of 1,000 blocks that no other shares.
    fn sequence(number: u64) -> Stored {
        let blocks = (0..1000).map(|block| StoredBlock {
            label: Label::new(number * 1000 + block),
            content: ContentHash((number * 1000 + block).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        });
        Stored::plain(None, blocks.collect())
    }

    #[test]
    fn a_chunk_is_made_when_the_index_will_need_one_and_given_up_when_it_rests() {
        let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
        let slot = index.add_rank(RankId::new(0, 0), Copies::Counted).unwrap();
        let maker = SpareMaker::start(&index).unwrap();
        index.store(slot, &sequence(0)).unwrap();
        maker.tend();
        assert!(!maker.spares.is_wanted(), "a small index wants none");
        // The log's first chunk of 2^18 words is half full after some 65,000 blocks.
        let filled = (1..100).find(|number| {
            index.store(slot, &sequence(*number)).unwrap();
            maker.spares.is_wanted()
        });
        assert!(filled.is_some(), "no chunk was asked for");
        while index.maintain(1000).is_pending() {}
        let without = index.stats().bytes;
        maker.tend();
        until(|| index.stats().bytes > without);
        // Nothing was written since: it rests.
        index.maintain(1000);
        assert_eq!(index.stats().bytes, without);
    }
}
