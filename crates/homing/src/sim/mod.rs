//! `homing sim`: worlds in virtual time, with faults. What is simulated is in `homing-sim`; this reads what was asked for
//! and prints what came of it.

mod adapters;
mod report;
mod run;

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use homing_sim::feed::{BugHunt, Campaign, Order, Trace, bug_name, bug_named, hunt, repeat};

use report::Report;

fn number(name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name("NUMBER");
    arg.value_parser(value_parser!(u64)).help(help)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// The subcommand.
pub fn command() -> Command {
    let feed = Command::new("feed")
        .about("Check that views stay true over lossy streams, in simulated worlds")
        .arg(number("seeds", "How many worlds, each twice").default_value("500"))
        .arg(number("first-seed", "The first of them").default_value("0"))
        .arg(number("seed", "Only this world").conflicts_with_all(["seeds", "first-seed"]))
        .arg(
            Arg::new("bug")
                .long("bug")
                .value_name("NAME")
                .help("Make this mistake on purpose, which must be found; `all` for each in turn"),
        )
        .arg(switch("trace", "Print all that happens in one world").requires("seed"))
        .arg(switch("json", "Print one JSON object").conflicts_with("trace"));
    Command::new("sim")
        .about("Run simulated worlds with faults")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(feed)
        .subcommand(run::command())
        .subcommand(adapters::command())
}

/// Runs it. What is to be printed, and whether all is well.
pub fn run(matches: &ArgMatches) -> anyhow::Result<(String, Verdict)> {
    match matches.subcommand() {
        Some(("feed", matches)) => feed(matches),
        Some(("run", matches)) => run::run(matches),
        Some(("adapters", matches)) => Ok(adapters::run(matches)),
        _ => unreachable!("clap knows no other subcommand"),
    }
}

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Well,
    /// It is not; what was printed says why.
    Wrong,
}

fn feed(matches: &ArgMatches) -> anyhow::Result<(String, Verdict)> {
    let seed: Option<u64> = matches.get_one("seed").copied();
    let order = Order {
        first: seed.unwrap_or_else(|| matches.get_one("first-seed").copied().unwrap_or(0)),
        seeds: seed.map_or_else(|| matches.get_one("seeds").copied().unwrap_or(500), |_| 1),
    };
    ensure!(order.seeds > 0, "there is nothing to do with 0 seeds");
    let bugs = match matches.get_one::<String>("bug").map(String::as_str) {
        None | Some("all") => homing_feed::Bug::ALL.to_vec(),
        Some(name) => vec![bug_named(name).with_context(unknown_bug(name))?],
    };
    let is_asked_for = matches.contains_id("bug");
    if matches.get_flag("trace") {
        return Ok(trace(order.first, is_asked_for.then(|| bugs[0])));
    }
    let began = Instant::now();
    // One world alone says whether it is well; whether mistakes are found is for many.
    let campaign = (!is_asked_for).then(|| Campaign::run(order));
    let seconds = began.elapsed().as_secs_f64();
    let hunts: Vec<BugHunt> = match seed {
        Some(_) if !is_asked_for => Vec::new(),
        _ => bugs.into_iter().map(|bug| hunt(bug, order)).collect(),
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
    Ok((printed, report.verdict()))
}

fn unknown_bug(name: &str) -> impl FnOnce() -> String {
    let known: Vec<String> = homing_feed::Bug::ALL.into_iter().map(bug_name).collect();
    let text = format!("there is no bug {name:?}; there are all, {}", known.join(", "));
    move || text
}

/// All that happens in one world.
fn trace(seed: u64, bug: Option<homing_feed::Bug>) -> (String, Verdict) {
    let outcome = repeat(seed, bug, Trace::On);
    let mut text = outcome.lines.join("\n");
    text.push('\n');
    let verdict = match outcome.violation {
        Some(violation) => {
            let _ = writeln!(text, "\n{violation}");
            Verdict::Wrong
        }
        None => Verdict::Well,
    };
    (text, verdict)
}

/// Fails if something is wrong.
pub fn judge(verdict: Verdict) -> anyhow::Result<()> {
    match verdict {
        Verdict::Well => Ok(()),
        Verdict::Wrong => bail!("the simulation found something wrong"),
    }
}
