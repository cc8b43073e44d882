//! Reads the body of a request into one buffer, within its limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use homing_telemetry::BodyRefusal;
use http_body::Body;
use http_body_util::BodyExt as _;
use thiserror::Error;
use tokio::time::Instant;

use crate::budget::{BodyBudget, BodyBuffer, BodyOwner, BudgetExceeded};

/// Limits of one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// How long it may be.
    pub max_bytes: u64,
    /// How long it may take to come.
    pub timeout: Duration,
    /// How fast it must come, on average over each window; 0: no limit.
    pub min_bytes_per_second: u64,
    /// Over how long a time that is measured.
    pub window: Duration,
}

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// It is too long.
    #[error("the request has more than {0} bytes")]
    TooLarge(u64),
    /// It was not complete in time.
    #[error("the request was not complete after {0:?}")]
    Timeout(Duration),
    /// It came too slowly.
    #[error("the request came more slowly than {min_bytes_per_second} bytes per second over {window:?}")]
    TooSlow {
        /// The least rate.
        min_bytes_per_second: u64,
        /// The time over which it is measured.
        window: Duration,
    },
    /// There is no memory for it.
    #[error("{}", .0.message())]
    Budget(BudgetExceeded),
    /// The connection broke, or the body is malformed.
    #[error("the request cannot be read: {0}")]
    Broken(String),
}

impl BodyError {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge(_) => 413,
            Self::Timeout(_) | Self::TooSlow { .. } => 408,
            Self::Budget(_) => 503,
            Self::Broken(_) => 400,
        }
    }

    fn label(&self) -> Option<BodyRefusal> {
        match self {
            Self::TooLarge(_) => Some(BodyRefusal::TooLarge),
            Self::Timeout(_) => Some(BodyRefusal::Timeout),
            Self::TooSlow { .. } => Some(BodyRefusal::TooSlow),
            Self::Budget(exceeded) => Some(exceeded.label()),
            Self::Broken(_) => None,
        }
    }
}

impl From<BudgetExceeded> for BodyError {
    fn from(exceeded: BudgetExceeded) -> Self {
        Self::Budget(exceeded)
    }
}

impl BodyBudget {
    /// Reads a body. It counts against the budget until the last copy of it is dropped.
    pub async fn read<B>(self: &Arc<Self>, body: B, owner: BodyOwner, limits: &BodyLimits) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let read = read(self, body, owner, limits).await;
        if let Err(error) = &read {
            self.count(error);
        }
        read
    }

    fn count(&self, error: &BodyError) {
        if let Some(label) = error.label() {
            self.metrics().http.refused_bodies.of(label).add(1);
        }
    }
}

async fn read<B>(
    budget: &Arc<BodyBudget>,
    mut body: B,
    owner: BodyOwner,
    limits: &BodyLimits,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    let too_large = || BodyError::TooLarge(limits.max_bytes);
    let hint = body.size_hint();
    if hint.lower() > limits.max_bytes {
        return Err(too_large());
    }
    let declared = hint.exact().and_then(|length| usize::try_from(length).ok());
    let mut buffer = BodyBuffer::new(budget, owner, declared);
    let deadline = Instant::now() + limits.timeout;
    let mut rate = RateCheck::new(limits);
    loop {
        let until = rate.window_end.map_or(deadline, |end| end.min(deadline));
        match tokio::time::timeout_at(until, body.frame()).await {
            Ok(None) => return Ok(buffer.into_bytes()),
            Ok(Some(Err(error))) => return Err(BodyError::Broken(error.to_string())),
            Ok(Some(Ok(frame))) => {
                let Ok(piece) = frame.into_data() else { continue };
                if (buffer.len() + piece.len()) as u64 > limits.max_bytes {
                    return Err(too_large());
                }
                buffer.push(&piece)?;
            }
            Err(_) if Instant::now() >= deadline => return Err(BodyError::Timeout(limits.timeout)),
            Err(_) => rate.end_window(buffer.len() as u64)?,
        }
    }
}

/// Measures how fast a body comes, one window after the other.
struct RateCheck {
    min_bytes_per_second: u64,
    window: Duration,
    /// `None` where there is no least rate.
    window_end: Option<Instant>,
    bytes_before: u64,
}

impl RateCheck {
    fn new(limits: &BodyLimits) -> Self {
        let window_end = (limits.min_bytes_per_second > 0).then(|| Instant::now() + limits.window);
        Self {
            min_bytes_per_second: limits.min_bytes_per_second,
            window: limits.window,
            window_end,
            bytes_before: 0,
        }
    }

