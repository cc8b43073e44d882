//! `homing sim run`: the whole router in random fleets with faults.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::{Arg, ArgMatches, Command};
use homing_sim::chaos::{Bug, Campaign, Hunt, Order, Run, bug_named, hunt, repeat};
use homing_sim::fleet::Check;
use homing_sim::fleet::faults::{self, NAMES};
use serde_json::{Value, json};

use super::report::Target;
use super::{Verdict, number, switch};

/// Worlds enough that every kind of fault must have happened in them.
const ENOUGH_SEEDS: u64 = 100;
/// Failures that are shown.
const SHOWN: usize = 5;

/// The subcommand.
pub fn command() -> Command {
    Command::new("run")
        .about("Check the whole router in random fleets with faults")
        .arg(number("seeds", "How many worlds, each twice").default_value("200"))
        .arg(number("first-seed", "The first of them").default_value("0"))
        .arg(number("seed", "Only this world").conflicts_with_all(["seeds", "first-seed"]))
        .arg(
            Arg::new("faults")
                .long("faults")
                .value_name("all|none|NAME,...")
                .default_value("all")
                .help("Kinds of faults that may happen"),
        )
        .arg(
            Arg::new("bug")
                .long("bug")
                .value_name("NAME")
                .help("Make this mistake on purpose, which must be found; `all` for each in turn"),
        )
        .arg(switch("trace", "Print the last things that happen in one world").requires("seed"))
        .arg(switch("json", "Print one JSON object").conflicts_with("trace"))
}

/// Runs it. What is to be printed, and whether all is well.
pub fn run(matches: &ArgMatches) -> anyhow::Result<(String, Verdict)> {
    let seed: Option<u64> = matches.get_one("seed").copied();
    let order = Order {
        first: seed.unwrap_or_else(|| matches.get_one("first-seed").copied().unwrap_or(0)),
        seeds: seed.map_or_else(|| matches.get_one("seeds").copied().unwrap_or(200), |_| 1),
        faults: allowed(matches.get_one::<String>("faults").map_or("all", String::as_str))?,
    };
    ensure!(order.seeds > 0, "there is nothing to do with 0 seeds");
    let bugs = match matches.get_one::<String>("bug").map(String::as_str) {
        None | Some("all") => Bug::all(),
        Some(name) => vec![bug_named(name).with_context(unknown_bug(name))?],
    };
    let is_asked_for = matches.contains_id("bug");
    if matches.get_flag("trace") {
        return Ok(trace(order, is_asked_for.then(|| bugs[0])));
    }
    let began = Instant::now();
    // One world alone says whether it is well; whether mistakes are found is for many.
    let campaign = (!is_asked_for).then(|| Campaign::run(&order));
    let seconds = began.elapsed().as_secs_f64();
    let hunts: Vec<Hunt> = match seed {
        Some(_) if !is_asked_for => Vec::new(),
        _ => bugs.into_iter().map(|bug| hunt(bug, &order)).collect(),
    };
    let report = Report {
        order,
        campaign,
        hunts,
        seconds,
    };
    let printed = if matches.get_flag("json") {
        format!("{}\n", report.json())
    } else {
        report.text()
    };
    let targets = report.targets();
    let verdict = if targets.iter().all(Target::is_met) {
        Verdict::Well
    } else {
        Verdict::Wrong
    };
    Ok((printed, verdict))
}

fn allowed(names: &str) -> anyhow::Result<Vec<&'static str>> {
    match names {
        "all" => Ok(NAMES.to_vec()),
        "none" => Ok(Vec::new()),
        names => Ok(names.split(',').map(faults::named).collect::<Result<_, _>>()?),
    }
}

fn unknown_bug(name: &str) -> impl FnOnce() -> String {
    let known: Vec<String> = Bug::all().iter().map(ToString::to_string).collect();
    let text = format!("there is no bug {name:?}; there are all, {}", known.join(", "));
    move || text
}

/// What a world is, the last things that happen in it, and what is wrong.
fn trace(order: Order, bug: Option<Bug>) -> (String, Verdict) {
    let run = Run {
        seed: order.first,
        faults: order.faults,
        bug,
        log: true,
    };
    let mut text = format!("{}\n\n", run.draw());
    let outcome = repeat(&run);
    for line in &outcome.log {
        let _ = writeln!(text, "{line}");
    }
    for violation in &outcome.violations {
        let _ = writeln!(text, "\n{violation}\n  expected: {}", violation.check.words());
    }
    let verdict = if outcome.violations.is_empty() {
        Verdict::Well
    } else {
        Verdict::Wrong
    };
    (text, verdict)
}

