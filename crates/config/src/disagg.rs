//! How are requests served whose prompt and answer are computed by different workers?

use std::time::Duration;

use homing_domain::Tokens;

use crate::choices::{DisaggWhen, Switch};
use crate::table::KnobId;
use crate::values::{NONE, Values};

const SAME: &str = "same";

/// Requests that two workers serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagg {
    /// Whether there must be two.
    pub require: Switch,
    /// When there are two.
    pub when: DisaggWhen,
    /// What it weighs that those who generate wait while a prompt is computed among them, as predicted,
    pub stall: f64,
    /// and by which share two have to be better.
    pub margin: f64,
    /// Below so many tokens to compute there is one, by rule,
    pub uncached_tokens: Tokens,
    /// if they are also less than this share.
    pub uncached_share: f64,
    /// Between whom KV may travel, as it was written.
    topology: String,
    /// The policy for prompts, if it is one of their own.
    pub prefill_policy: Option<String>,
    /// The policy for answers, if it is one of their own.
    pub decode_policy: Option<String>,
    /// How long a prefill worker may take.
    pub prefill_timeout: Duration,
    /// How long a decode worker may take to begin.
    pub begin_timeout: Duration,
    /// How long KV is kept that nobody fetches.
    pub lease: Duration,
    /// Prompt tokens that may be queued on a prefill rank, if there is a limit.
    pub queued_tokens: Option<u64>,
    /// The share of a cache that may be staged.
    pub staged_share: f64,
    /// How fast KV travels, in gigabits per second; 0 if that is not known.
    pub link: f64,
}

/// Between whom KV may travel.
#[derive(Clone, Debug, PartialEq)]
pub enum TopologyRule {
    /// Between workers with the same value of this label only.
    Required(String),
    /// Pairs with the same value of this label are preferred by so much.
    Preferred(String, f64),
}

/// Why rules of where KV may travel cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`disagg.topology` has `{0}`, and expected is a label with `required` or a number from 0 to 1, as in `zone=required,rack=0.5`"
)]
pub struct BadTopology(String);

impl Disagg {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            require: of.choice(Switch::ALL, KnobId::RequireDisagg),
            when: of.choice(DisaggWhen::ALL, KnobId::DisaggWhen),
            stall: of.ratio(KnobId::DisaggStall),
            margin: of.ratio(KnobId::DisaggMargin),
            uncached_tokens: Tokens(of.small(KnobId::DisaggUncachedTokens)),
            uncached_share: of.ratio(KnobId::DisaggUncachedShare),
            topology: of.name(KnobId::DisaggTopology),
            prefill_policy: of.name_unless(SAME, KnobId::DisaggPrefillPolicy),
            decode_policy: of.name_unless(SAME, KnobId::DisaggDecodePolicy),
            prefill_timeout: of.time(KnobId::DisaggPrefillTimeout),
            begin_timeout: of.time(KnobId::DisaggBeginTimeout),
            lease: of.time(KnobId::DisaggLease),
            queued_tokens: Some(of.count(KnobId::DisaggQueuedTokens)).filter(|most| *most > 0),
            staged_share: of.ratio(KnobId::DisaggStagedShare),
            link: of.ratio(KnobId::DisaggLink),
        }
    }

    /// Between whom KV may travel.
    pub fn topology(&self) -> Result<Vec<TopologyRule>, BadTopology> {
        if self.topology == NONE {
            return Ok(Vec::new());
        }
        self.topology.split(',').map(rule).collect()
    }
}

fn rule(text: &str) -> Result<TopologyRule, BadTopology> {
    let bad = || BadTopology(text.to_owned());
    let (label, how) = text.trim().split_once('=').ok_or_else(bad)?;
    if label.is_empty() {
        return Err(bad());
    }
    if how == "required" {
        return Ok(TopologyRule::Required(label.to_owned()));
    }
    let weight: f64 = how.parse().map_err(|_| bad())?;
    if !(0.0..=1.0).contains(&weight) {
        return Err(bad());
    }
    Ok(TopologyRule::Preferred(label.to_owned(), weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_where_kv_may_travel_are_read() {
        let disagg = |topology: &str| Disagg {
            topology: topology.to_owned(),
            ..crate::Config::default().disagg
        };
        assert_eq!(disagg("none").topology(), Ok(Vec::new()));
        assert_eq!(
            disagg("zone=required, rack=0.5").topology(),
            Ok(vec![
                TopologyRule::Required("zone".to_owned()),
                TopologyRule::Preferred("rack".to_owned(), 0.5)
            ])
        );
        for bad in ["zone", "=required", "rack=2", "rack=much"] {
            assert!(disagg(bad).topology().is_err(), "{bad}");
        }
    }
}
