//! What does a step cost? `homing profile list` and `homing profile show`.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use homing_domain::Tokens;
use homing_profile::{DEFAULT_OVERHEAD, DecodeBatch, Millis, Profile, Timing, builtin};
use serde_json::json;

use crate::show::commas;

/// Prompts that are shown: all their tokens, and how many of those are cached.
const PROMPTS: [(u32, u32); 10] = [
    (128, 0),
    (512, 0),
    (2_048, 0),
    (8_192, 0),
    (8_192, 4_096),
    (8_192, 7_680),
    (32_768, 0),
    (32_768, 30_720),
    (131_072, 0),
    (131_072, 129_024),
];
/// Batches that are shown.
const SEQUENCES: [u32; 6] = [1, 8, 32, 64, 128, 256];
const CONTEXTS: [u32; 4] = [512, 2_048, 8_192, 32_768];

/// The subcommand's arguments.
pub fn command() -> Command {
    let show = Command::new("show")
        .about("Print what a prefill of n tokens and a decode step of b sequences cost")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .help("A profile that comes with Homing"),
        )
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .help("A profile of your own (JSON) instead")
                .conflicts_with("name")
                .required_unless_present("name"),
        )
        .arg(
            Arg::new("overhead-ms")
                .long("overhead-ms")
                .value_name("MS")
                .value_parser(value_parser!(f64))
                .help(format!(
                    "The engine's own time per step [default: {}]",
                    DEFAULT_OVERHEAD.0
                )),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object"),
        );
    let list = Command::new("list").about("Print the names of the profiles that come with Homing");
    Command::new("profile")
        .about("Print how long a step of a model on a device takes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(list)
        .subcommand(show)
}

/// What the subcommand prints.
pub fn run(matches: &ArgMatches) -> anyhow::Result<String> {
    match matches.subcommand() {
        Some(("list", _)) => list(),
        Some(("show", matches)) => show(matches),
        _ => unreachable!("clap knows no other subcommand"),
    }
}

fn list() -> anyhow::Result<String> {
    let width = builtin::names().map(str::len).max().unwrap_or(0);
    let mut lines = String::new();
    for name in builtin::names() {
        let profile = builtin::load(name)?;
        writeln!(lines, "{name:width$}  {}", title(&profile))?;
    }
    Ok(lines)
}

fn show(matches: &ArgMatches) -> anyhow::Result<String> {
    let profile = match matches.get_one::<String>("file") {
        Some(path) => {
            let file = homing_config::read_text(path)?;
            Profile::from_json(&file.text).with_context(|| file.name.clone())?
        }
        None => builtin::load(matches.get_one::<String>("name").map_or("", String::as_str))?,
    };
    let given = matches
        .get_one::<f64>("overhead-ms")
        .copied()
        .unwrap_or(DEFAULT_OVERHEAD.0);
    anyhow::ensure!((0.0..=1e6).contains(&given), "--overhead-ms must be 0 to 1,000,000");
    let title = title(&profile);
    let timing = Timing::Measured {
        profile: profile.into(),
        overhead: Millis(given),
    };
    if matches.get_flag("json") {
        return Ok(object(&title, &timing, given));
    }
    story(&title, &timing, given)
}

fn title(profile: &Profile) -> String {
    format!("{} on {}", profile.shape().model, profile.shape().device)
}

fn story(title: &str, timing: &Timing, overhead: f64) -> anyhow::Result<String> {
    let mut text = String::new();
    let bytes = commas(timing.kv_bytes_per_token());
    writeln!(
        text,
        "{title}, {bytes} bytes of KV per token, {overhead} ms of overhead per step\n"
    )?;
    writeln!(text, "prompt tokens  of which cached    prefill")?;
    for (tokens, cached) in PROMPTS {
        let time = prefill(timing, tokens, cached);
        let (tokens, cached) = (commas(tokens.into()), commas(cached.into()));
        writeln!(text, "{tokens:>13}  {cached:>15}  {:>9.1} ms", time.0)?;
    }
    write!(text, "\ndecode step of      at context")?;
    for context in CONTEXTS {
        write!(text, "{:>12}", commas(context.into()))?;
    }
    writeln!(text)?;
    for sequences in SEQUENCES {
        write!(text, "{sequences:>13} sequences       ")?;
        for context in CONTEXTS {
            let time = timing.decode(DecodeBatch::even(sequences, Tokens(context)));
            write!(text, "{:>9.2} ms", time.0)?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

fn object(title: &str, timing: &Timing, overhead: f64) -> String {
    let prompts = PROMPTS.map(|(tokens, cached)| {
        let ms = prefill(timing, tokens, cached).0;
        json!({"tokens": tokens, "cached": cached, "ms": ms})
    });
    let mut batches = Vec::new();
    for sequences in SEQUENCES {
        for context in CONTEXTS {
            let ms = timing.decode(DecodeBatch::even(sequences, Tokens(context))).0;
            batches.push(json!({"sequences": sequences, "context": context, "ms": ms}));
        }
    }
    let object = json!({
        "profile": title,
        "kv_bytes_per_token": timing.kv_bytes_per_token(),
        "overhead_ms": overhead,
        "prefill": prompts,
        "decode": batches,
    });
    format!("{object}\n")
}

fn prefill(timing: &Timing, tokens: u32, cached: u32) -> Millis {
    timing.prefill(Tokens(tokens - cached), Tokens(cached))
}
