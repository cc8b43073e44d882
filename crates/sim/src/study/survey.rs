//! How much work is in a trace, before anything serves it?
//!
//! *Work* is what one worker takes for a request if its cache forgets nothing: its prefill in a step of its own, and for each token
//! that it generates the part of a decode step that falls to one of as many sequences as fit into half of its cache: the other half
//! is for prefixes. So a fleet whose load is 1 can just keep up if it caches as well as can be and its batches are full.
//!
//! Cost: memory for the distinct blocks while it looks, at most 2^24 of them, and 16 bytes for each request.

use std::cell::Cell;

use homing_domain::{BlockSize, Tokens};
use homing_profile::{DecodeBatch, Millis, Time, Timing};
use homing_trace::analyse::{Summary, infinite_cache};
use homing_trace::rng::mix;
use homing_trace::{Arrival, Request, TraceError, Traffic};

/// What a worker takes for what.
#[derive(Clone, Debug)]
pub struct Work {
    /// How long steps take.
    pub timing: Timing,
    /// What each takes longer.
    pub overhead: Millis,
    /// Tokens that a worker's cache has room for.
    pub cache: Tokens,
    /// The most sequences at once.
    pub sequences: u32,
}

impl Work {
    /// What a prompt takes in a step of its own.
    pub fn prefill(&self, new: Tokens, cached: Tokens) -> Millis {
        self.timing.prefill(new, cached) + self.overhead
    }

    /// As much of that as is left if the step is shared with many: what a step takes anyway is not counted.
    pub fn marginal_prefill(&self, new: Tokens, cached: Tokens) -> Millis {
        let anyway = self.timing.prefill(Tokens(1), Tokens(0));
        Millis((self.timing.prefill(new, cached) - anyway).0.max(0.0))
    }

    /// What a request takes about, if its engine does nothing else and has what came before in its session.
    pub fn alone(&self, request: &Request) -> Millis {
        let new = request.prompt.new_tokens();
        let step = self.timing.decode(DecodeBatch::even(1, new)) + self.overhead;
        self.prefill(new, Tokens(0)) + step * f64::from(request.output.0)
    }

    /// What a generated token takes after so many others, in a batch of as many as fit into half of the cache.
    fn token(&self, context: Tokens) -> Millis {
        let fit = self.cache.0 / 2 / context.0.max(1);
        let sequences = fit.clamp(1, self.sequences.max(1));
        let step = self.timing.decode(DecodeBatch::even(sequences, context)) + self.overhead;
        Millis(step.0 / f64::from(sequences))
    }
}

/// Distinct blocks that are remembered, at most.
const MOST_DISTINCT: u64 = 1 << 24;
/// Families are told apart by so many numbers.
const BUCKETS: usize = 1_024;

/// Requests that share a family's number.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    requests: u64,
    prefill: Millis,
    output: u64,
    /// Generated tokens, each times the tokens before it.
    context: f64,
}

/// A request's size for a cache that forgets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) at: Time,
    pub(super) prompt: u32,
    pub(super) cached: u32,
}

/// What is in a trace.
#[derive(Debug)]
pub struct Survey {
    /// Its sums. Its work is that of one worker.
    pub summary: Summary,
    /// Distinct blocks.
    pub distinct_blocks: u64,
    /// The longest prompt with its answer.
    pub longest: Tokens,
    /// Some requests come after others were answered, so that when they come depends on who serves them.
    pub follows: bool,
    buckets: Vec<Bucket>,
    token: Millis,
    pub(super) jobs: Vec<Job>,
    pub(super) block: BlockSize,
    /// The blocks that were looked at: larger ones if there were too many.
    pub(super) looked_at: BlockSize,
}

impl Survey {
    /// Reads a trace. `open` begins it anew, which is done again if there are so many blocks that only larger ones can be remembered.
    pub fn of<I, F>(mut open: F, block: BlockSize, work: &Work) -> Result<Self, TraceError>
    where
        I: Traffic,
        F: FnMut() -> Result<I, TraceError>,
    {
        let mut looked_at = block;
        loop {
            let larger = looked_at.get().checked_mul(2).and_then(BlockSize::new);
            let most = if larger.is_some() { MOST_DISTINCT } else { u64::MAX };
            if let Some(mut survey) = Self::look(open()?, looked_at, work, most)? {
                survey.block = block;
                return Ok(survey);
            }
            looked_at = larger.unwrap_or(looked_at);
        }
    }

