//! What does our own request log say?
//!
//! A line for each request, written when it is over: times, lengths, the keys of its blocks, who asked; never a text. The gateway
//! writes it with [`LogRecord::encode`], and a replay reads it. `docs/traces.md` has the fields.
//!
//! **Invariant:** a record that was encoded is decoded to the same record, up to whole microseconds.
//!
//! A key stands for a whole prefix, so a log may hold every nth key only: with [`LogRecord::block`] n times as large it says the same at
//! a coarser grain, in less room.

use std::sync::Arc;
use std::time::Duration;

use homing_domain::{AdapterName, BlockKey, BlockSize, Tokens};
use homing_profile::{Millis, Time};
use serde::{Deserialize, Serialize};

use super::{LogSessions, MAX_SESSIONS, Place, Row, name, object, tokens};
use crate::content::{ContentId, Origin, Prompt, Segment};
use crate::error::Problem;
use crate::recent::Recent;
use crate::request::{Client, Request, SessionId};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// A request that is over, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// When it arrived, since the beginning of 1970.
    pub at: Duration,
    /// Tokens of its prompt.
    pub prompt: Tokens,
    /// Tokens that were generated.
    pub output: Tokens,
    /// Tokens from one key to the next.
    pub block: BlockSize,
    /// The keys of the full blocks of its prompt, as far as they are known.
    pub keys: Vec<BlockKey>,
    /// The session that it belongs to.
    pub session: Option<Arc<str>>,
    /// Who asked.
    pub client: Client,
    /// The adapter that it needed.
    pub adapter: Option<AdapterName>,
    /// How long after its arrival the first token was of use.
    pub deadline: Option<Duration>,
    /// How long after its arrival the first token came.
    pub first_token: Option<Duration>,
    /// How long after its arrival it was over.
    pub took: Option<Duration>,
    /// Tokens of the prompt that came from a cache, as the engine reported.
    pub cached: Option<Tokens>,
}

/// The twin of [`LogRecord`] in a file.
#[derive(Serialize, Deserialize)]
struct Line {
    homing: u32,
    at_us: u64,
    prompt: u64,
    output: u64,
    block: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    keys: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default)]
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<u64>,
}

impl LogRecord {
    /// The record as a line, without an end of line.
    pub fn encode(&self) -> String {
        let text = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        let line = Line {
            homing: VERSION,
            at_us: micros(self.at),
            prompt: u64::from(self.prompt.0),
            output: u64::from(self.output.0),
            block: self.block.get(),
            keys: hex(&self.keys),
            session: text(&self.session),
            tenant: text(&self.client.tenant),
            class: text(&self.client.class),
            priority: self.client.priority,
            adapter: self.adapter.as_ref().map(|name| name.as_str().to_owned()),
            deadline_us: self.deadline.map(micros),
            first_us: self.first_token.map(micros),
            took_us: self.took.map(micros),
            cached: self.cached.map(|tokens| u64::from(tokens.0)),
        };
        // Texts and whole numbers are always written.
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// The record of a line.
    pub fn decode(line: &[u8]) -> Result<Self, Problem> {
        let line: Line = object(line)?;
        if line.homing != VERSION {
            return Err(Problem::value("homing", &line.homing.to_string(), "version 1"));
        }
        let prompt = tokens("prompt", line.prompt)?;
        if prompt.0 == 0 {
            return Err(Problem::value("prompt", "0", "at least one token"));
        }
        let block = BlockSize::new(line.block).ok_or_else(|| Problem::value("block", "0", "at least one token"))?;
        let keys = unhex(&line.keys)?;
        let full = block.full_blocks(prompt).0 as usize;
        if keys.len() > full {
            return Err(Problem::Blocks {
                ids: keys.len(),
                block: block.get(),
                tokens: prompt.0,
                expected: full,
            });
        }
        let after = |field, value: Option<u64>| value.map(|value| duration(field, value)).transpose();
        Ok(Self {
            at: duration("at_us", line.at_us)?,
            prompt,
            output: tokens("output", line.output)?,
            block,
            keys,
            session: line.session.map(Arc::from),
            client: Client {
                tenant: name("tenant", line.tenant.as_deref())?,
                class: name("class", line.class.as_deref())?,
                priority: line.priority,
            },
            adapter: name("adapter", line.adapter.as_deref())?.map(AdapterName::new),
            deadline: after("deadline_us", line.deadline_us)?,
            first_token: after("first_us", line.first_us)?,
            took: after("took_us", line.took_us)?,
            cached: line.cached.map(|cached| tokens("cached", cached)).transpose()?,
        })
    }

    /// The request that the record tells of. What has no key is content of this line.
    fn request(&self, line: u64) -> Request {
        let whole = self.keys.iter().map(|key| Segment {
            content: ContentId::new(Origin::Named, key.0),
            length: Tokens(self.block.get()),
        });
        let named = self.keys.len().saturating_mul(self.block.get() as usize);
        let rest = (self.prompt.0 as usize).saturating_sub(named) as u32;
        let tail = (rest > 0).then_some(Segment {
            content: ContentId::new(Origin::OfLine, line),
            length: Tokens(rest),
        });
        let segments: Arc<[Segment]> = whole.chain(tail).collect();
        Request {
            session: self.session.as_deref().map(SessionId::named),
            client: self.client.clone(),
            adapter: self.adapter.clone(),
            deadline: self.deadline.map(millis),
            ..Request::at(Time::ZERO, Prompt::fresh(segments), self.output)
        }
    }
}

/// Reads lines of a log.
pub(super) struct Parser {
    sessions: LogSessions,
    last: Recent<Last>,
}

/// What must be known of the last request of a session to see whether the next one extends it.
struct Last {
    at: Duration,
    end: Duration,
    keys: usize,
    key: Option<BlockKey>,
    /// Tokens of its prompt and answer.
    text: u32,
}

impl Parser {
    pub(super) fn new(sessions: LogSessions) -> Self {
        Self {
            sessions,
            last: Recent::new(MAX_SESSIONS),
        }
    }

