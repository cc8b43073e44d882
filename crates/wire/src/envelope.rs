//! Which batch is this message, and is it one? The frames of ZMQ messages, without a socket.
//!
//! A live message is `[topic][number, 8 bytes, big-endian][payload]`. A reply to a request for replay is the same, where
//! older engines leave the topic out, and where sockets that do not strip it leave an empty frame in front. A replay
//! ends with the number of eight bytes FF and an empty payload.

use homing_domain::Sequence;
use thiserror::Error;

/// The number that ends a replay.
const END: u64 = u64::MAX;

/// A message with its parts, borrowed from its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What subscribers filter by; empty where the engine sends none.
    pub topic: &'a [u8],
    /// The number of the batch.
    pub sequence: Sequence,
    /// The batch.
    pub payload: &'a [u8],
}

/// A reply to a request for replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed<'a> {
    /// A batch.
    Batch(Message<'a>),
    /// There are no more.
    End,
}

/// Why frames are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// There are too few or too many frames.
    #[error("a message of {count} frames; {expected} are expected")]
    FrameCount {
        /// How many there are.
        count: usize,
        /// How many there should be.
        expected: &'static str,
    },
    /// The number of the batch is not of eight bytes.
    #[error("the number of the batch has {length} bytes; 8 are expected")]
    SequenceLength {
        /// Its length.
        length: usize,
    },
    /// The frame that should be empty is not.
    #[error("the first of four frames has {length} bytes; it should be empty")]
    Delimiter {
        /// Its length.
        length: usize,
    },
    /// There is no batch in it.
    #[error("batch {sequence} is empty")]
    EmptyPayload {
        /// Its number.
        sequence: Sequence,
    },
}

/// The parts of a live message.
pub fn live<F: AsRef<[u8]>>(frames: &[F]) -> Result<Message<'_>, EnvelopeError> {
    let [topic, sequence, payload] = frames else {
        return Err(EnvelopeError::FrameCount {
            count: frames.len(),
            expected: "3",
        });
    };
    message(topic.as_ref(), sequence.as_ref(), payload.as_ref())
}

/// The parts of a reply to a request for replay, with or without an empty frame in front, with or without a topic.
pub fn replayed<F: AsRef<[u8]>>(frames: &[F]) -> Result<Replayed<'_>, EnvelopeError> {
    let (topic, sequence, payload): (&[u8], _, _) = match frames {
        [sequence, payload] => (&[], sequence, payload),
        [topic, sequence, payload] => (topic.as_ref(), sequence, payload),
        [delimiter, topic, sequence, payload] => {
            let length = delimiter.as_ref().len();
            if length != 0 {
                return Err(EnvelopeError::Delimiter { length });
            }
            (topic.as_ref(), sequence, payload)
        }
        _ => {
            return Err(EnvelopeError::FrameCount {
                count: frames.len(),
                expected: "2 to 4",
            });
        }
    };
    let (sequence, payload) = (sequence.as_ref(), payload.as_ref());
    if payload.is_empty() && sequence_of(sequence)? == Sequence(END) {
        return Ok(Replayed::End);
    }
    message(topic, sequence, payload).map(Replayed::Batch)
}

/// The frames that ask an engine for all batches from `from` on, to be sent by a DEALER.
pub fn replay_request(from: Sequence) -> [Vec<u8>; 2] {
    [Vec::new(), from.0.to_be_bytes().to_vec()]
}

/// What a request for replay asks for, without the identity that a ROUTER puts in front.
pub fn requested<F: AsRef<[u8]>>(frames: &[F]) -> Result<Sequence, EnvelopeError> {
    match frames {
        [from] => sequence_of(from.as_ref()),
        [delimiter, from] if delimiter.as_ref().is_empty() => sequence_of(from.as_ref()),
        [delimiter, _] => Err(EnvelopeError::Delimiter {
            length: delimiter.as_ref().len(),
        }),
        _ => Err(EnvelopeError::FrameCount {
            count: frames.len(),
            expected: "1 or 2",
        }),
    }
}

