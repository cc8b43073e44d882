//! Where do the real inputs come from? The one place of the product that reads flags, environment and settings files.

use std::env;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::discover;
use crate::error::{Problem, Rejected};
use crate::flags::{self, FILE_FLAG, FILE_VARIABLE};
use crate::resolve::{FileText, Inputs, Resolved, resolve};
use crate::settle::FileVersion;
use crate::table::KnobId;
use crate::worker::{self, WithoutSource};

/// The longest settings file, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Whether to write with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Yes.
    On,
    /// No: nobody looks, or who looks does not want them.
    Off,
}

/// Reads the flags in `matches`, the environment, and the file that either of them names.
pub fn load(matches: &ArgMatches, without_source: WithoutSource) -> Result<Resolved, Rejected> {
    Reader::new(matches, without_source).read()
}

/// Flags and environment as they were once, and a file that can be read again.
#[derive(Clone, Debug)]
pub struct Reader {
    /// All but the file.
    inputs: Inputs,
    path: Option<PathBuf>,
}

impl Reader {
    /// Reads flags and environment, and not yet the file that either of them names. `without_source` says what becomes of workers, in
    /// any of the three, that nobody said a source of events of.
    pub fn new(matches: &ArgMatches, without_source: WithoutSource) -> Self {
        let named = matches.get_one::<String>(FILE_FLAG).map(PathBuf::from);
        let path = named.or_else(|| {
            env::var_os(FILE_VARIABLE)
                .filter(|name| !name.is_empty())
                .map(PathBuf::from)
        });
        Self {
            inputs: Inputs {
                flags: flags::given(matches),
                variables: variables(),
                worker_flags: flags::workers(matches),
                worker_variable: variable(worker::VARIABLE).unwrap_or_default(),
                discover_flags: flags::places(matches),
                discover_variable: variable(discover::VARIABLE).unwrap_or_default(),
                file: None,
                without_source,
            },
            path,
        }
    }

    /// Inputs that were read elsewhere, and the file at `path` in place of theirs.
    pub fn with_file(inputs: Inputs, path: impl Into<PathBuf>) -> Self {
        Self {
            inputs,
            path: Some(path.into()),
        }
    }

    /// Takes out the workers that flags or the variable name, as they were written: for who reads them by himself, because of such a
    /// worker nothing but its address needs to be said.
    pub fn take_workers(&mut self) -> Vec<String> {
        let flags = std::mem::take(&mut self.inputs.worker_flags);
        let variable = std::mem::take(&mut self.inputs.worker_variable);
        if flags.is_empty() {
            variable.split_whitespace().map(str::to_owned).collect()
        } else {
            flags
        }
    }

    /// The file, if one was named.
    pub fn file(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file, and makes settings of everything.
    pub fn read(&self) -> Result<Resolved, Rejected> {
        self.resolve(self.text()?)
    }

    /// What stands in the file now, if one was named.
    pub fn text(&self) -> Result<Option<FileText>, Rejected> {
        let path = self.path.as_deref();
        path.map(read_bounded).transpose()
    }

    /// The same, with what the file is now.
    pub fn versioned_text(&self) -> Result<Option<(FileText, FileVersion)>, Rejected> {
        let path = self.path.as_deref();
        path.map(read_versioned).transpose()
    }

    /// Makes settings of everything, with `file` in place of what stands in the file.
    pub fn resolve(&self, file: Option<FileText>) -> Result<Resolved, Rejected> {
        resolve(&Inputs {
            file,
            ..self.inputs.clone()
        })
    }
}

/// Whether to colour what is written to a stream that is, or is not, a terminal. `NO_COLOR` is honoured.
pub fn colour(is_terminal: bool) -> Colour {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_terminal && !refused {
        Colour::On
    } else {
        Colour::Off
    }
}

/// Reads a file of text that a flag names, such as a profile.
pub fn read_text(path: impl Into<PathBuf>) -> Result<FileText, Rejected> {
    read_file(path.into(), u64::MAX)
}

/// Reads a file of text that has at most [`MAX_FILE_BYTES`].
pub fn read_bounded(path: &Path) -> Result<FileText, Rejected> {
    if length_of(path)? > MAX_FILE_BYTES {
        return Err(Rejected {
            problems: vec![Problem::TooLong {
                file: path.to_path_buf(),
            }],
        });
    }
    read_file(path.to_path_buf(), MAX_FILE_BYTES)
}

/// The same, with what the file was when its reading began.
pub fn read_versioned(path: &Path) -> Result<(FileText, FileVersion), Rejected> {
    // A change while it is read shows in the next version.
    let before = fs::metadata(path).map_err(|error| Rejected {
        problems: vec![Problem::Unreadable {
            file: path.to_path_buf(),
            error,
        }],
    })?;
    let text = read_bounded(path)?;
    let version = FileVersion::new(before.len(), before.modified().ok(), &text.text);
    Ok((text, version))
}

/// How many bytes such a file has, to be asked before one is read that must not be too long.
pub fn length_of(path: impl Into<PathBuf>) -> Result<u64, Rejected> {
    let path = path.into();
    match fs::metadata(&path) {
        Ok(file) => Ok(file.len()),
        Err(error) => Err(Rejected {
            problems: vec![Problem::Unreadable { file: path, error }],
        }),
    }
}

/// Reads a file of text. A longer one than `max_bytes` is not read to its end: a device has none.
fn read_file(path: PathBuf, max_bytes: u64) -> Result<FileText, Rejected> {
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|file| file.take(max_bytes.saturating_add(1)).read_to_string(&mut text));
    let problem = match read {
        Ok(length) if length as u64 <= max_bytes => {
            return Ok(FileText {
                name: path.display().to_string(),
                text,
            });
        }
        Ok(_) => Problem::TooLong { file: path },
        Err(error) => Problem::Unreadable { file: path, error },
    };
    Err(Rejected {
        problems: vec![problem],
    })
}

/// Only the variables of knobs are looked at. Others that begin alike are none of our business: orchestrators make some
/// up from the names of services.
fn variables() -> Vec<(KnobId, String)> {
    let read = |&id: &KnobId| {
        let value = variable(&id.knob().variable())?;
        Some((id, value))
    };
    KnobId::ALL.iter().filter_map(read).collect()
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
