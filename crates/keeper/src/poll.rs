//! A rank whose engine is polled: TensorRT-LLM hands out what happened since it was last asked, to whoever asks. So there
//! must be one poller for an engine, and what is lost on the way is lost.

use std::sync::Arc;
use std::time::Duration;

use homing_feed::{Ask, ClearReach, Identity, Part, Recovery};
use homing_index::Copies;
use homing_platform::{HttpClient, HttpClientError};
use homing_telemetry::Metrics;
use homing_wire::DecoderConfig;
use thiserror::Error;

use crate::source::{Ear, Joining, Source, Speech, Voice};

/// How an engine is polled.
#[derive(Clone, Debug)]
pub struct PollConfig {
    /// What is asked.
    pub url: String,
    /// How it writes.
    pub decoder: DecoderConfig,
    /// How it means a block that it announces again.
    pub copies: Copies,
    /// The pause between two questions while nothing happens.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The longest answer that is read.
    pub max_bytes: u64,
}

/// Polls an engine.
#[derive(Debug)]
pub struct PollSource {
    config: PollConfig,
    client: HttpClient,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Error)]
enum PollError {
    #[error("the engine cannot be asked for its events: {0}")]
    Http(#[from] HttpClientError),
    #[error("the engine's answer has more than {0} bytes")]
    TooLong(u64),
    #[error("the engine took more than {0:?} to answer")]
    Silent(Duration),
}

impl PollSource {
    /// For one engine.
    pub fn new(config: PollConfig, client: HttpClient, metrics: Arc<Metrics>) -> Self {
        Self {
            config,
            client,
            metrics,
        }
    }

    async fn poll(&self) -> Result<Vec<u8>, PollError> {
        let mut response = self.client.get(&self.config.url).send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await? {
            if (body.len() + piece.len()) as u64 > self.config.max_bytes {
                return Err(PollError::TooLong(self.config.max_bytes));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    async fn poll_in_time(&self) -> Result<Vec<u8>, PollError> {
        let timeout = self.config.timeout;
        let polled = tokio::time::timeout(timeout, self.poll()).await;
        polled.map_err(|_| PollError::Silent(timeout))?
    }
}

impl Source for PollSource {
    fn joining(&self) -> Joining {
        Joining {
            source: homing_feed::Source {
                identity: Identity::default(),
                recovery: Recovery::LiveOnly,
                clear_reach: ClearReach::Rank,
                copies: self.config.copies,
            },
            decoder: Some(self.config.decoder),
        }
    }

    fn listen(self: Arc<Self>, mut ear: Ear) -> Speech {
        Box::pin(async move {
            let mut is_connected = false;
            loop {
                match self.poll_in_time().await {
                    Ok(body) => {
                        if !is_connected {
                            is_connected = true;
                            ear.connected().await;
                        }
                        self.metrics.transport.received_messages.add(1);
                        self.metrics.transport.received_bytes.add(body.len() as u64);
                        ear.polled(body.into()).await;
                    }
                    Err(error) => {
                        is_connected = false;
                        self.metrics.transport.lost_connections.add(1);
                        ear.disconnected(&error).await;
                        tokio::time::sleep(self.config.timeout).await;
                    }
                }
                tokio::time::sleep(self.config.interval).await;
            }
        })
    }

    fn answer(self: Arc<Self>, _ask: Ask, voice: Voice) -> Speech {
        // It was never said to be able to.
        Box::pin(async move { voice.say(Part::Gone).await })
    }
}
