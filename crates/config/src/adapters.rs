//! Where are LoRA adapters put, and how fast?

use std::time::Duration;

use crate::choices::AdapterMethod;
use crate::knob::Value;
use crate::table::KnobId;

/// How `homing serve` puts adapters where they are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterLimits {
    /// How they are given to workers.
    pub method: AdapterMethod,
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
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let count = |id| match value(id) {
            Value::Count(count) => u32::try_from(count).expect("ranges of 32-bit knobs end below 2^32"),
            other => unreachable!("{id:?} is {other:?}, not a count"),
        };
        let time = |id| match value(id) {
            Value::Time(time) => time,
            other => unreachable!("{id:?} is {other:?}, not a time"),
        };
        Self {
            method: match value(KnobId::AdaptersMethod) {
                Value::Choice(place) => AdapterMethod::ALL[place],
                other => unreachable!("how adapters are placed is {other:?}"),
            },
            slots: count(KnobId::AdaptersSlots),
            round: time(KnobId::AdaptersRound),
            window: time(KnobId::AdaptersWindow),
            headroom: match value(KnobId::AdaptersHeadroom) {
                Value::Ratio(ratio) => ratio,
                other => unreachable!("{other:?} is not a ratio"),
            },
            down_rounds: count(KnobId::AdaptersDownRounds),
            at_once: count(KnobId::AdaptersAtOnce),
            load_timeout: time(KnobId::AdaptersLoadTimeout),
            unload_timeout: time(KnobId::AdaptersUnloadTimeout),
            expected_load: time(KnobId::AdaptersExpectedLoad),
            tries: count(KnobId::AdaptersTries),
            backoff: time(KnobId::AdaptersBackoff),
            backoff_most: time(KnobId::AdaptersBackoffMost),
        }
    }
}
