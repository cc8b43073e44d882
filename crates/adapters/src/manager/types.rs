//! What a manager is told and says.

use std::sync::Arc;

use homing_domain::{AdapterName, WorkerId};
use homing_profile::{Millis, Time};

use crate::demand::DemandConfig;
use crate::placement::Method;

/// Bounds and times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagerConfig {
    /// How demand is measured.
    pub demand: DemandConfig,
    /// How places are found.
    pub method: Method,
    /// How often a plan is made.
    pub round: Millis,
    /// How much more than its share of the workers an adapter gets.
    pub headroom: f64,
    /// Rounds for which a count must be too high before it falls.
    pub down_rounds: u32,
    /// Commands under way at once, in all.
    pub at_once: usize,
    /// How long a load may take, and an unload.
    pub load_within: Millis,
    /// The same for an unload.
    pub unload_within: Millis,
    /// How long a load takes, before one was seen.
    pub expected_load: Millis,
    /// How often a load is tried on a worker before it is left alone.
    pub tries: u32,
    /// The pause after the first failure; it doubles with each.
    pub backoff: Millis,
    /// The longest of these, and how long a load is left alone after its last try.
    pub backoff_most: Millis,
    /// Adapters that are known by name.
    pub most: usize,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            demand: DemandConfig::default(),
            method: Method::Rendezvous,
            round: Millis(3_000.0),
            headroom: 1.5,
            down_rounds: 5,
            at_once: 8,
            load_within: Millis(60_000.0),
            unload_within: Millis(10_000.0),
            expected_load: Millis(500.0),
            tries: 3,
            backoff: Millis(1_000.0),
            backoff_most: Millis(300_000.0),
            most: 4_096,
        }
    }
}

/// Whether an adapter stays when nobody asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinned {
    /// It does.
    Yes,
    /// It does not, if its slot is needed.
    #[default]
    No,
}

/// A worker that serves adapters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Which.
    pub worker: WorkerId,
    /// What it is called, today and after a restart.
    pub name: Arc<str>,
    /// Its ranks.
    pub ranks: u16,
    /// The slots of each.
    pub slots: u32,
}

/// A command that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Load it from here.
    Load {
        /// A path or an address, as engines take it.
        source: Arc<str>,
    },
    /// Unload it.
    Unload,
}

/// Something to be done by a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// To say what came of it.
    pub job: JobId,
    /// By whom.
    pub worker: WorkerId,
    /// With what.
    pub adapter: AdapterName,
    /// What.
    pub act: Act,
    /// It must be over after this.
    pub within: Millis,
}

/// A load that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// How often in a row.
    pub tries: u32,
    /// It is not tried before this.
    pub until: Time,
    /// Why, in the words of who tried.
    pub why: Arc<str>,
}

/// What a request that was sent to a worker finds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The adapter, which stays until the request has left.
    Ready,
    /// Not the adapter, or not for long.
    Absent,
}

/// Why an adapter cannot be known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There are too many.
    #[error("{0} adapters are known, which is the limit")]
    Full(usize),
}

/// What happened since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads that succeeded.
    pub loads: u64,
    /// Loads that failed.
    pub failed_loads: u64,
    /// Unloads that succeeded.
    pub unloads: u64,
    /// Unloads that failed.
    pub failed_unloads: u64,
}
