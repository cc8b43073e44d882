//! Between whom may KV travel?
//!
//! Operators label workers by where they are (`zone`, `rack`). A rule names such a label; KV has to stay, or should stay, among workers
//! with the same value. What follows for the decode worker is derived from the prefill worker before prefill begins.
//!
//! **Invariant:** where a label is required, KV never travels from or to a worker whose label is not known.

use std::sync::Arc;

use homing_scheduler::Label;

/// How strictly a rule holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Enforce {
    /// KV does not travel otherwise.
    Required,
    /// Pairs with different values count as if they cost more; the weight is from 0 to 1.
    Preferred(f64),
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The label's name.
    pub label: Arc<str>,
    /// How strictly it holds.
    pub enforce: Enforce,
}

/// What the rules say of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// KV may travel. What the pair costs counts so many times.
    May(f64),
    /// It may not.
    MayNot,
}

/// What a decode worker has to have and should have, for the sake of a prefill worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derived {
    /// Labels that it must have.
    pub required: Vec<Label>,
    /// Labels that speak for it.
    pub preferred: Vec<(Label, f64)>,
}

impl Topology {
    /// The value of the rule's label.
    pub fn value<'a>(&self, labels: &'a [Label]) -> Option<&'a str> {
        let found = labels.iter().find(|label| label.name == self.label);
        found.map(|label| &*label.value)
    }
}

/// The required rule whose label a prefill worker lacks: it must not hand anything over then.
pub fn unknown<'a>(rules: &'a [Topology], prefill: &[Label]) -> Option<&'a Topology> {
    let required = rules.iter().filter(|rule| rule.enforce == Enforce::Required);
    required.into_iter().find(|rule| rule.value(prefill).is_none())
}

/// What the rules say of a pair.
pub fn fit(rules: &[Topology], prefill: &[Label], decode: &[Label]) -> Fit {
    let mut factor = 1.0;
    for rule in rules {
        let (from, to) = (rule.value(prefill), rule.value(decode));
        let same = from.is_some() && from == to;
        match rule.enforce {
            Enforce::Required if !same => return Fit::MayNot,
            // The same measure as for the labels that a caller prefers.
            Enforce::Preferred(weight) if !same => factor *= weight.clamp(0.0, 1.0).tanh().exp(),
            Enforce::Required | Enforce::Preferred(_) => (),
        }
    }
    Fit::May(factor)
}

/// What is demanded of the decode worker once the prefill worker is known. An error names the required rule whose label it lacks.
pub fn derive<'a>(rules: &'a [Topology], prefill: &[Label]) -> Result<Derived, &'a Topology> {
    if let Some(rule) = unknown(rules, prefill) {
        return Err(rule);
    }
    let mut derived = Derived::default();
    for rule in rules {
        let Some(value) = rule.value(prefill) else { continue };
        let label = Label::new(&rule.label, value);
        match rule.enforce {
            Enforce::Required => derived.required.push(label),
            Enforce::Preferred(weight) => derived.preferred.push((label, weight)),
        }
    }
    Ok(derived)
}

/// The values of all required rules, to tell apart who can be a pair at all.
pub(crate) fn group<'a>(rules: &[Topology], labels: &'a [Label]) -> Vec<Option<&'a str>> {
    let required = rules.iter().filter(|rule| rule.enforce == Enforce::Required);
    required.map(|rule| rule.value(labels)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(label: &str, enforce: Enforce) -> Topology {
        Topology {
            label: label.into(),
            enforce,
        }
    }

    #[test]
    fn a_required_label_has_to_be_known_and_the_same() {
        let rules = [rule("zone", Enforce::Required)];
        let (a, b, unknown_zone) = (
            [Label::new("zone", "a")],
            [Label::new("zone", "b")],
            [Label::new("rack", "a")],
        );
        assert_eq!(fit(&rules, &a, &a), Fit::May(1.0));
        for (from, to) in [
            (&a, &b),
            (&a, &unknown_zone),
            (&unknown_zone, &a),
            (&unknown_zone, &unknown_zone),
        ] {
            assert_eq!(fit(&rules, from, to), Fit::MayNot);
        }
        assert_eq!(unknown(&rules, &unknown_zone), Some(&rules[0]));
        assert_eq!(derive(&rules, &unknown_zone), Err(&rules[0]));
        assert_eq!(derive(&rules, &a).unwrap().required, a);
    }

    #[test]
    fn a_preferred_label_makes_others_dearer() {
        let rules = [rule("zone", Enforce::Required), rule("rack", Enforce::Preferred(0.5))];
        let labels = |zone, rack| [Label::new("zone", zone), Label::new("rack", rack)];
        assert_eq!(fit(&rules, &labels("a", "1"), &labels("a", "1")), Fit::May(1.0));
        let Fit::May(factor) = fit(&rules, &labels("a", "1"), &labels("a", "2")) else {
            panic!("it is preferred, not required");
        };
        assert!((1.5..1.7).contains(&factor), "{factor}");
        let derived = derive(&rules, &labels("a", "1")).unwrap();
        assert_eq!(derived.preferred, [(Label::new("rack", "1"), 0.5)]);
    }
}
