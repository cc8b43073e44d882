//! What does a profile file say? The twin of [`Profile`] on disk, and what makes it a right one.
//!
//! Unknown fields are refused, so that a misspelt one is not taken for a missing one.

use serde::Deserialize;

use crate::error::ProfileError;
use crate::profile::{Check, CopyRates, Parts, Profile, Shape};
use crate::step::{Chunk, DecodeBatch, GigabytesPerSecond, Millis};
use crate::table::{Curve, Grid, GridPoint};
use homing_domain::Tokens;

/// The most points that a table may have.
const MAX_POINTS: usize = 10_000;
/// The largest size and the longest time that are believed.
const MAX_SIZE: u64 = 1 << 30;
const MAX_MS: f64 = 1e6;
const SIZE_RANGE: &str = "a whole number from 1 to 2^30";
const CACHED_RANGE: &str = "a whole number from 0 to 2^30";
const MS_RANGE: &str = "above 0 and at most 1,000,000 ms";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    model: String,
    shape: FileShape,
    dtype: String,
    gpu: String,
    #[serde(default, rename = "torch")]
    _torch: Option<String>,
    #[serde(default, rename = "unit")]
    _unit: Option<String>,
    dense: Vec<Dense>,
    prefill_attention: Vec<Prefill>,
    decode_attention: Vec<Decode>,
    lm_head: Vec<LmHead>,
    device_copy_tb_per_s: f64,
    host_to_device_gb_per_s: f64,
    device_to_host_gb_per_s: f64,
    #[serde(default)]
    kv_bytes_per_token: Option<u64>,
    #[serde(default)]
    composed_step_checks: Vec<Composed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileShape {
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    ffn: u64,
    vocab: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dense {
    tokens: u64,
    ms: f64,
    #[serde(default, rename = "spread")]
    _spread: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefill {
    new_tokens: u64,
    cached_tokens: u64,
    ms: f64,
    #[serde(default, rename = "spread")]
    _spread: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decode {
    sequences: u64,
    context: u64,
    ms: f64,
    #[serde(default, rename = "spread")]
    _spread: f64,
    #[serde(default, rename = "tb_per_s")]
    _tb_per_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LmHead {
    sequences: u64,
    ms_total: f64,
    #[serde(default, rename = "spread")]
    _spread: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Composed {
    kind: Kind,
    sequences: u64,
    new_tokens_each: u64,
    context: u64,
    ms_per_layer: f64,
    #[serde(default, rename = "spread")]
    _spread: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Prefill,
    Decode,
}

impl File {
    pub(crate) fn read(text: &str) -> Result<Self, ProfileError> {
        serde_json::from_str(text).map_err(|error| ProfileError::Unreadable(error.to_string()))
    }

    pub(crate) fn into_profile(self) -> Result<Profile, ProfileError> {
        let shape = self.shape.checked()?;
        let parts = Parts {
            dense: dense(&self.dense)?,
            prefill: prefill(&self.prefill_attention)?,
            decode: decode(&self.decode_attention)?,
            lm_head: lm_head(&self.lm_head)?,
        };
        let rates = CopyRates {
            within_device: GigabytesPerSecond(rate("device_copy_tb_per_s", self.device_copy_tb_per_s)? * 1_000.0),
            to_device: GigabytesPerSecond(rate("host_to_device_gb_per_s", self.host_to_device_gb_per_s)?),
            from_device: GigabytesPerSecond(rate("device_to_host_gb_per_s", self.device_to_host_gb_per_s)?),
        };
        let kv_bytes_per_token = match self.kv_bytes_per_token {
            Some(bytes) => size("kv_bytes_per_token", bytes)?,
            None => shape.kv_values_per_token() * bytes_of(&self.dtype)?,
        };
        let checks = self.composed_step_checks.iter().enumerate();
        let checks = checks
            .map(|(index, check)| check.checked(index))
            .collect::<Result<_, _>>()?;
        Ok(Profile::new(
            Shape {
                model: self.model,
                device: self.gpu,
                ..shape
            },
            parts,
            rates,
            kv_bytes_per_token,
            checks,
        ))
    }
}

impl FileShape {
    fn checked(&self) -> Result<Shape, ProfileError> {
        for (name, value) in [
            ("shape.hidden", self.hidden),
            ("shape.heads", self.heads),
            ("shape.ffn", self.ffn),
            ("shape.vocab", self.vocab),
        ] {
            size(name, value)?;
        }
        let small = |name: &str, value: u64| {
            let right = (1..=10_000).contains(&value);
            let refused = || out_of_range(name.to_owned(), value as f64, "a whole number from 1 to 10,000");
            if right { Ok(value) } else { Err(refused()) }
        };
        Ok(Shape {
            model: String::new(),
            device: String::new(),
            layers: small("shape.layers", self.layers)? as u32,
            kv_heads: small("shape.kv_heads", self.kv_heads)? as u32,
            head_dim: small("shape.head_dim", self.head_dim)? as u32,
        })
    }
}

impl Composed {
    fn checked(&self, index: usize) -> Result<Check, ProfileError> {
        let name = |field: &str| format!("composed_step_checks[{index}].{field}");
        let sequences = size(&name("sequences"), self.sequences)? as u32;
        let new = Tokens(size(&name("new_tokens_each"), self.new_tokens_each)? as u32);
        if self.context > MAX_SIZE {
            return Err(out_of_range(name("context"), self.context as f64, CACHED_RANGE));
        }
        let context = Tokens(self.context as u32);
        let (prefill, decode) = match self.kind {
            Kind::Decode => (Vec::new(), DecodeBatch::even(sequences, context)),
            Kind::Prefill => (
                vec![Chunk { new, cached: context }; sequences.min(MAX_POINTS as u32) as usize],
                DecodeBatch::default(),
            ),
        };
        Ok(Check {
            prefill,
            decode,
            measured_per_layer: Millis(millis(name("ms_per_layer"), self.ms_per_layer)?),
        })
    }
}

fn dense(points: &[Dense]) -> Result<Curve, ProfileError> {
    let table = Table {
        name: "dense",
        order: "tokens",
        wanted: 2,
    };
    table.curve(points.iter().map(|point| (point.tokens, point.ms)), "tokens", "ms")
}

fn lm_head(points: &[LmHead]) -> Result<Curve, ProfileError> {
    let table = Table {
        name: "lm_head",
        order: "sequences",
        wanted: 2,
    };
    table.curve(
        points.iter().map(|point| (point.sequences, point.ms_total)),
        "sequences",
        "ms_total",
    )
}

fn prefill(points: &[Prefill]) -> Result<Grid, ProfileError> {
    let table = Table {
        name: "prefill_attention",
        order: "new_tokens, then cached_tokens",
        wanted: 6,
    };
    table.counted(points.len())?;
    let mut checked = Vec::with_capacity(points.len());
    for (index, point) in points.iter().enumerate() {
        if point.cached_tokens > MAX_SIZE {
            return Err(out_of_range(
                table.field(index, "cached_tokens"),
                point.cached_tokens as f64,
                CACHED_RANGE,
            ));
        }
        checked.push(GridPoint {
            row: size(&table.field(index, "new_tokens"), point.new_tokens)? as f64,
            column: point.cached_tokens as f64,
            ms: millis(table.field(index, "ms"), point.ms)?,
        });
    }
    table.grid(&checked)
}

fn decode(points: &[Decode]) -> Result<Grid, ProfileError> {
    let table = Table {
        name: "decode_attention",
        order: "sequences, then context",
        wanted: 4,
    };
    table.counted(points.len())?;
    let mut checked = Vec::with_capacity(points.len());
    for (index, point) in points.iter().enumerate() {
        checked.push(GridPoint {
            row: size(&table.field(index, "sequences"), point.sequences)? as f64,
            column: size(&table.field(index, "context"), point.context)? as f64,
            ms: millis(table.field(index, "ms"), point.ms)?,
        });
    }
    table.grid(&checked)
}

/// What is said about a table when something in it is wrong.
struct Table {
    name: &'static str,
    order: &'static str,
    wanted: usize,
}

impl Table {
    fn field(&self, index: usize, field: &str) -> String {
        format!("{}[{index}].{field}", self.name)
    }

    fn counted(&self, points: usize) -> Result<(), ProfileError> {
        let (table, wanted, limit) = (self.name, self.wanted, MAX_POINTS);
        if points < wanted {
            return Err(ProfileError::TooFew { table, points, wanted });
        }
        if points > limit {
            return Err(ProfileError::TooMany { table, points, limit });
        }
        Ok(())
    }

    fn sorted<P>(&self, points: &[P], place: impl Fn(&P) -> (f64, f64)) -> Result<(), ProfileError> {
        let increases = |pair: &[P]| place(&pair[0]) < place(&pair[1]);
        match points.windows(2).position(|pair| !increases(pair)) {
            None => Ok(()),
            Some(before) => Err(ProfileError::NotSorted {
                table: self.name,
                index: before + 1,
                order: self.order,
            }),
        }
    }

    fn curve(
        &self,
        points: impl ExactSizeIterator<Item = (u64, f64)>,
        size_field: &str,
        ms_field: &str,
    ) -> Result<Curve, ProfileError> {
        self.counted(points.len())?;
        let mut checked = Vec::with_capacity(points.len());
        for (index, (at, ms)) in points.enumerate() {
            let at = size(&self.field(index, size_field), at)? as f64;
            checked.push((at, millis(self.field(index, ms_field), ms)?));
        }
        self.sorted(&checked, |point| (point.0, 0.0))?;
        Ok(Curve::new(checked))
    }

    fn grid(&self, points: &[GridPoint]) -> Result<Grid, ProfileError> {
        self.sorted(points, |point| (point.row, point.column))?;
        Ok(Grid::new(points))
    }
}

fn size(field: &str, value: u64) -> Result<u64, ProfileError> {
    if (1..=MAX_SIZE).contains(&value) {
        return Ok(value);
    }
    Err(out_of_range(field.to_owned(), value as f64, SIZE_RANGE))
}

fn millis(field: String, value: f64) -> Result<f64, ProfileError> {
    if value > 0.0 && value <= MAX_MS {
        return Ok(value);
    }
    Err(out_of_range(field, value, MS_RANGE))
}

fn rate(field: &str, value: f64) -> Result<f64, ProfileError> {
    if value > 0.0 && value <= 1e6 {
        return Ok(value);
    }
    Err(out_of_range(field.to_owned(), value, "above 0 and at most 1,000,000"))
}

fn out_of_range(field: String, value: f64, wanted: &'static str) -> ProfileError {
    ProfileError::OutOfRange { field, value, wanted }
}

fn bytes_of(dtype: &str) -> Result<u64, ProfileError> {
    match dtype {
        "bf16" | "fp16" => Ok(2),
        "fp32" => Ok(4),
        "fp8" => Ok(1),
        _ => Err(ProfileError::UnknownType(dtype.to_owned())),
    }
}
