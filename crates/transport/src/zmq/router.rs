//! How do we answer questions, as an engine's replay socket does?
//!
//! A ROUTER that binds: DEALERs (and REQs) ask, each is answered by as many messages as it takes. What waits for one peer is
//! bounded; whoever answers waits for room.
//!
//! **Invariant:** an answer goes to who asked, over the connection on which it asked, or nowhere.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::config::{Exposure, Limits, Patience};
use super::endpoint::Endpoint;
use super::error::{ConnectionError, SetupError};
use super::message::Message;
use super::peers::accept;
use super::protocol::{self, Command, Incoming, REQUEST_BYTES};
use super::stream::{Listener, Stream};
use super::talk::{Parts, Talk};

const PARTS: Parts = Parts {
    ours: "ROUTER",
    theirs: &["DEALER", "REQ", "ROUTER"],
    wanted: "a DEALER socket",
};
/// Questions that wait to be looked at, over all peers. Who asks more is not read from until there is room.
const QUESTIONS: usize = 64;

/// How a router treats its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// Messages that wait for one peer. At least 1.
    pub high_water: usize,
    /// Peers at once. One more is hung up on.
    pub peers: usize,
    /// How long the handshake may take.
    pub patience: Patience,
}

impl Default for RouterConfig {
    /// 1,000 messages and 64 peers.
    fn default() -> Self {
        Self {
            high_water: 1_000,
            peers: 64,
            patience: Patience::default(),
        }
    }
}

/// A ROUTER. Its conversations end when it is dropped.
#[derive(Debug)]
pub struct Router {
    endpoint: Endpoint,
    questions: mpsc::Receiver<Question>,
    task: AbortHandle,
}

/// Something that was asked.
#[derive(Debug)]
pub struct Question {
    /// What, in frames, as the peer sent them.
    pub message: Message,
    /// By whom.
    pub reply: ReplyTo,
}

/// Someone who asked.
#[derive(Clone, Debug)]
pub struct ReplyTo(mpsc::Sender<Bytes>);

impl Router {
    /// Binds. Must be called within a runtime.
    pub async fn bind(endpoint: &Endpoint, exposure: Exposure, config: RouterConfig) -> Result<Self, SetupError> {
        let listener = Listener::bind(endpoint, exposure).await?;
        let bound = listener.endpoint().map_err(|error| SetupError::Bind {
            endpoint: endpoint.clone(),
            error,
        })?;
        let (asked, questions) = mpsc::channel(QUESTIONS);
        let accepting = accept(listener, config.peers, move |stream| {
            let asked = asked.clone();
            async move { drop(converse(stream, config, asked).await) }
        });
        Ok(Self {
            endpoint: bound,
            questions,
            task: tokio::spawn(accepting).abort_handle(),
        })
    }

    /// Where it is, with the port that the system chose if it was left to it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits for the next question. Can be given up and called again.
    pub async fn next(&mut self) -> Option<Question> {
        self.questions.recv().await
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReplyTo {
    /// Sends a message, and waits for room in the peer's queue. False: the peer is gone.
    pub async fn send(&self, frames: &[&[u8]]) -> bool {
        let mut bytes = Vec::new();
        protocol::message(&mut bytes, frames);
        self.0.send(bytes.into()).await.is_ok()
    }
}

/// Talks to one peer until it ends.
async fn converse(stream: Stream, config: RouterConfig, asked: mpsc::Sender<Question>) -> Result<(), ConnectionError> {
    let limits = Limits {
        message_bytes: REQUEST_BYTES as u32,
        ..Limits::default()
    };
    let mut talk = Talk::begin(stream, PARTS, limits, config.patience).await?;
    let (queue, mut answers) = mpsc::channel(config.high_water.max(1));
    let mut waiting: Option<Question> = None;
    loop {
        tokio::select! {
            // Nothing more is read while a question waits for room.
            heard = talk.hear(), if waiting.is_none() => match heard? {
                Incoming::Message(message) => waiting = Some(Question { message, reply: ReplyTo(queue.clone()) }),
                Incoming::Command(Command::Ping(context)) => talk.pong(&context).await?,
                Incoming::Command(_) => {}
            },
            room = asked.reserve(), if waiting.is_some() => {
                let Ok(room) = room else { return Ok(()) };
                if let Some(question) = waiting.take() {
                    room.send(question);
                }
            }
            Some(answer) = answers.recv() => talk.say(&answer).await?,
        }
    }
}
