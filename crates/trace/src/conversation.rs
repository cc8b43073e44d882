//! What is the whole prompt of a request that continues another?
//!
//! The next prompt of a session is the last prompt, then what was answered, then what the user adds. Only the last of these is in
//! the trace: an engine's answer is known when it was generated. [`Conversations`] keeps the first two for sessions that may go
//! on. Who drives engines tells it the tokens that they said; who only analyses a trace lets a content stand for them.
//!
//! **Invariant:** with what engines said, the blocks that they generated are the blocks of the next prompt.
//!
//! Cost: of a session its segments and its answers are kept, not the tokens of its prompts. Beyond the limit, sessions that were not
//! used for the longest time are forgotten, and their next request is refused with [`UnknownSession`].

use std::sync::Arc;

use homing_domain::Tokens;
use thiserror::Error;

use crate::content::{ContentId, Origin, Part, Segment, Text};
use crate::recent::Recent;
use crate::request::{Request, SessionId};
use crate::rng::mix;

/// A request continues a session of which nothing is known: its earlier requests were not told of, or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the request continues session {0}, of which no earlier request is known")]
pub struct UnknownSession(pub SessionId);

/// What was answered.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// These tokens.
    Said(&'a [u32]),
    /// Nobody generated it: so many tokens that are this answer's own.
    StandIn(Tokens),
}

/// The sessions that may go on.
#[derive(Clone, Debug)]
pub struct Conversations {
    open: Recent<Conversation>,
}

#[derive(Clone, Debug)]
struct Conversation {
    text: Text,
    turns: u64,
}

impl Conversations {
    /// None yet; at least the last `limit` are kept.
    pub fn new(limit: usize) -> Self {
        Self {
            open: Recent::new(limit),
        }
    }

    /// The whole prompt of a request.
    pub fn text(&mut self, request: &Request) -> Result<Text, UnknownSession> {
        let Some(session) = request.continues() else {
            return Ok(Text::of(&request.prompt));
        };
        let before = self.open.get_mut(session).ok_or(UnknownSession(session))?;
        let mut text = before.text.clone();
        text.append(&request.prompt);
        Ok(text)
    }

    /// Notes what was answered to the whole prompt `text` of a request.
    pub fn answered(&mut self, session: SessionId, mut text: Text, answer: Answer<'_>) {
        let turns = self.open.get_mut(session).map_or(0, |before| before.turns) + 1;
        text.push(match answer {
            Answer::Said(tokens) => Part::Said(Arc::from(tokens)),
            Answer::StandIn(length) => {
                let content = ContentId::new(Origin::Answer, mix(session.number).wrapping_add(turns));
                Part::Content(session.copy, Segment { content, length })
            }
        });
        self.open.insert(session, Conversation { text, turns });
    }

    /// All that was said in a session, the last answer included.
    pub fn so_far(&mut self, session: SessionId) -> Option<&Text> {
        self.open.get_mut(session).map(|open| &open.text)
    }

    /// Forgets a session that is over.
    pub fn over(&mut self, session: SessionId) {
        self.open.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Prompt, Spelling};
    use homing_profile::Time;

    fn turn(prompt: Prompt) -> Request {
        Request {
            session: Some(SessionId::numbered(1)),
            ..Request::at(Time::ZERO, prompt, Tokens(3))
        }
    }

    fn user(number: u64, length: u32) -> Segment {
        Segment {
            content: ContentId(number),
            length: Tokens(length),
        }
    }

    fn spelled(text: &Text) -> Vec<u32> {
        let mut tokens = Vec::new();
        text.tokens_into(&Spelling::default(), &mut tokens);
        tokens
    }

    #[test]
    fn the_next_prompt_is_the_last_one_the_answer_and_what_is_new() {
        let mut open = Conversations::new(10);
        let session = SessionId::numbered(1);
        let first = open.text(&turn(Prompt::fresh([user(1, 20)]))).unwrap();
        let mut expected = spelled(&first);
        open.answered(session, first, Answer::Said(&[7, 8, 9]));
        let second = open.text(&turn(Prompt::continued([user(2, 5)]))).unwrap();
        expected.extend([7, 8, 9]);
        expected.extend(spelled(&Text::of(&Prompt::fresh([user(2, 5)]))));
        assert_eq!(spelled(&second), expected);

        // A prompt that is whole begins anew, whatever was said.
        let whole = open.text(&turn(Prompt::fresh([user(3, 4)]))).unwrap();
        assert_eq!(whole.len(), Tokens(4));
    }

    #[test]
    fn answers_that_nobody_generated_differ_by_turn_and_copy() {
        let mut open = Conversations::new(10);
        let mut said = Vec::new();
        for copy in 0..2 {
            let request = turn(Prompt::fresh([])).copied(2, copy);
            let session = request.session.unwrap();
            for _ in 0..2 {
                open.answered(session, Text::default(), Answer::StandIn(Tokens(8)));
                said.push(spelled(open.so_far(session).unwrap()));
            }
        }
        said.sort();
        said.dedup();
        assert_eq!(said.len(), 4);
    }

    #[test]
    fn what_is_over_or_forgotten_cannot_be_continued() {
        let mut open = Conversations::new(1);
        let session = SessionId::numbered(1);
        let next = turn(Prompt::continued([user(2, 5)]));
        assert_eq!(open.text(&next), Err(UnknownSession(session)));
        open.answered(session, Text::default(), Answer::Said(&[1]));
        assert!(open.text(&next).is_ok());
        for other in 2..5 {
            open.answered(SessionId::numbered(other), Text::default(), Answer::Said(&[1]));
        }
        assert_eq!(open.text(&next), Err(UnknownSession(session)));
        open.answered(session, Text::default(), Answer::Said(&[1]));
        open.over(session);
        assert_eq!(open.text(&next), Err(UnknownSession(session)));
    }
}
