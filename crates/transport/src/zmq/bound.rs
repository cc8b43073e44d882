//! How does a subscriber serve the publishers that connect to it?

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::config::SubscribeConfig;
use super::endpoint::Endpoint;
use super::error::ConnectionError;
use super::line::Line;
use super::stream::Listener;
use super::subscriber::{ConnectionId, SubscriberEvent};

/// When the system gives us no connection, it will not a moment later either: it is out of files, most likely.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// A subscriber that binds.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: Listener,
    config: SubscribeConfig,
    /// At most `limits.peers`.
    lines: Vec<Line>,
    /// Which of them is asked first, so that each has its turn.
    turn: usize,
    /// Connections so far, established or not.
    connections: u64,
    /// While it runs nothing is accepted.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Bound {
    pub(crate) fn new(listener: Listener, config: SubscribeConfig) -> Self {
        Self {
            listener,
            config,
            lines: Vec::new(),
            turn: 0,
            connections: 0,
            pause: None,
        }
    }

    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        self.listener.endpoint()
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<SubscriberEvent> {
        if let Poll::Ready(event) = self.poll_accept(context) {
            return Poll::Ready(event);
        }
        for offset in 0..self.lines.len() {
            let place = (self.turn + offset) % self.lines.len();
            let line = &mut self.lines[place];
            match line.poll_next(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(event)) => {
                    self.turn = place + 1;
                    return Poll::Ready(event);
                }
                Poll::Ready(Err(reason)) => {
                    let event = line.end(reason, None);
                    self.lines.remove(place);
                    self.turn = place;
                    return Poll::Ready(event);
                }
            }
        }
        Poll::Pending
    }

    /// Takes publishers that connect. There is something to tell only when one cannot be taken.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<SubscriberEvent> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        while let Poll::Ready(accepted) = self.listener.poll_accept(context) {
            let reason = match accepted {
                Ok((stream, peer)) if self.lines.len() < self.config.limits.peers => {
                    self.connections += 1;
                    let id = ConnectionId(self.connections);
                    self.lines.push(Line::new(stream, id, peer, &self.config));
                    continue;
                }
                // Hung up on as it goes out of scope.
                Ok((_, address)) => ConnectionError::TooManyPeers {
                    address,
                    limit: self.config.limits.peers,
                },
                Err(error) => {
                    self.pause = Some(Box::pin(sleep(PAUSE_AFTER_REFUSAL)));
                    ConnectionError::Accept(error)
                }
            };
            return Poll::Ready(SubscriberEvent::Failed { reason, retry_in: None });
        }
        Poll::Pending
    }
}
