//! What is known of sessions, if there are more of them than fit?
//!
//! Two generations: when the younger one is full, it becomes the older one, and what was the older one is forgotten. What is
//! looked at moves to the younger one.
//!
//! **Invariant:** at most twice the limit is known, and the last `limit` sessions that were looked at are.

use rustc_hash::FxHashMap;

use crate::request::SessionId;

#[derive(Clone, Debug)]
pub(crate) struct Recent<V> {
    young: FxHashMap<SessionId, V>,
    old: FxHashMap<SessionId, V>,
    limit: usize,
}

impl<V> Recent<V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            limit: limit.max(1),
        }
    }

    pub(crate) fn insert(&mut self, session: SessionId, value: V) {
        self.old.remove(&session);
        if self.young.len() >= self.limit && !self.young.contains_key(&session) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(session, value);
    }

    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut V> {
        if let Some(value) = self.old.remove(&session) {
            self.insert(session, value);
        }
        self.young.get_mut(&session)
    }

    pub(crate) fn remove(&mut self, session: SessionId) -> Option<V> {
        self.old.remove(&session).or_else(|| self.young.remove(&session))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

impl Recent<()> {
    /// Notes a session; whether it was known.
    pub(crate) fn note(&mut self, session: SessionId) -> bool {
        let known = self.get_mut(session).is_some();
        if !known {
            self.insert(session, ());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_known_and_memory_is_bounded() {
        let mut recent = Recent::new(10);
        for number in 0..1_000 {
            assert!(!recent.note(SessionId::numbered(number)));
            // This one is looked at all the time.
            recent.note(SessionId::numbered(0));
            assert!(recent.len() <= 20);
            for last in number.saturating_sub(8)..=number {
                let known = recent.young.contains_key(&SessionId::numbered(last))
                    || recent.old.contains_key(&SessionId::numbered(last));
                assert!(known, "{last} of {number}");
            }
        }
        assert!(recent.note(SessionId::numbered(0)));
        assert!(!recent.note(SessionId::numbered(500)));
    }
}
