//! What was asked for on the command line?

use std::path::PathBuf;

/// What to run.
#[derive(Debug)]
pub enum Command {
    /// The prefix indexes, side by side.
    Index(IndexArgs),
    /// The hashes, side by side.
    Hash(Output),
    /// Decisions, side by side.
    #[cfg(feature = "ours")]
    Decide(Output, Size),
    /// The engine that needs no GPU.
    Mock(MockArgs),
    /// Print the usage.
    Help,
}

/// What `index` was asked for.
#[derive(Debug)]
pub struct IndexArgs {
    /// A trace in the Mooncake format; a generated one stands in where there is none.
    pub trace: Option<PathBuf>,
    /// Fleet sizes of the main workload.
    pub workers: Vec<u16>,
    /// How the result is printed.
    pub output: Output,
    /// How large everything is.
    pub size: Size,
    /// The one part to run; targets of the others are left out.
    pub only: Option<Part>,
}

/// What `mock` was asked for.
#[derive(Debug, Default)]
pub struct MockArgs {
    /// How the result is printed.
    pub output: Output,
    /// How large everything is.
    pub size: Size,
}

/// A part of `index` that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Wrong answers.
    Exact,
    /// Events of a trace.
    Churn,
    /// Lookups, stores and removals.
    Speed,
    /// Bytes.
    Memory,
    /// Growth, and the writer's slices.
    Growth,
}

impl IndexArgs {
    /// Whether a part was asked for.
    pub fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Tables for a person.
    #[default]
    Table,
    /// One object for a script.
    Json,
}

/// How large everything is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// What the targets are about.
    #[default]
    Full,
    /// A smoke test; its figures mean nothing.
    Quick,
}

impl Size {
    /// `full`, or `quick` in a smoke test.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Why the command line could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// A word that means nothing here.
    #[error("unknown argument `{0}`; see --help")]
    Unknown(String),
    /// A flag without its value.
    #[error("`{0}` needs a value")]
    Missing(&'static str),
    /// A fleet size that is none.
    #[error("`{0}` is no number of workers between 6 and 1024")]
    Workers(String),
}

/// How the program is called.
pub const USAGE: &str = "\
usage: homing-bench index [--trace FILE] [--workers 8,64,512] [--json] [--quick]
                          [--only exact|churn|speed|memory|growth]
       homing-bench hash [--json]
       homing-bench decide [--json] [--quick]
       homing-bench mock [--json] [--quick]
";

/// Reads the words after the program's name.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Command, ArgsError> {
    let mut words = words;
    match words.next().as_deref() {
        Some("index") => parse_index(words).map(Command::Index),
        Some("hash") => parse_hash(words).map(Command::Hash),
        #[cfg(feature = "ours")]
        Some("decide") => parse_decide(words),
        Some("mock") => parse_mock(words).map(Command::Mock),
        None | Some("help" | "--help" | "-h") => Ok(Command::Help),
        Some(other) => Err(ArgsError::Unknown(other.to_owned())),
    }
}

fn parse_index(mut words: impl Iterator<Item = String>) -> Result<IndexArgs, ArgsError> {
    let mut args = IndexArgs {
        trace: None,
        workers: vec![8, 64, 512],
        output: Output::Table,
        size: Size::Full,
        only: None,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--trace" => args.trace = Some(words.next().ok_or(ArgsError::Missing("--trace"))?.into()),
            "--workers" => args.workers = parse_workers(&words.next().ok_or(ArgsError::Missing("--workers"))?)?,
            "--json" => args.output = Output::Json,
            "--only" => args.only = Some(parse_part(&words.next().ok_or(ArgsError::Missing("--only"))?)?),
            "--quick" => args.size = Size::Quick,
            _ => return Err(ArgsError::Unknown(word)),
        }
    }
    Ok(args)
}

fn parse_part(name: &str) -> Result<Part, ArgsError> {
    match name {
        "exact" => Ok(Part::Exact),
        "churn" => Ok(Part::Churn),
        "speed" => Ok(Part::Speed),
        "memory" => Ok(Part::Memory),
        "growth" => Ok(Part::Growth),
        _ => Err(ArgsError::Unknown(name.to_owned())),
    }
}

fn parse_hash(words: impl Iterator<Item = String>) -> Result<Output, ArgsError> {
    let mut output = Output::Table;
    for word in words {
        match word.as_str() {
            "--json" => output = Output::Json,
            _ => return Err(ArgsError::Unknown(word)),
        }
    }
    Ok(output)
}

#[cfg(feature = "ours")]
fn parse_decide(words: impl Iterator<Item = String>) -> Result<Command, ArgsError> {
    let (mut output, mut size) = (Output::Table, Size::Full);
    for word in words {
        match word.as_str() {
            "--json" => output = Output::Json,
            "--quick" => size = Size::Quick,
            _ => return Err(ArgsError::Unknown(word)),
        }
    }
    Ok(Command::Decide(output, size))
}

fn parse_mock(words: impl Iterator<Item = String>) -> Result<MockArgs, ArgsError> {
    let mut args = MockArgs::default();
    for word in words {
        match word.as_str() {
            "--json" => args.output = Output::Json,
            "--quick" => args.size = Size::Quick,
            _ => return Err(ArgsError::Unknown(word)),
        }
    }
    Ok(args)
}

/// At least as many workers as one sequence has copies, at most what every contender can hold.
fn parse_workers(list: &str) -> Result<Vec<u16>, ArgsError> {
    list.split(',')
        .map(|text| match text.trim().parse() {
            Ok(workers) if (6..=1024).contains(&workers) => Ok(workers),
            _ => Err(ArgsError::Workers(text.to_owned())),
        })
        .collect()
}
