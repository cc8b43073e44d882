//! How many of each adapter, and on which workers?
//!
//! [`replicas`] says how many, from demand. Where they go is worked out in one of two ways ([`Method`]):
//!
//! - *rendezvous*: every adapter has an order of workers of its own, which follows from their names alone. It is at home on the first
//!   of them, as many as it has replicas, and goes down its order where there is no room. Who is there already stays if others
//!   come, and goes home when there is room at home again;
//! - *min-cost*: the assignment that moves least, and among those the one that spreads adapters most evenly. Nobody goes home.
//!
//! **Invariant:** no worker is given more adapters than it has slots, and no adapter twice to one worker.
//!
//! **Invariant:** what is placed depends on names, slots, counts and on what is where; not on numbers that change with a restart.
//!
//! Cost: rendezvous takes time by adapters times workers; min-cost solves a flow over what is not yet where it can stay, with a few
//! candidates for each adapter.

mod flow;
mod rendezvous;
pub mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homing_domain::{AdapterName, WorkerId};

/// On which workers each adapter should be.
pub type Plan = BTreeMap<AdapterName, BTreeSet<WorkerId>>;

/// How places are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By names, with a home for everybody.
    #[default]
    Rendezvous,
    /// By what has to be moved.
    MinCost,
}

impl Method {
    /// As settings and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rendezvous => "rendezvous",
            Self::MinCost => "min-cost",
        }
    }
}

/// A worker as a place for adapters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Which.
    pub worker: WorkerId,
    /// What it is called, today and after a restart.
    pub name: Arc<str>,
    /// How many adapters it takes.
    pub slots: u32,
}

/// An adapter that is to be placed. Those that come first are placed first where there is not enough room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub adapter: AdapterName,
    /// On how many workers.
    pub replicas: u32,
    /// The workers that have it.
    pub has: BTreeSet<WorkerId>,
    /// Workers where it cannot be loaded at present.
    pub not: BTreeSet<WorkerId>,
}

/// Finds places. Adapters for which there is no room are given fewer than they want, or none.
pub fn place(method: Method, wanted: &[Wanted], sites: &[Site]) -> Plan {
    match method {
        Method::Rendezvous => rendezvous::place(wanted, sites),
        Method::MinCost => flow::place(wanted, sites),
    }
}

/// The workers in the order in which an adapter would go to them, best first, as places in `sites`.
pub fn order(adapter: &AdapterName, sites: &[Site]) -> Vec<usize> {
    let of_adapter = hash(adapter.as_str());
    let mut order: Vec<(u64, usize)> = sites
        .iter()
        .enumerate()
        .map(|(at, site)| (score(of_adapter, &site.name), at))
        .collect();
    order.sort_by(|(one, a), (other, b)| other.cmp(one).then_with(|| sites[*a].name.cmp(&sites[*b].name)));
    order.into_iter().map(|(_, at)| at).collect()
}

/// How much an adapter likes a worker. The same on every machine and in every version.
fn score(adapter: u64, worker: &str) -> u64 {
    mix(adapter ^ mix(hash(worker)))
}

/// FNV-1a, which is short and spreads names well enough to be mixed.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The last steps of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