/// The frames of a message, as an engine publishes it.
pub fn frames_of(message: &Message<'_>) -> [Vec<u8>; 3] {
    [
        message.topic.to_vec(),
        message.sequence.0.to_be_bytes().to_vec(),
        message.payload.to_vec(),
    ]
}

/// The frames that end a replay, as an engine sends them that sends topics.
pub fn end_of_replay() -> [Vec<u8>; 3] {
    [Vec::new(), END.to_be_bytes().to_vec(), Vec::new()]
}

fn message<'a>(topic: &'a [u8], sequence: &[u8], payload: &'a [u8]) -> Result<Message<'a>, EnvelopeError> {
    let sequence = sequence_of(sequence)?;
    if payload.is_empty() {
        return Err(EnvelopeError::EmptyPayload { sequence });
    }
    Ok(Message {
        topic,
        sequence,
        payload,
    })
}

fn sequence_of(frame: &[u8]) -> Result<Sequence, EnvelopeError> {
    let bytes = frame
        .try_into()
        .map_err(|_| EnvelopeError::SequenceLength { length: frame.len() })?;
    Ok(Sequence(u64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 7];
    const LAST: &[u8] = &[0xff; 8];

    const fn seven(topic: &[u8]) -> Message<'_> {
        Message {
            topic,
            sequence: Sequence(7),
            payload: b"p",
        }
    }

    #[test]
    fn a_live_message_has_three_frames() {
        assert_eq!(live(&[b"kv", SEVEN, b"p"]), Ok(seven(b"kv")));
        assert_eq!(live(&[b"", SEVEN, b"p"]), Ok(seven(b"")));
        let texts = [
            (vec![SEVEN, b"p"], "a message of 2 frames; 3 are expected"),
            (
                vec![b"t", b"\0\0", b"p"],
                "the number of the batch has 2 bytes; 8 are expected",
            ),
            (vec![b"t", SEVEN, b""], "batch 7 is empty"),
        ];
        for (frames, text) in texts {
            assert_eq!(live(&frames).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn replies_of_every_version_are_read() {
        let cases: [(&[&[u8]], Replayed<'_>); 7] = [
            (&[b"", b"kv", SEVEN, b"p"], Replayed::Batch(seven(b"kv"))),
            (&[b"kv", SEVEN, b"p"], Replayed::Batch(seven(b"kv"))),
            (&[b"", SEVEN, b"p"], Replayed::Batch(seven(b""))),
            (&[SEVEN, b"p"], Replayed::Batch(seven(b""))),
            (&[b"", b"", LAST, b""], Replayed::End),
            (&[b"", LAST, b""], Replayed::End),
            (&[LAST, b""], Replayed::End),
        ];
        for (frames, expected) in cases {
            assert_eq!(replayed(frames), Ok(expected), "{frames:?}");
        }
        let bad: [(&[&[u8]], &str); 4] = [
            (
                &[b"x", b"kv", SEVEN, b"p"],
                "the first of four frames has 1 bytes; it should be empty",
            ),
            (&[SEVEN], "a message of 1 frames; 2 to 4 are expected"),
            (&[b"", SEVEN, b""], "batch 7 is empty"),
            (
                &[b"", b"kv", b""],
                "the number of the batch has 2 bytes; 8 are expected",
            ),
        ];
        for (frames, text) in bad {
            assert_eq!(replayed(frames).unwrap_err().to_string(), text, "{frames:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(requested(&replay_request(Sequence(300))), Ok(Sequence(300)));
        assert_eq!(requested(&[SEVEN]), Ok(Sequence(7)));
        assert_eq!(live(&frames_of(&seven(b"kv"))), Ok(seven(b"kv")));
        assert_eq!(replayed(&end_of_replay()), Ok(Replayed::End));
        assert!(requested(&[b"x".as_slice(), SEVEN]).is_err());
        assert!(requested::<&[u8]>(&[]).is_err());
    }
}
