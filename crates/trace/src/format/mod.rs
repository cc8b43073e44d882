//! Which requests does this file tell of?
//!
//! [`Reader`] turns anything that is read line by line into a stream of [`Request`]s. `docs/traces.md` has every format, field by
//! field; here are the rules that all share.
//!
//! **Invariant:** requests come ordered by their earliest arrival, and the first is at 0, whatever the file counts from. Lines may be
//! out of order by [`ReadOptions::window`] lines, which is how a log is that is written when requests end.
//!
//! **Invariant:** a line that is wrong is an error with its number, and the next call goes on behind it.
//!
//! Cost: memory is bounded by the window and by the sessions that are remembered, not by the length of the trace.

mod azure;
mod json;
pub mod log;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io::BufRead;
use std::sync::Arc;

use homing_domain::{BlockSize, Tokens, excerpt};
use homing_profile::{Millis, Time};
use serde::Deserialize;

use crate::content::{Prompt, Start};
use crate::error::{Problem, TraceError};
use crate::lines::Lines;
use crate::recent::Recent;
use crate::request::{Arrival, Request};

/// The longest prompt and the longest answer that are believed, in tokens.
pub const MAX_TOKENS: u32 = 1 << 22;
/// The longest name of a tenant, class or adapter, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// The most sessions of which it is remembered that they began.
pub const MAX_SESSIONS: usize = 1 << 18;

/// What a file can look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON lines with times, lengths and `hash_ids` for each block of the whole prompt.
    Mooncake,
    /// JSON lines of sessions, each with what its turn adds to the prompt and answer before it.
    Sessions,
    /// CSV with times and lengths.
    Azure,
    /// Our own request log.
    Log,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mooncake, Self::Sessions, Self::Azure, Self::Log];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Sessions => "sessions",
            Self::Azure => "azure",
            Self::Log => "log",
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format of a trace that begins with this line.
    pub fn sniff(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii();
        if line.first() != Some(&b'{') {
            return azure::is_header(line).then_some(Self::Azure);
        }
        let keys = json::keys(line)?;
        let any = |names: &[&str]| keys.iter().any(|key| names.contains(&key.as_str()));
        if any(&["homing"]) {
            Some(Self::Log)
        } else if any(&["hash_ids"]) {
            Some(Self::Mooncake)
        } else if any(&["session_id"]) || any(&["input_length", "input_tokens"]) {
            Some(Self::Sessions)
        } else {
            None
        }
    }
}

/// How sessions of a log are replayed. Other formats say it themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSessions {
    /// Every request arrives when it did.
    #[default]
    AsRecorded,
    /// The next request of a session arrives after the one before it ended, with the pause that was recorded; where it extends the
    /// prompt and answer before it, it does so in the replay.
    ClosedLoop,
}

/// How a trace is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// What errors call it.
    pub label: Arc<str>,
    /// Tokens that one of the `hash_ids` stands for.
    pub block: BlockSize,
    /// How far lines may be out of order, in lines.
    pub window: usize,
    /// The most bytes of a line.
    pub max_line_bytes: usize,
    /// How sessions of a log are replayed.
    pub log_sessions: LogSessions,
}

impl ReadOptions {
    /// Blocks of 512 tokens, lines of at most 4 MiB, out of order by at most 16,384 lines.
    pub fn new(label: &str) -> Self {
        const BLOCK: BlockSize = BlockSize::new(512).expect("not zero");
        Self {
            label: Arc::from(label),
            block: BLOCK,
            window: 16_384,
            max_line_bytes: 4 << 20,
            log_sessions: LogSessions::default(),
        }
    }
}

/// What a line says, before its place among others is known. Times are in nanoseconds from wherever the file counts.
struct Row {
    at: Option<u64>,
    place: Place,
    request: Request,
}

/// Where a request stands in its session.
enum Place {
    /// In none, or it does not matter.
    Free,
    /// Behind those that came before, so long after the last one ended, with the prompt as the line has it.
    Turn(Millis),
    /// The same, and its prompt extends the last answer.
    Extends(Millis),
    /// Behind the last one, which began at this time.
    Behind(u64, Millis),
}

enum Parser {
    Json(json::Parser),
    Azure(azure::Parser),
    Log(Box<log::Parser>),
}

/// Reads a trace.
pub struct Reader<R> {
    format: Format,
    options: ReadOptions,
    lines: Lines<R>,
    parser: Parser,
    /// Whether the line at hand was looked at, but not taken.
    peeked: bool,
    /// Requests that wait for earlier ones which may stand behind them.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// When the last request of a session could arrive.
    sessions: Recent<u64>,
    /// When the line before could arrive.
    before: u64,
    /// The first time of the trace, as soon as it is known.
    base: Option<u64>,
    /// The time of the last request that was given out.
    given: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads a trace of this format.
    pub fn new(source: R, format: Format, options: ReadOptions) -> Self {
        Self::of(Lines::new(source, options.max_line_bytes), format, options)
    }

    /// Reads a trace of whichever known format it is.
    pub fn open(source: R, options: ReadOptions) -> Result<Self, TraceError> {
        let mut lines = Lines::new(source, options.max_line_bytes);
        let first = lines.advance().unwrap_or(Err(Problem::Empty));
        let found = first.and_then(|()| Format::sniff(lines.line()).ok_or(Problem::UnknownFormat));
        let format = found.map_err(|problem| TraceError {
            label: options.label.clone(),
            line: lines.number(),
            problem,
        })?;
        Ok(Self {
            peeked: true,
            ..Self::of(lines, format, options)
        })
    }

