//! What was written about a worker, and where?
//!
//! Text or a table becomes items; [`Written::read`] makes values of them ([`Draft`]). Nothing here needs settings, so that
//! everything that is wrong with workers is reported even if settings are wrong as well.
//!
//! **Invariant:** text in which a password could stand is not repeated in a message.

use std::collections::BTreeSet;

use toml::{Table, Value as Toml};

use crate::error::Shown;
use crate::resolve::Source;
use crate::worker::draft::Draft;
use crate::worker::keys::WorkerKey;
use crate::worker::problem::{WorkerName, WorkerProblem};

/// The table of labels in the file.
const LABELS: &str = "labels";

/// What was written about one worker.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub name: WorkerName,
    pub place: Source,
    items: Vec<Item>,
    credentials: Credentials,
}

/// Whether a user name, a password or a token could stand in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credentials {
    None,
    Possible,
}

#[derive(Clone, Debug)]
enum Item {
    /// A key with its value.
    Set(WorkerKey, String),
    /// A label of the file, whose key may be anything.
    Label { key: String, value: String },
    /// A key that does not exist, with its value and with what a label is called here.
    Unknown {
        key: String,
        text: String,
        label: &'static str,
    },
    /// Not an item, and why.
    Wrong(WorkerProblem),
}

impl Written {
    /// A worker as one text.
    pub fn from_text(text: &str, number: usize, place: Source) -> Self {
        let mut items = Vec::new();
        for (at, part) in text.split(',').map(str::trim).enumerate() {
            items.push(match part.split_once('=') {
                Some((key, value)) if at > 0 || WorkerKey::of_name(key).is_some() => Item::of(key.trim(), value.trim()),
                _ if at == 0 => Item::Set(WorkerKey::Url, part.to_owned()),
                _ => Item::Wrong(WorkerProblem::NotKeyValue {
                    part: Shown::Text(part.to_owned()),
                }),
            });
        }
        Self::new(items, number, place)
    }

    /// A worker as a table of the file.
    pub fn from_toml(value: &Toml, number: usize, place: Source) -> Self {
        let items = match value {
            Toml::Table(table) => table
                .iter()
                .flat_map(|(key, value)| Item::of_toml(key, value))
                .collect(),
            _ => vec![Item::Wrong(WorkerProblem::NotATable)],
        };
        Self::new(items, number, place)
    }

    fn new(items: Vec<Item>, number: usize, place: Source) -> Self {
        let credentials = if items.iter().any(Item::could_hold_credentials) {
            Credentials::Possible
        } else {
            Credentials::None
        };
        let url = items.iter().find_map(|item| match item {
            Item::Set(WorkerKey::Url, url) if credentials == Credentials::None => Some(url.clone()),
            _ => None,
        });
        Self {
            name: WorkerName { number, url },
            place,
            items,
            credentials,
        }
    }

    /// The values, or everything that is wrong with them.
    pub fn read(&self) -> Result<Draft, Vec<WorkerProblem>> {
        let mut draft = Draft::default();
        let mut problems = Vec::new();
        let mut seen = BTreeSet::new();
        for item in &self.items {
            let taken = match item {
                Item::Set(key, _) if *key != WorkerKey::Label && !seen.insert(*key) => Err(WorkerProblem::Twice {
                    key: key.name().to_owned(),
                }),
                Item::Set(key, text) => draft.take(*key, text),
                Item::Label { key, value } => draft.label(key, value, format!("{LABELS}.{key}")),
                Item::Unknown { key, label, .. } => Err(unknown(key, label)),
                Item::Wrong(problem) => Err(problem.clone()),
            };
            problems.extend(taken.err().map(|problem| self.hidden(problem)));
        }
        // What a misspelt key would have said is not known, so what it might be missing for is not asked.
        if problems.is_empty() {
            draft.check(&mut problems);
        }
        if problems.is_empty() { Ok(draft) } else { Err(problems) }
    }

    fn hidden(&self, problem: WorkerProblem) -> WorkerProblem {
        if self.credentials == Credentials::None {
            return problem;
        }
        let shown = Shown::Hidden;
        match problem {
            WorkerProblem::Address { key, fault, .. } => WorkerProblem::Address { key, shown, fault },
            WorkerProblem::Malformed { key, expected, .. } => WorkerProblem::Malformed { key, shown, expected },
            WorkerProblem::NotKeyValue { .. } | WorkerProblem::UnknownKey { .. } => {
                WorkerProblem::NotKeyValue { part: shown }
            }
            problem => problem,
        }
    }
}

impl Item {
    fn of(key: &str, value: &str) -> Self {
        match WorkerKey::of_name(key) {
            Some(key) => Self::Set(key, value.to_owned()),
            None => Self::Unknown {
                key: key.to_owned(),
                text: value.to_owned(),
                label: WorkerKey::Label.name(),
            },
        }
    }

    fn of_toml(key: &str, value: &Toml) -> Vec<Self> {
        let known = WorkerKey::of_name(key).filter(|key| *key != WorkerKey::Label);
        match (known, value) {
            (None, Toml::Table(labels)) if key == LABELS => Self::of_labels(labels),
            (None, _) if key == LABELS => vec![Self::misshapen(key, "a table of KEY = \"VALUE\"".to_owned())],
            (None, value) => vec![Self::Unknown {
                key: key.to_owned(),
                text: value.to_string(),
                label: LABELS,
            }],
            (Some(key), Toml::String(text)) => vec![Self::Set(key, text.trim().to_owned())],
            (Some(key), Toml::Integer(number)) => vec![Self::Set(key, number.to_string())],
            (Some(id), _) => vec![Self::misshapen(key, id.facts().form.to_string())],
        }
    }

    fn of_labels(labels: &Table) -> Vec<Self> {
        let label = |(key, value): (&String, &Toml)| match value {
            Toml::String(value) => Self::Label {
                key: key.clone(),
                value: value.clone(),
            },
            _ => Self::misshapen(&format!("{LABELS}.{key}"), "a text".to_owned()),
        };
        labels.iter().map(label).collect()
    }

    fn misshapen(key: &str, expected: String) -> Self {
        Self::Wrong(WorkerProblem::Malformed {
            key: key.to_owned(),
            shown: Shown::Hidden,
            expected,
        })
    }

    /// A comma within a password splits an address: what does not look like an item may be the rest of one.
    fn could_hold_credentials(&self) -> bool {
        let text = match self {
            Self::Set(key, text) if !key.takes_any_word() && !text.contains("ipc://") => text,
            Self::Unknown { text, .. }
            | Self::Wrong(WorkerProblem::NotKeyValue {
                part: Shown::Text(text),
            }) => text,
            _ => return false,
        };
        text.contains(['@', '?'])
    }
}

/// A key that does not exist, and the one that was probably meant. `label` is what the place calls a label.
fn unknown(key: &str, label: &'static str) -> WorkerProblem {
    let others = WorkerKey::ALL.iter().filter(|key| **key != WorkerKey::Label);
    let names = others.map(|key| key.name()).chain([label]);
    let nearest = names
        .map(|name| (strsim::damerau_levenshtein(key, name), name))
        .min()
        .filter(|(edits, name)| *edits <= key.len().max(name.len()) / 2)
        .map(|(_, name)| name);
    WorkerProblem::UnknownKey {
        key: key.to_owned(),
        nearest,
    }
}
