//! What did an engine say that we missed?
//!
//! Engines keep their last messages and send them again to a DEALER that asks their ROUTER. What the request and the
//! answers mean, and which answer is the last, is known to the decoder of the dialect: here they are frames.
//!
//! **Invariant:** what [`Replay::next`] gives was sent in answer to requests of this very replay: each has a connection
//! of its own, so that the late rest of one that was given up is never taken for part of another.
//!
//! A replay is lossy too. A ROUTER whose queue is full drops messages, the one that says "this was all" included.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::config::ReplayConfig;
use super::connection::{Activity, Connection, Role};
use super::endpoint::{Endpoint, Host};
use super::error::{ReplayError, SetupError};
use super::message::Message;
use super::protocol::REQUEST_BYTES;
use super::stream::{Stream, dial};

/// An answer under way.
#[derive(Debug)]
pub struct Replay {
    connection: Connection<Stream>,
    silence: Duration,
    /// Runs from the request or the last message.
    timer: Pin<Box<Sleep>>,
}

/// Connects to a replay socket and asks. Whoever has heard enough drops what is returned.
pub async fn replay(endpoint: &Endpoint, request: &[&[u8]], config: ReplayConfig) -> Result<Replay, ReplayError> {
    if matches!(
        endpoint,
        Endpoint::Tcp { host: Host::Any, .. } | Endpoint::Tcp { port: 0, .. }
    ) {
        return Err(SetupError::NoDestination(endpoint.clone()).into());
    }
    // Before anyone is bothered with it.
    check(request)?;
    let stream = dial(endpoint.clone(), config.patience.dial, config.filter).await?;
    let mut connection = Connection::new(stream, Role::Dealer, config.limits, config.patience);
    // The first thing that happens is that it is established.
    poll_fn(|context| connection.poll_next(context)).await?;
    let mut replay = Replay {
        connection,
        silence: config.silence,
        timer: Box::pin(sleep(config.silence)),
    };
    replay.ask(request)?;
    Ok(replay)
}

impl Replay {
    /// Asks for more, after an answer that was heard to its end: saves a connection.
    pub fn ask(&mut self, request: &[&[u8]]) -> Result<(), ReplayError> {
        check(request)?;
        self.connection.send(request)?;
        self.restart_timer();
        Ok(())
    }

    /// Waits for the next message. Cancel safe. After an error there is nothing more.
    pub async fn next(&mut self) -> Result<Message, ReplayError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// [`Replay::next`] for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Message, ReplayError>> {
        while let Poll::Ready(activity) = self.connection.poll_next(context) {
            if let Activity::Message(message) = activity? {
                self.restart_timer();
                return Poll::Ready(Ok(message));
            }
        }
        match self.timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(ReplayError::Silent(self.silence))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn restart_timer(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.silence);
    }
}

fn check(request: &[&[u8]]) -> Result<(), SetupError> {
    let bytes = request.iter().map(|frame| frame.len()).sum();
    match request.len() {
        frames @ 1.. if frames <= REQUEST_BYTES && bytes <= REQUEST_BYTES => Ok(()),
        frames => Err(SetupError::Request { frames, bytes }),
    }
}