    pub(super) fn row(&mut self, line: &[u8], number: u64) -> Result<Row, Problem> {
        let record = LogRecord::decode(line)?;
        let mut request = record.request(number);
        let place = match (self.sessions, request.session) {
            (LogSessions::AsRecorded, _) | (_, None) => Place::Free,
            (LogSessions::ClosedLoop, Some(session)) => self.turn(&record, session, &mut request),
        };
        Ok(Row {
            at: Some(nanos(record.at)),
            place,
            request,
        })
    }

    fn turn(&mut self, record: &LogRecord, session: SessionId, request: &mut Request) -> Place {
        let place = match self.last.get_mut(session) {
            // Requests of a session that overlapped are none that wait for each other.
            Some(last) if last.end <= record.at => {
                if let Some(segments) = extension(last, record) {
                    request.prompt = Prompt::continued(segments);
                }
                Place::Behind(nanos(last.at), millis(record.at.saturating_sub(last.end)))
            }
            _ => Place::Free,
        };
        let last = Last {
            at: record.at,
            end: record.at + record.took.unwrap_or_default(),
            keys: record.keys.len(),
            key: record.keys.last().copied(),
            text: record.prompt.0.saturating_add(record.output.0),
        };
        self.last.insert(session, last);
        place
    }
}

/// What a record adds to the last prompt and answer, if it begins with them as far as keys tell.
fn extension(last: &Last, record: &LogRecord) -> Option<Arc<[Segment]>> {
    let shared = record.keys.get(last.keys.checked_sub(1)?)?;
    let new = record.prompt.0.checked_sub(last.text)?;
    let whole = *record.keys.last()?;
    // The last key stands for all before it: two that add the same to the same are the same.
    let content = ContentId::new(Origin::Named, whole.0);
    (last.key == Some(*shared)).then(|| {
        Arc::from([Segment {
            content,
            length: Tokens(new),
        }])
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> Millis {
    Millis(duration.as_secs_f64() * 1e3)
}

/// A time that is believed: up to five hundred years.
fn duration(field: &'static str, micros: u64) -> Result<Duration, Problem> {
    if micros <= 16_000_000_000_000_000 {
        Ok(Duration::from_micros(micros))
    } else {
        Err(Problem::value(
            field,
            &micros.to_string(),
            "microseconds, at most 1.6e16",
        ))
    }
}

/// Sixteen digits for each key.
fn hex(keys: &[BlockKey]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(keys.len() * 16);
    for key in keys {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:016x}", key.0);
    }
    text
}

fn unhex(text: &str) -> Result<Vec<BlockKey>, Problem> {
    let wrong = || Problem::value("keys", text, "16 hexadecimal digits for each key");
    let (keys, rest) = text.as_bytes().as_chunks::<16>();
    if !rest.is_empty() {
        return Err(wrong());
    }
    let key = |digits: &[u8; 16]| {
        digits.iter().try_fold(0_u64, |key, &digit| {
            let digit = char::from(digit).to_digit(16)?;
            Some(key << 4 | u64::from(digit))
        })
    };
    keys.iter()
        .map(|digits| key(digits).map(BlockKey).ok_or_else(wrong))
        .collect()
}
