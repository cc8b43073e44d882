//! What happens on one connection, from the greeting to its end?
//!
//! ```text
//! Greeting -> Handshake -> Confirming -> Settling -> Live        SUB
//! Greeting -> Handshake -> Live                                  DEALER
//! ```
//!
//! It runs when it is polled and not otherwise: there is no task behind it and no queue in it. Whoever stops polling
//! stops reading, so that TCP holds the peer back.
//!
//! **Invariant:** all state is in the struct, so that a poll which came to nothing leaves nothing undone.
//!
//! **Invariant:** what was read is given out before the end of the connection is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::config::{Heartbeat, Limits, Patience};
use super::error::{ConnectionError, ZmtpError};
use super::message::Message;
use super::protocol::{self, Command, Decoder, Greeting, Incoming, PeerVersion};

/// Bytes that are read at once. There is one such buffer for each connection.
const READ_BYTES: usize = 16 << 10;
/// Bytes that may wait for a peer that does not read.
const OUTPUT_BYTES: usize = 16 << 10;

/// What we are to the peer.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// We want to hear what begins with the topic.
    Subscriber { topic: Bytes, heartbeat: Heartbeat },
    /// We ask and it answers.
    Dealer,
}

impl Role {
    const fn socket_type(&self) -> &'static str {
        match self {
            Self::Subscriber { .. } => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    fn check_peer(&self, socket_type: &str) -> Result<(), ZmtpError> {
        let (fits, wanted) = match self {
            Self::Subscriber { .. } => (matches!(socket_type, "PUB" | "XPUB"), "a PUB socket"),
            Self::Dealer => (matches!(socket_type, "ROUTER" | "REP"), "a ROUTER socket"),
        };
        if fits {
            return Ok(());
        }
        Err(ZmtpError::SocketType {
            found: socket_type.to_owned(),
            wanted,
        })
    }

    fn wants(&self, message: &Message) -> bool {
        match self {
            Self::Subscriber { topic, .. } => message.frame(0).is_some_and(|first| first.starts_with(topic)),
            Self::Dealer => true,
        }
    }
}

/// What happened on a connection.
#[derive(Debug)]
pub(crate) enum Activity {
    /// The peer knows us, and a subscription is in force. Comes once and first.
    Established,
    /// A message.
    Message(Message),
    /// The peer answered a heartbeat.
    Alive,
}

/// How far a connection has come.
#[derive(Debug)]
enum Stage {
    Greeting(Greeting),
    Handshake(PeerVersion),
    /// The subscription was sent, and behind it a heartbeat that the peer has not answered yet.
    Confirming,
    /// The answer is here, and the publisher is given time to notice the subscription.
    Settling,
    /// Heartbeats go out when nothing comes in.
    Live(Pulse),
}

/// What the timer of a live connection waits for.
#[derive(Clone, Copy, Debug)]
enum Pulse {
    /// That it is time to ask for a sign of life.
    Quiet,
    /// The answer.
    Asked,
}

/// A connection. Generic over the stream, so that tests can play the peer without a socket.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    role: Role,
    patience: Patience,
    stage: Stage,
    decoder: Decoder,
    /// Where reads go; `unread` of it was not looked at yet.
    input: Box<[u8]>,
    unread: std::ops::Range<usize>,
    /// What is to be written.
    output: Vec<u8>,
    /// Why nothing can be written any more. What the peer sent before is read nevertheless.
    broken: Option<io::Error>,
    /// The message that proved the subscription, until the proof was told.
    held: Option<Message>,
    /// When the peer last sent a byte.
    last_heard: Instant,
    /// The end of the stage, or the next beat.
    timer: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Begins to shake hands over a fresh stream.
    pub(crate) fn new(stream: S, role: Role, limits: Limits, patience: Patience) -> Self {
        Self {
            stream,
            role,
            patience,
            stage: Stage::Greeting(Greeting::default()),
            decoder: Decoder::new(limits),
            input: vec![0; READ_BYTES].into_boxed_slice(),
            unread: 0..0,
            output: protocol::GREETING.to_vec(),
            broken: None,
            held: None,
            last_heard: Instant::now(),
            timer: Box::pin(sleep(patience.handshake)),
        }
    }

