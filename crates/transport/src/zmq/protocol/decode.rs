//! Which messages and commands do these bytes make?

use super::{COMMAND, COMMAND_BYTES, Command, LONG, MORE};
use crate::zmq::config::Limits;
use crate::zmq::error::ZmtpError;
use crate::zmq::message::{Ends, Message};

/// What a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// All frames of a message.
    Message(Message),
    /// A command. It may come between two frames of a message.
    Command(Command),
}

/// Makes messages and commands from what follows the greeting. After an error it is of no further use.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    /// The frames of the message that is not complete yet, one behind the other.
    message: Vec<u8>,
    /// Where those that are complete end.
    ends: Ends,
    /// The command that is not complete yet.
    command: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum State {
    Flags,
    Length { flags: u8, missing: u8, value: u64 },
    Body { flags: u8, missing: u32 },
}

impl Decoder {
    /// One that keeps to these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Flags,
            message: Vec::new(),
            ends: Ends::new(),
            command: Vec::new(),
        }
    }

    /// Takes bytes from the front of `input` until something is complete. Nothing is when all bytes were taken.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, ZmtpError> {
        loop {
            match self.state {
                State::Body { flags, missing: 0 } => {
                    self.state = State::Flags;
                    if let Some(complete) = self.finish_frame(flags)? {
                        return Ok(Some(complete));
                    }
                }
                State::Body { flags, missing } => {
                    let taken = input.len().min(missing as usize);
                    if taken == 0 {
                        return Ok(None);
                    }
                    let (head, rest) = input.split_at(taken);
                    *input = rest;
                    self.buffer(flags).extend_from_slice(head);
                    let missing = missing - taken as u32;
                    self.state = State::Body { flags, missing };
                }
                State::Flags | State::Length { .. } => {
                    let Some((&byte, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    self.state = self.take_header(byte)?;
                }
            }
        }
    }

    /// What comes after this byte of a frame's header.
    fn take_header(&self, byte: u8) -> Result<State, ZmtpError> {
        match self.state {
            State::Length { flags, missing, value } => {
                let value = value << 8 | u64::from(byte);
                match missing - 1 {
                    0 => self.begin_body(flags, value),
                    missing => Ok(State::Length { flags, missing, value }),
                }
            }
            State::Flags | State::Body { .. } => {
                let meaningless = byte & !(MORE | LONG | COMMAND) != 0;
                if meaningless || (byte & COMMAND != 0 && byte & MORE != 0) {
                    return Err(ZmtpError::Flags(byte));
                }
                let missing = if byte & LONG == 0 { 1 } else { 8 };
                Ok(State::Length {
                    flags: byte,
                    missing,
                    value: 0,
                })
            }
        }
    }

    /// Refuses by its length what will not be kept.
    fn begin_body(&self, flags: u8, length: u64) -> Result<State, ZmtpError> {
        let missing = u32::try_from(length).unwrap_or(u32::MAX);
        if flags & COMMAND != 0 {
            if length > u64::from(COMMAND_BYTES) {
                return Err(ZmtpError::CommandTooLong(length));
            }
            return Ok(State::Body { flags, missing });
        }
        let limit = self.limits.message_frames;
        if self.ends.len() >= limit as usize {
            return Err(ZmtpError::TooManyFrames { limit });
        }
        let bytes = length.saturating_add(self.message.len() as u64);
        let limit = self.limits.message_bytes;
        if bytes > u64::from(limit) {
            return Err(ZmtpError::MessageTooLong { bytes, limit });
        }
        Ok(State::Body { flags, missing })
    }

    fn buffer(&mut self, flags: u8) -> &mut Vec<u8> {
        if flags & COMMAND == 0 {
            &mut self.message
        } else {
            &mut self.command
        }
    }

    fn finish_frame(&mut self, flags: u8) -> Result<Option<Incoming>, ZmtpError> {
        if flags & COMMAND != 0 {
            let command = Command::read(&self.command);
            self.command.clear();
            return command.map(Incoming::Command).map(Some);
        }
        // Cannot be cut short: the limit of a message's bytes is a `u32`.
        self.ends.push(self.message.len() as u32);
        if flags & MORE != 0 {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.message);
        let ends = std::mem::take(&mut self.ends);
        Ok(Some(Incoming::Message(Message::new(bytes, ends))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        message_bytes: 1000,
        message_frames: 4,
        peers: 1,
    };

    /// Everything that these pieces make, until there is no more or an error.
    fn decode_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Incoming>, Option<ZmtpError>) {
        let mut decoder = Decoder::new(LIMITS);
        let mut complete = Vec::new();
        for mut piece in pieces {
            loop {
                match decoder.decode(&mut piece) {
                    Ok(Some(incoming)) => complete.push(incoming),
                    Ok(None) => break,
                    Err(error) => return (complete, Some(error)),
                }
                assert!(decoder.message.len() <= LIMITS.message_bytes as usize);
            }
        }
        (complete, None)
    }

    fn refusal(bytes: &[u8]) -> ZmtpError {
        let (complete, error) = decode_all([bytes]);
        assert_eq!(complete, []);
        error.expect("it is refused")
    }

    #[test]
    fn a_command_between_two_frames_belongs_to_neither() {
        let mut bytes = vec![MORE, 1, b'a'];
        encode::pong(&mut bytes, b"");
        bytes.extend([0, 2, b'b', b'c']);
        let (complete, error) = decode_all([&bytes[..]]);
        assert_eq!(error, None);
        assert_eq!(complete.len(), 2);
        assert_eq!(complete[0], Incoming::Command(Command::Pong));
        let Incoming::Message(message) = &complete[1] else {
            panic!("{complete:?}")
        };
        assert_eq!(message.frames().collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
    }

    #[test]
    fn what_is_too_much_is_refused_by_its_header_alone() {
        let long = |length: u64| [&[LONG][..], &length.to_be_bytes()].concat();
        assert_eq!(
            refusal(&long(1001)),
            ZmtpError::MessageTooLong {
                bytes: 1001,
                limit: 1000
            }
        );
        assert_eq!(
            refusal(&long(u64::MAX)),
            ZmtpError::MessageTooLong {
                bytes: u64::MAX,
                limit: 1000
            }
        );
        assert_eq!(
            refusal(&[&[MORE, 1, 0][..], &long(1000)].concat()),
            ZmtpError::MessageTooLong {
                bytes: 1001,
                limit: 1000
            }
        );
        assert_eq!(refusal(&[MORE, 0].repeat(5)), ZmtpError::TooManyFrames { limit: 4 });
        let mut command = long(1 << 40);
        command[0] |= COMMAND;
        assert_eq!(refusal(&command), ZmtpError::CommandTooLong(1 << 40));
        assert_eq!(refusal(&[8]), ZmtpError::Flags(8));
        assert_eq!(refusal(&[COMMAND | MORE]), ZmtpError::Flags(COMMAND | MORE));
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let mut decoder = Decoder::new(Limits {
            message_bytes: u32::MAX,
            ..LIMITS
        });
        let header = [&[LONG][..], &(1_u64 << 31).to_be_bytes(), b"abc"].concat();
        assert_eq!(decoder.decode(&mut &header[..]), Ok(None));
        assert!(decoder.message.capacity() < 64);
    }

    /// Bytes that are often frames, and sometimes anything.
    fn arbitrary_bytes() -> impl Strategy<Value = Vec<u8>> {
        let frame = (0_u8..8, prop::collection::vec(any::<u8>(), 0..400)).prop_map(|(flags, body)| {
            let mut bytes = vec![flags];
            if flags & LONG == 0 {
                bytes.push(body.len() as u8);
                bytes.extend(&body[..body.len() % 256]);
            } else {
                bytes.extend((body.len() as u64).to_be_bytes());
                bytes.extend(&body);
            }
            bytes
        });
        let command = prop::sample::select(vec![
            &b"\x04\x07\x04PING\0\0"[..],
            b"\x04\x05\x04PONG",
            b"\x04\x06\x05READY",
        ])
        .prop_map(<[u8]>::to_vec);
        let anything = prop::collection::vec(any::<u8>(), 0..40);
        prop::collection::vec(prop_oneof![6 => frame, 2 => command, 1 => anything], 0..12)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_makes_no_difference(bytes in arbitrary_bytes(), size in 1_usize..50) {
            prop_assert_eq!(decode_all(bytes.chunks(size)), decode_all([&bytes[..]]));
        }

        #[test]
        fn what_is_encoded_is_decoded(messages in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..=3), 0..10)
        ) {
            let mut bytes = Vec::new();
            for frames in &messages {
                let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                encode::message(&mut bytes, &frames);
            }
            let (complete, error) = decode_all(bytes.chunks(64));
            prop_assert_eq!(error, None);
            let decoded: Vec<Vec<Vec<u8>>> = complete
                .iter()
                .map(|incoming| match incoming {
                    Incoming::Message(message) => message.frames().map(<[u8]>::to_vec).collect(),
                    Incoming::Command(command) => panic!("{command:?} was not sent"),
                })
                .collect();
            prop_assert_eq!(decoded, messages);
        }
    }
}
