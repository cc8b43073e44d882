//! How is a trace made longer or denser without changing what it is like? By copies that share nothing.
//!
//! Cost: one open source and one waiting request for each copy; with [`Shift::Around`] each copy reads the trace twice.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use homing_profile::{Millis, Time};

use super::{Traffic, belongs};
use crate::error::TraceError;
use crate::format::MAX_SESSIONS;
use crate::recent::Recent;
use crate::request::Request;

/// One copy after the other: each begins `gap` after the last arrival of the one before. `open` begins the trace anew.
pub fn repeat<I, F>(times: u64, gap: Millis, open: F) -> Repeat<I, F>
where
    I: Traffic,
    F: FnMut() -> Result<I, TraceError>,
{
    Repeat {
        open,
        current: None,
        times,
        begun: 0,
        offset: 0,
        last: 0,
        gap: gap.nanos(),
    }
}

/// See [`repeat`].
#[derive(Debug)]
pub struct Repeat<I, F> {
    open: F,
    current: Option<I>,
    times: u64,
    /// Copies that were begun.
    begun: u64,
    /// When the current copy begins.
    offset: u64,
    /// The last arrival.
    last: u64,
    gap: u64,
}

impl<I, F> Iterator for Repeat<I, F>
where
    I: Traffic,
    F: FnMut() -> Result<I, TraceError>,
{
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(result) = self.current.as_mut().and_then(Iterator::next) {
                let copy = self.begun - 1;
                return Some(result.map(|mut request| {
                    self.last = request.arrival.earliest().0.saturating_add(self.offset);
                    request.arrival = request.arrival.moved(Time(self.last));
                    request.copied(self.times, copy)
                }));
            }
            if self.begun == self.times {
                self.current = None;
                return None;
            }
            if self.begun > 0 {
                self.offset = self.last.saturating_add(self.gap);
            }
            self.begun += 1;
            match (self.open)() {
                Ok(traffic) => self.current = Some(traffic),
                Err(error) => {
                    self.begun = self.times;
                    self.current = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// How copies lie in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shift {
    /// Each begins so long after the one before. The load grows at the beginning and falls at the end.
    Ahead(Millis),
    /// A copy begins in mid-trace, and what comes before that comes after its end, as if the trace were a ring of this length.
    /// Copies begin at equal distances, so the load is as even as it can be. A session moves as a whole: what extends answers
    /// comes after what it extends, if need be after the end.
    Around(Millis),
}

/// `copies` copies at once. `open` begins the trace anew; it is called once for each copy, and twice with [`Shift::Around`].
pub fn superpose<I, F>(copies: u32, shift: Shift, mut open: F) -> Result<Superpose<I>, TraceError>
where
    I: Traffic,
    F: FnMut() -> Result<I, TraceError>,
{
    let mut sources = Vec::new();
    for copy in 0..u64::from(copies) {
        let passes = match shift {
            Shift::Ahead(by) => vec![Pass::new(open()?, Part::All, by.nanos().saturating_mul(copy))],
            Shift::Around(period) => around(period.nanos(), copy, u64::from(copies), &mut open)?,
        };
        sources.push(passes);
    }
    Ok(Superpose::new(sources))
}

/// Several traces at once, which share nothing.
pub fn merge<I: Traffic>(traces: impl IntoIterator<Item = I>) -> Superpose<I> {
    let whole = |trace| vec![Pass::new(trace, Part::All, 0)];
    Superpose::new(traces.into_iter().map(whole).collect())
}

/// The passes of a copy, the last first.
fn around<I: Traffic>(
    period: u64,
    copy: u64,
    copies: u64,
    open: &mut impl FnMut() -> Result<I, TraceError>,
) -> Result<Vec<Pass<I>>, TraceError> {
    let shift = (u128::from(period) * u128::from(copy) / u128::from(copies)) as u64;
    let cut = period - shift;
    if shift == 0 {
        return Ok(vec![Pass::new(open()?, Part::All, 0)]);
    }
    Ok(vec![
        Pass::new(open()?, Part::Before(Time(cut)), shift),
        Pass::new(open()?, Part::From(Time(cut)), 0),
    ])
}

/// What a pass takes of a trace, with all that extends it.
#[derive(Clone, Copy, Debug)]
enum Part {
    All,
    Before(Time),
    /// Its beginning becomes 0.
    From(Time),
}

#[derive(Debug)]
struct Pass<I> {
    traffic: I,
    part: Part,
    offset: u64,
    sessions: Recent<()>,
}

impl<I: Traffic> Pass<I> {
    fn new(traffic: I, part: Part, offset: u64) -> Self {
        Self {
            traffic,
            part,
            offset,
            sessions: Recent::new(MAX_SESSIONS),
        }
    }

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        loop {
            let mut request = match self.traffic.next()? {
                Ok(request) => request,
                error => return Some(error),
            };
            let time = request.arrival.earliest();
            let (within, base) = match self.part {
                Part::All => (true, 0),
                Part::Before(cut) => (time < cut, 0),
                Part::From(cut) => (time >= cut, cut.0),
            };
            let taken = match request.continues() {
                Some(_) => belongs(&mut self.sessions, &request),
                None => within && belongs(&mut self.sessions, &request),
            };
            if taken {
                let moved = Time((time.0 - base).saturating_add(self.offset));
                request.arrival = request.arrival.moved(moved);
                return Some(Ok(request));
            }
        }
    }
}

/// See [`superpose`].
#[derive(Debug)]
pub struct Superpose<I> {
    /// The passes of each copy that are not over, the last first.
    sources: Vec<Vec<Pass<I>>>,
    heads: BinaryHeap<Reverse<Head>>,
    /// Copies of which nothing was read yet: they are the last ones.
    unopened: usize,
}

impl<I: Traffic> Superpose<I> {
    fn new(sources: Vec<Vec<Pass<I>>>) -> Self {
        Self {
            unopened: sources.len(),
            sources,
            heads: BinaryHeap::new(),
        }
    }

    /// Reads the next request of a copy.
    fn refill(&mut self, copy: usize) {
        let copies = self.sources.len() as u64;
        let passes = &mut self.sources[copy];
        while let Some(pass) = passes.last_mut() {
            if let Some(result) = pass.next() {
                let head = Head {
                    // An error comes at once.
                    time: result.as_ref().map_or(0, |request| request.arrival.earliest().0),
                    copy,
                    result: result.map(|request| request.copied(copies, copy as u64)),
                };
                self.heads.push(Reverse(head));
                return;
            }
            passes.pop();
        }
    }
}

impl<I: Traffic> Iterator for Superpose<I> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.unopened > 0 {
            self.unopened -= 1;
            self.refill(self.unopened);
        }
        let Reverse(head) = self.heads.pop()?;
        self.refill(head.copy);
        Some(head.result)
    }
}

/// The next request of a copy. Ordered by time, then by copy.
#[derive(Debug)]
struct Head {
    time: u64,
    copy: usize,
    result: Result<Request, TraceError>,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.copy).cmp(&(other.time, other.copy))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}
