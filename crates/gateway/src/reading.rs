//! What does an answer of a worker begin with, and what does a whole one say?

use bytes::{Bytes, BytesMut};
use homing_protocol::{Ask, Attention, Ear, EngineError, Heard, Splitter};
use hyper::HeaderMap;

/// Whether an answer has begun.
pub(crate) enum Begins {
    NotYet,
    Yes,
    Error(EngineError),
}

/// Looks at the next piece of a stream.
pub(crate) fn begins(splitter: &mut Splitter, ear: &mut Ear, piece: Bytes) -> Begins {
    splitter.push(piece);
    loop {
        match splitter.next_event() {
            Ok(Some(event)) => {
                let heard = ear.event(&event);
                match heard.error {
                    Some(error) if error.code.is_none_or(|code| code >= 500) => return Begins::Error(error),
                    // What the client did wrong is for the client to read.
                    Some(_) => return Begins::Yes,
                    None if event.data().is_some() => return Begins::Yes,
                    // A comment: the connection is kept alive, and nothing more is said.
                    None => {}
                }
            }
            Ok(None) => return Begins::NotYet,
            // Whoever reads on will say so.
            Err(_) => return Begins::Yes,
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
