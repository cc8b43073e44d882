//! How is one peer served that came to a socket of ours, or that ours went to?
//!
//! The other side of `connection`: there nothing runs unless it is polled, here a task talks to one peer until either ends.
//!
//! **Invariant:** waiting for what the peer says can be given up at any time, and nothing that it said is lost.

use std::ops::Range;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::config::{Limits, Patience};
use super::error::{ConnectionError, ZmtpError};
use super::protocol::{self, Command, Decoder, Greeting, Incoming};
use super::stream::Stream;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// What we are, and whom we talk to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) ours: &'static str,
    pub(crate) theirs: &'static [&'static str],
    /// The same in words.
    pub(crate) wanted: &'static str,
}

/// A conversation whose handshake is over.
#[derive(Debug)]
pub(crate) struct Talk {
    stream: Stream,
    decoder: Decoder,
    input: Box<[u8]>,
    unread: Range<usize>,
}

impl Talk {
    /// Shakes hands, within the patience for that.
    pub(crate) async fn begin(
        stream: Stream,
        parts: Parts,
        limits: Limits,
        patience: Patience,
    ) -> Result<Self, ConnectionError> {
        let mut talk = Self {
            stream,
            decoder: Decoder::new(limits),
            input: vec![0; READ_BYTES].into_boxed_slice(),
            unread: 0..0,
        };
        let shaken = timeout(patience.handshake, talk.shake_hands(parts)).await;
        shaken.map_err(|_elapsed| ConnectionError::HandshakeTimeout {
            what: "complete the handshake",
            within: patience.handshake,
        })??;
        Ok(talk)
    }

    /// Waits for what the peer says next. Pings are the caller's to answer.
    pub(crate) async fn hear(&mut self) -> Result<Incoming, ConnectionError> {
        loop {
            let mut rest = &self.input[self.unread.clone()];
            let incoming = self.decoder.decode(&mut rest)?;
            self.unread.start = self.unread.end - rest.len();
            match incoming {
                Some(Incoming::Command(Command::Error(reason))) => return Err(ConnectionError::Refused(reason)),
                Some(Incoming::Command(Command::Ready { .. })) => return Err(ZmtpError::TooLate.into()),
                Some(incoming) => return Ok(incoming),
                None => self.read().await?,
            }
        }
    }

    /// Sends bytes that are frames already, and waits until the system has taken them.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.stream.write_all(bytes).await.map_err(ConnectionError::Broken)
    }

    /// Answers a ping.
    pub(crate) async fn pong(&mut self, context: &[u8]) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        protocol::pong(&mut bytes, context);
        self.say(&bytes).await
    }

    async fn shake_hands(&mut self, parts: Parts) -> Result<(), ConnectionError> {
        self.say(&protocol::GREETING).await?;
        let mut greeting = Greeting::default();
        loop {
            self.read().await?;
            let mut rest = &self.input[self.unread.clone()];
            let version = greeting.take(&mut rest)?;
            self.unread.start = self.unread.end - rest.len();
            if version.is_some() {
                break;
            }
        }
        let mut ready = Vec::new();
        protocol::ready(&mut ready, parts.ours);
        self.say(&ready).await?;
        loop {
            let mut rest = &self.input[self.unread.clone()];
            let incoming = self.decoder.decode(&mut rest)?;
            self.unread.start = self.unread.end - rest.len();
            match incoming {
                None => self.read().await?,
                Some(Incoming::Command(Command::Ready { socket_type })) => {
                    if parts.theirs.contains(&socket_type.as_str()) {
                        return Ok(());
                    }
                    return Err(ConnectionError::Protocol(ZmtpError::SocketType {
                        found: socket_type,
                        wanted: parts.wanted,
                    }));
                }
                Some(Incoming::Command(Command::Error(reason))) => return Err(ConnectionError::Refused(reason)),
                Some(Incoming::Command(_)) => return Err(ZmtpError::TooEarly("a command").into()),
                Some(Incoming::Message(_)) => return Err(ZmtpError::TooEarly("a message").into()),
            }
        }
    }

    /// Reads once; what was read before is all digested.
    async fn read(&mut self) -> Result<(), ConnectionError> {
        match self.stream.read(&mut self.input).await {
            Err(error) => Err(ConnectionError::Broken(error)),
            Ok(0) => Err(ConnectionError::Closed),
            Ok(count) => {
                self.unread = 0..count;
                Ok(())
            }
        }
    }
}