/// What came of it.
struct Report {
    order: Order,
    /// What the router did without mistakes, unless only those were looked for.
    campaign: Option<Campaign>,
    hunts: Vec<Hunt>,
    /// How long the campaign took.
    seconds: f64,
}

impl Report {
    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut add = |name, ours, goal| targets.push(Target { name, ours, goal });
        if let Some(campaign) = &self.campaign {
            let is_determinism = |check| check == Check::Deterministic;
            add("violations", campaign.failed(|check| !is_determinism(check)), 0);
            add("seeds that were not deterministic", campaign.failed(is_determinism), 0);
            if self.order.seeds >= ENOUGH_SEEDS {
                let never = campaign.never_happened(&self.order).len();
                add("kinds of faults that never happened", never, 0);
            }
        }
        if !self.hunts.is_empty() {
            let found = self.hunts.iter().filter(|hunt| hunt.found.is_some()).count();
            add("planted bugs found", found, self.hunts.len());
        }
        targets
    }

    fn json(&self) -> Value {
        let targets: Vec<Value> = self.targets().iter().map(Target::json).collect();
        let bugs: Vec<Value> = self.hunts.iter().map(hunt_json).collect();
        let mut object = json!({
            "command": "sim run",
            "first_seed": self.order.first,
            "seeds": self.order.seeds,
            "targets": targets,
            "planted_bugs": bugs,
        });
        if let Some(campaign) = &self.campaign {
            let happened = &campaign.happened;
            let [answered, failed, given_up] = happened.ended_as;
            object["faults"] = json!(happened.faults);
            object["requests"] = json!({
                "all": happened.requests,
                "answered": answered,
                "failed": failed,
                "given_up": given_up,
                "waited": happened.waited,
                "retried": happened.retried,
            });
            object["engine_steps"] = json!(happened.steps);
            object["preemptions"] = json!(happened.preemptions);
            object["views_compared"] = json!(happened.compared);
            object["virtual_seconds"] = json!(happened.seconds.round());
            object["elapsed_s"] = json!(self.seconds);
            object["wrong"] = campaign.found.iter().map(|found| json!(found.to_string())).collect();
        }
        object
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(campaign) = &self.campaign {
            self.tell(campaign, &mut text);
        }
        for hunt in &self.hunts {
            let _ = match &hunt.found {
                Some(found) => writeln!(text, "bug {}: found after {} seeds\n  {found}", hunt.bug, hunt.seeds),
                None => writeln!(text, "bug {}: NOT found in {} seeds", hunt.bug, hunt.seeds),
            };
        }
        text.push('\n');
        for target in self.targets() {
            let _ = writeln!(text, "{}", target.line());
        }
        text
    }

    fn tell(&self, campaign: &Campaign, text: &mut String) {
        let happened = &campaign.happened;
        let [answered, failed, given_up] = happened.ended_as;
        let _ = writeln!(
            text,
            "{} worlds, each twice, in {:.1} s: {:.0} s of virtual time, {} requests ({answered} answered, {failed} turned away or \
             failed, {given_up} given up), {} waits, {} retries, {} steps of engines, {} preemptions, {} views compared\n",
            campaign.seeds,
            self.seconds,
            happened.seconds,
            happened.requests,
            happened.waited,
            happened.retried,
            happened.steps,
            happened.preemptions,
            happened.compared,
        );
        for (fault, count) in &happened.faults {
            let _ = writeln!(text, "{count:>10}  {fault}");
        }
        text.push('\n');
        for found in campaign.found.iter().take(SHOWN) {
            let _ = writeln!(text, "{found}\n");
        }
    }
}

fn hunt_json(hunt: &Hunt) -> Value {
    let check = hunt.found.as_ref().map(|found| found.violation.check.words());
    json!({
        "bug": hunt.bug.to_string(),
        "found": hunt.found.is_some(),
        "seeds": hunt.seeds,
        "check": check,
        "how": hunt.found.as_ref().map(ToString::to_string),
    })
}
