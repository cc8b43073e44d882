//! The certificate and the token of an HTTP server. Their files are read again when they change.
//!
//! **Invariant:** a file that cannot be used changes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use homing_config::{HttpServer as Settings, Rejected, Secret, SecretText};
use homing_tls::{Identity, Renewed, TlsError};
use thiserror::Error;

/// Why a server has no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token cannot be read.
    #[error("the token cannot be read: {0}")]
    Token(#[from] Rejected),
}

/// What requests must have.
#[derive(Debug, Default)]
pub(crate) struct Token(ArcSwapOption<SecretText>);

impl Token {
    /// Whether one is asked for.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load().is_some()
    }

    /// Whether a request with this one is answered.
    pub(crate) fn allows(&self, sent: Option<&[u8]>) -> bool {
        match (self.0.load().as_deref(), sent) {
            (None, _) => true,
            (Some(token), Some(sent)) => token.is(sent),
            (Some(_), None) => false,
        }
    }
}

/// The credentials of one server.
#[derive(Debug)]
pub(crate) struct Credentials {
    tls: Option<(Identity, PathBuf, PathBuf)>,
    secret: Secret,
    token: Token,
    renew: Duration,
}

impl Credentials {
    pub(crate) fn read(settings: &Settings, renew: Duration) -> Result<Self, CredentialsError> {
        let tls = match (&settings.cert, &settings.key) {
            (Some(cert), Some(key)) => Some((Identity::read(cert, key)?, cert.clone(), key.clone())),
            _ => None,
        };
        let token = settings.token.read()?;
        Ok(Self {
            tls,
            secret: settings.token.clone(),
            token: Token(ArcSwapOption::from(token.map(Arc::new))),
            renew,
        })
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        self.tls.as_ref().map(|(identity, _, _)| identity.clone())
    }

    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// Reads the files again and again.
    pub(crate) async fn keep_renewing(self: Arc<Self>) {
        let mut last_problem: Option<String> = None;
        loop {
            tokio::time::sleep(self.renew).await;
            let this = self.clone();
            // Where waiting for a disk holds nothing else up. It fails only when the runtime ends.
            let Ok(problem) = tokio::task::spawn_blocking(move || this.renew_once().err()).await else {
                return;
            };
            let problem = problem.map(|problem| problem.to_string());
            if let Some(problem) = problem
                .as_ref()
                .filter(|problem| last_problem.as_ref() != Some(problem))
            {
                tracing::error!("what was there before stays in use: {problem}");
            }
            last_problem = problem;
        }
    }

    fn renew_once(&self) -> Result<(), CredentialsError> {
        if self.secret.file().is_some() {
            let new = self.secret.read()?;
            if new.as_ref() != self.token.0.load().as_deref() {
                self.token.0.store(new.map(Arc::new));
                tracing::info!("the token was read again");
            }
        }
        if let Some((identity, cert, key)) = &self.tls
            && identity.renew(cert, key)? == Renewed::Yes
        {
            tracing::info!("the certificate was read again");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_token_all_are_allowed_and_with_one_those_that_have_it() {
        let token = Token::default();
        assert!(token.allows(None) && token.allows(Some(b"anything")) && !token.is_set());
        token.0.store(SecretText::new("a-token-of-the-tests").map(Arc::new));
        assert!(token.allows(Some(b"a-token-of-the-tests")));
        assert!(!token.allows(Some(b"a-token-of-the-test")) && !token.allows(None));
    }
}
