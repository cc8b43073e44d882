//! How do flags, variables, file and defaults become one configuration?
//!
//! Pure: all inputs are arguments. All problems are found in one go, so that an operator corrects them in one go; only
//! checks across fields wait until each field is right by itself.
//!
//! **Invariant:** a flag wins over a variable, a variable over the file, the file over the default. A value that loses is
//! still checked: it would surprise when the winner is taken away.

use std::fmt;

use crate::checks::CHECKS;
use crate::config::Config;
use crate::error::{Problem, Rejected, Shown};
use crate::file;
use crate::knob::{Knob, Refusal, Value};
use crate::table::KnobId;

/// All that was typed.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// What the flags said.
    pub flags: Vec<(KnobId, String)>,
    /// What the variables said. Empty ones are taken for unset, as templates of containers leave them.
    pub variables: Vec<(KnobId, String)>,
    /// The file, if one was named.
    pub file: Option<FileText>,
}

/// A file that was read.
#[derive(Clone, Debug)]
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
    for (id, text, source) in layers(inputs, &mut problems) {
        match parsed(id, &text, &source) {
            Ok(value) => settings[id as usize] = Setting { id, value, source },
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(Rejected { problems });
    }
    let config = Config::build(|id| settings[id as usize].value);
    let broken = CHECKS.iter().filter(|check| !(check.holds)(&config));
    problems.extend(broken.map(|check| Problem::Disagree {
        left: Box::new(settings[check.left as usize].clone()),
        rule: check.rule,
        right: Box::new(settings[check.right as usize].clone()),
        when: check.when,
    }));
    if problems.is_empty() {
        Ok(Resolved { config, settings })
    } else {
        Err(Rejected { problems })
    }
}

fn layers(inputs: &Inputs, problems: &mut Vec<Problem>) -> Vec<(KnobId, String, Source)> {
    let mut layers = Vec::new();
    if let Some(file) = &inputs.file {
        let values = file::read(file, problems);
        layers.extend(
            values
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
