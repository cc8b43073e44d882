//! What is asked? Requests that match deeply, half, or not at all.

use std::ops::Range;

use crate::catalog::{BlockId, FOREIGN, tokens_of};
use crate::rng::Rng;
use crate::workload::Workload;

/// How much of a request is stored somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of it.
    Deep,
    /// The first half.
    Half,
    /// Nothing.
    Miss,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Deep, Self::Half, Self::Miss];

    /// How tables and targets call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deep => "deep",
            Self::Half => "half",
            Self::Miss => "miss",
        }
    }
}

/// One request.
pub struct Query {
    /// Its blocks.
    pub path: Vec<BlockId>,
    /// Its tokens.
    pub tokens: Vec<u32>,
}

impl Query {
    /// A request for these blocks.
    pub fn new(path: Vec<BlockId>) -> Self {
        let tokens = tokens_of(path.iter().copied());
        Self { path, tokens }
    }
}

/// The requests of a workload, the same for all contenders.
#[derive(Default)]
pub struct Queries {
    /// All of them: deep ones, then half ones, then misses.
    pub all: Vec<Query>,
    each: usize,
}

impl Queries {
    /// Draws `each` requests of every kind.
    pub fn draw(workload: &Workload, each: usize, rng: &mut Rng) -> Self {
        let mut all = Vec::with_capacity(each * Kind::ALL.len());
        let mut foreign = FOREIGN;
        for kind in Kind::ALL {
            for _ in 0..each {
                let sequence = &workload.sequences[rng.below(workload.sequences.len())];
                let length = sequence.path.len();
                let kept = match kind {
                    Kind::Deep => length,
                    Kind::Half => length / 2,
                    Kind::Miss => 0,
                };
                let mut path = sequence.path[..kept].to_vec();
                path.extend(foreign..foreign + (length - kept) as BlockId);
                foreign += (length - kept) as BlockId;
                all.push(Query::new(path));
            }
        }
        Self { all, each }
    }

    /// Requests for given paths, all of one kind.
    pub fn of(paths: impl IntoIterator<Item = Vec<BlockId>>) -> Self {
        let all: Vec<_> = paths.into_iter().map(Query::new).collect();
        let each = all.len();
        Self { all, each }
    }

    /// Where the requests of a kind are.
    pub fn places(&self, kind: Kind) -> Range<usize> {
        let start = kind as usize * self.each;
        start..start + self.each
    }
}
