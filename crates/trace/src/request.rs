//! What arrives?
//!
//! Every format and generator becomes a stream of [`Request`]s, and every consumer reads nothing else.
//!
//! **Invariant:** along a trace [`Arrival::earliest`] never decreases, and a request that follows another of its session stands
//! behind it.

use std::fmt;
use std::sync::Arc;

use homing_domain::{AdapterName, Tokens};
use homing_profile::{Millis, Time};

use crate::content::{CopyNo, Prompt, Start};
use crate::rng::mix;

/// When a request arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// At this moment, whatever else happens.
    At(Time),
    /// So long after the request before it in its session ended, and not before this moment.
    Follows {
        /// Where nothing else is known, the arrival of what stands before it in the trace.
        earliest: Time,
        /// What the client does between an answer and the next request.
        think: Millis,
    },
}

impl Arrival {
    /// The moment before which it does not arrive.
    pub const fn earliest(&self) -> Time {
        match self {
            Self::At(time) | Self::Follows { earliest: time, .. } => *time,
        }
    }

    /// The same with another earliest moment.
    #[must_use]
    pub const fn moved(self, to: Time) -> Self {
        match self {
            Self::At(_) => Self::At(to),
            Self::Follows { think, .. } => Self::Follows { earliest: to, think },
        }
    }
}

/// Requests that come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The copy of the trace that it belongs to.
    pub copy: CopyNo,
    /// Its number; of a session that has a name, a hash of that.
    pub number: u64,
}

impl SessionId {
    /// The session with this number.
    pub const fn numbered(number: u64) -> Self {
        Self {
            copy: CopyNo(0),
            number,
        }
    }

    /// The session with this name.
    pub fn named(name: &str) -> Self {
        // Length first, so that a name padded with zeros is another one.
        let start = mix(name.len() as u64);
        let number = name.as_bytes().chunks(8).fold(start, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word)).wrapping_add(hash)
        });
        Self::numbered(number)
    }
}

impl fmt::Display for SessionId {
    /// A name that routers can be given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.number)?;
        match self.copy {
            CopyNo(0) => Ok(()),
            CopyNo(copy) => write!(f, "-{copy}"),
        }
    }
}

/// Who asks, and how important it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The tenant, where there are several.
    pub tenant: Option<Arc<str>>,
    /// The class of service.
    pub class: Option<Arc<str>>,
    /// Greater goes first.
    pub priority: i32,
}

/// A request that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When.
    pub arrival: Arrival,
    /// What is to be continued.
    pub prompt: Prompt,
    /// How many tokens will be generated.
    pub output: Tokens,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
    /// Who asks.
    pub client: Client,
    /// The adapter that it needs.
    pub adapter: Option<AdapterName>,
    /// How long after its arrival the first token is of use.
    pub deadline: Option<Millis>,
}

impl Request {
    /// A request of its own, from nobody in particular.
    pub fn at(time: Time, prompt: Prompt, output: Tokens) -> Self {
        Self {
            arrival: Arrival::At(time),
            prompt,
            output,
            session: None,
            client: Client::default(),
            adapter: None,
            deadline: None,
        }
    }

    /// The same as part of copy `number` of `of` copies: no content and no session in common with the others.
    #[must_use]
    pub fn copied(mut self, of: u64, number: u64) -> Self {
        self.prompt.copy = self.prompt.copy.copied(of, number);
        if let Some(session) = &mut self.session {
            session.copy = session.copy.copied(of, number);
        }
        self
    }

    /// The session whose last answer its prompt extends, if it does that. A prompt that extends what is in no session extends
    /// nothing.
    pub fn continues(&self) -> Option<SessionId> {
        match self.prompt.start {
            Start::Fresh => None,
            Start::Previous => self.session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_told_apart() {
        let names = [
            "",
            "a",
            "b",
            "a\0",
            "12345678",
            "123456780",
            "abcdefghABCDEFGH",
            "ABCDEFGHabcdefgh",
        ];
        for (at, one) in names.iter().enumerate() {
            for other in &names[at + 1..] {
                assert_ne!(SessionId::named(one), SessionId::named(other), "{one:?} {other:?}");
            }
        }
        assert_eq!(SessionId::named("a"), SessionId::named("a"));
    }

    #[test]
    fn copies_of_a_session_have_names_of_their_own() {
        let request = Request {
            session: Some(SessionId::numbered(10)),
            ..Request::at(Time::ZERO, Prompt::fresh([]), Tokens(1))
        };
        let name = |request: &Request| request.session.expect("there is one").to_string();
        assert_eq!(name(&request), "000000000000000a");
        assert_eq!(name(&request.clone().copied(3, 0)), "000000000000000a");
        assert_eq!(name(&request.copied(3, 2)), "000000000000000a-2");
    }
}
