//! `homing replay` and `homing tune`: traffic through a simulated fleet. What is simulated and how it is judged is in `homing-sim`; here
//! are arguments, threads, and what is printed.

mod args;
mod best;
mod html;
mod json;
mod live;
mod plan;
mod records;
mod run;
mod source;
mod split;
mod stats;
mod table;
mod tune;
mod written;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use crate::show::Style;
use args::{ReplayArgs, TuneArgs};
use plan::Plan;
use records::Records;
use run::{PolicyRuns, Samples, Shown};

/// What came of a replay.
pub struct Told {
    /// Policies, in the order in which they were named; what is live or was found comes after them.
    pub policies: Vec<PolicyRuns>,
    /// What the local search did.
    pub best_found: Option<best::BestFound>,
    /// How long all of it took.
    pub elapsed: Duration,
    /// The most memory that was in use, where the system tells.
    pub peak_rss_mib: Option<f64>,
}

/// The subcommands.
pub fn commands() -> [Command; 2] {
    [ReplayArgs::command(), TuneArgs::command()]
}

/// What `homing replay` prints.
pub fn replay(matches: &ArgMatches) -> anyhow::Result<String> {
    let began = Instant::now();
    let args = ReplayArgs::from_arg_matches(matches)?;
    let named = if args.policy.is_empty() && args.live.is_some() {
        Vec::new()
    } else {
        plan::policies(&args.policy)?
    };
    let plan = Plan::new(&args.fleet, args.best_found.map(|_| best::REQUESTS))?;
    let last = args
        .fleet
        .seed
        .checked_add(u64::from(args.seeds))
        .context("--seed is too large")?;
    let seeds: Vec<u64> = (args.fleet.seed..last).collect();
    let samples = if args.report.is_some() {
        Samples::Kept
    } else {
        Samples::Dropped
    };
    let records = args.records.as_deref().map(Records::create).transpose()?;
    let shown = Shown {
        samples,
        records: records.as_ref(),
    };
    let mut policies = run::all(&plan, &named, &seeds, shown)?;
    if let Some(records) = &records {
        records.finish()?;
    }
    if let Some(url) = &args.live {
        policies.push(live::run(&plan, url, &args)?);
    }
    let best_found = match args.best_found {
        Some(tries) => {
            ensure!(!named.is_empty(), "--best-found begins with a policy: name one");
            let (runs, found) = best::search(&plan, &policies, tries)?;
            policies.push(runs);
            Some(found)
        }
        None => None,
    };
    let told = Told {
        policies,
        best_found,
        elapsed: began.elapsed(),
        peak_rss_mib: peak_rss_mib(),
    };
    if let Some(path) = &args.report {
        let page = html::page(&plan, &told);
        std::fs::write(path, page).with_context(|| format!("the report cannot be written to {path}"))?;
    }
    Ok(if args.fleet.json {
        format!("{}\n", json::object(&plan, &told))
    } else {
        table::tell(&plan, &told, style())
    })
}

/// What `homing tune` prints.
pub fn tune(matches: &ArgMatches) -> anyhow::Result<String> {
    tune::run(&TuneArgs::from_arg_matches(matches)?, style())
}

fn style() -> Style {
    Style::of(homing_config::colour(std::io::stdout().is_terminal()))
}

/// The most memory that this process had in use, as Linux tells it.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1_024.0)
}
