//! `homing doctor`: looks at engines from outside and says what to change.
//!
//! It ends with 0 if all is well, with 1 if something is to be changed, and with 2 if an engine cannot be reached or the command cannot
//! be understood.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use homing_config::{Config, Reader, WithoutSource, WorkerSpec, flags};
use homing_discovery::Outward;
use homing_doctor::{Depth, Examined, Examiner, Patience, Report, judge, prompter};
use homing_tls::Trust;
use serde_json::{Value, json};

use crate::{in_words, print, service};

const FOUND: u8 = 1;
const CANNOT: u8 = 2;

/// The subcommand.
pub fn command() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let tokenizer = Arg::new("tokenizer")
        .long("tokenizer")
        .value_name("DIR")
        .help("The model's folder: a text, a chat and a chat with tools are made into tokens here and by the engine, and compared");
    let doctor = Command::new("doctor")
        .about("Look at an engine from outside, and say what to change: exit status 0 if all is well, 1 if not, 2 if it cannot be asked")
        .arg(tokenizer)
        .arg(switch("no-prompts", "Ask questions only, and send no prompt: then events cannot be waited for"))
        .arg(switch("json", "Print one JSON object"));
    flags::with_flags(doctor)
}

/// Looks at all engines that were named.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match examine(matches) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", in_words(&error));
            ExitCode::from(CANNOT)
        }
    }
}

fn examine(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let mut reader = Reader::new(matches, WithoutSource::Approximate);
    let named = reader.take_workers();
    let config = reader.read().context("the settings cannot be used")?.config;
    let workers = workers(&named, &config)?;
    let asked = matches.get_one::<String>("tokenizer").map(PathBuf::from);
    let folder = asked.or_else(|| config.serve.tokenizer.clone());
    let depth = if matches.get_flag("no-prompts") {
        Depth::Quiet
    } else {
        Depth::Prompts
    };
    let form = if matches.get_flag("json") {
        Form::Json
    } else {
        Form::Text
    };
    service::until_told(service::Threads::Few, async |stop| {
        let looking = look_at_all(config, workers, folder, depth);
        tokio::select! {
            told = looking => finish(&told?, form),
            () = stop => bail!("it was told to stop"),
        }
    })
}

/// How it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// What came of looking at one engine.
type Looked = Result<Report, String>;

fn finish(looked: &[(String, Looked)], form: Form) -> anyhow::Result<ExitCode> {
    if form == Form::Json {
        let each = looked.iter().map(|(worker, looked)| match looked {
            Ok(report) => report.json(),
            Err(why) => json!({ "worker": worker, "unreached": why }),
        });
        let all: Vec<Value> = each.collect();
        print(&format!("{:#}\n", json!({ "workers": all })))?;
    }
    let mut code = 0;
    for (worker, looked) in looked {
        match looked {
            Ok(report) => {
                if form == Form::Text {
                    print(&report.text())?;
                }
                code = code.max(if report.is_well() { 0 } else { FOUND });
            }
            Err(why) => {
                writeln!(io::stderr(), "error: {worker}: {why}")?;
                code = CANNOT;
            }
        }
    }
    Ok(ExitCode::from(code))
}

/// Workers as flags, variable or file name them. Of those in flags and the variable nothing but the address needs to be said.
fn workers(named: &[String], config: &Config) -> anyhow::Result<Vec<WorkerSpec>> {
    let defaults = config.worker_defaults().learning();
    let read = |text: &String| {
        WorkerSpec::parse(text, &defaults).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow!("--worker {text}: {}", problems.join("; "))
        })
    };
    let mut workers = named.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    if workers.is_empty() {
        workers.clone_from(&config.workers);
    }
    if workers.is_empty() {
        bail!("name the engine to look at: homing doctor --worker http://HOST:PORT");
    }
    Ok(workers)
}

async fn look_at_all(
    config: Config,
    workers: Vec<WorkerSpec>,
    folder: Option<PathBuf>,
    depth: Depth,
) -> anyhow::Result<Vec<(String, Looked)>> {
    let config = Arc::new(config);
    let defaults = config.worker_defaults();
    let patience = Patience {
        answer: config.probe.timeout,
        ..Patience::default()
    };
    let outward = &config.serve.security.outward;
    let outward = Outward {
        trust: Some(Trust::read(outward.ca.as_deref())?),
        key: outward
            .key
            .read()
            .context("the key of workers cannot be read (`serve.worker-key`)")?,
        ..Outward::default()
    };
    let examiner = Examiner::new(config.clone(), patience, &outward);
    let mut looked = Vec::new();
    for said in workers {
        let (facts, filled) = match examiner.learn(&said, &defaults).await {
            Ok(learnt) => learnt,
            Err(error) => {
                looked.push((said.url.to_string(), Err(error.why)));
                continue;
            }
        };
        let spec = filled.spec;
        let prompter = match &folder {
            None => None,
            Some(folder) => {
                let made = prompter(folder, spec.model.as_str(), spec.dialect);
                let made = made.with_context(|| format!("no tokenizer in {}", folder.display()))?;
                Some(Arc::new(made))
            }
        };
        let patient = Examined { spec, facts, prompter };
        let observed = examiner.look(&patient, depth).await;
        let report = Report::new(&patient.spec, filled.learnt, judge(&observed));
        looked.push((said.url.to_string(), Ok(report)));
    }
    Ok(looked)
}
