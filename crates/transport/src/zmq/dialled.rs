//! How does a subscriber stay connected to one publisher?

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::config::SubscribeConfig;
use super::endpoint::Endpoint;
use super::error::ConnectionError;
use super::line::Line;
use super::stream::{Stream, dial};
use super::subscriber::{ConnectionId, SubscriberEvent};

/// A subscriber that connects.
pub(crate) struct Dialled {
    endpoint: Endpoint,
    config: SubscribeConfig,
    state: State,
    /// Attempts since a connection was last established.
    failures: u32,
    /// Connections so far, established or not.
    connections: u64,
}

enum State {
    Waiting(Pin<Box<Sleep>>),
    Dialling(Pin<Box<dyn Future<Output = Result<Stream, ConnectionError>> + Send + Sync>>),
    Open(Box<Line>),
}

impl State {
    fn waiting(wait: Duration) -> Self {
        Self::Waiting(Box::pin(sleep(wait)))
    }
}

impl Dialled {
    pub(crate) fn new(endpoint: Endpoint, config: SubscribeConfig) -> Self {
        Self {
            // Nobody is kept from a first attempt.
            state: State::waiting(Duration::ZERO),
            endpoint,
            config,
            failures: 0,
            connections: 0,
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<SubscriberEvent> {
        loop {
            match &mut self.state {
                State::Waiting(wait) => {
                    ready!(wait.as_mut().poll(context));
                    let dialling = dial(
                        self.endpoint.clone(),
                        self.config.patience.dial,
                        self.config.filter.clone(),
                    );
                    self.state = State::Dialling(Box::pin(dialling));
                }
                State::Dialling(dialling) => match ready!(dialling.as_mut().poll(context)) {
                    Ok(stream) => {
                        self.connections += 1;
                        let id = ConnectionId(self.connections);
                        let line = Line::new(stream, id, self.endpoint.to_string(), &self.config);
                        self.state = State::Open(Box::new(line));
                    }
                    Err(reason) => {
                        let wait = next_wait(&mut self.failures, &self.config);
                        self.state = State::waiting(wait);
                        let retry_in = Some(wait);
                        return Poll::Ready(SubscriberEvent::Failed { reason, retry_in });
                    }
                },
                State::Open(line) => match ready!(line.poll_next(context)) {
                    Ok(event) => return Poll::Ready(event),
                    Err(reason) => {
                        if line.is_established() {
                            self.failures = 0;
                        }
                        let wait = next_wait(&mut self.failures, &self.config);
                        let event = line.end(reason, Some(wait));
                        self.state = State::waiting(wait);
                        return Poll::Ready(event);
                    }
                },
            }
        }
    }
}

/// How long to wait after one more failure.
fn next_wait(failures: &mut u32, config: &SubscribeConfig) -> Duration {
    *failures = failures.saturating_add(1);
    config.backoff.wait(*failures, fastrand::f64())
}

impl fmt::Debug for Dialled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Waiting(_) => "waiting",
            State::Dialling(_) => "dialling",
            State::Open(_) => "open",
        };
        formatter
            .debug_struct("Dialled")
            .field("endpoint", &self.endpoint)
            .field("state", &state)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
