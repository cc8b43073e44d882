//! How is an index driven, whoever wrote it?
//!
//! Each contender implements [`Index`] and [`Reader`] with its own types, in its own fastest form. [`Harness`] puts the
//! clocks around them, compiled for each contender, so that nothing virtual happens between two readings of a clock.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::{Catalog, Labels};
use crate::log::{Log, Op};
use crate::queries::Queries;

/// The writing side of an index.
pub trait Index: Send + 'static {
    /// An event in its own form, made before the clock starts.
    type Event: Send;
    /// What a lookup takes, made before the clock starts.
    type Input: Send + Sync + 'static;
    /// Its reading side.
    type Reader: Reader<Input = Self::Input>;

    /// What an engine said, in the index's words.
    fn event(&self, op: Op<'_>, catalog: &Catalog, labels: Labels) -> Self::Event;
    /// Applies the events and returns when all their work is done.
    fn apply(&mut self, events: Vec<Self::Event>);
    /// A reader for one thread.
    fn reader(&self) -> Self::Reader;
    /// The lookup's input for these tokens.
    fn input(&self, tokens: &[u32]) -> Self::Input;

    /// Applies the events, drops every worker, and says how long each uninterrupted piece of work took. Empty where an index
    /// has no such notion.
    fn apply_in_slices(&mut self, _events: Vec<Self::Event>) -> Vec<Slice> {
        Vec::new()
    }
}

/// How long a piece of work took, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// By the clock on the wall.
    pub wall: u64,
    /// By that of the thread, which stands still while another has its core. Calls of the system are counted.
    pub busy: u64,
}

/// The reading side of an index, for one thread. Buffers are kept between lookups.
pub trait Reader: Send + 'static {
    /// What a lookup takes.
    type Input;

    /// Looks up, and folds the answer into something that cannot be optimised away.
    fn lookup(&mut self, input: &Self::Input) -> u64;
    /// The same from tokens, hashing included.
    fn lookup_tokens(&mut self, tokens: &[u32]) -> u64;
    /// Looks up, and writes down one number for each worker. For checking, and for those who want it in this form.
    fn depths(&mut self, input: &Self::Input, depths: &mut [u32]);
    /// Answers so far that were not of one instant. Zero for those who do not say.
    fn unsettled(&self) -> u64 {
        0
    }
}

/// What a lookup starts from, and what it ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// From hashes made beforehand, to the contender's own form of answer.
    Keys,
    /// From tokens, wherever in memory they are, to the contender's own form of answer.
    Tokens,
    /// From tokens that were written a moment ago, as a tokenizer leaves them: they need not be brought from memory.
    Fresh,
    /// From hashes made beforehand, to one number per worker.
    Ranks,
}

impl Form {
    /// How tables and targets call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys given",
            Self::Tokens => "from tokens",
            Self::Fresh => "from tokens just made",
            Self::Ranks => "keys given, one number per worker",
        }
    }
}

/// A contender, whichever it is.
pub trait Contender: Send {
    /// Who it is.
    fn name(&self) -> &'static str;
    /// Makes events of a log, to be applied next.
    fn prepare(&mut self, log: &Log, catalog: &Catalog);
    /// Applies what was prepared, all work included.
    fn apply(&mut self) -> Duration;
    /// Applies a log piece by piece, so that no more than a few events exist at a time.
    fn build(&mut self, log: &Log, catalog: &Catalog);
    /// As [`Index::apply_in_slices`], with what was prepared.
    fn slices(&mut self) -> Vec<Slice>;
    /// Takes the requests that lookups will be about.
    fn ask(&mut self, queries: &Arc<Queries>);
    /// A probe over the requests last taken.
    fn probe(&self) -> Box<dyn Probe>;
    /// What it answers to the request at this place, per worker.
    fn depths(&mut self, place: usize) -> Vec<u32>;
}

/// Lookups of one contender on one thread.
pub trait Probe: Send {
    /// Nanoseconds per lookup, over the requests at these places: by one clock around all of them, unless something has
    /// to be done between two.
    fn batch(&mut self, form: Form, places: &[u32]) -> f64;
    /// Nanoseconds of each of them.
    fn each(&mut self, form: Form, places: &[u32], samples: &mut Vec<u64>);
    /// Answers so far that were not of one instant.
    fn unsettled(&self) -> u64;
}