    /// Sends a message, with the next poll.
    pub(crate) fn send(&mut self, frames: &[&[u8]]) -> Result<(), ConnectionError> {
        self.has_room()?;
        protocol::message(&mut self.output, frames);
        Ok(())
    }

    /// Waits for what happens next. After an error there is nothing more.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Activity, ConnectionError>> {
        if let Some(message) = self.held.take() {
            return Poll::Ready(Ok(Activity::Message(message)));
        }
        loop {
            if let Some(activity) = self.digest()? {
                return Poll::Ready(Ok(activity));
            }
            self.flush(context);
            // Whoever sends without end must not put off the end of the handshake; a live peer that sends is alive.
            let overdue = !matches!(self.stage, Stage::Live(_)) && self.timer.as_mut().poll(context).is_ready();
            if !overdue {
                if self.fill(context)?.is_ready() {
                    continue;
                }
                if let Some(error) = self.broken.take() {
                    return Poll::Ready(Err(ConnectionError::Broken(error)));
                }
                if !self.timer.as_mut().poll(context).is_ready() {
                    return Poll::Pending;
                }
            }
            if let Some(activity) = self.beat()? {
                return Poll::Ready(Ok(activity));
            }
        }
    }

    /// Makes what it can of the bytes that were read.
    fn digest(&mut self) -> Result<Option<Activity>, ConnectionError> {
        while !self.unread.is_empty() {
            let mut rest = &self.input[self.unread.clone()];
            let incoming = match &mut self.stage {
                Stage::Greeting(greeting) => {
                    let version = greeting.take(&mut rest)?;
                    self.unread.start = self.unread.end - rest.len();
                    if let Some(version) = version {
                        protocol::ready(&mut self.output, self.role.socket_type());
                        self.stage = Stage::Handshake(version);
                    }
                    continue;
                }
                _ => self.decoder.decode(&mut rest)?,
            };
            self.unread.start = self.unread.end - rest.len();
            let activity = match incoming {
                None => None,
                Some(Incoming::Command(command)) => self.obey(command)?,
                Some(Incoming::Message(message)) => self.receive(message)?,
            };
            if activity.is_some() {
                return Ok(activity);
            }
        }
        Ok(None)
    }

    fn receive(&mut self, message: Message) -> Result<Option<Activity>, ConnectionError> {
        match self.stage {
            Stage::Greeting(_) | Stage::Handshake(_) => Err(ZmtpError::TooEarly("a message").into()),
            // A publisher selects for us; one that does not costs bytes and nothing else.
            _ if !self.role.wants(&message) => Ok(None),
            Stage::Live(_) => Ok(Some(Activity::Message(message))),
            Stage::Confirming | Stage::Settling => {
                self.held = Some(message);
                Ok(Some(self.establish()))
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<Option<Activity>, ConnectionError> {
        match (command, &self.stage) {
            (Command::Error(reason), _) => Err(ConnectionError::Refused(reason)),
            (Command::Ready { socket_type }, &Stage::Handshake(version)) => {
                self.role.check_peer(&socket_type)?;
                Ok(self.introduce(version))
            }
            (Command::Ready { .. }, _) => Err(ZmtpError::TooLate.into()),
            (_, Stage::Greeting(_) | Stage::Handshake(_)) => Err(ZmtpError::TooEarly("a command").into()),
            (Command::Ping(context), _) => {
                self.has_room()?;
                protocol::pong(&mut self.output, &context);
                Ok(None)
            }
            (Command::Pong, Stage::Confirming) => {
                self.stage = Stage::Settling;
                self.set_timer(Instant::now(), self.patience.settle);
                Ok(None)
            }
            (Command::Pong, Stage::Live(_)) => Ok(Some(Activity::Alive)),
            (Command::Pong | Command::Subscribe(_) | Command::Cancel(_) | Command::Other, _) => Ok(None),
        }
    }

    /// The handshake is over: says what we want.
    fn introduce(&mut self, version: PeerVersion) -> Option<Activity> {
        match &self.role {
            Role::Subscriber { topic, .. } => {
                protocol::subscribe(&mut self.output, version, topic);
                protocol::ping(&mut self.output);
                self.stage = Stage::Confirming;
                None
            }
            Role::Dealer => Some(self.establish()),
        }
    }

    fn establish(&mut self) -> Activity {
        self.be_quiet();
        Activity::Established
    }

    /// The connection is alive; the next question is an interval away.
    fn be_quiet(&mut self) {
        self.stage = Stage::Live(Pulse::Quiet);
        if let Role::Subscriber { heartbeat, .. } = self.role {
            self.set_timer(self.last_heard, heartbeat.interval);
        }
    }

    /// The timer ran out.
    fn beat(&mut self) -> Result<Option<Activity>, ConnectionError> {
        let timed_out = |what| ConnectionError::HandshakeTimeout {
            what,
            within: self.patience.handshake,
        };
        let pulse = match self.stage {
            Stage::Greeting(_) => return Err(timed_out("greet us")),
            Stage::Handshake(_) => return Err(timed_out("complete the handshake")),
            Stage::Confirming => return Err(timed_out("answer behind our subscription")),
            Stage::Settling => return Ok(Some(self.establish())),
            Stage::Live(pulse) => pulse,
        };
        let Role::Subscriber { heartbeat, .. } = self.role else {
            // Whoever asked decides how long the answer may take.
            self.set_timer(Instant::now(), Duration::from_hours(1));
            return Ok(None);
        };
        let quiet = self.last_heard.elapsed();
        match pulse {
            Pulse::Asked => return Err(ConnectionError::Silent(quiet)),
            Pulse::Quiet if quiet < heartbeat.interval => self.set_timer(self.last_heard, heartbeat.interval),
            Pulse::Quiet => {
                protocol::ping(&mut self.output);
                self.stage = Stage::Live(Pulse::Asked);
                self.set_timer(Instant::now(), heartbeat.timeout);
            }
        }
        Ok(None)
    }

    /// A byte came.
    fn hear(&mut self) {
        self.last_heard = Instant::now();
        if matches!(self.stage, Stage::Live(Pulse::Asked)) {
            self.be_quiet();
        }
    }

    fn set_timer(&mut self, from: Instant, wait: Duration) {
        let far = Duration::from_hours(24);
        self.timer.as_mut().reset(from + wait.min(far));
    }

    fn has_room(&self) -> Result<(), ConnectionError> {
        match self.output.len() {
            0..=OUTPUT_BYTES => Ok(()),
            _ => Err(ConnectionError::NotReading),
        }
    }

    /// Writes what can be written.
    fn flush(&mut self, context: &mut Context<'_>) {
        let mut written = 0;
        while written < self.output.len() && self.broken.is_none() {
            match Pin::new(&mut self.stream).poll_write(context, &self.output[written..]) {
                Poll::Ready(Ok(0)) => self.broken = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => self.broken = Some(error),
                Poll::Pending => break,
            }
        }
        self.output.drain(..written);
    }

    /// Reads once; the buffer is empty.
    fn fill(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, ConnectionError> {
        let mut buffer = ReadBuf::new(&mut self.input);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(error)) => Err(ConnectionError::Broken(error)),
            Poll::Ready(Ok(())) => match buffer.filled().len() {
                0 => Err(ConnectionError::Closed),
                count => {
                    self.unread = 0..count;
                    self.hear();
                    Ok(Poll::Ready(()))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
