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
    /// The gateway, beside nginx.
    Gateway(GatewayArgs),
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

/// What `gateway` was asked for.
#[derive(Debug)]
pub struct GatewayArgs {
    /// How the result is printed.
    pub output: Output,
    /// How large everything is.
    pub size: Size,
    /// The program `homing`; as it was built here if none.
    pub homing: Option<PathBuf>,
    /// The program `nginx`.
    pub nginx: PathBuf,
    /// A folder of a model; without it prompts are token ids.
    pub tokenizer: Option<PathBuf>,
    /// Threads of Homing, and processes of nginx.
    pub threads: usize,
    /// Rounds of what is measured in turns.
    pub rounds: usize,
    /// The one part to run; targets of the others are left out.
    pub only: Option<GatewayPart>,
}

/// A part of `gateway` that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayPart {
    /// Processor time.
    Cpu,
    /// Added latency.
    Latency,
    /// Long prompts.
    Long,
    /// Memory.
    Memory,
}

impl GatewayArgs {
    /// Whether a part was asked for.
    pub fn wants(&self, part: GatewayPart) -> bool {
        self.only.is_none_or(|only| only == part)
    }
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
    /// A count that is none.
    #[error("`{0}` is no number above 0")]
    Count(String),
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
       homing-bench gateway [--homing PROGRAM] [--nginx PROGRAM] [--tokenizer DIR] [--threads N] [--rounds N]
                            [--json] [--quick] [--only cpu|latency|long|memory]
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
        Some("gateway") => parse_gateway(words).map(Command::Gateway),
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

fn parse_gateway(mut words: impl Iterator<Item = String>) -> Result<GatewayArgs, ArgsError> {
    let mut args = GatewayArgs {
        output: Output::Table,
        size: Size::Full,
        homing: None,
        nginx: "nginx".into(),
        tokenizer: None,
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        rounds: 5,
        only: None,
    };
    while let Some(word) = words.next() {
        let mut value = |name| words.next().ok_or(ArgsError::Missing(name));
        let count = |text: String| match text.parse() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(ArgsError::Count(text)),
        };
        match word.as_str() {
            "--json" => args.output = Output::Json,
            "--quick" => args.size = Size::Quick,
            "--homing" => args.homing = Some(value("--homing")?.into()),
            "--nginx" => args.nginx = value("--nginx")?.into(),
            "--tokenizer" => args.tokenizer = Some(value("--tokenizer")?.into()),
            "--threads" => args.threads = count(value("--threads")?)?,
            "--rounds" => args.rounds = count(value("--rounds")?)?,
            "--only" => args.only = Some(parse_gateway_part(&value("--only")?)?),
            _ => return Err(ArgsError::Unknown(word)),
        }
    }
    Ok(args)
}

fn parse_gateway_part(name: &str) -> Result<GatewayPart, ArgsError> {
    match name {
        "cpu" => Ok(GatewayPart::Cpu),
        "latency" => Ok(GatewayPart::Latency),
        "long" => Ok(GatewayPart::Long),
        "memory" => Ok(GatewayPart::Memory),
        _ => Err(ArgsError::Unknown(name.to_owned())),
    }
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