    fn end_window(&mut self, bytes: u64) -> Result<(), BodyError> {
        let needed = self.min_bytes_per_second as f64 * self.window.as_secs_f64();
        if ((bytes - self.bytes_before) as f64) < needed {
            return Err(BodyError::TooSlow {
                min_bytes_per_second: self.min_bytes_per_second,
                window: self.window,
            });
        }
        self.bytes_before = bytes;
        self.window_end = Some(Instant::now() + self.window);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::sync::mpsc;

    const LIMITS: BodyLimits = BodyLimits {
        max_bytes: 100_000,
        timeout: Duration::from_mins(1),
        min_bytes_per_second: 1024,
        window: Duration::from_secs(10),
    };

    type Pieces = mpsc::Sender<Result<Frame<Bytes>, String>>;

    fn owner() -> BodyOwner {
        BodyOwner::Address([10, 0, 0, 1].into())
    }

    /// A body whose pieces are sent by hand.
    fn body() -> (Pieces, impl Body<Data = Bytes, Error = String> + Unpin) {
        let (send, mut receive) = mpsc::channel(4);
        let stream = futures_util::stream::poll_fn(move |cx| receive.poll_recv(cx));
        (send, StreamBody::new(stream))
    }

    async fn send(pieces: &Pieces, bytes: usize) {
        let _ = pieces.send(Ok(Frame::data(vec![b'x'; bytes].into()))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_steadily_is_read_however_long_it_takes() {
        let budget = BodyBudget::new(Some(1 << 20), &Arc::default());
        let (pieces, body) = body();
        let sending = tokio::spawn(async move {
            for _ in 0..5 {
                send(&pieces, 10_300).await;
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        });
        let read = budget.read(body, owner(), &LIMITS).await.unwrap();
        assert_eq!(read.len(), 51_500);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_refused_after_one_window() {
        let metrics = Arc::default();
        let budget = BodyBudget::new(Some(1 << 20), &metrics);
        let (pieces, body) = body();
        tokio::spawn(async move {
            loop {
                send(&pieces, 100).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let began = Instant::now();
        let error = budget.read(body, owner(), &LIMITS).await.unwrap_err();
        assert_eq!((error.status(), began.elapsed().as_secs()), (408, 10));
        assert_eq!(metrics.http.refused_bodies.of(BodyRefusal::TooSlow).get(), 1);
        assert_eq!(metrics.http.held_body_bytes.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_time_and_its_length() {
        let budget = BodyBudget::new(Some(1 << 20), &Arc::default());
        let no_rate = BodyLimits {
            min_bytes_per_second: 0,
            ..LIMITS
        };
        let (pieces, silent) = body();
        let error = budget.read(silent, owner(), &no_rate).await.unwrap_err();
        assert_eq!(error, BodyError::Timeout(LIMITS.timeout));
        drop(pieces);
        let (pieces, long) = body();
        tokio::spawn(async move {
            send(&pieces, 60_000).await;
            send(&pieces, 60_000).await;
        });
        let error = budget.read(long, owner(), &LIMITS).await.unwrap_err();
        assert_eq!(error, BodyError::TooLarge(LIMITS.max_bytes));
        let declared = http_body_util::Full::new(Bytes::from(vec![0; 100_001]));
        let error = budget.read(declared, owner(), &LIMITS).await.unwrap_err();
        assert_eq!(error.status(), 413);
    }

    #[tokio::test]
    async fn what_breaks_or_does_not_fit_gives_its_memory_back() {
        let metrics = Arc::default();
        let budget = BodyBudget::new(Some(40_000), &metrics);
        let (pieces, broken) = body();
        send(&pieces, 10_000).await;
        let _ = pieces.send(Err("cut".to_owned())).await;
        let error = budget.read(broken, owner(), &LIMITS).await.unwrap_err();
        assert_eq!(error.status(), 400);
        let large = http_body_util::Full::new(Bytes::from(vec![0; 30_000]));
        let error = budget.read(large, owner(), &LIMITS).await.unwrap_err();
        assert_eq!(error, BodyError::Budget(BudgetExceeded::ClientShare));
        assert_eq!(metrics.http.held_body_bytes.get(), 0);
        let small = http_body_util::Full::new(Bytes::from(vec![0; 15_000]));
        let read = budget.read(small, owner(), &LIMITS).await.unwrap();
        assert_eq!(metrics.http.held_body_bytes.get(), 15_000);
        drop(read);
        assert_eq!(metrics.http.held_body_bytes.get(), 0);
    }
}
