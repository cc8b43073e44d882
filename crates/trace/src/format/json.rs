//! What does a line of JSON with lengths, and perhaps blocks and a session, say? Mooncake's format and the one of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use homing_domain::{AdapterName, BlockSize, Tokens};
use homing_profile::{Millis, Time};
use serde::Deserialize;
use serde_json::Value;

use super::{Place, Row, name, nanos, object, tokens};
use crate::content::{ContentId, Origin, Prompt, Segment};
use crate::error::Problem;
use crate::request::{Client, Request, SessionId};

/// What the lengths and blocks of a line are of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// Of the whole prompt.
    WholePrompts,
    /// Of what is new since the last turn of the session.
    Turns,
}

pub(super) struct Parser {
    rows: Rows,
    block: BlockSize,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(alias = "created_time")]
    timestamp: Option<f64>,
    #[serde(alias = "input_tokens")]
    input_length: u64,
    #[serde(alias = "output_tokens")]
    output_length: u64,
    hash_ids: Option<Vec<u64>>,
    #[serde(borrow)]
    session_id: Option<Name<'a>>,
    #[serde(alias = "delay_ms")]
    delay: Option<f64>,
    priority: Option<i32>,
    #[serde(borrow)]
    tenant: Option<Name<'a>>,
    #[serde(borrow, alias = "policy_class")]
    class: Option<Name<'a>>,
    #[serde(borrow, alias = "lora_name")]
    adapter: Option<Name<'a>>,
    deadline_ms: Option<f64>,
}

/// Names are texts, or numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name<'a> {
    Plain(&'a str),
    Escaped(String),
    Number(u64),
}

impl Name<'_> {
    fn text(&self) -> String {
        match self {
            Self::Plain(name) => (*name).to_owned(),
            Self::Escaped(name) => name.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// The names of the fields of an object.
pub(super) fn keys(line: &[u8]) -> Option<Vec<String>> {
    let fields: BTreeMap<String, Value> = serde_json::from_slice(line).ok()?;
    Some(fields.into_keys().collect())
}

impl Parser {
    pub(super) fn new(rows: Rows, block: BlockSize) -> Self {
        Self { rows, block }
    }

    pub(super) fn row(&self, line: &[u8], number: u64) -> Result<Row, Problem> {
        let line: Line<'_> = object(line)?;
        let input = tokens("input_length", line.input_length)?;
        let session = line.session_id.as_ref().map(|name| SessionId::named(&name.text()));
        let at = line.timestamp.map(|at| nanos("timestamp", at)).transpose()?;
        if at.is_none() && session.is_none() {
            return Err(Problem::Missing("timestamp"));
        }
        let think = line.delay.map(|delay| nanos("delay", delay)).transpose()?;
        let think = Millis(think.unwrap_or(0) as f64 / 1e6);
        let (segments, place) = match (self.rows, session) {
            (Rows::WholePrompts, None) => (self.whole(&line, input)?, Place::Free),
            (Rows::WholePrompts, Some(_)) => (self.whole(&line, input)?, Place::Turn(think)),
            (Rows::Turns, None) => (self.turn(&line, input, number)?, Place::Free),
            (Rows::Turns, Some(_)) => (self.turn(&line, input, number)?, Place::Extends(think)),
        };
        let owned = |name: &Option<Name<'_>>| name.as_ref().map(Name::text);
        let deadline = line.deadline_ms.map(|after| nanos("deadline_ms", after)).transpose()?;
        let request = Request {
            session,
            client: Client {
                tenant: name("tenant", owned(&line.tenant).as_deref())?,
                class: name("class", owned(&line.class).as_deref())?,
                priority: line.priority.unwrap_or(0),
            },
            adapter: name("adapter", owned(&line.adapter).as_deref())?.map(AdapterName::new),
            deadline: deadline.map(|after| Millis(after as f64 / 1e6)),
            ..Request::at(
                Time::ZERO,
                Prompt::fresh(segments),
                tokens("output_length", line.output_length)?,
            )
        };
        Ok(Row { at, place, request })
    }

    fn whole(&self, line: &Line<'_>, input: Tokens) -> Result<Arc<[Segment]>, Problem> {
        if input.0 == 0 {
            return Err(Problem::value("input_length", "0", "at least one token"));
        }
        let ids = line.hash_ids.as_deref().ok_or(Problem::Missing("hash_ids"))?;
        self.blocks(ids, input)
    }

    fn turn(&self, line: &Line<'_>, input: Tokens, number: u64) -> Result<Arc<[Segment]>, Problem> {
        match line.hash_ids.as_deref() {
            None => Ok(own(number, input)),
            Some(ids) => self.blocks(ids, input),
        }
    }

    /// A segment for each block; the last may be partial.
    fn blocks(&self, ids: &[u64], input: Tokens) -> Result<Arc<[Segment]>, Problem> {
        let size = self.block.get();
        let expected = input.0.div_ceil(size) as usize;
        if ids.len() != expected {
            return Err(Problem::Blocks {
                ids: ids.len(),
                block: size,
                tokens: input.0,
                expected,
            });
        }
        let segment = |(at, &id): (usize, &u64)| Segment {
            content: ContentId::new(Origin::Named, id),
            // As many blocks as the prompt has: each begins within it.
            length: Tokens((input.0 - at as u32 * size).min(size)),
        };
        Ok(ids.iter().enumerate().map(segment).collect())
    }
}

/// A content that only this line has.
pub(super) fn own(line: u64, length: Tokens) -> Arc<[Segment]> {
    let content = ContentId::new(Origin::OfLine, line);
    Arc::from([Segment { content, length }])
}
