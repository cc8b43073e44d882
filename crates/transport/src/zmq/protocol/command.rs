//! What does a command say?

use bytes::Bytes;

use crate::zmq::error::ZmtpError;

/// A command of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The handshake.
    Ready {
        /// What kind of socket the peer is, as it says.
        socket_type: String,
    },
    /// The peer ends the handshake, and why.
    Error(String),
    /// The peer wants a sign of life that repeats these bytes.
    Ping(Bytes),
    /// The peer is alive.
    Pong,
    /// The peer wants messages whose first frame begins so.
    Subscribe(Bytes),
    /// The peer wants them no more.
    Cancel(Bytes),
    /// Something that does not concern us.
    Other,
}

/// A PING repeats at most so many bytes.
const PING_CONTEXT_BYTES: usize = 16;
/// Of what a peer says in words, so many bytes are shown.
const SHOWN_BYTES: usize = 128;

impl Command {
    /// Reads the body of a command frame.
    pub(super) fn read(body: &[u8]) -> Result<Self, ZmtpError> {
        let (name, rest) = short_string(body).ok_or(ZmtpError::MalformedCommand("it has no name"))?;
        match name {
            b"READY" => Ok(Self::Ready {
                socket_type: socket_type(rest)?,
            }),
            b"ERROR" => {
                let (reason, _) = short_string(rest).ok_or(ZmtpError::MalformedCommand("ERROR has no reason"))?;
                Ok(Self::Error(shown(reason)))
            }
            b"PING" => {
                // Two bytes say how long the peer waits before it gives us up. We answer at once.
                let context = rest.get(2..).ok_or(ZmtpError::MalformedCommand("PING is too short"))?;
                if context.len() > PING_CONTEXT_BYTES {
                    return Err(ZmtpError::MalformedCommand("PING is too long"));
                }
                Ok(Self::Ping(Bytes::copy_from_slice(context)))
            }
            b"PONG" => Ok(Self::Pong),
            b"SUBSCRIBE" => Ok(Self::Subscribe(Bytes::copy_from_slice(rest))),
            b"CANCEL" => Ok(Self::Cancel(Bytes::copy_from_slice(rest))),
            _ => Ok(Self::Other),
        }
    }
}

/// The property `Socket-Type` of a READY: properties are a name with one byte of length and a value with four.
fn socket_type(mut properties: &[u8]) -> Result<String, ZmtpError> {
    const CUT_SHORT: ZmtpError = ZmtpError::MalformedCommand("READY has a property that is cut short");
    let mut found = None;
    while !properties.is_empty() {
        let (name, rest) = short_string(properties).ok_or(CUT_SHORT)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(CUT_SHORT)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| CUT_SHORT)?;
        let (value, rest) = rest.split_at_checked(length).ok_or(CUT_SHORT)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(shown(value));
        }
        properties = rest;
    }
    found.ok_or(ZmtpError::MalformedCommand("READY names no socket type"))
}

/// What a peer says, as something that can be shown: short and printable.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii().to_string()
}

/// A string with one byte of length, and what follows it.
fn short_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malformed(what: &'static str) -> Result<Command, ZmtpError> {
        Err(ZmtpError::MalformedCommand(what))
    }

    #[test]
    fn commands_of_a_publisher() {
        let ready = b"\x05READY\x08Identity\0\0\0\0\x0bsocket-type\0\0\0\x04XPUB";
        assert_eq!(
            Command::read(ready),
            Ok(Command::Ready {
                socket_type: "XPUB".into()
            })
        );
        assert_eq!(
            Command::read(b"\x05ERROR\x04no\n!"),
            Ok(Command::Error("no\\n!".into()))
        );
        assert_eq!(
            Command::read(b"\x04PING\0\x0aabc"),
            Ok(Command::Ping(Bytes::from_static(b"abc")))
        );
        assert_eq!(Command::read(b"\x04PONGabc"), Ok(Command::Pong));
        assert_eq!(
            Command::read(b"\x09SUBSCRIBEabc"),
            Ok(Command::Subscribe(Bytes::from_static(b"abc")))
        );
        assert_eq!(Command::read(b"\x06CANCEL"), Ok(Command::Cancel(Bytes::new())));
        assert_eq!(Command::read(b"\x04JOINabc"), Ok(Command::Other));
    }

    #[test]
    fn commands_that_cannot_be_read() {
        assert_eq!(Command::read(b""), malformed("it has no name"));
        assert_eq!(Command::read(b"\x06READY"), malformed("it has no name"));
        assert_eq!(Command::read(b"\x05READY"), malformed("READY names no socket type"));
        for properties in [
            &b"\x0b"[..],
            b"\x01a",
            b"\x01a\0\0\0",
            b"\x01a\0\0\0\x02b",
            b"\x01a\xff\xff\xff\xffb",
        ] {
            let body = [b"\x05READY", properties].concat();
            assert_eq!(
                Command::read(&body),
                malformed("READY has a property that is cut short")
            );
        }
        assert_eq!(Command::read(b"\x05ERROR"), malformed("ERROR has no reason"));
        assert_eq!(Command::read(b"\x04PING\0"), malformed("PING is too short"));
        assert_eq!(
            Command::read(b"\x04PING\0\x0001234567890123456"),
            malformed("PING is too long")
        );
    }
}
