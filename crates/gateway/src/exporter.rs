//! How do spans come to a collector? A queue, and a task that sends what is in it.
//!
//! **Invariant:** no request waits for it: what does not fit into the queue, and what the collector does not take, is dropped and counted.
//!
//! It is our own and small: OTLP has a JSON form that collectors take over HTTP, and the crates of OpenTelemetry would bring a runtime of
//! their own ideas, protobuf and a second HTTP stack for the same few hundred bytes.

use std::sync::Arc;
use std::time::Duration;

use homing_config::HttpUrl;
use homing_platform::{HttpClient, HttpClientConfig, HttpResponse};
use homing_telemetry::Metrics;
use homing_telemetry::trace::{Span, otlp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Spans of one message to the collector, at least, before it is sent without waiting for more.
const ENOUGH: usize = 512;
/// How long a span waits for others.
const LINGER: Duration = Duration::from_millis(500);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is said that the collector does not take spans.
const COMPLAIN: Duration = Duration::from_mins(1);

/// Where spans go.
#[derive(Clone, Debug)]
pub(crate) struct ExporterConfig {
    /// The collector: `/v1/traces` below it takes them.
    pub(crate) endpoint: HttpUrl,
    /// What we are called there.
    pub(crate) service: String,
    /// Requests whose spans wait.
    pub(crate) queue: usize,
}

enum Word {
    Spans(Vec<Span>),
    /// Everything before this is to be sent; then say so.
    Flush(oneshot::Sender<()>),
}

/// Sends spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    queue: mpsc::Sender<Word>,
    metrics: Arc<Metrics>,
}

impl Exporter {
    /// Starts the task that sends.
    pub(crate) fn start(config: ExporterConfig, metrics: Arc<Metrics>) -> Self {
        let client = HttpClient::new(HttpClientConfig {
            timeout: Some(PATIENCE),
            ..HttpClientConfig::default()
        });
        let (queue, taken) = mpsc::channel(config.queue.max(1));
        let sender = Sender {
            client,
            url: format!("{}/v1/traces", config.endpoint),
            service: config.service,
            metrics: metrics.clone(),
            complained: None,
        };
        tokio::spawn(sender.run(taken));
        Self { queue, metrics }
    }

    /// The spans of one request.
    pub(crate) fn tell(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if count > 0 && self.queue.try_send(Word::Spans(spans)).is_err() {
            self.metrics.gateway.dropped_spans.add(count);
        }
    }

    /// Sends what is left, within the time that the collector may take.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let flushing = async {
            if self.queue.send(Word::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, flushing).await;
    }
}

struct Sender {
    client: HttpClient,
    url: String,
    service: String,
    metrics: Arc<Metrics>,
    /// When it was last said that something is wrong.
    complained: Option<Instant>,
}

impl Sender {
    async fn run(mut self, mut taken: mpsc::Receiver<Word>) {
        while let Some(first) = taken.recv().await {
            let mut spans = Vec::new();
            let mut flushed = None;
            let until = Instant::now() + LINGER;
            let mut word = Some(first);
            loop {
                match word.take() {
                    Some(Word::Spans(more)) => spans.extend(more),
                    Some(Word::Flush(done)) => {
                        flushed = Some(done);
                        break;
                    }
                    None => break,
                }
                if spans.len() >= ENOUGH {
                    break;
                }
                // Time is up, or nobody is left.
                word = timeout_at(until, taken.recv()).await.ok().flatten();
            }
            self.send(&spans).await;
            if let Some(done) = flushed {
                let _ = done.send(());
            }
        }
    }

    async fn send(&mut self, spans: &[Span]) {
        if spans.is_empty() {
            return;
        }
        let body = otlp(&self.service, env!("CARGO_PKG_VERSION"), spans).to_string();
        let request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .body(body);
        let sent = request.send().await.and_then(HttpResponse::error_for_status);
        let count = spans.len() as u64;
        match sent {
            Ok(_) => self.metrics.gateway.sent_spans.add(count),
            Err(error) => {
                self.metrics.gateway.dropped_spans.add(count);
                if self.complained.is_none_or(|last| last.elapsed() > COMPLAIN) {
                    self.complained = Some(Instant::now());
                    tracing::warn!(collector = %self.url, %error, "spans are not taken");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::fresh;
    use homing_telemetry::trace::SpanKind;

    fn span() -> Span {
        Span {
            trace: 1,
            id: fresh(),
            parent: None,
            name: "request".to_owned(),
            kind: SpanKind::Server,
            start: 1,
            end: 2,
            attributes: Vec::new(),
            links: Vec::new(),
            failed: None,
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
        let metrics = Arc::new(Metrics::default());
        let config = ExporterConfig {
            endpoint: HttpUrl::parse("http://127.0.0.1:1").unwrap(),
            service: "homing".to_owned(),
            queue: 2,
        };
        let exporter = Exporter::start(config, metrics.clone());
        // The task that sends has not run yet: this one has not waited for anything.
        for _ in 0..5 {
            exporter.tell(vec![span(), span()]);
        }
        assert_eq!(metrics.gateway.dropped_spans.get(), 6);
        exporter.flush().await;
        assert_eq!(metrics.gateway.dropped_spans.get(), 10, "nobody takes the others");
        assert_eq!(metrics.gateway.sent_spans.get(), 0);
    }
}
