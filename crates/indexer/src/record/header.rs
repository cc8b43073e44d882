//! What must be known before the first entry? Workers, settings and the hash seed, as JSON.

use std::collections::BTreeMap;
use std::io::Read;

use homing_config::{Config, Inputs, KnobId, Resolved, resolve};
use homing_domain::{HashSeed, KeyHasher};
use serde::{Deserialize, Serialize};

use super::envelope::{Entries, HEAD, Next, read_up_to, seal};
use super::{RecordError, VERSION};

const MAGIC: [u8; 8] = *b"homing\x00R";
/// Magic and version.
const PREAMBLE: usize = MAGIC.len() + 4;

/// Settings that say where things are, not what an index becomes.
const PLACES: [KnobId; 3] = [KnobId::IndexListen, KnobId::IndexRecord, KnobId::IndexFrom];

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// Names the seed that hashes were made with.
    seed_id: String,
    /// Each as one text that says everything.
    workers: Vec<String>,
    /// What each setting was; secrets are left out.
    settings: BTreeMap<String, String>,
}

/// The beginning of a recording.
pub(super) fn write(resolved: &Resolved) -> Vec<u8> {
    let kept = |setting: &&homing_config::Setting| !setting.knob().is_secret() && !PLACES.contains(&setting.id);
    let settings = resolved.settings.iter().filter(kept);
    let header = Header {
        seed_id: format!("{:016x}", KeyHasher::new(resolved.config.hash_seed).seed_id()),
        workers: resolved.config.workers.iter().map(ToString::to_string).collect(),
        settings: settings
            .map(|setting| (setting.knob().path.to_owned(), setting.shown()))
            .collect(),
    };
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; HEAD]);
    let written = serde_json::to_writer(&mut out, &header);
    written.unwrap_or_else(|error| unreachable!("texts are JSON: {error}"));
    seal(&mut out, PREAMBLE);
    out
}

/// Reads the beginning of a recording that was made with `seed`: what was asked for then, and the entries.
pub(super) fn read<R: Read>(mut from: R, seed: HashSeed) -> Result<(Config, Entries<R>), RecordError> {
    let mut preamble = [0; PREAMBLE];
    let read = read_up_to(&mut from, &mut preamble)?;
    let (magic, version) = preamble.split_at(MAGIC.len());
    if read < PREAMBLE || magic != MAGIC {
        return Err(RecordError::Foreign);
    }
    let theirs = u32::from_le_bytes([version[0], version[1], version[2], version[3]]);
    if theirs != VERSION {
        return Err(RecordError::Version { theirs });
    }
    let mut entries = Entries::new(from, PREAMBLE as u64);
    let config = match entries.next()? {
        Next::Nothing { .. } => return Err(RecordError::NoHeader),
        Next::Body(at, body) => configuration(at, body, seed)?,
    };
    Ok((config, entries))
}

fn configuration(at: u64, body: &[u8], seed: HashSeed) -> Result<Config, RecordError> {
    let damaged = |what: String| RecordError::Damaged { at, what };
    let header: Header = serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))?;
    let theirs = u64::from_str_radix(&header.seed_id, 16).map_err(|error| damaged(error.to_string()))?;
    let ours = KeyHasher::new(seed).seed_id();
    if theirs != ours {
        return Err(RecordError::Seed { theirs, ours });
    }
    let setting = |(path, text): (String, String)| match KnobId::of_path(&path) {
        Some(id) => Ok((id, text)),
        None => Err(damaged(format!("an unknown setting {path:?}"))),
    };
    let inputs = Inputs {
        flags: header.settings.into_iter().map(setting).collect::<Result<_, _>>()?,
        worker_flags: header.workers,
        ..Inputs::default()
    };
    let mut config = resolve(&inputs)?.config;
    config.hash_seed = seed;
    Ok(config)
}
