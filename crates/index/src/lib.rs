//! Who holds how much of this prefix?
//!
//! Engines report which blocks their caches gain and lose; this index answers, for each rank, how many leading blocks
//! of a query it holds: on the device, then on the device or the host, and so on outwards. The answer is exact (see
//! the oracle behind the feature `testing`, half a page that defines it) for holes in mid-prefix, copies, orphans, ranks that disagree on
//! labels, and ranks that are replaced. Where a bound makes it forget, the answer is a lower bound and the rank says so.
//!
//! One [`Index`] per model and block size applies events, on one thread. Any number of [`Reader`]s look up on any
//! threads, without waiting for it. Nothing here does IO or knows the time.
//!
//! ```
//! use homing_domain::{HashSeed, KeyHasher, Label, Prompt, RankId, Stored, StoredBlock, BlockSize, Extras, Tier};
//! use homing_index::{Answer, Copies, Index, IndexConfig};
//!
//! let hasher = KeyHasher::new(HashSeed::PUBLIC);
//! let mut index = Index::new(IndexConfig::new(hasher));
//! let rank = index.add_rank(RankId::new(7, 0), Copies::Counted)?;
//!
//! // The engine says that it stored one block of four tokens and calls it 99.
//! let content = hasher.content(&[1, 2, 3, 4], &Extras::default());
//! index.store(rank, &Stored::plain(None, vec![StoredBlock { label: Label::new(99), content }]))?;
//!
//! // A prompt that begins with the same tokens finds it there.
//! let mut keys = Vec::new();
//! hasher.keys(&Prompt::text(&[1, 2, 3, 4, 5, 6, 7, 8], BlockSize::new(4).unwrap()), &mut keys);
//! let mut answer = Answer::default();
//! index.reader().lookup(&keys, &mut answer);
//! assert_eq!(answer.depth(rank, Tier::Device).0, 1);
//! # Ok::<(), homing_index::IndexError>(())
//! ```

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod answer;
mod approximate;
mod bits;
mod blocks;
mod bugs;
mod chunk;
mod config;
mod detail;
mod details;
mod heap;
mod heat;
mod index;
mod lookup;
mod orphans;
mod record;
mod runs;
mod samples;
mod scout;
mod segment;
mod sets;
mod sites;
mod slots;
mod spares;
mod sync;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod write;

pub use answer::{Answer, Level};
pub use approximate::{Approximate, ApproximateConfig};
#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
#[cfg(not(any(shuttle, loom)))]
pub use chunk::mapped_bytes;
pub use config::{Copies, IndexConfig};
pub use heat::Heat;
pub use index::{Applied, Index, IndexError, Pending, RankStats, RemoveOutcome, Stats, StoreOutcome};
pub use lookup::Reader;
pub use slots::Slot;
pub use spares::Spares;
pub use write::list::Listing;
