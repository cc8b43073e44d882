//! What does an answer of a worker begin with, and what does a whole one say?

use bytes::{Bytes, BytesMut};
use homing_protocol::{Ask, Attention, Ear, Endpoint, EngineError, Heard, Splitter};
use hyper::HeaderMap;

/// Whether an answer has begun.
pub(crate) enum Begins {
    NotYet,
    Yes,
    /// It failed.
    Error(EngineError),
    /// What was asked is wrong, as the worker says.
    Refused(EngineError),
}

/// The beginning of a stream, until it is known to be one.
///
/// A stream may open with an event that only says who speaks, and fail with the next: vLLM does so when KV that it was to fetch does not come.
/// So an answer has begun with its first words, with its end, or with its second event.
pub(crate) struct Opening {
    splitter: Splitter,
    ear: Ear,
    opened: bool,
}

impl Opening {
    pub(crate) fn new(endpoint: Endpoint, longest: usize) -> Self {
        Self {
            splitter: Splitter::new(longest),
            ear: Ear::new(endpoint, Attention::Facts),
            opened: false,
        }
    }

    /// Looks at the next piece.
    pub(crate) fn begins(&mut self, piece: Bytes) -> Begins {
        self.splitter.push(piece);
        loop {
            match self.splitter.next_event() {
                Ok(Some(event)) => {
                    let heard = self.ear.event(&event);
                    let says = heard.content || heard.done || heard.finish.is_some();
                    match heard.error {
                        Some(error) if error.code.is_none_or(|code| code >= 500) => return Begins::Error(error),
                        Some(error) => return Begins::Refused(error),
                        // A comment: the connection is kept alive, and nothing more is said.
                        None if event.data().is_none() => {}
                        None if says || self.opened => return Begins::Yes,
                        None => self.opened = true,
                    }
                }
                Ok(None) => return Begins::NotYet,
                // Whoever reads on will say so.
                Err(_) => return Begins::Yes,
            }
        }
    }
}

/// Pieces as one.
pub(crate) fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() < 2 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}

/// Whether an answer is a stream of events.
pub(crate) fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(hyper::header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// What a whole answer says.
pub(crate) fn heard_of(ask: &Ask, body: &[u8]) -> Heard {
    Ear::new(ask.endpoint, Attention::Facts).whole(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(pieces: &[&'static str]) -> Vec<&'static str> {
        let mut opening = Opening::new(Endpoint::ChatCompletions, 1 << 16);
        let word = |piece: &&'static str| match opening.begins(Bytes::from_static(piece.as_bytes())) {
            Begins::NotYet => "not yet",
            Begins::Yes => "yes",
            Begins::Error(_) => "error",
            Begins::Refused(_) => "refused",
        };
        pieces.iter().map(word).collect()
    }

    #[test]
    fn an_answer_begins_with_words_an_end_or_a_second_event() {
        // The last two are as vLLM 0.32 writes them.
        const OPENS: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":[1,2],\"prompt_text\":null}\n\n";
        const FAILS: &str = "data: {\"error\": {\"message\": \"Internal server error\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n";
        const WHO: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        const WORDS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        const NOTHING: &str = "data: {\"choices\":[{\"delta\":{}}]}\n\n";
        const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        const ERROR: &str = "data: {\"error\":{\"message\":\"Internal server error\",\"code\":500}}\n\n";
        const WRONG: &str = "data: {\"error\":{\"message\":\"No such thing\",\"code\":400}}\n\n";
        assert_eq!(begins(&[": alive\n\n", WHO, WORDS]), ["not yet", "not yet", "yes"]);
        assert_eq!(begins(&[WHO, ERROR]), ["not yet", "error"]);
        assert_eq!(begins(&[WRONG]), ["refused"]);
        assert_eq!(begins(&[WHO, NOTHING]), ["not yet", "yes"]);
        assert_eq!(begins(&[END]), ["yes"]);
        assert_eq!(begins(&[OPENS, FAILS]), ["not yet", "error"]);
        assert_eq!(begins(&[WORDS]), ["yes"]);
    }
}
