//! The HTTP client that asks agents.

use homing_config::{Config, Rejected};
use homing_tls::{TlsError, Trust};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, redirect};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The library cannot make one.
    #[error("cannot make an HTTP client: {0}")]
    Http(#[from] reqwest::Error),
    /// The certificates that vouch for agents cannot be used.
    #[error("`agent.ca`: {0}")]
    Tls(#[from] TlsError),
    /// The token for agents cannot be read.
    #[error("`agent.token`: {0}")]
    Token(#[from] Rejected),
}

/// A client that sends the token of agents. Proxies of the environment are not used, and redirects are not followed: both would be
/// given the token.
pub(crate) fn agent_client(config: &Config) -> Result<Client, ClientError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = config.agent.http.token.read()? {
        // A token has visible characters only.
        if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.reveal())) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }
    let client = Client::builder()
        .connect_timeout(config.events.connect_timeout)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .default_headers(headers)
        .use_preconfigured_tls(Trust::read(config.agent.ca.as_deref())?.config());
    Ok(client.build()?)
}
