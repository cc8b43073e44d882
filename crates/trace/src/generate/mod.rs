//! What traffic could arrive? Requests made up from a seed.
//!
//! A [`Workload`] says what kind of clients come, when, and from whom; [`Workload::requests`] is an endless stream of them. Take as many
//! as needed with [`crate::Traffic::sliced`] or `take`; mix several with [`crate::transform::merge`].
//!
//! **Invariant:** equal workloads give equal requests on every machine.

mod arrivals;
mod chance;

use std::collections::VecDeque;

use homing_domain::{AdapterName, Tokens};
use homing_profile::{Millis, Time};
use thiserror::Error;

pub use arrivals::Arrivals;

use crate::content::{ContentId, Origin, Prompt, Segment};
use crate::error::TraceError;
use crate::format::MAX_TOKENS;
use crate::request::{Arrival, Client, Request, SessionId};
use crate::rng::{Rng, mix};
use arrivals::Clock;
use chance::{exponential, log_normal};

/// The most turns of a session.
pub const MAX_TURNS: u32 = 1_000;

/// A workload says something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{name} is {value}, expected a number from 0.000001 to 1000000000")]
pub struct WorkloadError {
    /// Which number.
    pub name: &'static str,
    /// What it is.
    pub value: f64,
}

/// A number of tokens, or of other things, that is drawn: its mean, and its deviation over that. Few are much larger than most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// On average.
    pub mean: u32,
    /// The deviation over the mean; 0 for always the same.
    pub spread: f64,
}

impl Length {
    /// Always so many.
    pub const fn always(mean: u32) -> Self {
        Self { mean, spread: 0.0 }
    }

    /// About so many, with a deviation as large as that.
    pub const fn about(mean: u32) -> Self {
        Self { mean, spread: 1.0 }
    }

    /// At least 1.
    fn draw(self, rng: &mut Rng) -> u32 {
        let drawn = if self.spread > 0.0 && self.mean > 0 {
            log_normal(rng, f64::from(self.mean), self.spread.min(10.0)).round() as u32
        } else {
            self.mean
        };
        drawn.clamp(1, MAX_TOKENS)
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Sessions in which each prompt extends the last answer.
    Sessions(Sessions),
    /// Questions about documents that others ask about too.
    Documents(Documents),
    /// Requests that have nothing in common.
    Unrelated {
        /// Tokens of a prompt.
        prompt: Length,
        /// Tokens of an answer.
        answer: Length,
    },
}

/// Sessions: chats, or agents that call tools.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sessions {
    /// How many different openings there are: system prompts, or agents with their tools. The first are the most frequent.
    pub openings: u32,
    /// Tokens of an opening.
    pub opening: Length,
    /// Tokens of the first message.
    pub first: Length,
    /// Tokens that each further turn adds: a message, or what a tool said.
    pub next: Length,
    /// Tokens of an answer: a text, or the call of a tool.
    pub answer: Length,
    /// Turns of a session.
    pub turns: Length,
    /// How long a client thinks, or a tool takes, on average.
    pub pause: Millis,
    /// Tokens that a model can have before it. A session ends before a turn that would be beyond it, answer included.
    pub context: u32,
}

impl Sessions {
    /// People who chat: few system prompts, short messages, and half a minute between them.
    pub const fn chat() -> Self {
        Self {
            openings: 20,
            opening: Length::about(600),
            first: Length::about(120),
            next: Length::about(80),
            answer: Length::about(250),
            turns: Length::about(5),
            pause: Millis(30_000.0),
            context: 131_072,
        }
    }

    /// Agents that call tools: long openings, short answers, much that tools say, and no time to think.
    pub const fn agents() -> Self {
        Self {
            openings: 5,
            opening: Length::about(6_000),
            first: Length::about(800),
            next: Length::about(1_200),
            answer: Length::about(120),
            turns: Length::about(20),
            pause: Millis(2_000.0),
            context: 131_072,
        }
    }
}

/// Questions about documents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Documents {
    /// Tokens before the documents, the same for all.
    pub opening: Length,
    /// How many documents there are. The first are asked about most.
    pub documents: u32,
    /// Tokens of a document.
    pub document: Length,
    /// Documents in a prompt, the most frequent first, so that prompts with the same ones share them.
    pub in_prompt: Length,
    /// Tokens of a question.
    pub question: Length,
    /// Tokens of an answer.
    pub answer: Length,
}

impl Default for Documents {
    /// Three of a thousand documents of 800 tokens.
    fn default() -> Self {
        Self {
            opening: Length::always(200),
            documents: 1_000,
            document: Length::about(800),
            in_prompt: Length::always(3),
            question: Length::about(50),
            answer: Length::about(200),
        }
    }
}

/// A share of all clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Share<T> {
    /// How many, against the others.
    pub weight: u32,
    /// What they have.
    pub what: T,
}

/// All that decides what arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Other seeds, other requests.
    pub seed: u64,
    /// When clients come: sessions begin, or requests without a session.
    pub arrivals: Arrivals,
    /// What they do.
    pub kind: Kind,
    /// Who they are. Empty: nobody in particular.
    pub clients: Vec<Share<Client>>,
    /// Which adapter they need, if any. Empty: none.
    pub adapters: Vec<Share<Option<AdapterName>>>,
    /// How long after its arrival a request's first token is of use.
    pub deadline: Option<Millis>,
}

