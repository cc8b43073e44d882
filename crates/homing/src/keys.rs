//! `homing keys`: API keys for `homing serve`.
//!
//! A key is shown once, when it is made. What is kept of it, its digest, cannot be turned back into it.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use homing_config::Switch;
use homing_config::keys::{self, Quota};

/// The subcommand and its arguments.
pub fn command() -> Command {
    let number = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("NUMBER");
        arg.value_parser(value_parser!(u64).range(1..=1 << 40)).help(help)
    };
    let new = Command::new("new")
        .about(
            "Make an API key, show it once, and print the table that stands for it in the file of keys (`serve.keys`)",
        )
        .arg(
            Arg::new("tenant")
                .long("tenant")
                .value_name("NAME")
                .required(true)
                .help("Whose it is"),
        )
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .help("What it is called in the file"),
        )
        .arg(
            Arg::new("priority")
                .long("priority")
                .value_name("NUMBER")
                .default_value("0")
                .allow_negative_numbers(true)
                .value_parser(value_parser!(i32))
                .help("The priority of its requests, and the highest that they can ask for"),
        )
        .arg(
            Arg::new("pin")
                .long("pin")
                .action(ArgAction::SetTrue)
                .help("Let its requests name workers and data-parallel ranks"),
        )
        .arg(number("requests-per-minute", "Requests that it may make in a minute"))
        .arg(number(
            "tokens-per-minute",
            "Tokens, of prompts and answers, that it may use in a minute",
        ))
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The file of keys, to which the table is added; the key alone is printed then"),
        );
    Command::new("keys")
        .about("API keys for `homing serve`")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(new)
}

/// Makes a key. The table goes to standard output and the key to standard error, so that `>> keys.toml` keeps the one and not the
/// other; with a file, the key goes to standard output.
pub fn run(matches: &ArgMatches) -> anyhow::Result<String> {
    let Some(("new", matches)) = matches.subcommand() else {
        unreachable!("clap knows no other subcommand");
    };
    let tenant: &String = matches.get_one("tenant").context("`--tenant` is needed")?;
    let quota = Quota {
        requests: matches.get_one("requests-per-minute").copied(),
        tokens: matches.get_one("tokens-per-minute").copied(),
    };
    let priority = matches.get_one("priority").copied().unwrap_or_default();
    let mut fresh = keys::fresh(tenant, priority, quota)?;
    fresh.spec.name = matches.get_one("name").cloned();
    if matches.get_flag("pin") {
        fresh.spec.pin = Switch::On;
    }
    let table = fresh.spec.to_toml();
    // What could not be read again is not to be written.
    keys::parse(&table)?;
    let Some(path) = matches.get_one::<PathBuf>("file") else {
        writeln!(io::stderr(), "the key, which is shown only now: {}", fresh.key)?;
        return Ok(table);
    };
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(format!("\n{table}").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("{}\n", fresh.key))
}
