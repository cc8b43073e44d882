//! What does a publisher say, and when does its connection begin and end?
//!
//! A [`Subscriber`] connects to a publisher, again and again, or binds and takes publishers that connect. Everything
//! that happens is told by [`Subscriber::next`], one event after the other.
//!
//! **Invariant:** for each connection the events are `Connected`, then any number of `Message` and `Alive`, then
//! `Disconnected`. Nothing of a connection is told before its `Connected` or after its `Disconnected`; where we
//! connect, one connection ends before the next begins.
//!
//! **Invariant:** at `Connected` the publisher knows the subscription: what it publishes from then on is sent to us.
//! Before, it was not, and must be asked for elsewhere.
//!
//! **Invariant:** it works while `next` is awaited and not otherwise. A consumer that waits stops reading; what TCP
//! cannot hold then queues at the publisher, which at its high-water mark drops messages without a word (libzmq
//! forgets those for the slow subscriber only). So read on, into a bounded queue, and let the gap in the sequence tell.
//!
//! Cost: one read of 16 KiB at most for as many messages as are in it, one copy of each. Memory: the read buffer and
//! one message for each connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use super::bound::Bound;
use super::config::{Exposure, SubscribeConfig};
use super::dialled::Dialled;
use super::endpoint::{Endpoint, Host};
use super::error::{ConnectionError, SetupError};
use super::message::Message;
use super::protocol::TOPIC_BYTES;
use super::stream::Listener;

/// Names a connection of a subscriber. A publisher that comes back has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What happened at a subscriber.
#[derive(Debug)]
pub enum SubscriberEvent {
    /// A publisher is connected and knows our subscription. It may be another one than before, or the same one anew.
    Connected {
        /// The connection, the first time it is named.
        connection: ConnectionId,
        /// Where the publisher is, for people.
        peer: String,
    },
    /// A message arrived.
    Message {
        /// Over this connection.
        connection: ConnectionId,
        /// What was published.
        message: Message,
    },
    /// The publisher's process answered a heartbeat: what it sent before has arrived. It says nothing of messages that
    /// the publisher dropped, nor of the thread that publishes.
    Alive {
        /// Over this connection.
        connection: ConnectionId,
    },
    /// A connection ended. Nothing of it is told any more.
    Disconnected {
        /// This one.
        connection: ConnectionId,
        /// Why.
        reason: ConnectionError,
    },
    /// No connection came about. Another is attempted or waited for.
    Failed {
        /// Why.
        reason: ConnectionError,
        /// How long until the next attempt; none where publishers connect to us.
        retry_in: Option<Duration>,
    },
}

/// A SUB socket.
#[derive(Debug)]
pub struct Subscriber(Source);

#[derive(Debug)]
enum Source {
    Dialled(Dialled),
    Bound(Bound),
}

impl Subscriber {
    /// Connects to a publisher that binds, and connects anew whenever the connection ends.
    pub fn connect(endpoint: Endpoint, config: SubscribeConfig) -> Result<Self, SetupError> {
        check(&config)?;
        if matches!(
            endpoint,
            Endpoint::Tcp { host: Host::Any, .. } | Endpoint::Tcp { port: 0, .. }
        ) {
            return Err(SetupError::NoDestination(endpoint));
        }
        Ok(Self(Source::Dialled(Dialled::new(endpoint, config))))
    }

    /// Binds, for publishers that connect. Each of them has its own connections: whether there may be two is for the
    /// caller to say, [`Limits::peers`](super::Limits::peers) is only the bound.
    pub async fn bind(endpoint: &Endpoint, exposure: Exposure, config: SubscribeConfig) -> Result<Self, SetupError> {
        check(&config)?;
        let listener = Listener::bind(endpoint, exposure).await?;
        Ok(Self(Source::Bound(Bound::new(listener, config))))
    }

    /// Where publishers can connect to, or what we connect to.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match &self.0 {
            Source::Dialled(dialled) => Ok(dialled.endpoint().clone()),
            Source::Bound(bound) => bound.endpoint(),
        }
    }

    /// Waits for what happens next. Cancel safe: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> SubscriberEvent {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// [`Subscriber::next`] for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<SubscriberEvent> {
        match &mut self.0 {
            Source::Dialled(dialled) => dialled.poll_next(context),
            Source::Bound(bound) => bound.poll_next(context),
        }
    }
}

fn check(config: &SubscribeConfig) -> Result<(), SetupError> {
    match config.topic.len() {
        length if length > TOPIC_BYTES => Err(SetupError::TopicTooLong(length)),
        _ => Ok(()),
    }
}
