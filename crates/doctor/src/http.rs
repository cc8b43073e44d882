//! How is an engine asked? One question, one answer, within limits.

use std::time::{Duration, SystemTime};

use homing_config::HttpUrl;
use homing_platform::{HttpClient, HttpClientError, Method, StatusCode};
use serde_json::Value;
use thiserror::Error;

/// The longest answer that is read, in bytes.
const LONGEST: usize = 4 << 20;
/// How much of an answer that refuses is shown.
const SHOWN: usize = 200;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    #[error("{path} cannot be asked: {why}")]
    Unreached { path: &'static str, why: String },
    #[error("{path} does not answer within {limit:?}")]
    TimedOut { path: &'static str, limit: Duration },
    #[error("{path} answers with more than {LONGEST} bytes")]
    TooLong { path: &'static str },
    #[error("{path} answers with status {status}: {said}")]
    Status {
        path: &'static str,
        status: StatusCode,
        said: String,
    },
    #[error("{path} answers with something that is no JSON: {why}")]
    NoJson { path: &'static str, why: String },
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    path: &'static str,
    pub(crate) status: StatusCode,
    /// What the engine's clock shows, to a second.
    pub(crate) date: Option<SystemTime>,
    body: Vec<u8>,
}

/// Asks one engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) client: &'a HttpClient,
    pub(crate) url: &'a HttpUrl,
    pub(crate) limit: Duration,
}

impl Line<'_> {
    pub(crate) async fn get(&self, path: &'static str) -> Result<Answer, AskError> {
        self.ask(Method::GET, path, None, None).await
    }

    /// Sends JSON and wants JSON back. A rank is named where there are several.
    pub(crate) async fn post(&self, path: &'static str, body: &Value, rank: Option<u16>) -> Result<Value, AskError> {
        self.ask(Method::POST, path, Some(body), rank).await?.json()
    }

    async fn ask(
        &self,
        method: Method,
        path: &'static str,
        body: Option<&Value>,
        rank: Option<u16>,
    ) -> Result<Answer, AskError> {
        let limit = self.limit;
        match tokio::time::timeout(limit, self.read(method, path, body, rank)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::TimedOut { path, limit }),
        }
    }

    async fn read(
        &self,
        method: Method,
        path: &'static str,
        body: Option<&Value>,
        rank: Option<u16>,
    ) -> Result<Answer, AskError> {
        let unreached = |error: HttpClientError| AskError::Unreached {
            path,
            why: error.to_string(),
        };
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(rank) = rank {
            request = request.header("x-data-parallel-rank", rank.to_string());
        }
        let mut answer = request.send().await.map_err(unreached)?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(unreached)? {
            if body.len() + piece.len() > LONGEST {
                return Err(AskError::TooLong { path });
            }
            body.extend_from_slice(&piece);
        }
        Ok(Answer {
            path,
            status,
            date,
            body,
        })
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Result<Value, AskError> {
        let path = self.path;
        if self.status != StatusCode::OK {
            let said = String::from_utf8_lossy(&self.body);
            let said = said.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
            return Err(AskError::Status {
                path,
                status: self.status,
                said,
            });
        }
        serde_json::from_slice(&self.body).map_err(|error| AskError::NoJson {
            path,
            why: error.to_string(),
        })
    }
}
