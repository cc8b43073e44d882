//! The binary `homing`: subcommands, and nothing that decides.
//!
//! Each subcommand reads its settings through `homing-config`, does its work in a module of its own and prints. What it
//! prints for people goes to standard output too, so that it can be piped; what went wrong goes to standard error.

// Not `forbid`: what clap derives allows a group of lints that has this one.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agent;
mod demo;
mod doctor;
mod index;
mod keys;
mod logs;
mod mock;
mod profile;
mod register;
#[cfg(feature = "sim")]
mod replay;
mod serve;
mod service;
mod show;
#[cfg(feature = "sim")]
mod sim;
mod status;
mod stream;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use homing_config::{KnobId, Reader, Resolved, Source, WithoutSource, flags};

/// Requests are read on one thread and their prompts prepared on others: what is given back by another thread than it was taken by has to be
/// of use to both, or memory grows with the number of streams that there ever were.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = command().get_matches();
    if let Some(("doctor", matches)) = matches.subcommand() {
        return doctor::run(matches);
    }
    match run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output through a pipe may stop reading.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", in_words(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, each of which is said once: many errors name theirs themselves.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).action(ArgAction::SetTrue);
        arg.help(help)
    };
    let demo = Command::new("demo")
        .about("See it work, without a GPU: engines, a gateway and people in conversation, in one process")
        .arg(switch("json", "Print one JSON object at the end, and nothing before"));
    let agent = Command::new("agent").about("List and watch what engines hold, for routers, from beside the engines");
    let config = Command::new("config")
        .about("Print the settings that hold, and where each came from")
        .arg(switch("reference", "Print the reference page of all settings instead"));
    let serve = Command::new("serve")
        .about("Take requests in front of engines, and send each where its first token comes soonest");
    let index = Command::new("index").about("Answer over HTTP who holds how much of a prefix");
    let mock = Command::new("mock").about("Pretend to be engines: vLLM's or SGLang's API and KV events, without a GPU");
    let metrics = Command::new("metrics").about("Print the reference page of all metrics");
    let homing = Command::new("homing")
        .about("Sends every LLM request home: to the worker that already holds its prefix in KV cache")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(flags::with_flags(serve))
        .subcommand(flags::with_flags(demo))
        .subcommand(flags::with_flags(index))
        .subcommand(flags::with_flags(agent))
        .subcommand(flags::with_flags(mock))
        .subcommand(doctor::command())
        .subcommand(status::command())
        .subcommand(flags::with_flags(config))
        .subcommand(metrics)
        .subcommand(keys::command())
        .subcommand(profile::command());
    #[cfg(feature = "sim")]
    let homing = homing.subcommand(sim::command()).subcommands(replay::commands());
    homing
}

fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    match matches.subcommand() {
        Some(("demo", matches)) => run_demo(matches),
        Some(("serve", matches)) => serve::run(Reader::new(matches, WithoutSource::Approximate)),
        Some(("index", matches)) => index::run(&listening(matches)?),
        Some(("agent", matches)) => agent::run(&listening(matches)?.config),
        Some(("mock", matches)) => mock::run(&settings(matches)?.config),
        Some(("config", matches)) if matches.get_flag("reference") => print(&homing_config::reference::page()),
        Some(("config", matches)) => print(&effective(&settings(matches)?)),
        Some(("keys", matches)) => print(&keys::run(matches)?),
        Some(("metrics", _)) => print(&homing_telemetry::reference::page()),
        #[cfg(feature = "sim")]
        Some(("sim", matches)) => {
            let (printed, verdict) = sim::run(matches)?;
            print(&printed)?;
            sim::judge(verdict)
        }
        #[cfg(feature = "sim")]
        Some(("replay", matches)) => print(&replay::replay(matches)?),
        #[cfg(feature = "sim")]
        Some(("tune", matches)) => print(&replay::tune(matches)?),
        Some(("status", matches)) => status::run(matches),
        Some(("profile", matches)) => print(&profile::run(matches)?),
        _ => unreachable!("clap knows no other subcommand"),
    }
}

fn run_demo(matches: &ArgMatches) -> anyhow::Result<()> {
    let resolved = settings(matches)?;
    let is_for_scripts = matches.get_flag("json");
    let is_terminal = io::stdout().is_terminal();
    let mode = match (is_for_scripts, is_terminal) {
        (true, _) => demo::Mode::Nobody,
        (false, true) => demo::Mode::Terminal,
        (false, false) => demo::Mode::Lines,
    };
    let style = show::Style::of(homing_config::colour(is_terminal));
    // What a gateway logs when a worker is killed would be between the lines, unless somebody asks for it.
    let asked = |setting: &homing_config::Setting| setting.id == KnobId::LogLevel && setting.source != Source::Default;
    if resolved.settings.iter().any(asked) {
        logs::start(&resolved.config.log, homing_config::colour(io::stderr().is_terminal()));
    }
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let screen = demo::Screen::new(mode, style);
    let report = service::until_told(service::Threads::All, async |stop| {
        Box::pin(demo::run(&resolved, screen, stop)).await
    })?;
    if is_for_scripts {
        print(&format!("{}\n", demo::json::object(&resolved.config, &report)))?;
    } else {
        print(&demo::story::end(&resolved.config, &report, style))?;
    }
    let (failed, wrong) = report.failed_and_wrong();
    let why = report.failure().unwrap_or("none of them failed");
    ensure!(failed == 0, "{failed} requests failed; the first: {why}");
    ensure!(
        wrong == 0,
        "{wrong} answers were not what an undisturbed engine says; please report the seed and the settings"
    );
    Ok(())
}

fn settings(matches: &ArgMatches) -> anyhow::Result<Resolved> {
    homing_config::load(matches, WithoutSource::Approximate).context("the settings cannot be used")
}

/// The same for those who do nothing but listen to events.
fn listening(matches: &ArgMatches) -> anyhow::Result<Resolved> {
    homing_config::load(matches, WithoutSource::Refuse).context("the settings cannot be used")
}

/// One line per knob and then per worker: what it is set to, and where.
fn effective(resolved: &Resolved) -> String {
    let width = |text: fn(&homing_config::Setting) -> usize| resolved.settings.iter().map(text).max().unwrap_or(0);
    let (names, values) = (width(|s| s.knob().path.len()), width(|s| s.shown().len()));
    let line = |setting: &homing_config::Setting| {
        let (path, shown, source) = (setting.knob().path, setting.shown(), &setting.source);
        format!("{path:names$}  {shown:values$}  {source}\n")
    };
    let worker = |worker: &homing_config::WorkerSpec| format!("worker  {worker}  {}\n", resolved.workers_source);
    let settings = resolved.settings.iter().map(line);
    settings.chain(resolved.config.workers.iter().map(worker)).collect()
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn settings_are_listed_with_their_sources() {
        let matches = command().get_matches_from(["homing", "config", "--block-size", "64"]);
        let (_, matches) = matches.subcommand().unwrap();
        let inputs = homing_config::Inputs {
            flags: flags::given(matches),
            ..homing_config::Inputs::default()
        };
        let listed = effective(&homing_config::resolve(&inputs).unwrap());
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), homing_config::KNOBS.len());
        assert_eq!(
            lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "block-size 64 from flag --block-size"
        );
    }
}
