//! Which tokens had this piece of text the last time?
//!
//! Keyed by the text itself, so that two texts are never taken for each other. What was used the longest ago goes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// What an entry takes beyond its text and its tokens, in bytes.
const OVERHEAD: u64 = 96;
/// Texts shorter than this are encoded faster than they are looked up.
const SHORTEST: usize = 48;
/// About how long texts are that are cached, which decides about the size of tables.
const USUAL: usize = 4_096;

#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<Box<str>, Arc<[u32]>> for Bytes {
    fn weight(&self, text: &Box<str>, tokens: &Arc<[u32]>) -> u64 {
        text.len() as u64 + size_of_val(&**tokens) as u64 + OVERHEAD
    }
}

/// Tokens of texts.
#[derive(Debug)]
pub(super) struct Segments {
    entries: Cache<Box<str>, Arc<[u32]>, Bytes, ahash::RandomState>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How a cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Texts that were there.
    pub hits: u64,
    /// Texts that were not.
    pub misses: u64,
    /// Bytes that are used now.
    pub bytes: u64,
}

impl Segments {
    /// A cache of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            entries: Cache::with(
                bytes / USUAL + 1,
                bytes as u64,
                Bytes,
                ahash::RandomState::new(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Whether texts like this are kept.
    pub fn keeps(text: &str) -> bool {
        text.len() >= SHORTEST
    }

    /// Appends the tokens of a text, if they are known.
    pub fn append(&self, text: &str, tokens: &mut Vec<u32>) -> bool {
        let known = self.entries.get(text);
        let counter = if known.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        known.inspect(|known| tokens.extend_from_slice(known)).is_some()
    }

    /// Keeps the tokens of a text.
    pub fn keep(&self, text: &str, tokens: &[u32]) {
        self.entries.insert(text.into(), tokens.into());
    }

    /// How it did so far.
    pub fn usage(&self) -> CacheUse {
        CacheUse {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.entries.weight(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_within_its_bytes() {
        let cache = Segments::new(100_000);
        for number in 0..5_000_u32 {
            let text = format!("{number:0>60}");
            cache.keep(&text, &[number; 40]);
            let mut tokens = Vec::new();
            if cache.append(&text, &mut tokens) {
                assert_eq!(tokens, [number; 40]);
            }
        }
        let usage = cache.usage();
        assert!(usage.bytes <= 100_000 && usage.bytes > 20_000, "{usage:?}");
        assert_eq!(usage.hits + usage.misses, 5_000);
    }

    #[test]
    fn one_text_cannot_take_more_than_all() {
        let cache = Segments::new(10_000);
        cache.keep(&"x".repeat(50_000), &vec![1; 20_000]);
        assert!(cache.usage().bytes <= 10_000);
    }
}
