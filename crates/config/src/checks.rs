//! What must hold between fields?
//!
//! Ranges are checked knob by knob; what two knobs must be to each other is said here, once. A check that fails names
//! both, with what they were set to and where.

use crate::choices::CacheView;
use crate::config::Config;
use crate::table::KnobId;

/// A rule about two knobs.
#[derive(Debug)]
pub struct Check {
    /// The knob that the rule is about.
    pub left: KnobId,
    /// What it must be to the other, as it is said between their names.
    pub rule: &'static str,
    /// The other.
    pub right: KnobId,
    /// When the rule applies, as said after "when"; empty if always.
    pub when: &'static str,
    /// Whether it holds, or does not apply.
    pub holds: fn(&Config) -> bool,
}

/// Every rule.
pub static CHECKS: &[Check] = &[
    Check {
        left: KnobId::ApproximateMaxBlocks,
        rule: "must not exceed",
        right: KnobId::Capacity,
        when: "`index.cache-view` is `approximate`",
        holds: |config| {
            config.index.cache_view != CacheView::Approximate || config.approximate.max_blocks <= config.index.capacity
        },
    },
    Check {
        left: KnobId::OrphansPerRank,
        rule: "must not exceed",
        right: KnobId::Capacity,
        when: "",
        holds: |config| config.index.orphans_per_rank <= config.index.capacity,
    },
    Check {
        left: KnobId::FeedRepairTimeout,
        rule: "must not exceed",
        right: KnobId::FeedRepairLimit,
        when: "",
        holds: |config| config.feed.repair_timeout <= config.feed.repair_limit,
    },
    Check {
        left: KnobId::AgentHeartbeat,
        rule: "must not exceed",
        right: KnobId::FeedVerifyWithin,
        when: "",
        holds: |config| config.agent.heartbeat <= config.feed.verify_within,
    },
    Check {
        left: KnobId::DnsLeast,
        rule: "must not exceed",
        right: KnobId::DnsMost,
        when: "",
        holds: |config| config.discovery.dns_least <= config.discovery.dns_most,
    },
    Check {
        left: KnobId::Lease,
        rule: "must not exceed",
        right: KnobId::LeaseMost,
        when: "",
        holds: |config| config.discovery.lease <= config.discovery.lease_most,
    },
    Check {
        left: KnobId::HealthBackoff,
        rule: "must not exceed",
        right: KnobId::HealthBackoffMost,
        when: "",
        holds: |config| config.health.backoff <= config.health.backoff_most,
    },
    Check {
        left: KnobId::HealthStallSuspectAfter,
        rule: "must not exceed",
        right: KnobId::HealthStallEjectAfter,
        when: "",
        holds: |config| config.health.stall.suspect_after <= config.health.stall.eject_after,
    },
    Check {
        left: KnobId::IndexRecord,
        rule: "excludes",
        right: KnobId::IndexFrom,
        when: "",
        holds: |config| config.indexer.record.is_none() || config.indexer.from.is_none(),
    },
    Check {
        left: KnobId::ServeTlsCert,
        rule: "must be given together with",
        right: KnobId::ServeTlsKey,
        when: "",
        holds: |config| {
            let tls = &config.serve.security.tls;
            tls.cert.is_some() == tls.key.is_some()
        },
    },
    Check {
        left: KnobId::IndexTlsCert,
        rule: "must be given together with",
        right: KnobId::IndexTlsKey,
        when: "",
        holds: |config| config.indexer.http.cert.is_some() == config.indexer.http.key.is_some(),
    },
    Check {
        left: KnobId::AgentTlsCert,
        rule: "must be given together with",
        right: KnobId::AgentTlsKey,
        when: "",
        holds: |config| config.agent.http.cert.is_some() == config.agent.http.key.is_some(),
    },
    Check {
        // One more comes later.
        left: KnobId::DemoWorkers,
        rule: "must be less than",
        right: KnobId::MaxRanks,
        when: "",
        holds: |config| config.demo.workers < config.index.max_ranks,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass() {
        let config = Config::default();
        for check in CHECKS {
            assert!((check.holds)(&config), "{check:?}");
        }
    }

    #[test]
    fn a_rule_is_about_two_different_knobs() {
        for check in CHECKS {
            assert_ne!(check.left, check.right);
        }
    }
}
