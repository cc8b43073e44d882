//! What did the simulation find, for people and for scripts?

use std::fmt::Write as _;

use homing_sim::feed::{BugHunt, Campaign, Check, Order, bug_name};
use serde_json::{Value, json};

use super::Verdict;

/// What came of it.
pub struct Report {
    /// Which seeds.
    pub order: Order,
    /// What the correct feed did, unless only mistakes were looked for.
    pub campaign: Option<Campaign>,
    /// Which mistakes were found.
    pub hunts: Vec<BugHunt>,
    /// How long the campaign took.
    pub seconds: f64,
}

/// A figure with a goal.
pub struct Target {
    /// Of what.
    pub name: &'static str,
    /// What it is.
    pub ours: usize,
    /// What it should be.
    pub goal: usize,
}

/// Worlds enough that every kind of fault must have happened in them.
const ENOUGH_SEEDS: u64 = 100;

impl Report {
    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        if let Some(campaign) = &self.campaign {
            let is_convergence = |check| matches!(check, Check::Converged | Check::ExactAfterClear);
            let is_determinism = |check| check == Check::Deterministic;
            let failed = |checks: &dyn Fn(Check) -> bool| campaign.failed(checks);
            let violations = failed(&|check| !is_convergence(check) && !is_determinism(check));
            let mut add = |name, ours, goal| targets.push(Target { name, ours, goal });
            add("violations", violations, 0);
            add("views that did not converge", failed(&is_convergence), 0);
            add("seeds that were not deterministic", failed(&is_determinism), 0);
            if self.order.seeds >= ENOUGH_SEEDS {
                add(
                    "kinds of faults that never happened",
                    campaign.never_happened().len(),
                    0,
                );
            }
        }
        if !self.hunts.is_empty() {
            targets.push(Target {
                name: "planted bugs found",
                ours: self.hunts.iter().filter(|hunt| hunt.violation.is_some()).count(),
                goal: self.hunts.len(),
            });
        }
        targets
    }

    /// Whether all goals were met.
    pub fn verdict(&self) -> Verdict {
        if self.targets().iter().all(Target::is_met) {
            Verdict::Well
        } else {
            Verdict::Wrong
        }
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let targets: Vec<Value> = self.targets().iter().map(Target::json).collect();
        let bugs: Vec<Value> = self.hunts.iter().map(hunt_json).collect();
        let mut object = json!({
            "command": "sim feed",
            "first_seed": self.order.first,
            "seeds": self.order.seeds,
            "targets": targets,
            "planted_bugs": bugs,
        });
        if let Some(campaign) = &self.campaign {
            let faults = campaign
                .happened
                .iter()
                .map(|(fault, count)| (format!("{fault:?}"), json!(count)));
            object["faults"] = Value::Object(faults.collect());
            object["seeds_per_second"] = json!(self.seeds_per_second(campaign));
            object["inputs"] = json!(campaign.inputs);
            object["views_compared"] = json!(campaign.compared);
            object["virtual_seconds"] = json!(campaign.virtual_ms / 1000);
            object["wrong"] = campaign
                .violations
                .iter()
                .map(|wrong| json!(wrong.to_string()))
                .collect();
        }
        object
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(campaign) = &self.campaign {
            self.tell_campaign(campaign, &mut text);
        }
        for hunt in &self.hunts {
            let name = bug_name(hunt.bug);
            let _ = match &hunt.violation {
                Some(found) => writeln!(text, "bug {name}: found after {} seeds\n  {found}", hunt.seeds),
                None => writeln!(text, "bug {name}: NOT found in {} seeds", hunt.seeds),
            };
        }
        text.push('\n');
        for target in self.targets() {
            let _ = writeln!(text, "{}", target.line());
        }
        text
    }

    fn tell_campaign(&self, campaign: &Campaign, text: &mut String) {
        let _ = writeln!(
            text,
            "{} worlds, each twice: {:.0} s of virtual time, {} inputs, {} views compared, {:.0} worlds per second\n",
            campaign.seeds,
            campaign.virtual_ms as f64 / 1000.0,
            campaign.inputs,
            campaign.compared,
            self.seeds_per_second(campaign),
        );
        for (fault, count) in campaign.happened.iter() {
            let _ = writeln!(text, "{count:>10}  {}", fault.words());
        }
        text.push('\n');
        for violation in campaign.violations.iter().take(10) {
            let _ = writeln!(text, "{violation}\n");
        }
    }

    fn seeds_per_second(&self, campaign: &Campaign) -> f64 {
        2.0 * campaign.seeds as f64 / self.seconds.max(1e-9)
    }
}

impl Target {
    /// Whether it is what it should be.
    pub const fn is_met(&self) -> bool {
        self.ours == self.goal
    }

    /// For people.
    pub fn line(&self) -> String {
        let met = if self.is_met() { "met" } else { "NOT MET" };
        format!("{:<40} {:>4}   goal {:>2}   {met}", self.name, self.ours, self.goal)
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "ours": self.ours,
            "peer": null,
            "ratio": null,
            "goal": self.goal,
            "met": self.is_met(),
        })
    }
}

fn hunt_json(hunt: &BugHunt) -> Value {
    json!({
        "bug": bug_name(hunt.bug),
        "found": hunt.violation.is_some(),
        "seeds": hunt.seeds,
        "how": hunt.violation.as_ref().map(ToString::to_string),
    })
}
