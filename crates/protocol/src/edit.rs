//! What do we add to a request, and what must be taken out of its answer again?
use bytes::Bytes;

use crate::ask::Ask;
use crate::sse::Event;

/// What a gateway wants to know beyond what the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Usage at the end of streams.
    #[default]
    Usage,
    /// Usage, and token ids with every piece, so that it can be continued elsewhere.
    UsageAndTokens,
}

/// What is changed in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The name of the model that the worker knows, where it is another one.
    pub model: Option<String>,
    inject_usage: bool,
    inject_tokens: bool,
}

impl Plan {
    /// What must be changed to learn what is wanted.
    pub fn new(_ask: &Ask, _wanted: Wanted) -> Self {
        Self::default()
    }
    /// The body to send: without `homing`, with what the plan adds. Unchanged, the same bytes are shared.
    pub fn body(&self, _ask: &Ask, body: &Bytes) -> Bytes {
        body.clone()
    }
    /// What takes it out again.
    pub fn editor(&self) -> Editor {
        Editor {
            usage: self.inject_usage,
            tokens: self.inject_tokens,
        }
    }
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It is passed as it came.
    Pass,
    /// This is passed instead.
    Replace(Bytes),
    /// Nothing is passed.
    Drop,
}

/// Takes out of a stream what was not asked for by the client.
#[derive(Clone, Debug)]
pub struct Editor {
    usage: bool,
    tokens: bool,
}

impl Editor {
    /// What becomes of an event.
    pub fn event(&mut self, _event: &Event) -> Passed {
        let _ = (self.usage, self.tokens);
        Passed::Pass
    }
}
