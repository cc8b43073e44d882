//! Where does one event of a stream end and the next begin?
//!
//! Lines end with LF, CRLF or CR, and an empty line ends an event, as the HTML standard has it. What is cut out are the bytes as
//! they came, comments and empty lines included, so that a stream can be passed on event by event without being written anew.
//!
//! **Invariant:** the bytes of all events, and the rest, are the bytes of the stream, however it was cut into pieces.
//!
//! **Invariant:** no more than the bound on one event is kept. A longer one is an error, and remains one.
//!
//! Cost: one pass with `memchr`; an event that lies in one piece is not copied.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::json::Span;
use crate::keyed::Places;

/// An event as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    raw: Bytes,
    name: Option<Span>,
    data: Data,
    /// Where values begin in data on one line: whoever looks at an event looks for the same keys.
    places: Places,
}

/// Where its data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    /// On one line.
    Line(Span),
    /// On several, to be joined, among the lines from a place on.
    Lines(usize),
}

/// An event is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct EventTooLong {
    /// What it may have.
    pub limit: usize,
}

impl Event {
    /// Reads the lines of an event. They are those of one event: what comes after its empty line is taken for part of it.
    pub fn new(raw: impl Into<Bytes>) -> Self {
        Self::from(raw.into(), 0)
    }

    /// Reads the lines from a place on.
    fn from(raw: Bytes, start: usize) -> Self {
        let (mut name, mut data) = (None, Data::None);
        for (field, value) in lines(&raw, start) {
            match field {
                Line::Data => {
                    data = match data {
                        Data::None => Data::Line(value),
                        Data::Line(_) | Data::Lines(_) => Data::Lines(start),
                    }
                }
                Line::Name => name = Some(value),
                Line::Other => {}
            }
        }
        let places = match data {
            Data::Line(span) => Places::of(span.of(&raw)),
            Data::None | Data::Lines(_) => Places::default(),
        };
        Self {
            raw,
            name,
            data,
            places,
        }
    }

    /// All its bytes, the end included.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// All its bytes, the end included.
    pub fn into_raw(self) -> Bytes {
        self.raw
    }

    /// The value of its last `event` line.
    pub fn name(&self) -> Option<&[u8]> {
        self.name.map(|span| span.of(&self.raw))
    }

    /// The values of its `data` lines, joined. `None` where it has none: a comment, or nothing.
    pub fn data(&self) -> Option<Cow<'_, [u8]>> {
        match self.data {
            Data::None => None,
            Data::Line(span) => Some(Cow::Borrowed(span.of(&self.raw))),
            Data::Lines(start) => {
                let mut joined = Vec::with_capacity(self.raw.len());
                for (_, value) in lines(&self.raw, start).filter(|(field, _)| *field == Line::Data) {
                    joined.extend_from_slice(value.of(&self.raw));
                    joined.push(b'\n');
                }
                joined.pop();
                Some(Cow::Owned(joined))
            }
        }
    }

    /// Its data, and where the values of known keys begin in it.
    pub(crate) fn read(&self) -> Option<(Cow<'_, [u8]>, Places)> {
        let data = self.data()?;
        let places = match data {
            Cow::Borrowed(_) => self.places,
            Cow::Owned(ref joined) => Places::of(joined),
        };
        Some((data, places))
    }

    /// The same event with `null` instead of these parts of its data, from the left.
    pub(crate) fn with_nulls(&self, parts: impl Iterator<Item = Span> + Clone) -> Bytes {
        const NULL: &[u8] = b"null";
        // The data of an event that has some on one line are bytes of it.
        let (text, offset) = match self.data {
            Data::Line(span) => (Cow::Borrowed(&self.raw[..]), span.start),
            Data::None | Data::Lines(_) => (self.data().unwrap_or_default(), 0),
        };
        // Exactly what is needed: bytes that fill their memory are shared without another allocation.
        let size = |length: usize, part: Span| length + NULL.len() - (part.end - part.start);
        let mut changed = Vec::with_capacity(parts.clone().fold(text.len(), size));
        let mut at = 0;
        for part in parts {
            changed.extend_from_slice(&text[at..offset + part.start]);
            changed.extend_from_slice(NULL);
            at = offset + part.end;
        }
        changed.extend_from_slice(&text[at..]);
        match self.data {
            Data::Line(_) => changed.into(),
            Data::None | Data::Lines(_) => event(self.name(), &changed),
        }
    }

    /// Whether it is the `[DONE]` at the end of a stream of OpenAI's.
    pub fn is_done(&self) -> bool {
        match self.data {
            Data::Line(span) => span.of(&self.raw).trim_ascii() == b"[DONE]",
            Data::None | Data::Lines(_) => false,
        }
    }

    /// The same event with other data; all else is as it came.
    pub fn with_data(&self, data: &[u8]) -> Bytes {
        match self.data {
            Data::Line(span) if !data.contains(&b'\n') && !data.contains(&b'\r') => {
                let (before, after) = (&self.raw[..span.start], &self.raw[span.end..]);
                [before, data, after].concat().into()
            }
            _ => event(self.name(), data),
        }
    }
}

