//! What is asked, and what may a caller want otherwise for one request?

use homing_domain::{AdapterName, BlockKey, DpRank, ModelName, Tokens, WorkerId};
use homing_load::PromptWork;

use crate::fleet::Label;

/// Which part of a request is to be placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// All of it.
    #[default]
    Whole,
    /// Its prompt.
    Prefill,
    /// Its output, after the prompt was computed elsewhere.
    Decode,
    /// All of it, by a worker that decodes: most of these can compute a prompt as well.
    Alone,
}

/// A worker that must serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which.
    pub worker: WorkerId,
    /// Which part of it, if that matters.
    pub dp: Option<DpRank>,
}

/// Who may serve a request, beyond what model, role and adapter demand.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these workers; an empty list stands for all.
    pub allowed: Vec<WorkerId>,
    /// Not these: they were tried, and failed.
    pub tried: Vec<WorkerId>,
    /// This one and no other.
    pub pinned: Option<Pin>,
    /// The data-parallel rank of this number and no other, of whichever worker.
    pub dp: Option<DpRank>,
    /// Labels that a worker must have, all of them.
    pub required: Vec<Label>,
    /// Labels that speak for a worker, or against it if the weight is negative.
    pub preferred: Vec<(Label, f64)>,
}

impl Wanted {
    /// Whether anybody may serve the request.
    pub fn is_anybody(&self) -> bool {
        self.allowed.is_empty()
            && self.tried.is_empty()
            && self.pinned.is_none()
            && self.dp.is_none()
            && self.required.is_empty()
    }
}

/// Whether cached prefixes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// They do.
    #[default]
    Counts,
    /// All candidates are taken to hold nothing.
    Ignored,
}

/// Whether a choice is booked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// It is.
    #[default]
    Booked,
    /// It counts for nothing: whoever asked books it elsewhere, or not at all.
    Unbooked,
}

/// Whether the blocks of a prompt are assumed to be shared with other requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// They are.
    #[default]
    Assumed,
    /// They count as the request's own.
    None,
}

/// What holds for one request only. What is none is as the policy was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrides {
    /// How far from the best a choice may be; 0 is the best.
    pub temperature: Option<f64>,
    /// What a cached block is worth (`blocks`).
    pub overlap_credit: Option<f64>,
    /// What prefill weighs (`blocks`).
    pub prefill_scale: Option<f64>,
    /// What slowing down others' decoding weighs (`time`).
    pub decode_weight: Option<f64>,
    /// Whether cached prefixes count.
    pub cache: CacheUse,
    /// Whether the prompt is work for the rank that is chosen.
    pub work: PromptWork,
    /// Whether its prompt's blocks are assumed to be shared.
    pub reuse: Reuse,
    /// Whether the choice is booked.
    pub keep: Keep,
    /// Tokens that will be generated, where the caller knows better than the statistics.
    pub expected_output: Option<Tokens>,
}

/// A request to place.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The model.
    pub model: &'a ModelName,
    /// The part of the request.
    pub phase: Phase,
    /// Tokens of the prompt.
    pub prompt: Tokens,
    /// Keys of its full blocks.
    pub keys: &'a [BlockKey],
    /// Tokens that it is expected to generate.
    pub expected_output: Tokens,
    /// The adapter that it needs.
    pub adapter: Option<&'a AdapterName>,
    /// What ties requests together that should stay together.
    pub session: Option<&'a str>,
    /// Who may serve it.
    pub wanted: &'a Wanted,
    /// What holds for it only.
    pub overrides: Overrides,
}

impl Ask<'_> {
    /// Tokens that are expected to be generated.
    pub fn output(&self) -> Tokens {
        self.overrides.expected_output.unwrap_or(self.expected_output)
    }
}
