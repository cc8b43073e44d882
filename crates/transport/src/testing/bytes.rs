//! What can bytes of a peer do to the decoder? The body of the fuzz target, which a test on stable Rust runs over random bytes too.

use crate::zmq::protocol::{Decoder, Greeting, Incoming};
use crate::zmq::{Limits, ZmtpError};

const LIMITS: Limits = Limits {
    message_bytes: 4096,
    message_frames: 8,
    peers: 1,
};

/// Takes bytes as a greeting, and as what follows one. The first byte says in pieces of which length they come.
///
/// # Panics
///
/// Where a message exceeds the limits, or the result depends on the length of the pieces.
pub fn zmtp(bytes: &[u8]) {
    let _ = Greeting::default().take(&mut &bytes[..]);
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = decode(std::iter::once(bytes));
    assert_eq!(decode(bytes.chunks(usize::from(size) + 1)), whole);
    for incoming in &whole.0 {
        if let Incoming::Message(message) = incoming {
            assert!(message.byte_count() <= LIMITS.message_bytes as usize);
            assert!(message.frame_count() <= LIMITS.message_frames as usize);
        }
    }
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Incoming>, Option<ZmtpError>) {
    let mut decoder = Decoder::new(LIMITS);
    let mut complete = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(incoming)) => complete.push(incoming),
                Ok(None) => break,
                Err(error) => return (complete, Some(error)),
            }
        }
    }
    (complete, None)
}
