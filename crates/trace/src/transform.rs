//! How is a trace made faster, shorter, longer or denser?
//!
//! [`Traffic`] gives every stream of requests its adapters; [`repeat`] and [`superpose`] read a trace several times and are given
//! something that opens it.
//!
//! **Invariant:** what is ordered stays ordered, and what shares a prefix still does, unless it is in different copies.
//!
//! **Invariant:** a prompt that extends an answer is kept only together with what it extends.

mod copies;

use homing_domain::Tokens;
use homing_profile::{Millis, Time};

use crate::content::Segment;
use crate::error::TraceError;
use crate::format::{MAX_SESSIONS, MAX_TOKENS};
use crate::recent::Recent;
use crate::request::{Arrival, Request};

pub use copies::{Repeat, Shift, Superpose, merge, repeat, superpose};

/// How many times as much: finite and above 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// As much as before.
    pub const ONE: Self = Self(1.0);

    /// This factor, if it is one.
    pub fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// What can arrive from the first of these moments on and before the second.
    Time(Time, Time),
    /// So many requests after so many that are left out.
    Count {
        /// How many are left out.
        skip: u64,
        /// How many there are then.
        take: u64,
    },
}

/// A stream of requests: a reader, a generator, or one of these changed.
pub trait Traffic: Iterator<Item = Result<Request, TraceError>> + Sized {
    /// So many times as fast. Clients think faster too; deadlines stay as they are.
    fn sped_up(self, by: Factor) -> SpedUp<Self> {
        SpedUp { traffic: self, by }
    }

    /// A part of it, which begins at 0.
    fn sliced(self, window: Window) -> Sliced<Self> {
        Sliced {
            traffic: self,
            window,
            seen: 0,
            base: None,
            sessions: Recent::new(MAX_SESSIONS),
        }
    }

    /// Prompts and answers so many times as long. Ends of segments are rounded, counted from the start of the prompt, so that
    /// prompts share as many times as much as before. No segment vanishes: each keeps a token at least. This takes it
    /// that a content which is not the last of its prompt is always cut at the same length, as in all formats that are read.
    fn scaled(self, prompts: Factor, outputs: Factor) -> Scaled<Self> {
        Scaled {
            traffic: self,
            prompts,
            outputs,
        }
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Traffic for I {}

/// See [`Traffic::sped_up`].
#[derive(Clone, Debug)]
pub struct SpedUp<I> {
    traffic: I,
    by: Factor,
}

impl<I: Traffic> Iterator for SpedUp<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let by = self.by.0;
        let sooner = |time: Time| Time((time.0 as f64 / by).round() as u64);
        Some(self.traffic.next()?.map(|mut request| {
            request.arrival = match request.arrival {
                Arrival::At(time) => Arrival::At(sooner(time)),
                Arrival::Follows { earliest, think } => Arrival::Follows {
                    earliest: sooner(earliest),
                    think: Millis(think.0 / by),
                },
            };
            request
        }))
    }
}

/// See [`Traffic::sliced`].
#[derive(Debug)]
pub struct Sliced<I> {
    traffic: I,
    window: Window,
    seen: u64,
    /// The time that becomes 0, as soon as it is known.
    base: Option<Time>,
    sessions: Recent<()>,
}

impl<I: Traffic> Iterator for Sliced<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        loop {
            let mut request = match self.traffic.next()? {
                Ok(request) => request,
                error => return Some(error),
            };
            let time = request.arrival.earliest();
            let at = self.seen;
            self.seen += 1;
            let base = match self.window {
                Window::Time(_, to) if time >= to => return None,
                Window::Time(from, _) if time < from => continue,
                Window::Time(from, _) => from,
                Window::Count { skip, take } if at >= skip.saturating_add(take) => return None,
                Window::Count { skip, .. } if at < skip => continue,
                Window::Count { .. } => *self.base.get_or_insert(time),
            };
            if belongs(&mut self.sessions, &request) {
                request.arrival = request.arrival.moved(Time(time.0 - base.0));
                return Some(Ok(request));
            }
        }
    }
}

/// Whether what a request extends was there before; notes its session.
fn belongs(sessions: &mut Recent<()>, request: &Request) -> bool {
    match (request.continues(), request.session) {
        (Some(session), _) => sessions.get_mut(session).is_some(),
        (None, Some(session)) => {
            sessions.note(session);
            true
        }
        (None, None) => true,
    }
}

/// See [`Traffic::scaled`].
#[derive(Clone, Debug)]
pub struct Scaled<I> {
    traffic: I,
    prompts: Factor,
    outputs: Factor,
}

impl<I: Traffic> Iterator for Scaled<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        Some(self.traffic.next()?.map(|mut request| {
            request.prompt.segments = scaled_segments(&request.prompt.segments, self.prompts).into();
            request.output = Tokens(times(u64::from(request.output.0), self.outputs));
            request
        }))
    }
}

fn scaled_segments(segments: &[Segment], by: Factor) -> Vec<Segment> {
    let (mut before, mut end_before) = (0_u64, 0);
    let segments = segments.iter().filter(|segment| segment.length.0 > 0);
    let scale = |segment: &Segment| {
        before += u64::from(segment.length.0);
        // A segment that vanished would let what comes after it begin prompts that it does not begin.
        let end = times(before, by).max(end_before + 1);
        let length = Tokens(end - end_before);
        end_before = end;
        Segment {
            content: segment.content,
            length,
        }
    };
    segments.map(scale).collect()
}

fn times(tokens: u64, by: Factor) -> u32 {
    // A cast saturates.
    ((tokens as f64 * by.0).round() as u32).min(MAX_TOKENS)
}
