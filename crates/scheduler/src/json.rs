//! How does a decision read as JSON? Written by hand: core types derive no serialisation, and there are only names of our own
//! and numbers in it.

use std::fmt::Write;

use crate::decision::{Candidate, Decision};

pub(crate) fn decision(decision: &Decision) -> String {
    let mut out = String::with_capacity(512);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "{{\"policy\":\"{}\",\"unit\":\"{}\",\"eligible\":{},\"settled\":{},\"chosen\":",
        decision.policy, decision.unit, decision.eligible, decision.settled
    );
    candidate(&mut out, &decision.chosen);
    out.push_str(",\"others\":[");
    for (at, other) in decision.others.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        candidate(&mut out, other);
    }
    out.push_str("],\"excluded\":{");
    for (at, (reason, count)) in decision.excluded.reasons().enumerate() {
        let _ = write!(out, "{}\"{reason}\":{count}", if at > 0 { "," } else { "" });
    }
    out.push_str("}}");
    out
}

fn candidate(out: &mut String, candidate: &Candidate) {
    let depths = &candidate.depths;
    let _ = write!(
        out,
        "{{\"worker\":{},\"rank\":{},\"cost\":{},\"first_token_ms\":{},\"blocks\":{:?},\"booked_blocks\":{},\"cache\":\"{}\",\"terms\":{{",
        candidate.rank.worker.0,
        candidate.rank.dp.0,
        number(candidate.cost),
        number(candidate.first_token.0),
        depths.tiers,
        depths.booked,
        candidate.knowledge.name()
    );
    for (at, (name, value)) in candidate.terms.parts().iter().enumerate() {
        let _ = write!(out, "{}\"{name}\":{}", if at > 0 { "," } else { "" }, number(*value));
    }
    out.push_str("}}");
}

/// JSON has no word for what is not finite.
fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.4}")
    } else {
        "null".to_owned()
    }
}
