//! How does a trace become so much load?
//!
//! By copies that share nothing and are shifted in time, as if the trace were a ring: made faster, its clients would think faster
//! too. If whole copies miss the load by more than [`CLOSE`], the last one is thinned by whole families of requests, so that what is
//! left shares as much as before.

use homing_profile::{Millis, Time};
use homing_trace::{Request, Shift, TraceError, Traffic, superpose};
use thiserror::Error;

use super::survey::{Survey, bucket};

/// So far, as a share, whole copies may miss a load.
pub const CLOSE: f64 = 0.02;
/// The most copies.
pub const MAX_COPIES: u32 = 4_096;

/// Why there is no such load.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MixError {
    /// Nothing can be multiplied.
    #[error("the trace has no work or no length, so that no number of copies makes a load of it")]
    Nothing,
    /// Too many copies.
    #[error("a load of {load} needs {needed:.0} copies of the trace, more than {MAX_COPIES}")]
    TooMany {
        /// What was asked for.
        load: f64,
        /// What it needs.
        needed: f64,
    },
}

/// Copies of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// How many, the thinned one included.
    pub copies: u32,
    /// Which share of the last copy's work is kept.
    pub last_kept: f64,
    /// Work of one worker as a share of the fleet's time.
    pub load: f64,
    /// Requests in all.
    pub requests: u64,
    buckets: usize,
    period: Millis,
    most: u64,
}

impl Mix {
    /// So many whole copies for so many workers.
    pub fn copies(survey: &Survey, workers: u32, copies: u32) -> Self {
        Self {
            copies,
            last_kept: 1.0,
            load: survey.workers_filled() * f64::from(copies) / f64::from(workers.max(1)),
            requests: survey.summary.requests * u64::from(copies),
            buckets: usize::MAX,
            period: survey.period(),
            most: u64::MAX,
        }
    }

    /// As many copies as make this load for so many workers.
    pub fn load(survey: &Survey, workers: u32, load: f64) -> Result<Self, MixError> {
        let needed = load * f64::from(workers) / survey.workers_filled();
        if !needed.is_finite() || needed <= 0.0 {
            return Err(MixError::Nothing);
        }
        if needed > f64::from(MAX_COPIES) {
            return Err(MixError::TooMany { load, needed });
        }
        let whole = needed.round().max(1.0);
        if (whole / needed - 1.0).abs() <= CLOSE {
            return Ok(Self::copies(survey, workers, whole as u32));
        }
        let copies = needed.ceil();
        let (buckets, kept) = survey.nearest(needed - (copies - 1.0));
        let all = Self::copies(survey, workers, copies as u32);
        let mix = Self {
            last_kept: kept,
            load: all.load * (copies - 1.0 + kept) / copies,
            requests: survey.summary.requests * (copies as u64 - 1) + survey.kept(buckets).1,
            buckets,
            ..all
        };
        // So little of so short a trace that no family is small enough.
        if mix.requests == 0 {
            Err(MixError::Nothing)
        } else {
            Ok(mix)
        }
    }

    /// Only the first so many requests.
    #[must_use]
    pub fn limited(self, most: u64) -> Self {
        Self {
            requests: self.requests.min(most),
            most,
            ..self
        }
    }

    /// When the copies end: what a session goes on with after this comes to a fleet that others have left.
    pub fn end(&self) -> Option<Time> {
        (!self.is_plain()).then(|| Time::ZERO + self.period)
    }

    /// Whether it is the trace as it is.
    pub fn is_plain(&self) -> bool {
        self.copies == 1 && self.buckets == usize::MAX && self.most == u64::MAX
    }

    /// The requests. `open` begins the trace anew.
    pub fn traffic<I, F>(&self, open: F) -> Result<Mixed<I>, TraceError>
    where
        I: Traffic,
        F: FnMut() -> Result<I, TraceError>,
    {
        Ok(Mixed {
            all: superpose(self.copies, Shift::Around(self.period), open)?,
            last: u64::from(self.copies.saturating_sub(1)),
            buckets: self.buckets,
            left: self.most,
        })
    }
}

/// See [`Mix::traffic`].
#[derive(Debug)]
pub struct Mixed<I> {
    all: homing_trace::transform::Superpose<I>,
    last: u64,
    buckets: usize,
    left: u64,
}

impl<I: Traffic> Iterator for Mixed<I> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (last, buckets) = (self.last, self.buckets);
        let thinned = |request: &Request| request.prompt.copy.0 == last && bucket(request) >= buckets;
        self.all.by_ref().find(|request| !request.as_ref().is_ok_and(thinned))
    }
}
