//! What did a rank hold, and when? Answers "at some moment since" and "ever since".

use std::collections::BTreeMap;

use super::cache::{Cache, Entry};

/// The number of copies of every block on every tier, over time.
#[derive(Debug, Default)]
pub struct Truth {
    /// Changes, oldest first. Before the first there was none.
    changes: BTreeMap<Entry, Vec<(u64, u32)>>,
    /// What is held now.
    held: BTreeMap<Entry, u32>,
}

/// The fewest and the most copies over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The fewest at any moment.
    pub fewest: u32,
    /// The most at any moment.
    pub most: u32,
}

impl Truth {
    /// From now on, this is what is held.
    pub fn record(&mut self, now_ms: u64, cache: &Cache) {
        let held = cache.entries();
        if *held == self.held {
            return;
        }
        for entry in self.held.keys().filter(|entry| !held.contains_key(entry)) {
            self.changes.entry(*entry).or_default().push((now_ms, 0));
        }
        for (entry, copies) in held
            .iter()
            .filter(|(entry, copies)| self.held.get(entry) != Some(copies))
        {
            self.changes.entry(*entry).or_default().push((now_ms, *copies));
        }
        self.held.clone_from(held);
    }

    /// How many copies there were from a moment on until now.
    pub fn since(&self, from_ms: u64, entry: Entry) -> Span {
        let changes = self.changes.get(&entry).map_or(&[][..], Vec::as_slice);
        let mut span: Option<Span> = None;
        let mut widen = |copies: u32| {
            let before = span.unwrap_or(Span {
                fewest: copies,
                most: copies,
            });
            span = Some(Span {
                fewest: before.fewest.min(copies),
                most: before.most.max(copies),
            });
        };
        for (at_ms, copies) in changes.iter().rev() {
            widen(*copies);
            // What was held just before the moment counts as well.
            if *at_ms < from_ms {
                return span.unwrap_or(Span { fewest: 0, most: 0 });
            }
        }
        widen(0);
        span.unwrap_or(Span { fewest: 0, most: 0 })
    }

    /// What is held now.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.held.keys().copied()
    }

    /// When a block was last there, for people.
    pub fn last_held(&self, entry: Entry) -> Option<u64> {
        let changes = self.changes.get(&entry)?;
        changes
            .iter()
            .rev()
            .find(|(_, copies)| *copies == 0)
            .map(|(at_ms, _)| *at_ms)
    }
}

#[cfg(test)]
mod tests {
    use homing_domain::Tier;
    use homing_index::Copies;

    use super::super::blocks::Blocks;
    use super::*;

    #[test]
    fn it_knows_what_was_held_when() {
        let mut blocks = Blocks::new();
        let key = blocks.child(blocks.root(), 1);
        let entry = (key, Tier::Device);
        let (mut truth, mut cache) = (Truth::default(), Cache::new(Copies::Counted));
        for (at_ms, count) in [(10, 1), (20, 2), (30, 0)] {
            cache.clear();
            (0..count).for_each(|_| cache.store(&blocks, entry));
            truth.record(at_ms, &cache);
        }
        let span = |from| {
            let span = truth.since(from, entry);
            (span.fewest, span.most)
        };
        assert_eq!(span(5), (0, 2));
        assert_eq!(span(15), (0, 2));
        assert_eq!(span(25), (0, 2));
        assert_eq!(span(31), (0, 0));
        assert_eq!(truth.last_held(entry), Some(30));
    }
}
