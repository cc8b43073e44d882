//! How is a policy with weights of its own written? `NAME[:WEIGHT=VALUE]...`, such as `time:decode=10:error=0.1`.

use thiserror::Error;

use super::{BlockCost, Policy, PredictedTime, UnknownPolicy, by_name};

/// What is wrong with a policy as it is written.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// It has no such weight.
    #[error("the policy `{policy}` has no weight `{weight}`{}", known(.policy))]
    NoWeight {
        /// Of which.
        policy: String,
        /// What was written.
        weight: String,
    },
    /// A weight is none.
    #[error("{weight} of the policy `{policy}` is {value:?}, expected a number from 0 to {MOST}")]
    Value {
        /// Of which.
        policy: String,
        /// Of which weight.
        weight: String,
        /// What was written.
        value: String,
    },
}

/// The greatest weight.
const MOST: f64 = 1_000.0;
/// Weights, by policy.
const WEIGHTS: [(&str, &[&str]); 2] = [
    (
        "time",
        &["decode", "others", "fair", "long", "displaced", "error", "gateways"],
    ),
    ("blocks", &["credit", "scale", "requests", "temperature"]),
];

fn known(policy: &str) -> String {
    let found = WEIGHTS.iter().find(|(name, _)| *name == policy);
    found.map_or_else(String::new, |(_, weights)| {
        format!("; there are {}", weights.join(", "))
    })
}

/// A policy as it is written.
pub fn by_spec(spec: &str) -> Result<Box<dyn Policy>, PolicyError> {
    let mut parts = spec.split(':');
    let name = parts.next().unwrap_or_default();
    let policy = by_name(name)?;
    let mut weights = Vec::new();
    for part in parts {
        let (weight, value) = part.split_once('=').unwrap_or((part, ""));
        let number: Option<f64> = value.parse().ok().filter(|value| (0.0..=MOST).contains(value));
        let value = number.ok_or_else(|| PolicyError::Value {
            policy: name.to_owned(),
            weight: weight.to_owned(),
            value: value.to_owned(),
        })?;
        weights.push((weight, value));
    }
    if weights.is_empty() {
        return Ok(policy);
    }
    weighted(name, &weights)
}

fn weighted(name: &str, weights: &[(&str, f64)]) -> Result<Box<dyn Policy>, PolicyError> {
    let (mut time, mut blocks) = (PredictedTime::default(), BlockCost::default());
    for (weight, value) in weights {
        match (name, *weight) {
            ("time", "decode") => time.decode_weight = *value,
            ("time", "others") => time.most_for_others = *value,
            ("time", "fair") => time.fair = *value,
            ("time", "long") => time.long = *value,
            ("time", "displaced") => time.displaced = *value,
            ("time", "error") => time.error = *value,
            ("time", "gateways") => time.gateways = *value as u32,
            ("blocks", "credit") => blocks.overlap_credit = *value,
            ("blocks", "scale") => blocks.prefill_scale = *value,
            ("blocks", "requests") => blocks.request_weight = *value,
            ("blocks", "temperature") => blocks.temperature = *value,
            _ => {
                return Err(PolicyError::NoWeight {
                    policy: name.to_owned(),
                    weight: (*weight).to_owned(),
                });
            }
        }
    }
    Ok(if name == "time" {
        Box::new(time)
    } else {
        Box::new(blocks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let said = |spec: &str| {
            by_spec(spec)
                .map(|policy| policy.name())
                .map_err(|error| error.to_string())
        };
        assert_eq!(said("time"), Ok("time"));
        assert_eq!(said("time:decode=0.5:error=0"), Ok("time"));
        assert_eq!(said("blocks:credit=2"), Ok("blocks"));
        for (spec, words) in [
            ("fast", "there is no policy `fast`; there are time, "),
            (
                "time:speed=1",
                "the policy `time` has no weight `speed`; there are decode, others, fair, long, displaced, error, gateways",
            ),
            ("random:decode=1", "the policy `random` has no weight `decode`"),
            (
                "time:decode=-1",
                "decode of the policy `time` is \"-1\", expected a number from 0 to 1000",
            ),
            ("time:decode", "decode of the policy `time` is \"\""),
        ] {
            let error = said(spec).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
