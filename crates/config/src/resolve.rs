//! How do flags, variables, file and defaults become one configuration?
//!
//! Pure: all inputs are arguments. All problems are found in one go, so that an operator corrects them in one go; only
//! checks across fields, and between workers, wait until each field is right by itself.
//!
//! **Invariant:** a flag wins over a variable, a variable over the file, the file over the default. A value that loses is
//! still checked: it would surprise when the winner is taken away. The list of workers is one value in this.

use std::fmt;

use crate::checks::CHECKS;
use crate::config::Config;
use crate::discover::{self, Discover, MAX_PLACES};
use crate::error::{Problem, Rejected, Shown};
use crate::file;
use crate::knob::{Knob, Refusal, Value};
use crate::table::KnobId;
use crate::values::Values;
use crate::worker::across::Workers;
use crate::worker::draft::Draft;
use crate::worker::written::Written;
use crate::worker::{self, MAX_WORKERS, WithoutSource, WorkerDefaults, WorkerName, WorkerSpec};

/// All that was typed.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// What the flags said.
    pub flags: Vec<(KnobId, String)>,
    /// What the variables said. Empty ones are taken for unset, as templates of containers leave them.
    pub variables: Vec<(KnobId, String)>,
    /// The workers that flags named, each as one text.
    pub worker_flags: Vec<String>,
    /// The workers that the variable named, separated by white space.
    pub worker_variable: String,
    /// The places to look for workers that flags named, each as one text.
    pub discover_flags: Vec<String>,
    /// Those that the variable named, separated by white space.
    pub discover_variable: String,
    /// The file, if one was named.
    pub file: Option<FileText>,
    /// What becomes of a worker of which nobody said where its events come from.
    pub without_source: WithoutSource,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// Its name, as it was given.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// The result: what holds, and where each value came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What holds.
    pub config: Config,
    /// One per knob, in the order of [`crate::KNOBS`].
    pub settings: Vec<Setting>,
    /// Where the workers of `config` came from.
    pub workers_source: Source,
    /// Where the places to look of `config` came from.
    pub discover_source: Source,
}

/// What a knob was set to, and where.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The knob.
    pub id: KnobId,
    /// What it was set to.
    pub value: Value,
    /// Where.
    pub source: Source,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// This file.
    File(String),
    /// This variable.
    Variable(String),
    /// This flag.
    Flag(String),
}

impl Setting {
    /// The knob.
    pub fn knob(&self) -> &'static Knob {
        self.id.knob()
    }

    /// The value as an operator would write it; a secret is not written.
    pub fn shown(&self) -> String {
        self.knob().show(&self.value)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(name) => write!(f, "from file {name}"),
            Self::Variable(name) => write!(f, "from variable {name}"),
            Self::Flag(name) => write!(f, "from flag --{name}"),
        }
    }
}

/// Turns what was typed into what is true.
pub fn resolve(inputs: &Inputs) -> Result<Resolved, Rejected> {
    let mut problems = Vec::new();
    let mut settings: Vec<Setting> = KnobId::ALL.iter().map(|&id| default_of(id)).collect();
    // Weakest first: what comes later replaces what came before.
    let file = inputs.file.as_ref().map(|file| file::read(file, &mut problems));
    let file = file.unwrap_or_default();
    for (id, text, source) in layers(inputs, file.settings) {
        match parsed(id, &text, &source) {
            Ok(value) => settings[id as usize] = Setting { id, value, source },
            Err(problem) => problems.push(problem),
        }
    }
    let workers = read_workers(worker_layers(inputs, file.workers), &mut problems);
    let places = read_places(place_layers(inputs, file.places), &mut problems);
    if !problems.is_empty() {
        return Err(Rejected { problems });
    }
    let mut config = Config::build(&Values::new(&|id: KnobId| settings[id as usize].value.clone()));
    let broken = CHECKS.iter().filter(|check| !(check.holds)(&config));
    problems.extend(broken.map(|check| Problem::Disagree {
        left: Box::new(settings[check.left as usize].clone()),
        rule: check.rule,
        right: Box::new(settings[check.right as usize].clone()),
        when: check.when,
    }));
    let workers_source = workers.source.clone();
    config.discover = places.0;
    let defaults = worker_defaults(inputs.without_source, &config, &settings);
    config.workers = finish_workers(workers, &defaults, (&config, &settings), &mut problems);
    if problems.is_empty() {
        Ok(Resolved {
            config,
            settings,
            workers_source,
            discover_source: places.1,
        })
    } else {
        Err(Rejected { problems })
    }
}

fn layers(inputs: &Inputs, settings: Vec<(KnobId, String)>) -> Vec<(KnobId, String, Source)> {
    let mut layers = Vec::new();
    if let Some(file) = &inputs.file {
        layers.extend(
            settings
                .into_iter()
                .map(|(id, text)| (id, text, Source::File(file.name.clone()))),
        );
    }
    for (id, text) in inputs.variables.iter().filter(|(_, text)| !text.is_empty()) {
        layers.push((*id, text.clone(), Source::Variable(id.knob().variable())));
    }
    for (id, text) in &inputs.flags {
        layers.push((*id, text.clone(), Source::Flag(id.knob().flag())));
    }
    layers
}

