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

/// `copies` copies at once. `open` begins the trace anew; it is called once for each copy, and twice with [`Shift::Around`]:
/// what opens a trace that is in memory anew is cheap.
pub fn superpose<I, F>(copies: u32, shift: Shift, mut open: F) -> Result<Superpose<I>, TraceError>
where
    I: Traffic,
    F: FnMut() -> Result<I, TraceError>,
{
    let mut passes = Vec::new();
    for copy in 0..u64::from(copies) {
        let (number, of) = (copy, u64::from(copies));
        match shift {
            Shift::Ahead(by) => {
                let offset = by.nanos().saturating_mul(copy);
                passes.push(Pass::new(open()?, number, Part::All, offset));
            }
            Shift::Around(period) => {
                let period = period.nanos();
                let offset = (u128::from(period) * u128::from(copy) / u128::from(of)) as u64;
                let cut = Time(period - offset);
                passes.push(Pass::new(open()?, number, Part::Before(cut), offset));
                passes.push(Pass::new(open()?, number, Part::From(cut), 0));
            }
        }
    }
    Ok(Superpose::new(passes, u64::from(copies)))
}

/// Several traces at once, which share nothing.
pub fn merge<I: Traffic>(traces: impl IntoIterator<Item = I>) -> Superpose<I> {
    let traces = (0..).zip(traces);
    let passes: Vec<_> = traces
        .map(|(number, trace)| Pass::new(trace, number, Part::All, 0))
        .collect();
    let copies = passes.len() as u64;
    Superpose::new(passes, copies)
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
    /// The copy that it is of.
    number: u64,
    part: Part,
    offset: u64,
    sessions: Recent<()>,
}

impl<I: Traffic> Pass<I> {
    fn new(traffic: I, number: u64, part: Part, offset: u64) -> Self {
        Self {
            traffic,
            number,
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
    passes: Vec<Pass<I>>,
    copies: u64,
    /// The next request of each pass.
    heads: BinaryHeap<Reverse<Head>>,
    /// Passes of which nothing was read yet: they are the last ones.
    unread: usize,
}

impl<I: Traffic> Superpose<I> {
    fn new(passes: Vec<Pass<I>>, copies: u64) -> Self {
        Self {
            unread: passes.len(),
            passes,
            copies,
            heads: BinaryHeap::new(),
        }
    }

    /// Reads the next request of a pass.
    fn refill(&mut self, pass: usize) {
        let number = self.passes[pass].number;
        if let Some(result) = self.passes[pass].next() {
            self.heads.push(Reverse(Head {
                // An error comes at once.
                time: result.as_ref().map_or(0, |request| request.arrival.earliest().0),
                pass,
                result: result.map(|request| request.copied(self.copies, number)),
            }));
        }
    }
}

impl<I: Traffic> Iterator for Superpose<I> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.unread > 0 {
            self.unread -= 1;
            self.refill(self.unread);
        }
        let Reverse(head) = self.heads.pop()?;
        self.refill(head.pass);
        Some(head.result)
    }
}

/// The next request of a pass. Ordered by time, then by pass.
#[derive(Debug)]
struct Head {
    time: u64,
    pass: usize,
    result: Result<Request, TraceError>,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.pass).cmp(&(other.time, other.pass))
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
