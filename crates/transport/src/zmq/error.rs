//! What can go wrong with a ZMQ socket?

use std::io;
use std::time::Duration;

use super::endpoint::Endpoint;

/// Bytes that are not what ZMTP says they should be, or more of them than we take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZmtpError {
    /// Something else listens there.
    #[error("the peer does not speak ZMTP: it began with the byte {0:#04x}")]
    NotZmtp(u8),
    /// A libzmq before 4.0.
    #[error("the peer speaks a ZMTP before version 3")]
    OldVersion,
    /// The socket asks for credentials or keys.
    #[error("the peer wants the mechanism `{0}`, only NULL is supported")]
    Mechanism(String),
    /// A frame with bits that have no meaning.
    #[error("a frame has the flags {0:#04x}, which mean nothing")]
    Flags(u8),
    /// A message over the limit.
    #[error("a message has {bytes} bytes or more, the limit is {limit}")]
    MessageTooLong {
        /// What was announced so far.
        bytes: u64,
        /// [`Limits::message_bytes`](super::Limits::message_bytes).
        limit: u32,
    },
    /// A message over the limit.
    #[error("a message has more than {limit} frames")]
    TooManyFrames {
        /// [`Limits::message_frames`](super::Limits::message_frames).
        limit: u32,
    },
    /// A command over the limit.
    #[error("a command has {0} bytes, the limit is {limit}", limit = super::protocol::COMMAND_BYTES)]
    CommandTooLong(u64),
    /// A command that cannot be read.
    #[error("a command cannot be read: {0}")]
    MalformedCommand(&'static str),
    /// Something that has no place in a handshake.
    #[error("the peer sent {0} before its handshake was over")]
    TooEarly(&'static str),
    /// The peer shakes hands a second time.
    #[error("the peer sent a second handshake")]
    TooLate,
    /// The wrong port was given, most likely.
    #[error("the peer is a {found} socket, {wanted} is needed")]
    SocketType {
        /// What the peer says it is.
        found: String,
        /// What talks to us.
        wanted: &'static str,
    },
}

/// Why a connection ended, or why there is none.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Nobody there, or no such name.
    #[error("cannot connect: {0}")]
    Dial(#[source] io::Error),
    /// It is not to be connected to.
    #[error("not connected: {0}")]
    NotAllowed(String),
    /// Nobody answers.
    #[error("no connection within {0:?}")]
    DialTimeout(Duration),
    /// The peer did not shake hands, or did not answer behind our subscription. A publisher before libzmq 4.2 cannot.
    #[error("the peer did not {what} within {within:?}")]
    HandshakeTimeout {
        /// What was waited for.
        what: &'static str,
        /// [`Patience::handshake`](super::Patience::handshake).
        within: Duration,
    },
    /// The peer hung up.
    #[error("the peer closed the connection")]
    Closed,
    /// The system says that the connection is over.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    /// Half-open: the peer did not answer a heartbeat.
    #[error("the peer was silent for {0:?}")]
    Silent(Duration),
    /// What we have to say piles up: the peer does not read.
    #[error("the peer does not read")]
    NotReading,
    /// The peer said that it does not want us.
    #[error("the peer refuses: {0}")]
    Refused(String),
    /// The peer sent what it must not.
    #[error(transparent)]
    Protocol(#[from] ZmtpError),
    /// There are as many publishers at our socket as there may be.
    #[error("a further publisher at {address} was turned away, {limit} are connected")]
    TooManyPeers {
        /// Where it came from.
        address: String,
        /// [`Limits::peers`](super::Limits::peers).
        limit: usize,
    },
    /// A subscriber subscribes without end.
    #[error("the peer has more than {limit} subscriptions")]
    TooManySubscriptions {
        /// How many it may have.
        limit: usize,
    },
    /// The system gives us no further connection.
    #[error("cannot accept a connection: {0}")]
    Accept(#[source] io::Error),
}

impl ConnectionError {
    /// Whether the connection ended because a message was longer than is allowed, or had more frames.
    pub fn is_oversized(&self) -> bool {
        matches!(
            self,
            Self::Protocol(ZmtpError::MessageTooLong { .. } | ZmtpError::TooManyFrames { .. })
        )
    }
}

/// Why there is no socket. Trying again does not help.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// `tcp://*` or port 0 can only be bound.
    #[error("{0} names no host and port to connect to")]
    NoDestination(Endpoint),
    /// Others could reach it and nobody asked for that.
    #[error("{0} is not a loopback address, and the socket is to be reachable from this machine only")]
    NotLoopback(Endpoint),
    /// The address is taken, or not ours.
    #[error("cannot bind {endpoint}: {error}")]
    Bind {
        /// What was asked for.
        endpoint: Endpoint,
        /// What the system said.
        error: io::Error,
    },
    /// A topic over the limit.
    #[error("the topic has {0} bytes, the limit is {limit}", limit = super::protocol::TOPIC_BYTES)]
    TopicTooLong(usize),
    /// A request over the limit, or without frames.
    #[error("the request has {frames} frames and {bytes} bytes; it must have 1 frame or more and at most {limit} bytes",
        limit = super::protocol::REQUEST_BYTES)]
    Request {
        /// Its frames.
        frames: usize,
        /// Its bytes.
        bytes: usize,
    },
}

/// Why there is nothing more to a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It could not be asked for.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no connection, or no longer.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The engine is connected and says nothing.
    #[error("the engine sent nothing for {0:?}")]
    Silent(Duration),
}