/// Lists of workers, weakest first; none is empty.
fn worker_layers(inputs: &Inputs, file: Vec<Written>) -> Vec<Vec<Written>> {
    let written = |texts: Vec<&str>, place: Source| -> Vec<Written> {
        let numbered = texts.into_iter().zip(1..);
        numbered
            .map(|(text, number)| Written::from_text(text, number, place.clone()))
            .collect()
    };
    let variable = inputs.worker_variable.split_whitespace().collect();
    let flags = inputs.worker_flags.iter().map(String::as_str).collect();
    let layers = [
        file,
        written(variable, Source::Variable(worker::VARIABLE.to_owned())),
        written(flags, Source::Flag(worker::FLAG.to_owned())),
    ];
    layers.into_iter().filter(|workers| !workers.is_empty()).collect()
}

/// The workers of the strongest list.
struct Drafts {
    drafts: Vec<(WorkerName, Draft)>,
    source: Source,
}

fn read_workers(layers: Vec<Vec<Written>>, problems: &mut Vec<Problem>) -> Drafts {
    let mut strongest = Drafts {
        drafts: Vec::new(),
        source: Source::Default,
    };
    for workers in layers {
        let place = workers[0].place.clone();
        if workers.len() > MAX_WORKERS {
            problems.push(Problem::TooManyWorkers {
                count: workers.len(),
                place,
            });
            continue;
        }
        let mut drafts = Vec::new();
        for written in workers {
            match written.read() {
                Ok(draft) => drafts.push((written.name, draft)),
                Err(found) => problems.extend(found.into_iter().map(|problem| Problem::Worker {
                    worker: written.name.clone(),
                    place: written.place.clone(),
                    problem: Box::new(problem),
                })),
            }
        }
        strongest = Drafts { drafts, source: place };
    }
    strongest
}

/// Lists of places to look, weakest first; none is empty.
fn place_layers(inputs: &Inputs, file: Vec<String>) -> Vec<(Vec<String>, Source)> {
    let name = inputs.file.as_ref().map_or("", |file| &file.name);
    let variable = inputs.discover_variable.split_whitespace();
    let layers = [
        (file, Source::File(name.to_owned())),
        (
            variable.map(str::to_owned).collect(),
            Source::Variable(discover::VARIABLE.to_owned()),
        ),
        (inputs.discover_flags.clone(), Source::Flag(discover::FLAG.to_owned())),
    ];
    layers.into_iter().filter(|(places, _)| !places.is_empty()).collect()
}

/// The places of the strongest list, and where it was written.
fn read_places(layers: Vec<(Vec<String>, Source)>, problems: &mut Vec<Problem>) -> (Vec<Discover>, Source) {
    let mut strongest = (Vec::new(), Source::Default);
    for (texts, place) in layers {
        if texts.len() > MAX_PLACES {
            problems.push(Problem::TooManyPlaces {
                count: texts.len(),
                place,
            });
            continue;
        }
        let mut places = Vec::new();
        for text in &texts {
            match Discover::parse(text) {
                Ok(found) => places.push(found),
                Err(found) => problems.extend(found.into_iter().map(|problem| Problem::Discover {
                    shown: discover::shown(text),
                    place: place.clone(),
                    problem: Box::new(problem),
                })),
            }
        }
        strongest = (places, place);
    }
    strongest
}

/// What holds for workers that do not say it themselves. That events are the default says nothing about a worker without a source of
/// them; an operator who writes it down means all workers, and one without a source is his mistake.
fn worker_defaults(without_source: WithoutSource, config: &Config, settings: &[Setting]) -> WorkerDefaults {
    let defaults = config.worker_defaults();
    match (without_source, &settings[KnobId::CacheView as usize].source) {
        (WithoutSource::Approximate, Source::Default) => defaults.learning(),
        _ => defaults,
    }
}

fn finish_workers(
    workers: Drafts,
    defaults: &WorkerDefaults,
    (config, settings): (&Config, &[Setting]),
    problems: &mut Vec<Problem>,
) -> Vec<WorkerSpec> {
    let mut named = Vec::new();
    for (name, draft) in workers.drafts {
        match draft.finish(defaults) {
            Ok(worker) => named.push((name, worker)),
            Err(problem) => problems.push(Problem::Worker {
                worker: name,
                place: workers.source.clone(),
                problem: Box::new(problem),
            }),
        }
    }
    let across = Workers {
        named: &named,
        place: &workers.source,
    };
    problems.extend(across.problems(&settings[KnobId::MaxRanks as usize], config.index.max_ranks));
    named.into_iter().map(|(_, worker)| worker).collect()
}

fn default_of(id: KnobId) -> Setting {
    let knob = id.knob();
    Setting {
        id,
        value: knob.parse(knob.default).expect("a test parses every default"),
        source: Source::Default,
    }
}

fn parsed(id: KnobId, text: &str, source: &Source) -> Result<Value, Problem> {
    let knob = id.knob();
    let shown = if knob.is_secret() {
        Shown::Hidden
    } else {
        Shown::Text(text.to_owned())
    };
    knob.parse(text).map_err(|refusal| match refusal {
        Refusal::Malformed => Problem::Malformed {
            knob: knob.path,
            shown,
            place: source.clone(),
            expected: knob.kind.to_string(),
        },
        Refusal::OutOfRange => Problem::OutOfRange {
            knob: knob.path,
            shown,
            place: source.clone(),
            range: knob.kind.to_string(),
        },
    })
}