    /// Looks at blocks of this size, as long as there are at most so many.
    fn look<I: Traffic>(traffic: I, block: BlockSize, work: &Work, most: u64) -> Result<Option<Self>, TraceError> {
        let (last, follows) = (Cell::new(0_usize), Cell::new(false));
        let noted = traffic.inspect(|request| {
            if let Ok(request) = request {
                last.set(bucket(request));
                follows.set(follows.get() || matches!(request.arrival, Arrival::Follows { .. }));
            }
        });
        let mut sized = infinite_cache(noted, block);
        let mut survey = Self {
            summary: Summary::default(),
            distinct_blocks: 0,
            longest: Tokens(0),
            follows: false,
            buckets: vec![Bucket::default(); BUCKETS],
            token: Millis::ZERO,
            jobs: Vec::new(),
            block,
            looked_at: block,
        };
        while let Some(request) = sized.next() {
            let request = request?;
            if sized.distinct_blocks() > most {
                return Ok(None);
            }
            let prefill = work.prefill(request.new_tokens(), request.cached);
            survey.summary.add(&request, prefill);
            let output = f64::from(request.output.0);
            let bucket = &mut survey.buckets[last.get()];
            bucket.requests += 1;
            bucket.prefill += prefill;
            bucket.output += u64::from(request.output.0);
            bucket.context += output * (f64::from(request.prompt.0) + output / 2.0);
            let whole = request.prompt.0.saturating_add(request.output.0);
            survey.longest = survey.longest.max(Tokens(whole));
            survey.jobs.push(Job {
                at: request.at,
                prompt: request.prompt.0,
                cached: request.cached.0,
            });
        }
        survey.distinct_blocks = sized.distinct_blocks();
        survey.follows = follows.get();
        survey.set_work(work);
        Ok(Some(survey))
    }

    /// What tokens take is that of another fleet. Prefills are as they were.
    pub fn set_work(&mut self, work: &Work) {
        let context: f64 = self.buckets.iter().map(|bucket| bucket.context).sum();
        let output = self.summary.output_tokens;
        let mean = if output > 0 { context / output as f64 } else { 1.0 };
        self.token = work.token(Tokens(mean.round().max(1.0) as u32));
        let prefill: f64 = self.buckets.iter().map(|bucket| bucket.prefill.0).sum();
        self.summary.work = Millis(prefill) + self.token * output as f64;
    }

    /// What it remembers of single requests is given up: they are many.
    pub fn forget_requests(&mut self) {
        self.jobs = Vec::new();
    }

    /// What one worker takes for all of it.
    pub fn work(&self) -> Millis {
        self.summary.work
    }

    /// So many workers would be busy all the time, if it went on like this; 0 if it has no length.
    pub fn workers_filled(&self) -> f64 {
        let period = self.period().0;
        if period > 0.0 { self.work().0 / period } else { 0.0 }
    }

    /// How long it lasts, with the gap after its last request.
    pub fn period(&self) -> Millis {
        let span = self.summary.span.millis();
        let gaps = self.summary.requests.saturating_sub(1).max(1) as f64;
        Millis(span + span / gaps)
    }

    /// Of the work, how much is in the first so many buckets of families, and how many requests.
    pub(super) fn kept(&self, buckets: usize) -> (Millis, u64) {
        let kept = &self.buckets[..buckets.min(BUCKETS)];
        let work = |bucket: &Bucket| bucket.prefill.0 + self.token.0 * bucket.output as f64;
        (
            Millis(kept.iter().map(work).sum()),
            kept.iter().map(|bucket| bucket.requests).sum(),
        )
    }

    /// The number of buckets whose work is nearest to a share of all, with that share.
    pub(super) fn nearest(&self, share: f64) -> (usize, f64) {
        let all = self.work().0.max(1e-12);
        let of = |buckets: usize| self.kept(buckets).0.0 / all;
        let off = |buckets: &usize| ((of(*buckets) - share).abs() * 1e12) as u64;
        let best = (0..=BUCKETS).min_by_key(off).unwrap_or(BUCKETS);
        (best, of(best))
    }
}

/// Which of so many parts of a trace a request belongs to. Requests of a session, or with the same beginning, belong together.
pub(super) fn bucket(request: &Request) -> usize {
    // The very first segment may be one that all have in common: with the second it is one of many.
    let content = request.prompt.segments.iter().take(2);
    let family = match request.session {
        Some(session) => session.number,
        None => content.fold(0, |hash, segment| mix(hash ^ segment.content.0)),
    };
    (mix(family ^ 0x6661_6d69) % BUCKETS as u64) as usize
}
