//! A rank whose engine is watched by an agent, over HTTP: *watch* for what comes and for what came a while ago, *list*
//! for what is held.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use homing_domain::{Digest, DpRank, KeyHasher, Sequence};
use homing_feed::{Ask, ClearReach, Coverage, Identity, ListHead, Part, Recovery, What};
use homing_index::Copies;
use homing_platform::{HttpClient, HttpClientError, HttpResponse, StatusCode};
use homing_telemetry::Metrics;
use homing_wire::frame::{self, Frame, FrameReader, Heartbeat, SnapshotPart, SnapshotReader};
use thiserror::Error;

use crate::source::{Ear, Joining, Source, Speech, Voice};

/// How an agent is listened to.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its address, without a path.
    pub agent: String,
    /// The worker, as its own address; the agent may know several.
    pub worker: String,
    /// Which rank of it.
    pub dp: DpRank,
    /// What our keys are made with.
    pub hasher: KeyHasher,
    /// How the engine means a block that it announces again.
    pub copies: Copies,
    /// After so long without a byte the watch is over. Agents send heartbeats more often.
    pub silence: Duration,
    /// How long to wait before connecting again; doubles up to sixteen times.
    pub backoff: Duration,
}

/// Listens to an agent.
#[derive(Debug)]
pub struct AgentSource {
    config: AgentConfig,
    client: HttpClient,
    metrics: Arc<Metrics>,
    /// What the agent calls the worker; learnt on the first contact, forgotten on the first failure.
    number: Mutex<Option<u32>>,
}

