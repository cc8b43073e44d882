//! What was measured of this model on this device?

use homing_domain::Tokens;

use crate::error::ProfileError;
use crate::file::File;
use crate::fit::{DENSE_POWER, DecodeForm, LM_HEAD_POWER, PrefillForm, Roofline};
use crate::step::{DecodeBatch, GigabytesPerSecond, Millis, Step};
use crate::table::{Curve, Grid};

/// What a model is, as far as it matters here, and where it was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The model's name.
    pub model: String,
    /// The device's name.
    pub device: String,
    /// Transformer layers.
    pub layers: u32,
    /// Heads whose KV is kept.
    pub kv_heads: u32,
    /// Values per head.
    pub head_dim: u32,
}

impl Shape {
    pub(crate) fn kv_values_per_token(&self) -> u64 {
        u64::from(self.layers) * 2 * u64::from(self.kv_heads) * u64::from(self.head_dim)
    }
}

/// How fast KV is copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRates {
    /// Within the device's memory.
    pub within_device: GigabytesPerSecond,
    /// From host memory to the device.
    pub to_device: GigabytesPerSecond,
    /// From the device to host memory.
    pub from_device: GigabytesPerSecond,
}

/// A whole layer that was measured in one piece, to see that the parts add up.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Chunks of prompts in it.
    pub prefill: Vec<crate::step::Chunk>,
    /// Decoding sequences in it.
    pub decode: DecodeBatch,
    /// What one layer took.
    pub measured_per_layer: Millis,
}

impl Check {
    /// What was computed.
    pub fn step(&self) -> Step<'_> {
        Step {
            prefill: &self.prefill,
            decode: self.decode,
        }
    }
}

/// The measured tables: per layer, except the LM head.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    pub dense: Curve,
    pub prefill: Grid,
    pub decode: Grid,
    pub lm_head: Curve,
}

/// What holds outside the tables.
#[derive(Clone, Debug, PartialEq)]
struct Forms {
    dense: Roofline,
    prefill: PrefillForm,
    decode: DecodeForm,
    lm_head: Roofline,
}

/// Measured times of the parts of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    shape: Shape,
    parts: Parts,
    forms: Forms,
    rates: CopyRates,
    kv_bytes_per_token: u64,
    checks: Vec<Check>,
}

impl Profile {
    /// Reads a profile file (JSON; `crates/profile/profiles` has examples).
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        File::read(text)?.into_profile()
    }

    pub(crate) fn new(
        shape: Shape,
        parts: Parts,
        rates: CopyRates,
        kv_bytes_per_token: u64,
        checks: Vec<Check>,
    ) -> Self {
        let forms = Forms {
            dense: Roofline::fit(parts.dense.points(), DENSE_POWER),
            prefill: PrefillForm::fit(&parts.prefill.points()),
            decode: DecodeForm::fit(&parts.decode.points()),
            lm_head: Roofline::fit(parts.lm_head.points(), LM_HEAD_POWER),
        };
        Self {
            shape,
            parts,
            forms,
            rates,
            kv_bytes_per_token,
            checks,
        }
    }

    /// What was measured, and where.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How fast KV is copied.
    pub fn rates(&self) -> CopyRates {
        self.rates
    }

    /// Bytes of KV that a token leaves behind.
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.kv_bytes_per_token
    }

    /// Layers that were measured in one piece.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// What a step computes on the device, all layers and the LM head, without the engine's overhead.
    pub fn step(&self, step: &Step<'_>) -> Millis {
        let sequences = step.sequences();
        if sequences == 0 {
            return Millis::ZERO;
        }
        let lm_head = self.parts.lm_head.at(sequences as f64, |n| self.forms.lm_head.at(n));
        self.layer(step) * f64::from(self.shape.layers) + Millis(lm_head)
    }

    /// What a step computes in one layer.
    pub fn layer(&self, step: &Step<'_>) -> Millis {
        let tokens = step.tokens();
        if tokens == 0 {
            return Millis::ZERO;
        }
        let dense = self.parts.dense.at(tokens as f64, |n| self.forms.dense.at(n));
        let chunks = step.prefill.iter().filter(|chunk| chunk.new > Tokens(0));
        let prefill: f64 = chunks
            .map(|chunk| self.prefill_attention(chunk.new, chunk.cached))
            .sum();
        Millis(dense + prefill + self.decode_attention(step.decode))
    }

    fn prefill_attention(&self, new: Tokens, cached: Tokens) -> f64 {
        let form = |new: f64, cached: f64| self.forms.prefill.at(new, cached);
        self.parts.prefill.at(f64::from(new.0), f64::from(cached.0), form)
    }

    /// Sequences of different contexts cost what as many of the mean context do: reading KV is what takes the time.
    fn decode_attention(&self, batch: DecodeBatch) -> f64 {
        if batch.sequences == 0 {
            return 0.0;
        }
        let sequences = f64::from(batch.sequences);
        let form = |sequences: f64, context: f64| self.forms.decode.at(sequences, context);
        self.parts.decode.at(sequences, batch.context as f64 / sequences, form)
    }
}
