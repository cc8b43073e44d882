//! `homing sim adapters`: what it helps to put adapters where they are wanted.

use std::fmt::Write as _;

use clap::{ArgMatches, Command};
use homing_sim::adapters::{Comparison, Figures, compare};
use serde_json::{Value, json};

use super::{Verdict, number, switch};

/// The least by which placement must be better than none.
const GAIN: f64 = 0.3;

pub fn command() -> Command {
    Command::new("adapters")
        .about("Compare ways to place LoRA adapters: 200 of them over 16 workers, whose popularity shifts")
        .arg(number("seed", "From what everything is drawn").default_value("1"))
        .arg(number("seconds", "For how long requests come").default_value("300"))
        .arg(switch("json", "Print one JSON object"))
}

pub fn run(matches: &ArgMatches) -> (String, Verdict) {
    let seed: u64 = matches.get_one("seed").copied().unwrap_or(1);
    let seconds: u64 = matches.get_one("seconds").copied().unwrap_or(300);
    let found = compare(seed, seconds.clamp(10, 36_000) as f64);
    let targets = targets(&found);
    let verdict = if targets.iter().all(|target| target.met) {
        Verdict::Well
    } else {
        Verdict::Wrong
    };
    let printed = if matches.get_flag("json") {
        format!("{}\n", as_json(seed, seconds, &found, &targets))
    } else {
        text(&found, &targets)
    };
    (printed, verdict)
}

struct Target {
    name: String,
    ours: f64,
    peer: Option<f64>,
    goal: String,
    met: bool,
}

fn targets(found: &Comparison) -> Vec<Target> {
    let mut targets = Vec::new();
    for (slots, figures) in [("ample", &found.ample), ("scarce", &found.scarce)] {
        let [none, rest @ ..] = figures;
        for (one, ratio) in rest.iter().zip(Comparison::ratios(figures)) {
            let name = one.name;
            targets.push(Target {
                name: format!("{slots} slots: TTFT p99 in ms, {name} against none"),
                ours: one.ttft_ms_p99,
                peer: Some(none.ttft_ms_p99),
                goal: format!("at least {:.0}% less", GAIN * 100.0),
                met: ratio.ttft_p99 <= 1.0 - GAIN,
            });
            targets.push(Target {
                name: format!("{slots} slots: loads, {name} against none"),
                ours: one.loads as f64,
                peer: Some(none.loads as f64),
                goal: format!("at least {:.0}% less", GAIN * 100.0),
                met: ratio.loads <= 1.0 - GAIN,
            });
        }
        let lost: u64 = figures.iter().map(|one| one.requests - one.served + one.strays).sum();
        targets.push(Target {
            name: format!("{slots} slots: requests without an answer, or without their adapter"),
            ours: lost as f64,
            peer: None,
            goal: "0".to_owned(),
            met: lost == 0,
        });
    }
    let settled = &found.settled;
    let mut add = |name: &str, ours: usize, goal: String, met: bool| {
        targets.push(Target {
            name: name.to_owned(),
            ours: ours as f64,
            peer: None,
            goal,
            met,
        });
    };
    add(
        "loads in a minute in which nothing changes",
        settled.steady_loads,
        "0".to_owned(),
        settled.steady_loads == 0,
    );
    add(
        "loads of what a lost worker had",
        settled.loads_after_loss,
        format!("at most {}, which it had", settled.had),
        settled.loads_after_loss <= settled.had,
    );
    add(
        "adapters that are at home again after it came back",
        settled.returned,
        format!("{}", settled.had),
        settled.returned == settled.had,
    );
    targets
}

fn as_json(seed: u64, seconds: u64, found: &Comparison, targets: &[Target]) -> Value {
    let figures = |all: &[Figures; 3]| {
        let one = |one: &Figures| {
            json!({
                "placement": one.name, "requests": one.requests, "served": one.served,
                "ttft_ms_p50": one.ttft_ms_p50, "ttft_ms_p99": one.ttft_ms_p99,
                "base_ttft_ms_p99": one.base_ttft_ms_p99, "loads": one.loads, "failed_loads": one.failed_loads,
            })
        };
        all.iter().map(one).collect::<Vec<Value>>()
    };
    let targets: Vec<Value> = targets
        .iter()
        .map(|target| {
            let ratio = target.peer.map(|peer| target.ours / peer.max(1e-9));
            json!({
                "name": target.name, "ours": target.ours, "peer": target.peer, "ratio": ratio,
                "goal": target.goal, "met": target.met,
            })
        })
        .collect();
    let settled = &found.settled;
    json!({
        "command": "sim adapters",
        "seed": seed,
        "seconds": seconds,
        "ample": figures(&found.ample),
        "scarce": figures(&found.scarce),
        "settled": {
            "steady_loads": settled.steady_loads, "had": settled.had,
            "loads_after_loss": settled.loads_after_loss, "other_loads": settled.other_loads, "returned": settled.returned,
        },
        "targets": targets,
    })
}

fn text(found: &Comparison, targets: &[Target]) -> String {
    let mut text = String::new();
    let groups = [
        ("16 slots each, enough for all", &found.ample),
        ("8 slots each, for two thirds of them", &found.scarce),
    ];
    for (title, figures) in groups {
        let _ = writeln!(
            text,
            "{title}\n  {:<12} {:>10} {:>10} {:>12} {:>8} {:>8}",
            "placement", "TTFT p50", "TTFT p99", "base p99", "loads", "failed"
        );
        for one in figures {
            let _ = writeln!(
                text,
                "  {:<12} {:>7.1} ms {:>7.1} ms {:>9.1} ms {:>8} {:>8}",
                one.name, one.ttft_ms_p50, one.ttft_ms_p99, one.base_ttft_ms_p99, one.loads, one.failed_loads
            );
        }
        text.push('\n');
    }
    for target in targets {
        let met = if target.met { "met" } else { "NOT MET" };
        let peer = target.peer.map_or(String::new(), |peer| format!(" against {peer:.0}"));
        let _ = writeln!(
            text,
            "{}: {:.0}{peer}; goal: {}; {met}",
            target.name, target.ours, target.goal
        );
    }
    text
}
