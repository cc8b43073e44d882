//! What does a worker say a prompt's tokens are? For models without a tokenizer here.
//!
//! Answers are kept, by the digest of the question, within a bound: conversations come again.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request};

use crate::pool::Pool;
use crate::tokens::{self, Known};
use crate::worker::Worker;

/// The longest answer.
const LONGEST: usize = 32 << 20;
/// Tokens of all answers that are kept.
const KEPT_TOKENS: usize = 8 << 20;

/// Asks workers for tokens.
#[derive(Debug)]
pub(crate) struct Asking {
    patience: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<(u64, u64), Arc<[u32]>>,
    order: VecDeque<(u64, u64)>,
    tokens: usize,
}

impl Asking {
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            patience,
            kept: Mutex::default(),
        }
    }

    /// Asks one worker. What went wrong is said in words.
    pub(crate) async fn tokens(
        &self,
        pool: &Arc<Pool>,
        worker: &Arc<Worker>,
        asked: &HeaderMap,
        question: Bytes,
    ) -> Result<Known, String> {
        let digest = (digest(1, &question), digest(2, &question));
        if let Some(tokens) = self.find(digest) {
            return Ok(tokens::from_worker(tokens.to_vec()));
        }
        let answer = tokio::time::timeout(self.patience, ask(pool, worker, asked, question)).await;
        let body = match answer {
            Ok(Ok(body)) => body,
            Ok(Err(why)) => return Err(format!("worker {} does not tokenize: {why}", worker.name)),
            Err(_) => {
                return Err(format!(
                    "worker {} did not tokenize within {:?}",
                    worker.name, self.patience
                ));
            }
        };
        let known = tokens::answered(&body).ok_or_else(|| format!("worker {} answers without tokens", worker.name))?;
        self.keep(digest, &known.tokens);
        Ok(known)
    }

    fn find(&self, digest: (u64, u64)) -> Option<Arc<[u32]>> {
        self.kept().answers.get(&digest).cloned()
    }

    fn keep(&self, digest: (u64, u64), tokens: &[u32]) {
        let mut kept = self.kept();
        if kept.answers.insert(digest, tokens.into()).is_none() {
            kept.order.push_back(digest);
            kept.tokens += tokens.len();
        }
        while kept.tokens > KEPT_TOKENS {
            let Some(oldest) = kept.order.pop_front() else { break };
            let gone = kept.answers.remove(&oldest);
            kept.tokens -= gone.map_or(0, |tokens| tokens.len());
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(pool: &Arc<Pool>, worker: &Arc<Worker>, asked: &HeaderMap, question: Bytes) -> Result<Bytes, String> {
    let mut line = match pool.take(&worker.id) {
        Some(line) => line,
        None => pool.connect(&worker.address).await.map_err(|error| error.to_string())?,
    };
    let mut request = Request::new(question);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = worker.target("/tokenize");
    let of_request = request.headers_mut();
    of_request.insert(header::HOST, worker.host.clone());
    of_request.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Whoever may ask for an answer may ask for its tokens.
    if let Some(key) = asked.get(header::AUTHORIZATION) {
        of_request.insert(header::AUTHORIZATION, key.clone());
    }
    let head = line.send(request).await.map_err(|error| error.to_string())?;
    let body = line.whole(LONGEST).await.map_err(|error| error.to_string())?;
    pool.put_back(worker.id, line);
    if head.status.is_success() {
        Ok(body)
    } else {
        Err(format!("status {}", head.status.as_u16()))
    }
}

fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    bytes.hash(&mut hasher);
    hasher.finish()
}