impl Workload {
    /// Clients of one kind that come from nobody in particular.
    pub fn new(seed: u64, arrivals: Arrivals, kind: Kind) -> Self {
        Self {
            seed,
            arrivals,
            kind,
            clients: Vec::new(),
            adapters: Vec::new(),
            deadline: None,
        }
    }

    /// All requests, without end. Those of a session stand one after the other.
    pub fn requests(self) -> Result<Generated, WorkloadError> {
        self.arrivals.check()?;
        let clock = Clock::new(self.arrivals, Rng::new(self.seed ^ 0x6172_7269));
        let rng = Rng::new(self.seed);
        Ok(Generated {
            workload: self,
            clock,
            rng,
            begun: 0,
            contents: 0,
            ready: VecDeque::new(),
        })
    }
}

/// See [`Workload::requests`].
#[derive(Clone, Debug)]
pub struct Generated {
    workload: Workload,
    clock: Clock,
    rng: Rng,
    /// Clients so far.
    begun: u64,
    /// Contents so far that nobody shares.
    contents: u64,
    ready: VecDeque<Request>,
}

/// What all clients know: contents that many prompts have.
#[derive(Clone, Copy)]
enum Shared {
    Opening = 1,
    Document = 2,
}

impl Iterator for Generated {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() {
            self.client();
        }
        self.ready.pop_front().map(Ok)
    }
}

impl Generated {
    /// One more client, with all its requests.
    fn client(&mut self) {
        let at = self.clock.next();
        self.begun += 1;
        let client = pick(&mut self.rng, &self.workload.clients).cloned().unwrap_or_default();
        let adapter = pick(&mut self.rng, &self.workload.adapters).cloned().flatten();
        let first = self.ready.len();
        match self.workload.kind {
            Kind::Sessions(sessions) => self.session(at, &sessions),
            Kind::Documents(documents) => self.question(at, &documents),
            Kind::Unrelated { prompt, answer } => {
                let prompt = [self.own(prompt)];
                self.request(at, Prompt::fresh(prompt), answer);
            }
        }
        for request in self.ready.range_mut(first..) {
            request.client.clone_from(&client);
            request.adapter.clone_from(&adapter);
            request.deadline = self.workload.deadline;
        }
    }

    fn session(&mut self, at: Time, sessions: &Sessions) {
        let session = SessionId::numbered(mix(self.workload.seed ^ mix(self.begun)));
        let opening = skewed(&mut self.rng, sessions.openings);
        let opening = self.shared(Shared::Opening, opening, sessions.opening);
        let first = self.own(sessions.first);
        self.request(at, Prompt::fresh([opening, first]), sessions.answer);
        let turns = sessions.turns.draw(&mut self.rng).min(MAX_TURNS);
        let tokens = |ready: &VecDeque<Request>| {
            let last = ready.back();
            last.map_or(0, |turn| turn.prompt.new_tokens().0.saturating_add(turn.output.0))
        };
        let mut context = tokens(&self.ready);
        for _ in 1..turns {
            let next = [self.own(sessions.next)];
            let think = Millis(exponential(&mut self.rng, sessions.pause.0.max(0.0)));
            self.request(at, Prompt::continued(next), sessions.answer);
            context = context.saturating_add(tokens(&self.ready));
            if context > sessions.context {
                self.ready.pop_back();
                break;
            }
            if let Some(request) = self.ready.back_mut() {
                request.arrival = Arrival::Follows { earliest: at, think };
            }
        }
        for request in &mut self.ready {
            request.session = Some(session);
        }
    }

    fn question(&mut self, at: Time, documents: &Documents) {
        let count = documents.in_prompt.draw(&mut self.rng).min(documents.documents.max(1));
        let mut chosen: Vec<u32> = (0..count).map(|_| skewed(&mut self.rng, documents.documents)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let opening = self.shared(Shared::Opening, 0, documents.opening);
        let mut segments = vec![opening];
        for document in chosen {
            segments.push(self.shared(Shared::Document, document, documents.document));
        }
        segments.push(self.own(documents.question));
        self.request(at, Prompt::fresh(segments), documents.answer);
    }

    fn request(&mut self, at: Time, prompt: Prompt, answer: Length) {
        let output = Tokens(answer.draw(&mut self.rng));
        self.ready.push_back(Request::at(at, prompt, output));
    }

    /// A content that nobody else has.
    fn own(&mut self, length: Length) -> Segment {
        self.contents += 1;
        let number = mix(self.workload.seed).wrapping_add(self.contents << 8);
        Segment {
            content: ContentId::new(Origin::Generated, number),
            length: Tokens(length.draw(&mut self.rng)),
        }
    }

    /// A content that others have too, and always at the same length.
    fn shared(&self, what: Shared, number: u32, length: Length) -> Segment {
        let content = mix(self.workload.seed ^ mix(u64::from(number) << 8 | what as u64));
        Segment {
            content: ContentId::new(Origin::Named, content),
            length: Tokens(length.draw(&mut Rng::new(content))),
        }
    }
}

/// One of so many: the first are the most frequent.
fn skewed(rng: &mut Rng, of: u32) -> u32 {
    let share = rng.share();
    (f64::from(of) * share * share) as u32
}

fn pick<'a, T>(rng: &mut Rng, shares: &'a [Share<T>]) -> Option<&'a T> {
    let all: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
    let mut drawn = rng.below(all);
    let chosen = shares.iter().find(|share| {
        let found = drawn < u64::from(share.weight);
        drawn = drawn.saturating_sub(u64::from(share.weight));
        found
    });
    chosen.map(|share| &share.what)
}

#[cfg(test)]
mod tests;
