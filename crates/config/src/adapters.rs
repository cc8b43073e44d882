//! Where are LoRA adapters put, and how fast?

use std::path::PathBuf;
use std::time::Duration;

use crate::choices::AdapterMethod;
use crate::table::KnobId;
use crate::values::Values;

/// How `homing serve` puts adapters where they are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterLimits {
    /// How they are given to workers.
    pub method: AdapterMethod,
    /// Where those that operators told of are kept over a restart, if they are.
    pub catalogue: Option<PathBuf>,
    /// Slots of a rank whose engine does not say it.
    pub slots: u32,
    /// How often it is worked out where they should be.
    pub round: Duration,
    /// How far back requests count.
    pub window: Duration,
    /// How many times its share of the busy workers an adapter gets.
    pub headroom: f64,
    /// Rounds before a count falls.
    pub down_rounds: u32,
    /// Loads and unloads at once.
    pub at_once: u32,
    /// How long a load may take.
    pub load_timeout: Duration,
    /// How long an unload may take.
    pub unload_timeout: Duration,
    /// How long a load is expected to take before one was seen.
    pub expected_load: Duration,
    /// Tries of a load before it is left alone.
    pub tries: u32,
    /// The pause after the first failure.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_most: Duration,
}

impl AdapterLimits {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            method: of.choice(AdapterMethod::ALL, KnobId::AdaptersMethod),
            catalogue: of.file(KnobId::AdaptersCatalogue),
            slots: of.small(KnobId::AdaptersSlots),
            round: of.time(KnobId::AdaptersRound),
            window: of.time(KnobId::AdaptersWindow),
            headroom: of.ratio(KnobId::AdaptersHeadroom),
            down_rounds: of.small(KnobId::AdaptersDownRounds),
            at_once: of.small(KnobId::AdaptersAtOnce),
            load_timeout: of.time(KnobId::AdaptersLoadTimeout),
            unload_timeout: of.time(KnobId::AdaptersUnloadTimeout),
            expected_load: of.time(KnobId::AdaptersExpectedLoad),
            tries: of.small(KnobId::AdaptersTries),
            backoff: of.time(KnobId::AdaptersBackoff),
            backoff_most: of.time(KnobId::AdaptersBackoffMost),
        }
    }
}