/// Why an agent could not be listened to.
#[derive(Debug, Error)]
enum AgentError {
    #[error("the agent cannot be reached: {0}")]
    Http(#[from] HttpClientError),
    #[error("the agent answers {status}: {words}")]
    Refused { status: StatusCode, words: String },
    #[error("the agent no longer has that")]
    Gone,
    #[error("the agent knows {known} workers, and {worker} is none of them")]
    UnknownWorker { worker: String, known: usize },
    #[error("the agent's stream: {0}")]
    Frame(#[from] frame::FrameError),
    #[error("the agent's stream ended")]
    Ended,
    #[error("the agent was silent for {0:?}")]
    Silent(Duration),
    #[error("the agent's stream does not begin with who it is")]
    NoBeginning,
}

#[derive(Debug, serde::Deserialize)]
struct Ranks {
    ranks: Vec<KnownRank>,
}

#[derive(Debug, serde::Deserialize)]
struct KnownRank {
    worker: String,
    worker_number: u32,
    dp_rank: u16,
}

impl AgentSource {
    /// For one rank of one worker that an agent watches.
    pub fn new(config: AgentConfig, client: HttpClient, metrics: Arc<Metrics>) -> Self {
        Self {
            config,
            client,
            metrics,
            number: Mutex::new(None),
        }
    }

    fn source(&self, identity: Identity) -> homing_feed::Source {
        homing_feed::Source {
            identity,
            recovery: Recovery::List,
            clear_reach: ClearReach::Rank,
            copies: self.config.copies,
        }
    }

    fn known_number(&self) -> std::sync::MutexGuard<'_, Option<u32>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agent calls our worker: by its address, or the only one that has our rank.
    async fn number(&self) -> Result<u32, AgentError> {
        if let Some(number) = *self.known_number() {
            return Ok(number);
        }
        let url = format!("{}/v1/ranks", self.config.agent);
        let response = accepted(self.client.get(url).timeout(self.config.silence).send().await?).await?;
        let known: Ranks = response.json().await?;
        let mut ours = known.ranks.iter().filter(|rank| rank.dp_rank == self.config.dp.0);
        let named = ours.clone().find(|rank| rank.worker == self.config.worker);
        let only = (ours.clone().count() == 1).then(|| ours.next()).flatten();
        let found = named.or(only).ok_or_else(|| AgentError::UnknownWorker {
            worker: self.config.worker.clone(),
            known: known.ranks.len(),
        })?;
        *self.known_number() = Some(found.worker_number);
        Ok(found.worker_number)
    }

    async fn get(&self, path: &str) -> Result<HttpResponse, AgentError> {
        let (number, dp) = (self.number().await?, self.config.dp.0);
        let url = format!("{}/v1/ranks/{number}/{dp}/{path}", self.config.agent);
        let sent = tokio::time::timeout(self.config.silence, self.client.get(url).send()).await;
        accepted(sent.map_err(|_| AgentError::Silent(self.config.silence))??).await
    }

    async fn piece(&self, response: &mut HttpResponse) -> Result<Option<Bytes>, AgentError> {
        let piece = tokio::time::timeout(self.config.silence, response.chunk()).await;
        let piece = piece.map_err(|_| AgentError::Silent(self.config.silence))??;
        self.metrics
            .transport
            .received_bytes
            .add(piece.as_ref().map_or(0, Bytes::len) as u64);
        Ok(piece)
    }

    /// Watches until something goes wrong.
    async fn watch(&self, ear: &mut Ear) -> AgentError {
        match self.try_watch(ear).await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn try_watch(&self, ear: &mut Ear) -> Result<std::convert::Infallible, AgentError> {
        let mut response = self.get("watch").await?;
        let mut frames = FrameReader::new(&self.config.hasher, frame::MAX_FRAME);
        let mut known = None;
        loop {
            let piece = self.piece(&mut response).await?.ok_or(AgentError::Ended)?;
            frames.push(&piece);
            while let Some(frame) = frames.next_frame()? {
                match (known, frame) {
                    (None, Frame::Heartbeat(beat)) => {
                        let identity = identity(&beat);
                        known = Some(identity);
                        ear.discovered(self.source(identity)).await;
                        self.metrics.transport.open_connections.raise();
                        ear.connected().await;
                        // A list may be older than this: then it is not yet all.
                        ear.heartbeat(identity, position(&beat)).await;
                    }
                    (None, _) => return Err(AgentError::NoBeginning),
                    (Some(_), Frame::Batch(batch)) => {
                        self.metrics.transport.received_messages.add(1);
                        ear.heard_decoded(batch).await;
                    }
                    (Some(_), Frame::Heartbeat(beat)) => {
                        ear.heartbeat(identity(&beat), position(&beat)).await;
                    }
                    (Some(_), _) => {}
                }
            }
        }
    }

    async fn answer_with(&self, ask: &Ask, voice: &Voice) -> Result<(), AgentError> {
        match ask.what {
            What::Replay { from } => self.replay(from.0, voice).await,
            What::List => self.list(voice).await,
        }
    }

    async fn replay(&self, from: u64, voice: &Voice) -> Result<(), AgentError> {
        let mut response = self.get(&format!("watch?from={from}&follow=false")).await?;
        let mut frames = FrameReader::new(&self.config.hasher, frame::MAX_FRAME);
        while let Some(piece) = self.piece(&mut response).await? {
            frames.push(&piece);
            while let Some(frame) = frames.next_frame()? {
                match frame {
                    Frame::Batch(batch) => voice.say(Part::Batch(batch)).await,
                    Frame::EndOfReplay(_) => {
                        voice.say(Part::ReplayEnd).await;
                        return Ok(());
                    }
                    _ => {}
                }
            }
        }
        Err(AgentError::Ended)
    }

    async fn list(&self, voice: &Voice) -> Result<(), AgentError> {
        let mut response = self.get("list").await?;
        let mut parts = SnapshotReader::new(&self.config.hasher);
        let mut items = 0;
        while let Some(piece) = self.piece(&mut response).await? {
            parts.push(&piece);
            while let Some(part) = parts.next_part()? {
                let part = match part {
                    SnapshotPart::Header(header) => Part::ListHead(ListHead {
                        identity: identity(&header.at),
                        position: position(&header.at),
                        coverage: if header.complete {
                            Coverage::Complete
                        } else {
                            Coverage::Warming
                        },
                        truncated: header.truncated,
                    }),
                    SnapshotPart::Items(listed) => {
                        items += listed.len() as u64;
                        Part::ListItems(listed)
                    }
                    SnapshotPart::End(_) => Part::ListEnd { items },
                };
                voice.say(part).await;
            }
        }
        parts.finish()?;
        Ok(())
    }
}

fn identity(beat: &Heartbeat) -> Identity {
    Identity {
        engine: beat.incarnation,
        agent: beat.epoch,
    }
}

fn position(beat: &Heartbeat) -> Option<(Sequence, Digest)> {
    beat.position.map(|at| (at.sequence, at.digest))
}

async fn accepted(response: HttpResponse) -> Result<HttpResponse, AgentError> {
    match response.status() {
        StatusCode::OK => Ok(response),
        StatusCode::GONE => Err(AgentError::Gone),
        status => {
            let words = response.text().await.unwrap_or_default();
            let words = words.chars().take(300).collect();
            Err(AgentError::Refused { status, words })
        }
    }
}

impl Source for AgentSource {
    fn joining(&self) -> Joining {
        Joining {
            source: self.source(Identity::default()),
            decoder: None,
        }
    }

    fn listen(self: Arc<Self>, mut ear: Ear) -> Speech {
        Box::pin(async move {
            let mut failures: u32 = 0;
            loop {
                let before = self.metrics.transport.open_connections.get();
                let error = self.watch(&mut ear).await;
                let was_connected = self.metrics.transport.open_connections.get() > before;
                tracing::info!(rank = %ear.rank(), %error, "the agent's watch is over");
                if was_connected {
                    self.metrics.transport.open_connections.lower();
                    self.metrics.transport.lost_connections.add(1);
                    failures = 0;
                }
                *self.known_number() = None;
                ear.disconnected(&error).await;
                let pause = self.config.backoff * (1 << failures.min(4));
                failures += 1;
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            }
        })
    }

    fn answer(self: Arc<Self>, ask: Ask, voice: Voice) -> Speech {
        Box::pin(async move {
            match self.answer_with(&ask, &voice).await {
                Ok(()) => {}
                Err(AgentError::Gone) => voice.say(Part::Gone).await,
                Err(error) => {
                    tracing::info!(rank = %ask.rank, %error, "the agent did not answer");
                    voice.say(Part::Failed).await;
                }
            }
        })
    }
}