/// An event with a name, if there is one, and data.
pub fn event(name: Option<&[u8]>, data: &[u8]) -> Bytes {
    let mut raw = Vec::with_capacity(data.len() + 32);
    if let Some(name) = name {
        raw.extend_from_slice(b"event: ");
        raw.extend_from_slice(name);
        raw.push(b'\n');
    }
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        raw.extend_from_slice(b"data: ");
        raw.extend_from_slice(line);
        raw.push(b'\n');
    }
    raw.push(b'\n');
    raw.into()
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Data,
    Name,
    Other,
}

/// The mark that a stream may begin with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of an event from a place on, and their values.
fn lines(raw: &[u8], start: usize) -> impl Iterator<Item = (Line, Span)> {
    let mut at = start;
    std::iter::from_fn(move || {
        // A CRLF is seen as two ends, with an empty line between them that says nothing.
        let rest = raw.get(at..).filter(|rest| !rest.is_empty())?;
        let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let start = at;
        at += length + 1;
        Some(line(&rest[..length], start))
    })
}

fn line(text: &[u8], start: usize) -> (Line, Span) {
    let end = start + text.len();
    let value = |name: usize| {
        let space = usize::from(text.get(name + 1) == Some(&b' '));
        Span {
            start: (start + name + 1 + space).min(end),
            end,
        }
    };
    let is = |name: &[u8]| text.starts_with(name) && matches!(text.get(name.len()), None | Some(b':'));
    if is(b"data") {
        (Line::Data, value(4))
    } else if is(b"event") {
        (Line::Name, value(5))
    } else {
        (Line::Other, Span { start, end })
    }
}

/// Splits a stream into events.
#[derive(Debug)]
pub struct Splitter {
    max_event: usize,
    /// The beginning of an event whose end has not come.
    begun: BytesMut,
    /// What has come and was not looked at.
    chunk: Bytes,
    line: LineState,
    stage: Stage,
}

/// What stands before the next byte.
#[derive(Clone, Copy, Debug)]
struct LineState {
    /// Nothing stands on the line yet.
    empty: bool,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No event was taken yet.
    Start,
    Running,
    /// An event was too long.
    Failed,
}

