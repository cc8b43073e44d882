//! Which metrics are there? This is the one place that says so.
//!
//! Names are `homing_<area>_<noun>_<unit>[_total]`; the doc comment of a field is its help text. After an edit, write the
//! reference page anew with `HOMING_BLESS=1 cargo test -p homing-telemetry`; a test fails until that is done.

use crate::declare::{Declaration, metrics};
use crate::metric::{Counter, Gauge, Histogram, LabelValue, PerLabel};

/// Everything Homing tells about itself. One per process; shared by reference, updated from any thread.
#[derive(Debug, Default)]
pub struct Metrics {
    /// About the prefix index.
    pub index: IndexMetrics,
}

impl Metrics {
    /// Everything that is declared, area by area.
    pub fn declarations() -> impl Iterator<Item = &'static Declaration> {
        IndexMetrics::DECLARATIONS.iter()
    }

    /// The Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut out = String::new();
        self.index.render_into(&mut out);
        out
    }
}

/// What an applied event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Blocks came.
    Stored,
    /// Blocks went.
    Removed,
    /// A rank, or one of its tiers, was emptied.
    Cleared,
}

impl Change {
    /// All of them, in the order of their label values.
    pub const ALL: [Self; 3] = [Self::Stored, Self::Removed, Self::Cleared];
}

impl LabelValue for Change {
    const NAME: &'static str = "change";
    const VALUES: &'static [&'static str] = &["stored", "removed", "cleared"];

    fn place(self) -> usize {
        self as usize
    }
}

metrics! {
    /// About the prefix index.
    pub struct IndexMetrics {
        /// Distinct blocks that at least one rank holds.
        distinct_blocks: Gauge = "homing_index_distinct_blocks",
        /// Pairs of a block and a rank that holds it.
        held_entries: Gauge = "homing_index_held_entries",
        /// Runs that the distinct blocks are kept in.
        live_runs: Gauge = "homing_index_live_runs",
        /// Ranks that have a slot.
        live_ranks: Gauge = "homing_index_live_ranks",
        /// Blocks kept aside because their parent is not known on their rank. They count for nothing until it is.
        orphan_blocks: Gauge = "homing_index_orphan_blocks",
        /// Ranks of which blocks were forgotten for want of room. Their answers may be too low, never too high.
        truncated_ranks: Gauge = "homing_index_truncated_ranks",
        /// Memory that the index has taken from the system.
        memory_bytes: Gauge = "homing_index_memory_bytes",
        /// Events applied.
        applied_events: PerLabel<Change, Counter> = "homing_index_applied_events_total",
        /// Blocks forgotten because the capacity was reached.
        evicted_blocks: Counter = "homing_index_evicted_blocks_total",
        /// Labels that came to name another block on the same rank than before.
        label_conflicts: Counter = "homing_index_label_conflicts_total",
        /// Removals of labels that the rank does not hold.
        unknown_removals: Counter = "homing_index_unknown_removals_total",
        /// Lookups answered.
        prefix_lookups: Counter = "homing_index_prefix_lookups_total",
        /// Lookups whose answer is not that of one instant, because writes kept moving under them.
        unsettled_lookups: Counter = "homing_index_unsettled_lookups_total",
        /// Time from keys to answer.
        lookup_duration: Histogram = "homing_index_lookup_duration_seconds",
        /// Time of one uninterrupted piece of the writer's work.
        write_slice: Histogram = "homing_index_write_slice_seconds",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricKind;
    use std::collections::BTreeSet;

    const AREAS: &[&str] = &["index"];
    const UNITS: &[&str] = &[
        "blocks",
        "bytes",
        "conflicts",
        "entries",
        "events",
        "lookups",
        "ranks",
        "removals",
        "runs",
        "seconds",
    ];

    fn breach(declaration: &Declaration) -> Option<&'static str> {
        let mut words: Vec<&str> = declaration.name.split('_').collect();
        if words
            .iter()
            .any(|word| word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_lowercase()))
        {
            return Some("words are lower case");
        }
        let total = words.last() == Some(&"total");
        if total != (declaration.kind == MetricKind::Counter) {
            return Some("counters, and only they, end in _total");
        }
        if total {
            words.pop();
        }
        if words.len() < 4 || words[0] != "homing" {
            return Some("homing_<area>_<noun>_<unit>");
        }
        if !AREAS.contains(&words[1]) {
            return Some("unknown area");
        }
        if !words.last().is_some_and(|unit| UNITS.contains(unit)) {
            return Some("unknown unit");
        }
        if !declaration.help.ends_with('.') || declaration.help.contains(['\n', '|']) {
            return Some("help is a sentence");
        }
        match declaration.label {
            Some((_, values)) if values.is_empty() || values.len() > 16 => Some("labels take a few values"),
            _ => None,
        }
    }

    #[test]
    fn names_keep_the_rules() {
        let mut names = BTreeSet::new();
        for declaration in Metrics::declarations() {
            assert_eq!(breach(declaration), None, "{}", declaration.name);
            assert!(names.insert(declaration.name), "{} is declared twice", declaration.name);
        }
    }

    #[test]
    fn names_that_break_the_rules_are_found() {
        let good = Declaration {
            name: "homing_index_prefix_lookups_total",
            kind: MetricKind::Counter,
            help: "Help.",
            label: None,
        };
        assert_eq!(breach(&good), None);
        for name in [
            "homing_index_lookups_total",
            "homing_index_prefix_lookups",
            "homing_gateway_prefix_lookups_total",
            "homing_index_prefix_things_total",
            "homing_Index_prefix_lookups_total",
            "vllm_index_prefix_lookups_total",
        ] {
            assert!(breach(&Declaration { name, ..good }).is_some(), "{name}");
        }
        assert!(
            breach(&Declaration {
                help: "no sentence",
                ..good
            })
            .is_some()
        );
        assert!(
            breach(&Declaration {
                label: Some(("user", &[])),
                ..good
            })
            .is_some()
        );
    }
}
