//! The HTTP client that asks agents.

use homing_config::{Config, Rejected};
use homing_platform::{HeaderMap, HeaderValue, HttpClient, HttpClientConfig, header};
use homing_tls::{TlsError, Trust};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The certificates that vouch for agents cannot be used.
    #[error("`agent.ca`: {0}")]
    Tls(#[from] TlsError),
    /// The token for agents cannot be read.
    #[error("`agent.token`: {0}")]
    Token(#[from] Rejected),
}

/// A client that sends the token of agents.
pub(crate) fn agent_client(config: &Config) -> Result<HttpClient, ClientError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = config.agent.http.token.read()? {
        // A token has visible characters only.
        if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.reveal())) {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
    }
    Ok(HttpClient::new(HttpClientConfig {
        headers,
        trust: Some(Trust::read(config.agent.ca.as_deref())?),
        connect_timeout: config.events.connect_timeout,
        ..HttpClientConfig::default()
    }))
}
