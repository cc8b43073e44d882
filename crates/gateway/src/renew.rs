//! Keys, tokens and certificates that change while requests are under way.
//!
//! Their files are looked at as often as the settings file. What cannot be read or used changes nothing, and that is said once.
//!
//! **Invariant:** no connection and no stream ends because a file changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use homing_config::keys::{self, Keys};
use homing_config::security::{Security, TlsFiles};
use homing_config::{Secret, SecretText};
use homing_tls::{Identity, Renewed};

use crate::error::StartError;
use crate::keyring::Keyring;
use crate::operators::Tokens;
use crate::response_id::ResponseIdKeys;
use crate::response_keys::ResponseKeys;

/// What is renewed, and from where.
#[derive(Debug)]
pub(crate) struct Renewal {
    keys: Option<(PathBuf, Keys)>,
    operators: Secret,
    workers: Secret,
    identity: Option<(Identity, TlsFiles)>,
    ring: Arc<Keyring>,
    tokens: Arc<Tokens>,
    responses: ResponseKeys,
    trouble: String,
}

impl Renewal {
    /// Reads all of it for the first time.
    pub(crate) fn begin(security: &Security) -> Result<Self, StartError> {
        let ring = Arc::new(Keyring::default());
        let keys = match &security.keys {
            None => None,
            Some(path) => {
                let keys = keys::read(path)?;
                if keys.keys.is_empty() {
                    tracing::warn!("the file of keys has none: every request is refused");
                }
                ring.set(&keys);
                Some((path.clone(), keys))
            }
        };
        let identity = match (&security.tls.cert, &security.tls.key) {
            (Some(cert), Some(key)) => Some((Identity::read(cert, key)?, security.tls.clone())),
            _ => None,
        };
        let tokens = Arc::new(Tokens::default());
        tokens
            .operators
            .store(read("serve.admin-token", &security.admin_token)?);
        tokens
            .workers
            .store(read("serve.register-token", &security.register_token)?);
        Ok(Self {
            keys,
            operators: security.admin_token.clone(),
            workers: security.register_token.clone(),
            identity,
            ring,
            tokens,
            responses: ResponseKeys::open(&security.responses)?,
            trouble: String::new(),
        })
    }

    pub(crate) fn ring(&self) -> Arc<Keyring> {
        self.ring.clone()
    }

    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        self.tokens.clone()
    }

    pub(crate) fn response_ids(&self) -> Arc<ArcSwap<ResponseIdKeys>> {
        self.responses.current()
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity.as_ref().map(|(identity, _)| identity.clone())
    }

    /// Looks again and again.
    pub(crate) async fn run(mut self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            // Where waiting for a disk holds nobody up. It fails only when the runtime ends.
            let looked = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            match looked.await {
                Ok(back) => self = back,
                Err(_) => return,
            }
        }
    }

    fn look(&mut self) {
        let mut troubles = Vec::new();
        if let Some((path, held)) = &mut self.keys {
            match keys::read(path) {
                Ok(new) if new != *held => {
                    self.ring.set(&new);
                    tracing::info!(keys = new.keys.len(), "the file of keys was read again");
                    *held = new;
                }
                Ok(_) => {}
                Err(problem) => troubles.push(problem.to_string()),
            }
        }
        for (what, secret, token) in [
            ("serve.admin-token", &self.operators, &self.tokens.operators),
            ("serve.register-token", &self.workers, &self.tokens.workers),
        ] {
            if secret.file().is_none() {
                continue;
            }
            match secret.read() {
                Ok(new) if new.as_ref() != token.load().as_deref() => {
                    token.store(new.map(Arc::new));
                    tracing::info!("`{what}` was read again");
                }
                Ok(_) => {}
                Err(problem) => troubles.push(problem.to_string()),
            }
        }
        if let Some((identity, files)) = &self.identity
            && let (Some(cert), Some(key)) = (&files.cert, &files.key)
        {
            match identity.renew(cert, key) {
                Ok(Renewed::Yes) => tracing::info!("the certificate was read again"),
                Ok(Renewed::No) => {}
                // Both files are exchanged one after the other, so for a moment they may not fit.
                Err(problem) => troubles.push(problem.to_string()),
            }
        }
        if let Err(problem) = self.responses.reload() {
            troubles.push(problem.to_string());
        }
        let trouble = troubles.join("; ");
        if !trouble.is_empty() && trouble != self.trouble {
            tracing::error!("what was there before stays in use: {trouble}");
        }
        self.trouble = trouble;
    }
}

fn read(knob: &'static str, secret: &Secret) -> Result<Option<Arc<SecretText>>, StartError> {
    let read = secret.read().map_err(|problem| StartError::Secret { knob, problem })?;
    Ok(read.map(Arc::new))
}
