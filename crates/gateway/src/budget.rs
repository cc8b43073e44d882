//! How many retries are too many? Each request earns a part of one; what is earned and not spent is kept up to a bound.
//!
//! **Invariant:** over any time, retries are at most `share` of the requests, and a few more to begin with.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Thousandths of a retry.
const WHOLE: i64 = 1_000;
/// Retries that there are to begin with, and that are kept at most: as many as a worker that dies has requests.
const KEPT: i64 = 256;

/// The retries that may still be made.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicI64,
    earned: i64,
}

impl Budget {
    /// So many retries for each request.
    pub(crate) fn new(share: f64) -> Self {
        Self {
            left: AtomicI64::new(KEPT * WHOLE),
            earned: (share * WHOLE as f64) as i64,
        }
    }

    /// A request came.
    pub(crate) fn earn(&self) {
        let add = |left: i64| (left < KEPT * WHOLE).then(|| (left + self.earned).min(KEPT * WHOLE));
        // It is full, or it is added.
        let _ = self.left.fetch_update(Relaxed, Relaxed, add);
    }

    /// Whether one may be made now.
    pub(crate) fn spend(&self) -> bool {
        let take = |left: i64| (left >= WHOLE).then_some(left - WHOLE);
        self.left.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_requests() {
        let budget = Budget::new(0.2);
        while budget.spend() {}
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.earn();
            retries += u32::from(budget.spend());
        }
        assert_eq!(retries, 200);
        for _ in 0..10_000 {
            budget.earn();
        }
        let saved = (0..10 * KEPT).take_while(|_| budget.spend()).count();
        assert_eq!(saved, KEPT as usize);
    }
}
