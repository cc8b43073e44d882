//! Which adapters had operators told of before this start?
//!
//! A file of JSON with what was said of each. It is written beside the old one and put in its place, so that whoever reads it finds the one or
//! the other, whole.
//!
//! ```json
//! {"adapters": [{"name": "sql", "model": "llama", "path": "/adapters/sql", "pinned": false}]}
//! ```
//!
//! **Invariant:** an order is confirmed when the file has it. One that cannot be written changes nothing.
//!
//! **Invariant:** a file that cannot be understood is not written over: the gateway does not start.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use homing_adapters::{BadName, ManagerConfig, Pinned, check_name};
use homing_config::{MAX_FILE_BYTES, Rejected, read_bounded};
use homing_domain::AdapterName;
use serde::{Deserialize, Serialize};

use super::orders::Registered;
use super::{LONGEST_SOURCE, is_source};

/// Why a catalogue cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It is there and cannot be read, or is too long.
    #[error(transparent)]
    Unreadable(#[from] Rejected),
    /// It is no such file.
    #[error("it is no catalogue of adapters: {0}")]
    Malformed(#[from] serde_json::Error),
    /// An adapter cannot be called so.
    #[error(transparent)]
    Name(#[from] BadName),
    /// An adapter is there twice.
    #[error("adapter `{0}` is in it twice")]
    Twice(AdapterName),
    /// What is said of an adapter cannot be.
    #[error("adapter `{0}` needs a `model`, and a `path` of at most {LONGEST_SOURCE} bytes without control characters")]
    Said(AdapterName),
    /// There are too many.
    #[error("it has {0} adapters, more than the {most} that are kept", most = most())]
    TooMany(usize),
    /// It would be too long to be read again.
    #[error("it would be longer than {MAX_FILE_BYTES} bytes")]
    TooLong,
    /// It cannot be written.
    #[error("it cannot be written: {0}")]
    Unwritten(#[from] io::Error),
}

/// What operators told of, by name.
pub(crate) type Entries = BTreeMap<AdapterName, Registered>;

/// Where adapters are kept over a restart.
#[derive(Clone, Debug)]
pub(crate) struct Catalogue {
    path: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    adapters: Vec<Entry>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    model: String,
    path: String,
    #[serde(default)]
    pinned: bool,
}

impl Catalogue {
    /// What is in the file; nothing if there is none. It is written at once, so that a place that cannot be written is found now.
    pub(crate) fn open(path: &Path) -> Result<(Self, Entries), CatalogueError> {
        let entries = if path.try_exists()? {
            read(&read_bounded(path)?.text)?
        } else {
            Entries::new()
        };
        let catalogue = Self {
            path: path.to_path_buf(),
        };
        catalogue.write(&entries)?;
        Ok((catalogue, entries))
    }

    /// Puts these in place of what is in the file. Waits for the disk.
    pub(crate) fn write(&self, entries: &Entries) -> Result<(), CatalogueError> {
        let text = written(entries)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(CatalogueError::TooLong);
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        Ok(())
    }
}

fn written(entries: &Entries) -> Result<String, serde_json::Error> {
    let adapters = entries.iter().map(|(name, of)| Entry {
        name: name.to_string(),
        model: of.model.to_string(),
        path: of.source.to_string(),
        pinned: of.pinned == Pinned::Yes,
    });
    let adapters = Written {
        adapters: adapters.collect(),
    };
    Ok(serde_json::to_string_pretty(&adapters)? + "\n")
}

fn read(text: &str) -> Result<Entries, CatalogueError> {
    let Written { adapters } = serde_json::from_str(text)?;
    if adapters.len() > most() {
        return Err(CatalogueError::TooMany(adapters.len()));
    }
    let mut entries = Entries::new();
    for entry in adapters {
        let name = check_name(&entry.name)?;
        if entry.model.is_empty() || !is_source(&entry.path) {
            return Err(CatalogueError::Said(name));
        }
        let registered = Registered {
            model: entry.model.into(),
            source: entry.path.into(),
            pinned: if entry.pinned { Pinned::Yes } else { Pinned::No },
        };
        if entries.insert(name.clone(), registered).is_some() {
            return Err(CatalogueError::Twice(name));
        }
    }
    Ok(entries)
}

/// The most adapters that operators can tell of.
pub(super) fn most() -> usize {
    ManagerConfig::default().most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &[&str]) -> Entries {
        let registered = |name: &str| Registered {
            model: "tiny".into(),
            source: format!("/adapters/\"{name}\"").into(),
            pinned: if name.len() > 1 { Pinned::Yes } else { Pinned::No },
        };
        names
            .iter()
            .map(|name| (AdapterName::new(*name), registered(name)))
            .collect()
    }

    #[test]
    fn what_is_written_is_read() {
        for entries in [entries(&[]), entries(&["a", "org/poet", "z"])] {
            assert_eq!(read(&written(&entries).unwrap()).unwrap(), entries);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let one = |name: &str, path: &str| format!(r#"{{"name": "{name}", "model": "m", "path": "{path}"}}"#);
        let of = |adapters: &[String]| format!(r#"{{"adapters": [{}]}}"#, adapters.join(","));
        for (text, words) in [
            (String::new(), "no catalogue of adapters: EOF"),
            (r#"{"adapters": [], "more": 1}"#.to_owned(), "unknown field `more`"),
            (of(&[one("a b", "/a")]), "must not have ' '"),
            (of(&[one("a", "")]), "adapter `a` needs a `model`, and a `path`"),
            (of(&[one("a", "/a"), one("a", "/b")]), "adapter `a` is in it twice"),
            (
                of(&vec![one("a", "/a"); most() + 1]),
                "it has 4097 adapters, more than the 4096",
            ),
        ] {
            let said = read(&text).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
