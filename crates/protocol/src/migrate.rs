//! Can an answer that broke off be continued elsewhere, and how?
use bytes::Bytes;
use thiserror::Error;

use crate::ask::Ask;
use crate::edit::Passed;
use crate::endpoint::Endpoint;
use crate::heard::Heard;
use crate::sse::Event;

/// Why an answer cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhyNot {
    /// The endpoint has no such thing.
    #[error("answers of this endpoint cannot be continued")]
    Endpoint,
    /// The answer is not streamed.
    #[error("the answer is not a stream")]
    NotStreamed,
    /// More than one answer.
    #[error("there are several answers")]
    SeveralChoices,
    /// A feature whose state would be lost.
    #[error("the request uses {0}")]
    Feature(&'static str),
    /// The answer reasons.
    #[error("the answer has reasoning")]
    Reasoning,
    /// The answer calls a tool.
    #[error("the answer calls a tool")]
    Tool,
    /// It is longer than we keep.
    #[error("the answer so far is longer than {0} bytes")]
    TooLong(usize),
    /// It had ended.
    #[error("the answer had ended")]
    Ended,
}

/// Whether answers to a request can be continued elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Continuation;

impl Continuation {
    /// Whether an answer to this can be continued, as far as the request tells.
    pub fn possible(_ask: &Ask) -> Result<(), WhyNot> {
        Ok(())
    }
}

/// An answer so far.
#[derive(Clone, Debug)]
pub struct SoFar {
    endpoint: Endpoint,
}

/// A request that continues an answer.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// Where it goes: not always where the first one went.
    pub endpoint: Endpoint,
    /// Its body.
    pub body: Bytes,
    /// What makes its stream the continuation of the first.
    pub seam: Seam,
}

impl SoFar {
    /// Nothing is said yet. `max_bytes` bounds what is kept.
    pub fn new(ask: &Ask, _max_bytes: usize) -> Self {
        Self { endpoint: ask.endpoint }
    }
    /// Takes what an event said. Call it for events that were passed to the client.
    pub fn hear(&mut self, _heard: &Heard) {}
    /// Whether the client has seen anything: before that, a plain retry does.
    pub fn begun(&self) -> bool {
        false
    }
    /// The request that continues it. `sent` is the body that was sent to the first worker.
    pub fn resume(&self, _ask: &Ask, sent: &Bytes) -> Result<Resumed, WhyNot> {
        Ok(Resumed {
            endpoint: self.endpoint,
            body: sent.clone(),
            seam: Seam {},
        })
    }
}

/// Makes events of a second stream the continuation of the first.
#[derive(Clone, Debug)]
pub struct Seam {}

impl Seam {
    /// What becomes of an event of the second stream, after the editor. `Passed::Drop` where it is held back or not needed.
    pub fn event(&mut self, _event: &Event) -> Result<Passed, WhyNot> {
        Ok(Passed::Pass)
    }
}
