//! What was decided, and why?

use std::fmt;

use homing_domain::{RankId, WorkerId};
use homing_load::Place;
use homing_profile::Millis;

use crate::fleet::{Excluded, Knowledge};
use crate::overlap::Depths;

/// The parts of a cost, by name, in the unit of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    parts: [(&'static str, f64); Self::MOST],
    count: usize,
}

impl Terms {
    const MOST: usize = 8;

    /// One part more; beyond eight they are not kept.
    pub fn add(&mut self, name: &'static str, value: f64) {
        if let Some(part) = self.parts.get_mut(self.count) {
            *part = (name, value);
            self.count += 1;
        }
    }

    /// All of them.
    pub fn parts(&self) -> &[(&'static str, f64)] {
        &self.parts[..self.count]
    }

    /// One of them; nothing if there is none of this name.
    pub fn get(&self, name: &str) -> f64 {
        let found = self.parts().iter().find(|(known, _)| *known == name);
        found.map_or(0.0, |(_, value)| *value)
    }
}

/// A rank that could be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub place: Place,
    /// Which it is.
    pub rank: RankId,
    /// What it was weighed by; less is better.
    pub cost: f64,
    /// The parts of it.
    pub terms: Terms,
    /// What of the prompt it holds.
    pub depths: Depths,
    /// What is known of its cache.
    pub knowledge: Knowledge,
    /// Until its first token, as predicted from the profile, whatever the policy weighed.
    pub first_token: Millis,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The policy that decided.
    pub policy: &'static str,
    /// The unit of costs and terms.
    pub unit: &'static str,
    /// The rank.
    pub chosen: Candidate,
    /// The next best, best first; as many as were asked for.
    pub others: Vec<Candidate>,
    /// How many could have been chosen.
    pub eligible: u32,
    /// How many could not, by reason.
    pub excluded: Excluded,
    /// Whether the index stood still while it was asked.
    pub settled: bool,
}

impl Decision {
    /// As JSON, for logs and answers.
    pub fn to_json(&self) -> String {
        crate::json::decision(self)
    }
}

/// Why nobody was chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The filter left nobody.
    #[error("no worker can serve this request: {}", Listed(.0))]
    NobodyEligible(Excluded),
    /// The policy chooses nothing by itself.
    #[error("the policy `direct` needs the request to name its worker")]
    NoWorkerNamed,
    /// The worker that was named is not there, or cannot serve the request.
    #[error("worker {} cannot serve this request: {}", .worker.0, Listed(.excluded))]
    PinnedWorker {
        /// Which.
        worker: WorkerId,
        /// Why, among the others.
        excluded: Excluded,
    },
    /// The policy found nobody among those who could.
    #[error("the policy `{0}` chose none of the eligible ranks")]
    PolicyChoseNobody(&'static str),
}

struct Listed<'a>(&'a Excluded);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (reason, count) in self.0.reasons() {
            write!(f, "{}{count} {reason}", if first { "" } else { ", " })?;
            first = false;
        }
        if first {
            f.write_str("there is none")?;
        }
        Ok(())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, unit) = (self.eligible, self.unit);
        writeln!(f, "{} by {}, of {of} eligible", self.chosen.rank, self.policy)?;
        for (mark, candidate) in
            std::iter::once((">", &self.chosen)).chain(self.others.iter().map(|other| (" ", other)))
        {
            write!(
                f,
                "{mark} {:<8} {:>10.2} {unit} =",
                candidate.rank.to_string(),
                candidate.cost
            )?;
            for (place, (name, value)) in candidate.terms.parts().iter().enumerate() {
                write!(f, "{} {name} {value:.2}", if place == 0 { "" } else { "," })?;
            }
            let depths = &candidate.depths;
            write!(f, "; holds {} blocks", depths.anywhere())?;
            if depths.booked > depths.anywhere() {
                write!(f, ", {} booked", depths.booked)?;
            }
            writeln!(f, " ({})", candidate.knowledge.name())?;
        }
        for (reason, count) in self.excluded.reasons() {
            writeln!(f, "  excluded: {count} {reason}")?;
        }
        if !self.settled {
            writeln!(f, "  the index changed while it was asked")?;
        }
        Ok(())
    }
}
