//! What traffic arrives? Requests of a trace in the Mooncake format, or generated ones of the same shape.
//!
//! A line of the format is `{"timestamp", "input_length", "output_length", "hash_ids"}`. One id stands for 512 tokens
//! with their whole prefix; it is expanded into 32 blocks of 16 tokens.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::catalog::{BLOCK_TOKENS, BlockId, Catalog};
use crate::rng::Rng;

const ID_TOKENS: usize = 512;
const ID_BLOCKS: usize = ID_TOKENS / BLOCK_TOKENS;

/// Requests in the order of their arrival, as paths of full blocks.
pub struct Trace {
    /// The blocks they are made of.
    pub catalog: Catalog,
    /// The requests.
    pub requests: Vec<Vec<BlockId>>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] std::io::Error),
    /// A line is no JSON.
    #[error("line {line} of the trace is no JSON: {error}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A line lacks something.
    #[error("line {0} of the trace lacks `input_length` or `hash_ids`")]
    Field(usize),
}

impl Trace {
    /// The first requests of a file.
    pub fn read(path: &Path, requests: usize) -> Result<Self, TraceError> {
        let text = std::fs::read_to_string(path)?;
        let mut expander = Expander::default();
        for (at, line) in text.lines().take(requests).enumerate() {
            let line_json: Value =
                serde_json::from_str(line).map_err(|error| TraceError::Json { line: at + 1, error })?;
            let (tokens, ids) = fields(&line_json).ok_or(TraceError::Field(at + 1))?;
            expander.request(&ids, tokens);
        }
        Ok(expander.trace)
    }

    /// Sessions of several turns under a few system prompts, with lengths like those of the published trace.
    pub fn generate(requests: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut expander = Expander::default();
        let mut sessions: Vec<Vec<u64>> = Vec::new();
        let mut next = 1000;
        for _ in 0..requests {
            let mut ids = if !sessions.is_empty() && rng.chance(0.5) {
                let at = rng.below(sessions.len());
                sessions.swap_remove(at)
            } else {
                vec![rng.below(8) as u64]
            };
            // Most turns are short; some bring a document.
            let more = if rng.chance(0.15) {
                rng.between(40, 120)
            } else {
                rng.between(1, 16)
            };
            ids.extend(next..next + more as u64);
            next += more as u64;
            expander.request(&ids, ids.len() * ID_TOKENS - rng.below(ID_TOKENS));
            if ids.len() < 200 {
                sessions.push(ids);
            }
        }
        expander.trace
    }
}

struct Expander {
    trace: Trace,
    /// The first block of each id.
    first: FxHashMap<u64, BlockId>,
}

impl Default for Expander {
    fn default() -> Self {
        Self {
            trace: Trace {
                catalog: Catalog::new(),
                requests: Vec::new(),
            },
            first: FxHashMap::default(),
        }
    }
}

impl Expander {
    fn request(&mut self, ids: &[u64], tokens: usize) {
        let mut path: Vec<BlockId> = Vec::with_capacity(ids.len() * ID_BLOCKS);
        for id in ids {
            if let Some(first) = self.first.get(id) {
                path.extend(*first..*first + ID_BLOCKS as BlockId);
            } else {
                self.first.insert(*id, self.trace.catalog.len() as BlockId);
                let parent = path.last().copied();
                self.trace.catalog.grow(parent, ID_BLOCKS, &mut path);
            }
        }
        path.truncate(tokens / BLOCK_TOKENS);
        self.trace.requests.push(path);
    }
}

fn fields(line: &Value) -> Option<(usize, Vec<u64>)> {
    let tokens = line.get("input_length")?.as_u64()?;
    let ids = line.get("hash_ids")?.as_array()?;
    let ids = ids.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    Some((tokens as usize, ids))
}
