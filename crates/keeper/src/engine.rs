//! A rank whose engine is listened to directly: its event socket, and its replay socket if it has one.

use std::sync::Arc;
use std::time::Duration;

use homing_feed::{Ask, ClearReach, Identity, Part, Recovery, What};
use homing_index::Copies;
use homing_telemetry::Metrics;
use homing_transport::zmq::{
    self, ConnectionId, Endpoint, Exposure, Message, ReplayConfig, SubscribeConfig, Subscriber, SubscriberEvent,
};
use homing_wire::envelope::{self, Replayed};
use homing_wire::{DecoderConfig, Dialect};
use smallvec::SmallVec;

use crate::source::{Ear, Joining, Source, Speech, Voice};

/// How long to wait before a port that cannot be bound is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// Who connects to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Events {
    /// The engine's publisher binds; we connect.
    Connect(Endpoint),
    /// The engine's publisher connects; we bind, and are reached by whom the exposure allows.
    Bind(Endpoint, Exposure),
}

/// How an engine is listened to.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where its events come from.
    pub events: Events,
    /// Where it can be asked for earlier ones.
    pub replay: Option<Endpoint>,
    /// How it writes.
    pub decoder: DecoderConfig,
    /// How it means a block that it announces again.
    pub copies: Copies,
    /// The event socket's limits and times.
    pub subscribe: SubscribeConfig,
    /// The replay socket's limits and times.
    pub ask: ReplayConfig,
}

/// Listens to an engine.
#[derive(Debug)]
pub struct EngineSource {
    config: EngineConfig,
    metrics: Arc<Metrics>,
}

impl EngineSource {
    /// For one rank of one engine.
    pub fn new(config: EngineConfig, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics }
    }

    async fn subscribe(&self) -> Result<Subscriber, zmq::SetupError> {
        let config = self.config.subscribe.clone();
        match &self.config.events {
            Events::Connect(endpoint) => Subscriber::connect(endpoint.clone(), config),
            Events::Bind(endpoint, exposure) => Subscriber::bind(endpoint, *exposure, config).await,
        }
    }

    async fn hear(&self, mut subscriber: Subscriber, ear: &mut Ear) {
        // Where we bind, several publishers may connect. The first is listened to, the others are complained about.
        let mut open: Vec<ConnectionId> = Vec::new();
        loop {
            match subscriber.next().await {
                SubscriberEvent::Connected { connection, peer } => {
                    self.metrics.transport.open_connections.raise();
                    open.push(connection);
                    if open.len() == 1 {
                        ear.connected().await;
                    } else {
                        ear.complain(format_args!(
                            "a second publisher, {peer}, connects to this rank's port and is not listened to: give each \
                             rank a port of its own"
                        ));
                    }
                }
                SubscriberEvent::Message { connection, message } => {
                    if open.first() == Some(&connection) {
                        self.message(&message, ear).await;
                    }
                }
                SubscriberEvent::Alive { .. } => {}
                SubscriberEvent::Disconnected { connection, reason } => {
                    self.metrics.transport.open_connections.lower();
                    self.metrics.transport.lost_connections.add(1);
                    if reason.is_oversized() {
                        self.metrics.transport.oversized_messages.add(1);
                    }
                    let was_first = open.first() == Some(&connection);
                    open.retain(|other| *other != connection);
                    if was_first {
                        tracing::info!(rank = %ear.rank(), %reason, "the engine's event socket is gone");
                        ear.disconnected(&reason).await;
                        if !open.is_empty() {
                            ear.connected().await;
                        }
                    }
                }
                SubscriberEvent::Failed { reason, .. } => {
                    if open.is_empty() {
                        ear.disconnected(&reason).await;
                    } else {
                        ear.complain(&reason);
                    }
                }
            }
        }
    }

    async fn message(&self, message: &Message, ear: &mut Ear) {
        self.metrics.transport.received_messages.add(1);
        self.metrics.transport.received_bytes.add(message.byte_count() as u64);
        let frames: SmallVec<[&[u8]; 4]> = message.frames().collect();
        match envelope::live(&frames) {
            Ok(live) => {
                let payload = message.frame_bytes(frames.len() - 1).unwrap_or_default();
                ear.heard(live.sequence, payload).await;
            }
            Err(error) => ear.complain(format_args!("a message of the engine makes no sense: {error}")),
        }
    }

    async fn replay(&self, ask: &Ask, voice: &Voice) -> Result<(), String> {
        let (Some(endpoint), What::Replay { from }) = (&self.config.replay, ask.what) else {
            // It was never said to be able to.
            voice.say(Part::Gone).await;
            return Ok(());
        };
        let request = envelope::replay_request(from);
        let request: Vec<&[u8]> = request.iter().map(AsRef::as_ref).collect();
        let replay = zmq::replay(endpoint, &request, self.config.ask.clone()).await;
        let mut replay = replay.map_err(|error| error.to_string())?;
        loop {
            let message = replay.next().await.map_err(|error| error.to_string())?;
            let frames: SmallVec<[&[u8]; 4]> = message.frames().collect();
            match envelope::replayed(&frames).map_err(|error| error.to_string())? {
                Replayed::Batch(batch) => {
                    let payload = message.frame_bytes(frames.len() - 1).unwrap_or_default();
                    voice.replayed(batch.sequence, payload).await;
                }
                Replayed::End => {
                    voice.say(Part::ReplayEnd).await;
                    return Ok(());
                }
            }
        }
    }
}

impl Source for EngineSource {
    fn joining(&self) -> Joining {
        let recovery = match self.config.replay {
            Some(_) => Recovery::Replay,
            None => Recovery::LiveOnly,
        };
        // Every engine that we know clears a rank on that rank's own stream.
        let clear_reach = match self.config.decoder.dialect {
            Dialect::Vllm | Dialect::Sglang | Dialect::TrtLlm => ClearReach::Rank,
        };
        Joining {
            source: homing_feed::Source {
                identity: Identity::default(),
                recovery,
                clear_reach,
                copies: self.config.copies,
            },
            decoder: Some(self.config.decoder),
        }
    }

    fn listen(self: Arc<Self>, mut ear: Ear) -> Speech {
        Box::pin(async move {
            let mut last_error = String::new();
            loop {
                match self.subscribe().await {
                    Ok(subscriber) => self.hear(subscriber, &mut ear).await,
                    Err(error) => {
                        let error = error.to_string();
                        if error != last_error {
                            tracing::warn!(rank = %ear.rank(), "no events of this rank: {error}");
                        }
                        ear.disconnected(&error).await;
                        last_error = error;
                    }
                }
                tokio::time::sleep(BIND_AGAIN).await;
            }
        })
    }

    fn answer(self: Arc<Self>, ask: Ask, voice: Voice) -> Speech {
        Box::pin(async move {
            if let Err(reason) = self.replay(&ask, &voice).await {
                tracing::info!(rank = %ask.rank, reason, "a replay failed");
                voice.say(Part::Failed).await;
            }
        })
    }
}
