//! Who takes part?

use crate::catalog::Labels;
use crate::contender::{Contender, Harness};
use crate::dynamo::{Positional, Tree};
#[cfg(feature = "ours")]
use crate::ours::Ours;
use crate::smg::Smg;

/// Our index.
pub const OURS: &str = "homing";
/// Dynamo's concurrent compressed radix tree.
pub const TREE: &str = "dynamo tree";
/// Dynamo's positional index in binary mode.
pub const POSITIONAL: &str = "dynamo positional";
/// smg's `ChainIndex`.
pub const SMG: &str = "smg chain";

/// All contenders, in the order of the tables.
pub const ALL: [&str; 4] = [OURS, TREE, POSITIONAL, SMG];

/// Whether a contender can take such labels. Dynamo's positional index works only where labels are its own chain hashes;
/// its tree takes private labels but refuses most stores below a block that another worker named otherwise, so that its
/// figures would be those of an almost empty index.
pub fn takes(name: &str, labels: Labels) -> bool {
    labels == Labels::Shared || matches!(name, OURS | SMG)
}

/// Those that can take such labels, each empty.
pub fn all(workers: u16, labels: Labels) -> Vec<Box<dyn Contender>> {
    ALL.into_iter()
        .filter(|name| takes(name, labels))
        .filter_map(|name| one(name, workers, labels))
        .collect()
}

/// One contender, empty; `None` where it was not compiled in.
pub fn one(name: &'static str, workers: u16, labels: Labels) -> Option<Box<dyn Contender>> {
    let workers = usize::from(workers);
    match name {
        #[cfg(feature = "ours")]
        OURS => Some(Box::new(Harness::new(OURS, labels, workers, Ours::new(workers)))),
        TREE => Some(Box::new(Harness::new(TREE, labels, workers, Tree::new()))),
        POSITIONAL => Some(Box::new(Harness::new(POSITIONAL, labels, workers, Positional::new()))),
        SMG => Some(Box::new(Harness::new(SMG, labels, workers, Smg::new(workers)))),
        _ => None,
    }
}
