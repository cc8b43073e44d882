//! What is said about an engine? Checks, and what came of each.

use serde::Serialize;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Which engine it is, in which version.
    Engine,
    /// What it serves.
    Models,
    /// Whether it caches prefixes.
    Caching,
    /// How many tokens its blocks have.
    BlockSize,
    /// Whether its events arrive.
    Events,
    /// Whether what was lost can be had again.
    Replay,
    /// Whether it makes the same tokens of the same prompts.
    Tokenizer,
    /// Whether its answers say how much came from the cache.
    Usage,
    /// Whether adapters can be loaded while it runs.
    Adapters,
    /// Whether its clock shows the time.
    Clock,
    /// Whether what we predict to be cached is what it says was.
    Overlap,
}

impl Check {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 11] = [
        Self::Engine,
        Self::Models,
        Self::Caching,
        Self::BlockSize,
        Self::Events,
        Self::Replay,
        Self::Tokenizer,
        Self::Usage,
        Self::Adapters,
        Self::Clock,
        Self::Overlap,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Models => "models",
            Self::Caching => "caching",
            Self::BlockSize => "block-size",
            Self::Events => "events",
            Self::Replay => "replay",
            Self::Tokenizer => "tokenizer",
            Self::Usage => "usage",
            Self::Adapters => "adapters",
            Self::Clock => "clock",
            Self::Overlap => "overlap",
        }
    }
}

/// How much a finding matters. The last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something works less well than it could.
    Warning,
    /// What Homing is for does not work with this engine.
    Fault,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
        }
    }
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// How much it matters.
    pub severity: Severity,
    /// What was seen.
    pub seen: String,
    /// What it costs as long as it is so.
    pub cost: String,
    /// The flag or setting to change.
    pub change: String,
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well; what was seen.
    Well(Check, String),
    /// Something is not.
    Found(Finding),
    /// It could not be looked at, or was not to be, and why.
    Unchecked(Check, String),
}

impl Outcome {
    /// Which check it is of.
    pub fn check(&self) -> Check {
        match self {
            Self::Well(check, _) | Self::Unchecked(check, _) => *check,
            Self::Found(finding) => finding.check,
        }
    }
}
