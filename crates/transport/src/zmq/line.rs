//! What does a subscriber tell of one of its connections?

use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::config::SubscribeConfig;
use super::connection::{Activity, Connection, Role};
use super::error::ConnectionError;
use super::stream::Stream;
use super::subscriber::{ConnectionId, SubscriberEvent};

/// A connection to a publisher, with its name.
#[derive(Debug)]
pub(crate) struct Line {
    connection: Connection<Stream>,
    id: ConnectionId,
    peer: String,
    told: Told,
}

/// Whether the caller knows of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Connected,
}

impl Line {
    pub(crate) fn new(stream: Stream, id: ConnectionId, peer: String, config: &SubscribeConfig) -> Self {
        let role = Role::Subscriber {
            topic: config.topic.clone(),
            heartbeat: config.heartbeat,
        };
        Self {
            connection: Connection::new(stream, role, config.limits, config.patience),
            id,
            peer,
            told: Told::Nothing,
        }
    }

    /// Whether `Connected` was told.
    pub(crate) fn is_established(&self) -> bool {
        self.told == Told::Connected
    }

    /// Waits for what is to be told next, or for why there is nothing more.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<SubscriberEvent, ConnectionError>> {
        let connection = self.id;
        let event = match ready!(self.connection.poll_next(context))? {
            Activity::Established => {
                self.told = Told::Connected;
                SubscriberEvent::Connected {
                    connection,
                    peer: self.peer.clone(),
                }
            }
            Activity::Message(message) => SubscriberEvent::Message { connection, message },
            Activity::Alive => SubscriberEvent::Alive { connection },
        };
        Poll::Ready(Ok(event))
    }

    /// What is told of its end.
    pub(crate) fn end(&self, reason: ConnectionError, retry_in: Option<Duration>) -> SubscriberEvent {
        match self.told {
            Told::Nothing => SubscriberEvent::Failed { reason, retry_in },
            Told::Connected => SubscriberEvent::Disconnected {
                connection: self.id,
                reason,
            },
        }
    }
}