/// Puts clocks around an index.
pub struct Harness<I: Index> {
    name: &'static str,
    labels: Labels,
    workers: usize,
    index: I,
    pending: Vec<I::Event>,
    inputs: Arc<Vec<I::Input>>,
    queries: Arc<Queries>,
}

/// Events that exist at a time while building piece by piece.
const PIECE: usize = 512;

impl<I: Index> Harness<I> {
    /// An index that holds nothing yet.
    pub fn new(name: &'static str, labels: Labels, workers: usize, index: I) -> Self {
        Self {
            name,
            labels,
            workers,
            index,
            pending: Vec::new(),
            inputs: Arc::default(),
            queries: Arc::default(),
        }
    }
}

impl<I: Index> Contender for Harness<I> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, log: &Log, catalog: &Catalog) {
        let events = log.ops(0..log.len());
        self.pending = events.map(|op| self.index.event(op, catalog, self.labels)).collect();
    }

    fn apply(&mut self) -> Duration {
        let events = std::mem::take(&mut self.pending);
        let start = Instant::now();
        self.index.apply(events);
        start.elapsed()
    }

    fn build(&mut self, log: &Log, catalog: &Catalog) {
        for start in (0..log.len()).step_by(PIECE) {
            let ops = log.ops(start..(start + PIECE).min(log.len()));
            let events = ops.map(|op| self.index.event(op, catalog, self.labels)).collect();
            self.index.apply(events);
        }
    }

    fn slices(&mut self) -> Vec<Slice> {
        let events = std::mem::take(&mut self.pending);
        self.index.apply_in_slices(events)
    }

    fn ask(&mut self, queries: &Arc<Queries>) {
        let inputs = queries.all.iter().map(|query| self.index.input(&query.tokens));
        self.inputs = Arc::new(inputs.collect());
        self.queries = Arc::clone(queries);
    }

    fn probe(&self) -> Box<dyn Probe> {
        Box::new(Asker {
            reader: self.index.reader(),
            inputs: Arc::clone(&self.inputs),
            queries: Arc::clone(&self.queries),
            depths: vec![0; self.workers],
            made: Vec::new(),
        })
    }

    fn depths(&mut self, place: usize) -> Vec<u32> {
        let mut depths = vec![0; self.workers];
        self.index.reader().depths(&self.inputs[place], &mut depths);
        depths
    }
}

struct Asker<R: Reader> {
    reader: R,
    inputs: Arc<Vec<R::Input>>,
    queries: Arc<Queries>,
    depths: Vec<u32>,
    /// Tokens of the request that comes next, if they are to be just made.
    made: Vec<u32>,
}

impl<R: Reader> Asker<R> {
    /// What happens before the clock starts.
    #[inline]
    fn make(&mut self, form: Form, place: u32) {
        if form == Form::Fresh {
            self.made.clear();
            self.made.extend_from_slice(&self.queries.all[place as usize].tokens);
        }
    }

    #[inline]
    fn one(&mut self, form: Form, place: u32) {
        let place = place as usize;
        match form {
            Form::Keys => black_box(self.reader.lookup(&self.inputs[place])),
            Form::Tokens => black_box(self.reader.lookup_tokens(&self.queries.all[place].tokens)),
            Form::Fresh => black_box(self.reader.lookup_tokens(&self.made)),
            Form::Ranks => {
                self.reader.depths(&self.inputs[place], &mut self.depths);
                black_box(u64::from(self.depths[0]))
            }
        };
    }
}

impl<R: Reader> Probe for Asker<R>
where
    R::Input: Send + Sync,
{
    fn batch(&mut self, form: Form, places: &[u32]) -> f64 {
        if form == Form::Fresh {
            let mut samples = Vec::with_capacity(places.len());
            self.each(form, places, &mut samples);
            return samples.iter().sum::<u64>() as f64 / places.len() as f64;
        }
        let start = Instant::now();
        for place in places {
            self.one(form, *place);
        }
        start.elapsed().as_nanos() as f64 / places.len() as f64
    }

    fn each(&mut self, form: Form, places: &[u32], samples: &mut Vec<u64>) {
        for place in places {
            self.make(form, *place);
            let start = Instant::now();
            self.one(form, *place);
            samples.push(start.elapsed().as_nanos() as u64);
        }
    }

    fn unsettled(&self) -> u64 {
        self.reader.unsettled()
    }
}
