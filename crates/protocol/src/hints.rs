//! What does a client tell the router? Headers `x-homing-*` and the object `homing` in the body.
use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::ask::Ask;

/// Whether a hint is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// Where a session's name came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFrom {
    /// Our own hint.
    Hint,
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// OpenCode.
    OpenCode,
    /// A field of the body.
    Body,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub id: String,
    /// Who named it.
    pub from: SessionFrom,
}

/// What holds for one request only, as plain values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The policy to decide by.
    pub policy: Option<String>,
    /// How far from the best a choice may be.
    pub temperature: Option<f64>,
    /// What a cached block is worth.
    pub overlap_credit: Option<f64>,
    /// What prefill weighs.
    pub prefill_scale: Option<f64>,
    /// What slowing others down weighs.
    pub decode_weight: Option<f64>,
    /// Whether cached prefixes count.
    pub cache: Option<bool>,
}

/// What a client tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// What ties requests together.
    pub session: Option<Session>,
    /// Which class: higher goes first.
    pub priority: Option<i32>,
    /// How long the client waits for the first token.
    pub deadline: Option<Duration>,
    /// Who pays.
    pub tenant: Option<String>,
    /// The one worker.
    pub worker: Option<String>,
    /// Workers among which it may go; empty: all.
    pub allowed: Vec<String>,
    /// Workers to which it must not go.
    pub excluded: Vec<String>,
    /// Labels that a worker must have.
    pub labels: BTreeMap<String, String>,
    /// Tokens that will be generated.
    pub expected_output: Option<u32>,
    /// What holds for it only.
    pub overrides: Overrides,
    /// Answer with the decision instead of running it.
    pub dry_run: Switch,
    /// Tell the decision with the answer.
    pub explain: Switch,
}

/// Why hints are not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the hint {hint} {wrong}")]
pub struct BadHint {
    /// Which, as the client named it.
    pub hint: String,
    /// What is wrong with it.
    pub wrong: String,
}

impl Hints {
    /// Reads what headers and body tell.
    pub fn read<'h>(
        _headers: impl Iterator<Item = (&'h str, &'h [u8])>,
        _ask: Option<(&Ask, &[u8])>,
    ) -> Result<Self, BadHint> {
        Ok(Self::default())
    }
}
