//! Keys, tokens and certificates that change while requests are under way.
//!
//! Their files are looked at as often as the settings file, and used when they have stood still for a while. What cannot be read or used changes
//! nothing, and that is said once. A file of keys or of register tokens that has none any more cannot be used, unless it says so: `key = []`,
//! `token = []`.
//!
//! **Invariant:** no connection and no stream ends because a file changed.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use homing_config::keys::{self, Keys};
use homing_config::register_tokens::{self, RegisterToken};
use homing_config::secret::secret_in;
use homing_config::security::{Security, TlsFiles};
use homing_config::{FileText, Rejected, Secret, SecretText, Settling, read_versioned};
use homing_tls::{Identity, Renewed};

use crate::error::StartError;
use crate::keyring::Keyring;
use crate::operators::Tokens;
use crate::registrars::Registrars;
use crate::response_id::ResponseIdKeys;
use crate::response_keys::ResponseKeys;

/// What is renewed, and from where.
#[derive(Debug)]
pub(crate) struct Renewal {
    keys: Option<(PathBuf, Keys)>,
    register_tokens: Option<(PathBuf, Vec<RegisterToken>)>,
    operators: Secret,
    workers: Secret,
    identity: Option<(Identity, TlsFiles)>,
    ring: Arc<Keyring>,
    tokens: Arc<Tokens>,
    files: SettledFiles,
    responses: ResponseKeys,
    trouble: String,
}

/// Files that are read when they have stood still.
#[derive(Debug, Default)]
struct SettledFiles {
    files: HashMap<PathBuf, Settling>,
    /// How long the first of those that changed must still stand still.
    soonest: Option<Duration>,
}

impl SettledFiles {
    /// What stands in a file; nothing while it changes.
    fn read(&mut self, path: &Path) -> Result<Option<FileText>, Rejected> {
        let settling = self.files.entry(path.to_path_buf()).or_default();
        let (text, version) = read_versioned(path).inspect_err(|_| settling.reset())?;
        let unsettled = settling.observe(Instant::now(), version);
        if unsettled.is_zero() {
            return Ok(Some(text));
        }
        self.soonest = Some(self.soonest.map_or(unsettled, |soonest| soonest.min(unsettled)));
        Ok(None)
    }
}

impl Renewal {
    /// Reads all of it for the first time.
    /// Each register token may be used so often per minute from each address.
    pub(crate) fn begin(security: &Security, registrations_per_minute: u64) -> Result<Self, StartError> {
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
        let tokens = Arc::new(Tokens::new(Registrars::new(registrations_per_minute)));
        let register_tokens = match &security.register_tokens {
            None => None,
            Some(path) => {
                let held = register_tokens::read(path)?;
                tokens.registrars.set(&held);
                Some((path.clone(), held))
            }
        };
        tokens
            .operators
            .store(read("serve.admin-token", &security.admin_token)?);
        tokens
            .workers
            .store(read("serve.register-token", &security.register_token)?);
        Ok(Self {
            keys,
            register_tokens,
            operators: security.admin_token.clone(),
            workers: security.register_token.clone(),
            identity,
            ring,
            tokens,
            files: SettledFiles::default(),
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
            let unsettled = self.files.soonest.take();
            tokio::time::sleep(unsettled.map_or(interval, |unsettled| unsettled.min(interval))).await;
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
            match changed_keys(&mut self.files, path, held) {
                Ok(Some(new)) => {
                    self.ring.set(&new);
                    tracing::info!(keys = new.keys.len(), "the file of keys was read again");
                    *held = new;
                }
                Ok(None) => {}
                Err(problem) => troubles.push(problem),
            }
        }
        if let Some((path, held)) = &mut self.register_tokens {
            match changed_tokens(&mut self.files, path, held) {
                Ok(Some(new)) => {
                    self.tokens.registrars.set(&new);
                    tracing::info!(tokens = new.len(), "the file of register tokens was read again");
                    *held = new;
                }
                Ok(None) => {}
                Err(problem) => troubles.push(problem),
            }
        }
        for (what, secret, token) in [
            ("serve.admin-token", &self.operators, &self.tokens.operators),
            ("serve.register-token", &self.workers, &self.tokens.workers),
        ] {
            let Some(path) = secret.file() else { continue };
            let read = self.files.read(path);
            match read.and_then(|file| file.as_ref().map(secret_in).transpose()) {
                Ok(Some(new)) if token.load().as_deref() != Some(&new) => {
                    token.store(Some(Arc::new(new)));
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

/// The keys of a file that has others than before, or why it is not used.
fn changed_keys(files: &mut SettledFiles, path: &Path, held: &Keys) -> Result<Option<Keys>, String> {
    let Some(file) = files.read(path).map_err(|problem| problem.to_string())? else {
        return Ok(None);
    };
    let new = keys::parse(&file.text).map_err(|problem| problem.to_string())?;
    if new.keys.is_empty() && !held.keys.is_empty() && !keys::declares_no_keys(&file.text) {
        return Err(format!(
            "{}: has no key any more, and may have been cut; write `key = []` into it if all keys are to go",
            path.display()
        ));
    }
    Ok(Some(new).filter(|new| new != held))
}

/// The same for register tokens.
fn changed_tokens(
    files: &mut SettledFiles,
    path: &Path,
    held: &[RegisterToken],
) -> Result<Option<Vec<RegisterToken>>, String> {
    let Some(file) = files.read(path).map_err(|problem| problem.to_string())? else {
        return Ok(None);
    };
    let new = register_tokens::parse(&file.text).map_err(|problem| problem.to_string())?;
    if new.is_empty() && !held.is_empty() && !register_tokens::declares_no_tokens(&file.text) {
        return Err(format!(
            "{}: has no token any more, and may have been cut; write `token = []` into it if all tokens are to go",
            path.display()
        ));
    }
    Ok(Some(new).filter(|new| *new != held))
}

fn read(knob: &'static str, secret: &Secret) -> Result<Option<Arc<SecretText>>, StartError> {
    let read = secret.read().map_err(|problem| StartError::Secret { knob, problem })?;
    Ok(read.map(Arc::new))
}
