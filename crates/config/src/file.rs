//! What does the file say?
//!
//! TOML; a section per first part of a path. Numbers may be bare or quoted with a unit: `ttl = 120`, `ttl = "2m"`.
//! Workers are tables of their own, `[[worker]]`. A key that no knob has is a problem, and the nearest name is suggested: a misspelt setting that is silently ignored is
//! worse than one that stops the start.

use toml::{Table, Value as Toml};

use crate::discover;
use crate::error::{Problem, Shown};
use crate::knob::Knob;
use crate::resolve::{FileText, Source};
use crate::table::{KNOBS, KnobId};
use crate::worker::FILE_KEY;
use crate::worker::written::Written;

/// How a file says that there are to be no workers: `workers = []`.
const WORKERS_KEY: &str = "workers";

/// Whether a settings file says in so many words that there are to be no workers: `workers = []` or `worker = []`.
pub fn declares_no_workers(text: &str) -> bool {
    [FILE_KEY, WORKERS_KEY].iter().any(|key| declares_empty(text, key))
}

/// Whether a TOML text has an empty list of this name. One that merely lacks the name may have been cut.
pub(crate) fn declares_empty(text: &str, key: &str) -> bool {
    let table = text.parse::<Table>();
    table.is_ok_and(|table| table.get(key).and_then(Toml::as_array).is_some_and(Vec::is_empty))
}

/// What a file says.
#[derive(Default)]
pub(crate) struct Contents {
    /// Settings, as text.
    pub settings: Vec<(KnobId, String)>,
    /// Workers.
    pub workers: Vec<Written>,
    /// Places to look for workers, as text.
    pub places: Vec<String>,
}

/// What `file` says. What is wrong with it goes to `problems`.
pub(crate) fn read(file: &FileText, problems: &mut Vec<Problem>) -> Contents {
    let mut reading = Reading {
        file: &file.name,
        found: Contents::default(),
        problems,
    };
    match file.text.parse::<Table>() {
        Ok(table) => reading.table("", &table),
        Err(error) => reading.problems.push(Problem::NotToml {
            file: file.name.clone(),
            line: error.span().map_or(1, |span| line_of(&file.text, span.start)),
            message: error.message().lines().next().unwrap_or_default().to_owned(),
        }),
    }
    reading.found
}

struct Reading<'a> {
    file: &'a str,
    found: Contents,
    problems: &'a mut Vec<Problem>,
}

impl Reading<'_> {
    fn table(&mut self, section: &str, table: &Table) {
        for (key, value) in table {
            let path = if section.is_empty() {
                key.clone()
            } else {
                format!("{section}.{key}")
            };
            match (KnobId::of_path(&path), value) {
                (Some(id), value) => self.setting(id, value),
                // That there are to be none: see `declares_empty`.
                (None, Toml::Array(workers)) if path == WORKERS_KEY && workers.is_empty() => {}
                (None, Toml::Array(workers)) if path == FILE_KEY => self.workers(workers),
                (None, _) if path == FILE_KEY => self.problems.push(Problem::NotWorkers {
                    file: self.file.to_owned(),
                }),
                (None, value) if path == discover::FILE_KEY => self.places(value),
                (None, Toml::Table(inner)) if is_section(&path) => self.table(&path, inner),
                (None, _) => self.problems.push(Problem::UnknownKey {
                    file: self.file.to_owned(),
                    nearest: nearest(&path),
                    key: path,
                }),
            }
        }
    }

    fn workers(&mut self, workers: &[Toml]) {
        let place = || Source::File(self.file.to_owned());
        let numbered = workers.iter().zip(1..);
        let written = numbered.map(|(worker, number)| Written::from_toml(worker, number, place()));
        self.found.workers = written.collect();
    }

    fn places(&mut self, value: &Toml) {
        let texts = value.as_array().map(|places| places.iter().map(Toml::as_str));
        match texts.and_then(Iterator::collect::<Option<Vec<&str>>>) {
            Some(places) => self.found.places = places.into_iter().map(str::to_owned).collect(),
            None => self.problems.push(Problem::NotPlaces {
                file: self.file.to_owned(),
            }),
        }
    }

    fn setting(&mut self, id: KnobId, value: &Toml) {
        let text = match value {
            Toml::String(text) => text.clone(),
            Toml::Integer(number) => number.to_string(),
            Toml::Float(number) => number.to_string(),
            Toml::Boolean(_) | Toml::Datetime(_) | Toml::Array(_) | Toml::Table(_) => {
                let knob = id.knob();
                self.problems.push(Problem::Malformed {
                    knob: knob.path,
                    shown: Shown::Hidden,
                    place: Source::File(self.file.to_owned()),
                    expected: knob.kind.to_string(),
                });
                return;
            }
        };
        self.found.settings.push((id, text));
    }
}

fn is_section(path: &str) -> bool {
    KNOBS.iter().any(|knob| knob.section() == path)
}

/// The knob that someone who wrote `path` probably meant: of all names the one with the fewest edits, if those are few;
/// else one whose last part is spelt the same in another section.
fn nearest(path: &str) -> Option<&'static str> {
    let names = KNOBS.iter().map(|knob| knob.path).chain([FILE_KEY, discover::FILE_KEY]);
    let (edits, name) = names
        .map(|name| (strsim::damerau_levenshtein(path, name), name))
        .min()?;
    if edits <= path.len().max(name.len()) / 3 {
        return Some(name);
    }
    let key = path.rsplit('.').next()?;
    let same_key = |knob: &&Knob| knob.key() == key;
    KNOBS.iter().find(same_key).map(|knob| knob.path)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}
