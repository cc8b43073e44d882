//! How much will a request still generate? From what requests of its kind generated before, never from what it was allowed to.
//!
//! Lengths are counted in buckets that grow by a quarter; counts are halved when there are many, so that old ones fade.
//!
//! **Invariant:** at most [`MOST_KINDS`] kinds are told apart; those beyond it share one.

use homing_domain::Tokens;
use rustc_hash::FxHashMap;

/// Kinds of requests that are told apart.
pub const MOST_KINDS: usize = 4_096;
const BUCKETS: usize = 64;
/// Where this many were counted, all counts are halved.
const MOST_COUNTED: u32 = 4_096;
/// Below this many, all kinds together say more.
const ENOUGH: u32 = 16;

/// A kind of requests: a model and a tenant, by a number that the router gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u64);

#[derive(Clone, Debug)]
struct Histogram {
    counts: [u32; BUCKETS],
    total: u32,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            total: 0,
        }
    }
}

/// The lengths that were seen.
#[derive(Clone, Debug)]
pub struct Lengths {
    kinds: FxHashMap<Kind, Histogram>,
    all: Histogram,
    /// What is expected before anything was seen.
    pub at_first: Tokens,
}

impl Lengths {
    /// Nothing was seen yet.
    pub fn new(at_first: Tokens) -> Self {
        Self {
            kinds: FxHashMap::default(),
            all: Histogram::default(),
            at_first,
        }
    }

    /// A request of this kind generated so much.
    pub fn saw(&mut self, kind: Kind, generated: Tokens) {
        self.all.add(generated);
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&kind) {
            self.kinds.entry(kind).or_default().add(generated);
        }
    }

    /// How much a request will generate in all that has generated so much already: the length that a share `quantile` of those
    /// which came so far did not exceed.
    pub fn expected(&self, kind: Kind, generated: Tokens, quantile: f64) -> Tokens {
        let own = self.kinds.get(&kind).and_then(|own| own.expected(generated, quantile));
        let any = own.or_else(|| self.all.expected(generated, quantile));
        any.unwrap_or(Tokens(self.at_first.0.max(generated.0.saturating_mul(2))))
    }
}

impl Histogram {
    fn add(&mut self, generated: Tokens) {
        if self.total >= MOST_COUNTED {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        self.counts[bucket(generated)] += 1;
        self.total += 1;
    }

    fn expected(&self, generated: Tokens, quantile: f64) -> Option<Tokens> {
        let first = if generated.0 == 0 { 0 } else { bucket(generated) };
        let left: u32 = self.counts[first..].iter().sum();
        if left < ENOUGH {
            return None;
        }
        let mut needed = (f64::from(left) * quantile.clamp(0.0, 1.0)).ceil().max(1.0);
        for (at, count) in self.counts.iter().enumerate().skip(first) {
            needed -= f64::from(*count);
            if needed <= 0.0 {
                return Some(Tokens(end_of(at).max(generated.0.saturating_add(1))));
            }
        }
        None
    }
}

fn bucket(generated: Tokens) -> usize {
    let place = f64::from(generated.0.max(1)).ln() / 1.25_f64.ln();
    (place.ceil() as usize).min(BUCKETS - 1)
}

/// The greatest length of a bucket.
fn end_of(bucket: usize) -> u32 {
    1.25_f64.powf(bucket as f64).floor() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kind_did_is_expected_of_it_and_more_of_those_that_came_further() {
        let mut lengths = Lengths::new(Tokens(200));
        let (short, new) = (Kind(1), Kind(2));
        assert_eq!(lengths.expected(short, Tokens(0), 0.5), Tokens(200));
        for _ in 0..80 {
            lengths.saw(short, Tokens(50));
        }
        for _ in 0..20 {
            lengths.saw(short, Tokens(1_000));
        }
        let near = |expected: Tokens, length: u32| (length..=length * 5 / 4).contains(&expected.0);
        assert!(near(lengths.expected(short, Tokens(0), 0.5), 50));
        assert!(near(lengths.expected(short, Tokens(0), 0.9), 1_000));
        assert!(
            near(lengths.expected(short, Tokens(100), 0.5), 1_000),
            "the short ones have ended by then"
        );
        assert!(near(lengths.expected(new, Tokens(0), 0.5), 50), "as all kinds together");
        assert_eq!(
            lengths.expected(short, Tokens(5_000), 0.5),
            Tokens(10_000),
            "nobody ever came so far"
        );
    }

    #[test]
    fn what_was_long_ago_fades_and_kinds_are_bounded() {
        let mut lengths = Lengths::new(Tokens(1));
        for kind in 0..10_000 {
            lengths.saw(Kind(kind), Tokens(10));
        }
        assert_eq!(lengths.kinds.len(), MOST_KINDS);
        for _ in 0..20_000 {
            lengths.saw(Kind(1), Tokens(3_000));
        }
        assert!(lengths.expected(Kind(1), Tokens(0), 0.1).0 >= 3_000);
    }
}
