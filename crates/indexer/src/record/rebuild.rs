//! Which index does a recording lead to?

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use homing_config::Config;
use homing_domain::{HashSeed, KeyHasher, WorkerId};
use homing_keeper::{Member, Still, Subject, feed_config, index_config};

use super::entry::Done;
use super::envelope::Next;
use super::parts::Parts;
use super::{RecordError, header};

/// What was rebuilt.
#[derive(Debug)]
pub struct Rebuilt {
    /// The workers that were recorded.
    pub members: Vec<Member>,
    /// Their indexes, as they were at the end.
    pub indexes: BTreeMap<Subject, Still>,
    /// Things that were done again.
    pub entries: u64,
    /// How the recording ends.
    pub ending: Ending,
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is missing.
    Whole,
    /// It was not ended: who recorded was killed or could not go on, or the file was cut. So many bytes at its end are no
    /// entry.
    CutOff {
        /// Bytes that were not read.
        bytes_left: u64,
    },
}

/// Reads a recording that was made with the hash seed `seed`, and does again what was done then.
pub fn rebuild(path: &Path, seed: HashSeed) -> Result<Rebuilt, RecordError> {
    rebuild_from(BufReader::new(File::open(path)?), seed)
}

pub(super) fn rebuild_from(from: impl Read, seed: HashSeed) -> Result<Rebuilt, RecordError> {
    let (config, mut entries) = header::read(from, seed)?;
    let hasher = KeyHasher::new(seed);
    let mut feeds = Feeds::new(&config, hasher);
    let mut count = 0;
    let ending = loop {
        let (at, body) = match entries.next()? {
            Next::Nothing { bytes_left } => break Ending::CutOff { bytes_left },
            Next::Body(at, body) => (at, body),
        };
        let parts = Parts::new(body);
        if parts.is_end() {
            break Ending::Whole;
        }
        let damaged = |what| RecordError::Damaged { at, what };
        feeds.take(parts, &hasher).map_err(damaged)?;
        count += 1;
    };
    let members = (0..).zip(config.workers).map(|(number, spec)| Member {
        id: WorkerId(number),
        spec,
    });
    Ok(Rebuilt {
        members: members.collect(),
        indexes: feeds.all.into_iter().map(|feed| (feed.subject, feed.still)).collect(),
        entries: count,
        ending,
    })
}

/// The feeds of a recording, in the order of their numbers.
struct Feeds {
    all: Vec<Replayed>,
}

struct Replayed {
    subject: Subject,
    still: Still,
    last_ms: u64,
}

impl Feeds {
    /// Feeds are numbered as they are started: by the first worker of each.
    fn new(config: &Config, hasher: KeyHasher) -> Self {
        let mut all: Vec<Replayed> = Vec::new();
        for (number, spec) in (0..).zip(&config.workers) {
            let subject = Subject::of(spec);
            if all.iter().all(|feed| feed.subject != subject) {
                let still = Still::new(feed_config(config, WorkerId(number)), index_config(config, hasher));
                all.push(Replayed {
                    subject,
                    still,
                    last_ms: 0,
                });
            }
        }
        Self { all }
    }

    fn take(&mut self, mut parts: Parts<'_>, hasher: &KeyHasher) -> Result<(), String> {
        let number = parts.number()?;
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let feed = self
            .all
            .get_mut(place)
            .ok_or_else(|| format!("an entry of feed {number}, which is not in the header"))?;
        feed.last_ms = feed.last_ms.saturating_add(parts.number()?);
        match parts.done(hasher)? {
            // A rank that was refused then is refused again.
            Done::Input(input) => drop(feed.still.happened(feed.last_ms, input)),
            Done::Maintain(work) => feed.still.maintained(work),
            Done::End => return Err("the end of a feed, and not of the recording".to_owned()),
        }
        Ok(())
    }
}