impl Splitter {
    /// Events may have so many bytes.
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            begun: BytesMut::new(),
            chunk: Bytes::new(),
            line: LineState {
                empty: true,
                after_cr: false,
            },
            stage: Stage::Start,
        }
    }

    /// Takes a piece of the stream. Take all its events with [`Self::next_event`] before the next piece; where that was not
    /// done, what is left is joined with it.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [self.chunk.as_ref(), &chunk].concat().into();
        }
    }

    /// The next event that is whole.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLong> {
        let end = self.find_end();
        let length = self.begun.len() + end.unwrap_or(self.chunk.len());
        if self.stage == Stage::Failed || length > self.max_event {
            self.stage = Stage::Failed;
            self.begun = BytesMut::new();
            self.chunk = Bytes::new();
            return Err(EventTooLong { limit: self.max_event });
        }
        let Some(end) = end else {
            self.begun.extend_from_slice(&self.chunk);
            self.chunk = Bytes::new();
            return Ok(None);
        };
        let mut raw = self.chunk.split_to(end);
        if !self.begun.is_empty() {
            self.begun.extend_from_slice(&raw);
            raw = self.begun.split().freeze();
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Running);
        let mark = stage == Stage::Start && raw.starts_with(BYTE_ORDER_MARK);
        let start = if mark { BYTE_ORDER_MARK.len() } else { 0 };
        Ok(Some(Event::from(raw, start)))
    }

    /// What came after the last whole event, when the stream has ended.
    pub fn rest(&mut self) -> Bytes {
        self.begun.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        self.begun.split().freeze()
    }

    /// Where the event that is begun ends in the piece at hand.
    #[inline]
    fn find_end(&mut self) -> Option<usize> {
        const BEGUN: LineState = LineState {
            empty: false,
            after_cr: false,
        };
        let (text, line) = (&self.chunk, &mut self.line);
        let mut at = 0;
        while let Some(place) = memchr::memchr2(b'\n', b'\r', &text[at..]) {
            if place > 0 {
                *line = BEGUN;
            }
            at += place + 1;
            if text[at - 1] == b'\n' && std::mem::take(&mut line.after_cr) {
                continue;
            }
            line.after_cr = text[at - 1] == b'\r';
            if !std::mem::replace(&mut line.empty, true) {
                continue;
            }
            if line.after_cr && text.get(at) == Some(&b'\n') {
                line.after_cr = false;
                at += 1;
            }
            return Some(at);
        }
        if at < text.len() {
            *line = BEGUN;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a stream dispatches, by the rules of the standard, read from the whole text.
    fn naive(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let mut unified = Vec::new();
        let mut bytes = text.iter().peekable();
        while let Some(&byte) = bytes.next() {
            if byte == b'\r' {
                bytes.next_if(|next| **next == b'\n');
            }
            unified.push(if byte == b'\r' { b'\n' } else { byte });
        }
        let mut lines: Vec<&[u8]> = unified.split(|byte| *byte == b'\n').collect();
        // What is not ended does not count.
        lines.pop();
        let (mut events, mut name, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            if line.is_empty() {
                if data.pop().is_some() {
                    events.push((name.clone(), data.clone()));
                }
                name.clear();
                data.clear();
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &line[..colon] {
                b"data" => {
                    data.extend_from_slice(value);
                    data.push(b'\n');
                }
                b"event" => name = value.to_vec(),
                _ => {}
            }
        }
        events
    }

    fn split(text: &[u8], cuts: &[usize], max_event: usize) -> Result<(Vec<Event>, Bytes), EventTooLong> {
        let mut splitter = Splitter::new(max_event);
        let (mut events, mut from) = (Vec::new(), 0);
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(from, text.len());
            splitter.push(Bytes::copy_from_slice(&text[from..cut]));
            from = cut;
            while let Some(event) = splitter.next_event()? {
                events.push(event);
            }
        }
        Ok((events, splitter.rest()))
    }

    fn told(events: &[Event]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let told = |event: &Event| Some((event.name().unwrap_or_default().to_vec(), event.data()?.into_owned()));
        events.iter().filter_map(told).collect()
    }

    #[test]
    fn events_in_one_piece_are_not_copied() {
        let chunk = Bytes::from_static(b"data: {\"a\":1}\n\ndata: [DONE]\n\n");
        let mut splitter = Splitter::new(100);
        splitter.push(chunk.clone());
        let first = splitter.next_event().unwrap().unwrap();
        assert_eq!(first.raw().as_ptr(), chunk.as_ptr());
        assert_eq!(first.data().unwrap().as_ref(), b"{\"a\":1}");
        assert!(matches!(first.data().unwrap(), Cow::Borrowed(_)));
        let second = splitter.next_event().unwrap().unwrap();
        assert!(second.is_done() && !first.is_done());
        assert_eq!(second.raw().as_ptr(), chunk[15..].as_ptr());
        assert_eq!(splitter.next_event(), Ok(None));
    }

    #[test]
    fn a_stream_is_told_the_same_however_it_is_cut() {
        let texts: [&[u8]; 6] = [
            b"data: a\n\ndata: b\r\n\r\nevent: x\rdata: c\r\rdata:d\n\n",
            b": comment\n\ndata\n\ndata: one\ndata: two\n\nid: 1\nretry: 2\n\n",
            b"\xef\xbb\xbfdata: x\n\n\n\n\r\n\r\ndata: y\r\r\n\n",
            b"event: a\nevent: b\ndata:  two spaces\n\nevent: only\n\ndata: after\n\nda",
            b"data: x\r\n\r\ndata: unfinished\r\n",
            b"datax: no\neventually: no\n:data: no\ndata : no\n\n",
        ];
        for text in texts {
            let expected = naive(text);
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    let (events, rest) = split(text, &[first, second], 1_000).unwrap();
                    assert_eq!(told(&events), expected, "{first} {second}");
                    let mut all = events
                        .iter()
                        .flat_map(|event| event.raw().to_vec())
                        .collect::<Vec<u8>>();
                    all.extend_from_slice(&rest);
                    assert_eq!(all, text);
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_an_error_and_nothing_is_kept() {
        let long = [b"data: ".as_slice(), &[b'x'; 100], b"\n\n"].concat();
        assert!(split(&long, &[], 108).is_ok());
        assert_eq!(split(&long, &[], 107), Err(EventTooLong { limit: 107 }));
        assert_eq!(split(&long, &[3, 50], 107), Err(EventTooLong { limit: 107 }));
        let mut splitter = Splitter::new(10);
        splitter.push(Bytes::from_static(b"data: 0123456789"));
        assert!(splitter.next_event().is_err());
        splitter.push(Bytes::from_static(b"\n\n"));
        assert!(splitter.next_event().is_err());
        assert_eq!(splitter.rest().len(), 0);
    }

    #[test]
    fn data_is_changed_and_the_rest_is_not() {
        let raw = b"id: 1\r\nevent: x\r\ndata: old\r\n: c\r\n\r\n";
        let changed = Event::new(raw.as_slice()).with_data(b"new");
        assert_eq!(changed.as_ref(), b"id: 1\r\nevent: x\r\ndata: new\r\n: c\r\n\r\n");
        let several = Event::new(&b"event: x\ndata: a\ndata: b\n\n"[..]).with_data(b"c\nd");
        assert_eq!(several.as_ref(), b"event: x\ndata: c\ndata: d\n\n");
    }

    proptest! {
        #[test]
        fn any_text_is_told_as_the_standard_says(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "data", ":", " ", "\n", "\r", "\r\n", "event", "data: x", "\u{feff}", "é", "\n\n",
            ]), 0..40),
            cuts in prop::collection::vec(0..200_usize, 0..12),
        ) {
            let text = pieces.concat();
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (events, rest) = split(text.as_bytes(), &cuts, 10_000).unwrap();
            prop_assert_eq!(told(&events), naive(text.as_bytes()));
            let mut all: Vec<u8> = events.iter().flat_map(|event| event.raw().to_vec()).collect();
            all.extend_from_slice(&rest);
            prop_assert_eq!(all, text.as_bytes());
        }
    }
}