    /// The format that is read.
    pub fn format(&self) -> Format {
        self.format
    }

    fn of(lines: Lines<R>, format: Format, options: ReadOptions) -> Self {
        let parser = match format {
            Format::Mooncake => Parser::Json(json::Parser::new(json::Rows::WholePrompts, options.block)),
            Format::Sessions => Parser::Json(json::Parser::new(json::Rows::Turns, options.block)),
            Format::Azure => Parser::Azure(azure::Parser::default()),
            Format::Log => Parser::Log(Box::new(log::Parser::new(options.log_sessions))),
        };
        Self {
            format,
            options,
            lines,
            parser,
            peeked: false,
            waiting: BinaryHeap::new(),
            sessions: Recent::new(MAX_SESSIONS),
            before: 0,
            base: None,
            given: 0,
        }
    }

    /// Reads a line; `None` at the end.
    fn read(&mut self) -> Option<Result<(), Problem>> {
        if !std::mem::take(&mut self.peeked)
            && let Err(problem) = self.lines.advance()?
        {
            return Some(Err(problem));
        }
        let (line, number) = (self.lines.line(), self.lines.number());
        let row = match &mut self.parser {
            Parser::Json(parser) => parser.row(line, number).map(Some),
            Parser::Azure(parser) => parser.row(line, number),
            Parser::Log(parser) => parser.row(line, number).map(Some),
        };
        Some(row.map(|row| {
            if let Some(row) = row {
                self.place(row, number);
            }
        }))
    }

    fn place(&mut self, row: Row, line: u64) {
        let Row { at, place, mut request } = row;
        let at = at.unwrap_or(self.before);
        self.before = at;
        let known = request
            .session
            .and_then(|session| self.sessions.get_mut(session).copied());
        let (time, think) = match (place, known) {
            (Place::Behind(time, think), _) => (time, Some(think)),
            (Place::Free, _) | (Place::Turn(_) | Place::Extends(_), None) => (at, None),
            // A turn never stands before the one that it follows.
            (Place::Turn(think), Some(last)) => (at.max(last), Some(think)),
            (Place::Extends(think), Some(last)) => {
                request.prompt = Prompt {
                    start: Start::Previous,
                    ..request.prompt
                };
                (at.max(last), Some(think))
            }
        };
        if let Some(session) = request.session {
            self.sessions.insert(session, time);
        }
        self.waiting.push(Reverse(Waiting {
            time,
            line,
            think,
            request,
        }));
    }

    fn give(&mut self, waiting: Waiting) -> Result<Request, Problem> {
        let Waiting {
            time,
            think,
            mut request,
            ..
        } = waiting;
        if time < self.given {
            return Err(Problem::OutOfOrder {
                window: self.options.window,
            });
        }
        self.given = time;
        let earliest = Time(time - *self.base.get_or_insert(time));
        request.arrival = match think {
            None => Arrival::At(earliest),
            Some(think) => Arrival::Follows { earliest, think },
        };
        Ok(request)
    }

    fn error(&self, line: u64, problem: Problem) -> TraceError {
        TraceError {
            label: self.options.label.clone(),
            line,
            problem,
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.waiting.len() <= self.options.window {
            match self.read() {
                None => break,
                Some(Ok(())) => {}
                Some(Err(problem)) => return Some(Err(self.error(self.lines.number(), problem))),
            }
        }
        let Reverse(waiting) = self.waiting.pop()?;
        let line = waiting.line;
        Some(self.give(waiting).map_err(|problem| self.error(line, problem)))
    }
}

/// A request that waits for earlier ones. Ordered by time, then by line.
struct Waiting {
    time: u64,
    line: u64,
    think: Option<Millis>,
    request: Request,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.line).cmp(&(other.time, other.line))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

/// The object that a line of JSON is.
fn object<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, Problem> {
    // A list of values without names would be taken for an object.
    if line.first() != Some(&b'{') {
        return Err(Problem::Json("expected an object, which begins with {".to_owned()));
    }
    serde_json::from_slice(line).map_err(|error| Problem::Json(excerpt(&error.to_string()).into_owned()))
}

/// A number of tokens that is believed.
fn tokens(field: &'static str, value: u64) -> Result<Tokens, Problem> {
    match u32::try_from(value) {
        Ok(tokens) if tokens <= MAX_TOKENS => Ok(Tokens(tokens)),
        _ => Err(Problem::value(
            field,
            &value.to_string(),
            "a whole number of tokens, at most 4194304",
        )),
    }
}

/// Nanoseconds of a time in milliseconds that is believed: up to five hundred years.
fn nanos(field: &'static str, millis: f64) -> Result<u64, Problem> {
    if (0.0..=1.6e13).contains(&millis) {
        Ok(Millis(millis).nanos())
    } else {
        Err(Problem::value(
            field,
            &millis.to_string(),
            "milliseconds, not negative and below 1.6e13",
        ))
    }
}

/// A name that is not too long; an empty one is none.
fn name(field: &'static str, name: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    match name {
        None | Some("") => Ok(None),
        Some(name) if name.len() <= MAX_NAME_BYTES => Ok(Some(Arc::from(name))),
        Some(name) => Err(Problem::value(field, name, "a name of at most 256 bytes")),
    }
}
