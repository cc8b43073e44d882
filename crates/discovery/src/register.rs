//! How does a worker tell a gateway that it is there?
//!
//! It says so three times in each lease, so that two words may be lost, and takes it back at its end. A gateway that is not there
//! yet, or was restarted, hears it within a third of a lease.

use std::fmt::Write as _;
use std::time::Duration;

use homing_config::{HttpUrl, SecretText, WorkerSpec};
use homing_platform::header::{AUTHORIZATION, HeaderMap};
use homing_platform::{HttpClient, HttpClientConfig, HttpClientError, StatusCode};
use homing_tls::Trust;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Words per lease.
const WORDS: u32 = 3;
/// How long one word may take at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a refusal is logged.
const SHOWN: usize = 512;

/// What is told, to whom.
#[derive(Clone, Debug)]
pub struct RegistrantConfig {
    /// The gateway's admin listener.
    pub gateway: HttpUrl,
    /// What the worker is called there.
    pub name: String,
    /// The worker.
    pub worker: WorkerSpec,
    /// How long it holds without a further word.
    pub lease: Duration,
    /// What the gateway asks of those who register.
    pub token: Option<SecretText>,
    /// Who vouches for a gateway with TLS.
    pub trust: Option<Trust>,
}

/// Tells of a worker until it is told to end. When it is dropped it ends as well, and the lease runs out.
#[derive(Debug)]
pub struct Registrant {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Why a word was not taken.
#[derive(Debug, Error)]
enum NotTaken {
    #[error("{0}")]
    Unreached(#[from] HttpClientError),
    #[error("it answers {status}: {said}")]
    Refused { status: StatusCode, said: String },
}

impl Registrant {
    /// Begins to tell. Failures are logged and tried again. Must be called within a runtime.
    pub fn start(config: RegistrantConfig) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut headers = HeaderMap::new();
        if let Some(value) = config.token.as_ref().and_then(crate::ask::bearer) {
            headers.insert(AUTHORIZATION, value);
        }
        let client = HttpClient::new(HttpClientConfig {
            headers,
            trust: config.trust.clone(),
            timeout: Some(PATIENCE.min(config.lease)),
            ..HttpClientConfig::default()
        });
        let task = tokio::spawn(tell(config, client, stopped));
        Self { stop, task }
    }

    /// Takes the worker off the gateway's table and ends. Waits no longer than a word may take.
    pub async fn end(self) {
        // An error means that the task is over already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

async fn tell(config: RegistrantConfig, client: HttpClient, mut stopped: oneshot::Receiver<()>) {
    let gateway = &config.gateway;
    // Names are words; the few signs among them that mean something in an address are escaped.
    let url = format!("{gateway}/admin/workers/{}", escaped(&config.name));
    let body = body(&config);
    let mut trouble = String::new();
    let mut is_told = false;
    loop {
        let taken = tokio::select! {
            taken = put(&client, &url, &body) => taken,
            asked = &mut stopped => {
                if asked.is_ok() && is_told {
                    take_back(&client, &url).await;
                }
                return;
            }
        };
        match taken {
            Ok(()) => {
                if !is_told || !trouble.is_empty() {
                    tracing::info!("registered as `{}` at {gateway}", config.name);
                }
                is_told = true;
                trouble.clear();
            }
            Err(error) => {
                let why = error.to_string();
                if why != trouble {
                    tracing::warn!("cannot register as `{}` at {gateway}: {why}; trying again", config.name);
                }
                trouble = why;
            }
        }
        let pause = (config.lease / WORDS).mul_f64(0.9 + 0.1 * fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            asked = &mut stopped => {
                if asked.is_ok() && is_told {
                    take_back(&client, &url).await;
                }
                return;
            }
        }
    }
}

async fn put(client: &HttpClient, url: &str, body: &Value) -> Result<(), NotTaken> {
    let answer = client.put(url).json(body).send().await?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = answer.text().await.unwrap_or_default();
    Err(NotTaken::Refused {
        status,
        said: said.chars().take(SHOWN).collect(),
    })
}

async fn take_back(client: &HttpClient, url: &str) {
    if let Err(error) = client.delete(url).send().await {
        tracing::warn!("cannot take the registration back, which ends with its lease: {error}");
    }
}

/// The worker as a gateway reads it.
fn body(config: &RegistrantConfig) -> Value {
    let mut body = Map::new();
    let mut labels = Map::new();
    for part in config.worker.to_string().split(',') {
        match part.split_once('=') {
            Some(("label", label)) => {
                let (key, value) = label.split_once('=').unwrap_or((label, ""));
                labels.insert(key.to_owned(), value.into());
            }
            Some((key, value)) => {
                body.insert(key.to_owned(), value.into());
            }
            // The address stands first and without its name.
            None => {
                body.insert("url".to_owned(), part.into());
            }
        }
    }
    body.insert("labels".to_owned(), Value::Object(labels));
    body.insert("lease".to_owned(), format!("{}ms", config.lease.as_millis()).into());
    Value::Object(body)
}

fn escaped(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to text does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
