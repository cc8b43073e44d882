//! How is an engine asked something over HTTP?
//!
//! **Invariant:** a question ends within its time limit, connecting and reading included, and at most so many bytes are read.

use std::sync::Arc;
use std::time::Duration;

use homing_config::{AddressRules, AddressScope, HttpUrl, LoopbackUse, SecretText};
use homing_platform::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use homing_platform::{ConnectRules, HttpClient, HttpClientConfig, HttpClientError, StatusCode};
use homing_telemetry::Asked;
use homing_tls::Trust;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AskError {
    /// Nobody is there.
    #[error("it cannot be reached: {0}")]
    Unreached(String),
    /// Nothing, or not everything, came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Another status than 200.
    #[error("{path} answers with status {status}")]
    Status {
        /// What was asked for.
        path: String,
        /// The status.
        status: StatusCode,
    },
    /// More than is read.
    #[error("{path} answers with more than {limit} bytes")]
    TooLong {
        /// What was asked for.
        path: String,
        /// What is read.
        limit: usize,
    },
    /// Not what such an engine answers.
    #[error("{path} answers with something else than expected: {why}")]
    Unexpected {
        /// What was asked for.
        path: String,
        /// In which way.
        why: String,
    },
}

impl AskError {
    /// Whether the engine answers and does not know the question.
    pub(crate) fn is_unknown(&self) -> bool {
        let unknown = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
        matches!(self, Self::Status { status, .. } if unknown.contains(status))
    }

    /// Whether the engine is there and answers, though not with what was asked for.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Unexpected { .. })
    }

    pub(crate) fn outcome(&self) -> Asked {
        match self {
            Self::TimedOut(_) => Asked::TimedOut,
            _ => Asked::Failed,
        }
    }
}

/// How engines are spoken to.
#[derive(Clone, Debug, Default)]
pub struct Outward {
    /// Who vouches for those with TLS; `None`: nobody, and they are not reached.
    pub trust: Option<Trust>,
    /// What is sent to them as their API key.
    pub key: Option<SecretText>,
    /// Which addresses those may have that registered themselves.
    pub rules: Arc<AddressRules>,
}

/// Clients for questions to engines: one for each scope that their addresses can have.
#[derive(Clone, Debug)]
pub struct ScopedClients {
    any: HttpClient,
    registered: HttpClient,
    registered_locally: HttpClient,
}

impl ScopedClients {
    /// The client for workers of this scope.
    pub fn of(&self, scope: AddressScope) -> &HttpClient {
        match scope.loopback_use() {
            None => &self.any,
            Some(LoopbackUse::Listed) => &self.registered,
            Some(LoopbackUse::Allowed) => &self.registered_locally,
        }
    }
}

/// A secret as it is sent.
pub(crate) fn bearer(key: &SecretText) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Outward {
    /// A client for questions to engines.
    pub fn client(&self) -> HttpClient {
        self.client_for(None)
    }

    /// The same for each scope that addresses of workers can have.
    pub fn clients(&self) -> ScopedClients {
        ScopedClients {
            any: self.client_for(None),
            registered: self.client_for(Some(LoopbackUse::Listed)),
            registered_locally: self.client_for(Some(LoopbackUse::Allowed)),
        }
    }

    fn client_for(&self, loopback: Option<LoopbackUse>) -> HttpClient {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.key.as_ref().and_then(bearer) {
            headers.insert(AUTHORIZATION, value);
        }
        HttpClient::new(HttpClientConfig {
            headers,
            trust: self.trust.clone(),
            rules: loopback.map(|loopback| ConnectRules {
                rules: self.rules.clone(),
                loopback,
            }),
            ..HttpClientConfig::default()
        })
    }
}

/// One question: below which address, and within which limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) client: &'a HttpClient,
    pub(crate) url: &'a HttpUrl,
    pub(crate) path: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) limit: usize,
}

impl Question<'_> {
    /// Asks, and gives every piece of the answer to `take`.
    pub(crate) async fn stream(&self, take: impl FnMut(&[u8])) -> Result<(), AskError> {
        match tokio::time::timeout(self.timeout, self.read(take)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::TimedOut(self.timeout)),
        }
    }

    /// Asks for JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self) -> Result<T, AskError> {
        let mut body = Vec::new();
        self.stream(|piece| body.extend_from_slice(piece)).await?;
        serde_json::from_slice(&body).map_err(|error| AskError::Unexpected {
            path: self.path.to_owned(),
            why: error.to_string(),
        })
    }

    async fn read(&self, mut take: impl FnMut(&[u8])) -> Result<(), AskError> {
        let unreached = |error: HttpClientError| AskError::Unreached(error.to_string());
        let url = format!("{}{}", self.url, self.path);
        let mut answer = self.client.get(url).send().await.map_err(unreached)?;
        let (path, status) = (self.path.to_owned(), answer.status());
        if status != StatusCode::OK {
            return Err(AskError::Status { path, status });
        }
        let mut room = self.limit;
        while let Some(piece) = answer.chunk().await.map_err(unreached)? {
            room = room.checked_sub(piece.len()).ok_or_else(|| AskError::TooLong {
                path: path.clone(),
                limit: self.limit,
            })?;
            take(&piece);
        }
        Ok(())
    }
}
