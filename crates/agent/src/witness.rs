//! When was the engine started? Asks its HTTP server, which tells Prometheus.
//!
//! An engine whose server is not there (it may be about to come up: event sockets stand earlier) is asked again while the
//! connection to its events stands; what it says late is believed. One that answers without telling is not asked again.

use std::sync::Arc;
use std::time::Duration;

use homing_config::HttpUrl;
use homing_keeper::{Fleet, Keeper};
use homing_platform::{HttpClient, HttpClientError, StatusCode};
use homing_wire::Dialect;

use crate::life::{Question, StartTime, Testimony};
use crate::shelf::{Errand, Shelf};

/// The series that tells it.
const SERIES: &str = "process_start_time_seconds";
/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tries that a server which is there and slow is given before we go on without it.
const SLOW_TRIES: u32 = 3;
/// The pause before the next try; doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The longest answer that is read.
const LONGEST: usize = 16 << 20;

/// What one try brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Started(StartTime),
    /// It answers, and does not tell.
    Nothing,
    /// It is not there.
    Absent,
    /// It is there and did not answer in time.
    Slow,
}

/// Asks the engine of one rank whenever there is a question.
pub(crate) struct Witness {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) client: HttpClient,
    /// What is asked; `None` for engines that cannot be.
    pub(crate) url: Option<HttpUrl>,
}

/// Where an engine tells when it was started, if it does.
pub(crate) fn place(worker: &HttpUrl, dialect: Dialect) -> Option<HttpUrl> {
    match dialect {
        Dialect::Vllm | Dialect::Sglang => Some(worker.join("/metrics")),
        // What stands there is handed out only once, and not for us.
        Dialect::TrtLlm => None,
    }
}

impl Witness {
    /// Runs until it is dropped, or the index is gone.
    pub(crate) async fn run(self, fleet: Arc<Fleet>) {
        let mut answered = None;
        loop {
            match self.shelf.errand(answered).await {
                Errand::Renew => {
                    let renewed = match keeper(&fleet, &self.shelf) {
                        Some(keeper) => keeper.renew(self.shelf.owner().rank).await,
                        None => return,
                    };
                    if renewed.is_err() {
                        return;
                    }
                }
                Errand::Ask(question) => {
                    self.ask(question).await;
                    answered = Some(question);
                }
            }
        }
    }

    /// Asks until the engine has said something, or the question is not the newest any more.
    async fn ask(&self, question: Question) {
        let Some(url) = &self.url else {
            self.shelf.testify(question, Testimony::Silent);
            return;
        };
        let mut pause = PAUSE;
        let mut slow = 0;
        while self.shelf.question() == Some(question) {
            let said = self.try_once(url).await;
            match said {
                Said::Started(started) => {
                    self.shelf.testify(question, Testimony::Started(started));
                    return;
                }
                Said::Nothing => {
                    self.shelf.testify(question, Testimony::Silent);
                    return;
                }
                Said::Absent => self.shelf.testify(question, Testimony::Silent),
                Said::Slow => {
                    slow += 1;
                    if slow == SLOW_TRIES {
                        self.shelf.testify(question, Testimony::Silent);
                    }
                }
            }
            self.rest(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, but not when there is something else to do.
    async fn rest(&self, pause: Duration) {
        let asked = self.shelf.question();
        let other = async {
            loop {
                let changed = self.shelf.changed();
                if self.shelf.question() != asked {
                    return;
                }
                changed.await;
            }
        };
        // Either way it is looked at what is to be done now.
        let _ = tokio::time::timeout(pause, other).await;
    }

    async fn try_once(&self, url: &HttpUrl) -> Said {
        match tokio::time::timeout(PATIENCE, self.fetch(url)).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) if error.is_timeout() => Said::Slow,
            Ok(Err(_)) => Said::Absent,
            Err(_) => Said::Slow,
        }
    }

    async fn fetch(&self, url: &HttpUrl) -> Result<Said, HttpClientError> {
        let mut response = self.client.get(url.to_string()).send().await?;
        match response.status() {
            StatusCode::OK => {}
            // It is starting, or somebody before it says that it is not there.
            status if status.is_server_error() => return Ok(Said::Absent),
            _ => return Ok(Said::Nothing),
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await? {
            body.extend_from_slice(&piece);
            if body.len() > LONGEST {
                break;
            }
        }
        Ok(start_time(&String::from_utf8_lossy(&body)).map_or(Said::Nothing, Said::Started))
    }
}

fn keeper<'a>(fleet: &'a Fleet, shelf: &Shelf) -> Option<&'a Keeper> {
    let mut keepers = fleet.keepers();
    let found = keepers.find(|(subject, _)| **subject == shelf.owner().subject);
    found.map(|(_, keeper)| keeper)
}

/// The value of the series, with labels or without.
fn start_time(metrics: &str) -> Option<StartTime> {
    let value = |line: &str| {
        let rest = line.strip_prefix(SERIES)?;
        let rest = match rest.strip_prefix('{') {
            Some(labelled) => labelled.split_once('}')?.1,
            None => rest,
        };
        let seconds: f64 = rest
            .strip_prefix([' ', '\t'])?
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        (seconds.is_finite() && seconds > 0.0).then(|| StartTime::from_seconds(seconds))
    };
    metrics.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_among_other_series() {
        let found = |text| start_time(text);
        let expected = Some(StartTime::from_seconds(1.785e9));
        for text in [
            "# HELP process_start_time_seconds x\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.785e+09\n",
            "a 1\nprocess_start_time_seconds{pid=\"7\"} 1785000000 123\nb 2",
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
        for text in [
            "",
            "process_start_time_seconds",
            "process_start_time_seconds NaN",
            "process_start_time_seconds 0",
            "process_start_time_seconds_total 5",
            "process_start_time_seconds{ 5",
            "process_start_time_seconds five",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
