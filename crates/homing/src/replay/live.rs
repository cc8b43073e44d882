//! `--live`: the same traffic against a running endpoint, in real time, so that simulation and reality can be compared.
//!
//! Prompts are sent as token ids to `/v1/completions`, answers are streamed and have the length that the trace says. Latencies count from
//! when a request was due, so that a client that falls behind does not hide it.
//!
//! **Invariant:** at most `--concurrency` requests are under way.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use homing_domain::Tokens;
use homing_platform::{HeaderMap, HeaderName, HeaderValue, HttpClient, HttpClientConfig};
use homing_profile::{Millis, Time};
use homing_sim::fleet::{End, Outcome, Record};
use homing_sim::study::Tally;
use homing_trace::{Agenda, Answer, Conversations, Request, SessionId, Spelling, Text};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::ReplayArgs;
use super::plan::Plan;
use super::run::{PolicyRuns, Progress, Run};
use crate::stream::{Lines, Said};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_mins(10);
/// Sessions that may go on, and requests that wait for them.
const SESSIONS: usize = 1 << 18;
/// Tokens that every usual vocabulary has, without those that mean something special.
const FIRST_TOKEN: u32 = 1_000;
const WORDS: u32 = 28_000;

/// Where requests go.
#[derive(Clone)]
struct Endpoint {
    client: HttpClient,
    url: String,
    model: String,
}

/// A request that is sent.
struct Sent {
    number: u64,
    due: Time,
    began: Time,
    session: Option<SessionId>,
    text: Text,
    output: Tokens,
}

/// What came back.
#[derive(Default)]
struct Heard {
    first: Option<Duration>,
    whole: Duration,
    pieces: u32,
    generated: Option<u32>,
    cached: u32,
    tokens: Vec<u32>,
    ended: bool,
}

/// Sends all of the traffic, and says what came of it.
pub fn run(plan: &Plan, url: &str, args: &ReplayArgs) -> anyhow::Result<PolicyRuns> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let progress = Progress::new(plan.requests(), "live");
    let run = std::thread::scope(|scope| {
        scope.spawn(|| progress.show());
        let run = runtime.block_on(send_all(plan, url, args, &progress));
        progress.finish();
        run
    })?;
    Ok(PolicyRuns {
        policy: "live".to_owned(),
        tally: run.tally.clone(),
        runs: vec![run],
    })
}

async fn send_all(plan: &Plan, url: &str, args: &ReplayArgs, progress: &Progress) -> anyhow::Result<Run> {
    let endpoint = Endpoint::find(url, args).await?;
    let spelling = Spelling {
        seed: plan.setup.seed,
        first: FIRST_TOKEN,
        words: WORDS,
    };
    let mut agenda = Agenda::new(plan.traffic()?, SESSIONS);
    let mut open = Conversations::new(SESSIONS);
    let mut tally = Tally::new(0, plan.slo, plan.counted);
    let mut tasks: JoinSet<(Sent, anyhow::Result<Heard>)> = JoinSet::new();
    let (began, mut number, mut first_error) = (Instant::now(), 0, None);
    let now = || Time::from_millis(began.elapsed().as_secs_f64() * 1e3);
    loop {
        let due = agenda.due()?;
        let free = tasks.len() < args.concurrency as usize;
        if due.is_some_and(|due| due <= now()) && free {
            let Some((due, request)) = agenda.pop()? else { continue };
            let text = open.text(&request)?;
            let body = body(&endpoint.model, &request, &text, &spelling);
            let sent = Sent {
                number,
                due,
                began: now(),
                session: request.session,
                output: request.output,
                text,
            };
            number += 1;
            let endpoint = endpoint.clone();
            tasks.spawn(async move {
                let heard = endpoint.ask(body).await;
                (sent, heard)
            });
            continue;
        }
        if due.is_none() && tasks.is_empty() {
            break;
        }
        let wake = began + Duration::from_nanos(due.map_or(0, |due| due.0));
        tokio::select! {
            Some(done) = tasks.join_next() => {
                let (sent, heard) = done.context("a request was not sent to its end")?;
                if let (Err(error), None) = (&heard, &first_error) {
                    first_error = Some(format!("{error:#}"));
                }
                tally.add(&record(&sent, heard.as_ref().ok()));
                progress.add();
                if let Some(session) = sent.session {
                    answered(&mut open, session, sent, heard.ok());
                    agenda.ended(session, now());
                }
            }
            () = tokio::time::sleep_until(wake), if free && due.is_some() => {}
        }
    }
    let error = first_error.unwrap_or_default();
    ensure!(
        tally.counts.failed == 0 || tally.counts.completed > 0,
        "no request was answered; the first said: {error}"
    );
    let outcome = Outcome {
        requests: number,
        ..Outcome::default()
    };
    Ok(Run {
        seed: plan.setup.seed,
        tally,
        outcome,
        samples: Vec::new(),
    })
}

/// What a session says next is after what was said, or after a stand-in if the endpoint does not tell its tokens.
fn answered(open: &mut Conversations, session: SessionId, sent: Sent, heard: Option<Heard>) {
    let tokens = heard.map(|heard| heard.tokens).unwrap_or_default();
    let answer = if tokens.is_empty() {
        Answer::StandIn(sent.output)
    } else {
        Answer::Said(&tokens)
    };
    open.answered(session, sent.text, answer);
}

fn record(sent: &Sent, heard: Option<&Heard>) -> Record {
    let queued = sent.began.since(sent.due);
    let after = |spent: Duration| Millis(queued.0 + spent.as_secs_f64() * 1e3);
    let whole = heard.filter(|heard| heard.ended);
    let output = whole.map_or(0, |heard| heard.generated.unwrap_or(heard.pieces));
    Record {
        number: sent.number,
        router: 0,
        rank: None,
        arrived: sent.due,
        queued,
        first_token: whole.and_then(|heard| heard.first).map(after),
        whole: whole.map_or(queued, |heard| after(heard.whole)),
        prompt: sent.text.len(),
        output: Tokens(output),
        cached: Tokens(whole.map_or(0, |heard| heard.cached)),
        predicted_cached: Tokens(0),
        predicted_first_token: Millis::ZERO,
        served_first_token: None,
        attempts: 1,
        end: if whole.is_some() { End::Answered } else { End::Failed },
    }
}

fn body(model: &str, request: &Request, text: &Text, spelling: &Spelling) -> Value {
    let mut tokens = Vec::new();
    text.tokens_into(spelling, &mut tokens);
    json!({
        "model": request.adapter.as_ref().map_or(model, |adapter| adapter.as_str()),
        "prompt": tokens,
        "max_tokens": request.output.0.max(1),
        "ignore_eos": true,
        "temperature": 0,
        "stream": true,
        "stream_options": {"include_usage": true},
        // Only what goes on needs the tokens.
        "return_token_ids": request.session.is_some(),
    })
}

impl Endpoint {
    async fn find(url: &str, args: &ReplayArgs) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        for header in &args.live_header {
            let wrong = || format!("--live-header is {header:?}, expected Name: value");
            let (name, value) = header.split_once(':').with_context(wrong)?;
            let name: HeaderName = name.trim().parse().ok().with_context(wrong)?;
            let value: HeaderValue = value.trim().parse().ok().with_context(wrong)?;
            headers.insert(name, value);
        }
        let client = HttpClient::new(HttpClientConfig {
            headers,
            timeout: Some(PATIENCE),
            ..HttpClientConfig::default()
        });
        let base = url.trim_end_matches('/').trim_end_matches("/v1");
        let mut endpoint = Self {
            client,
            url: format!("{base}/v1"),
            model: String::new(),
        };
        endpoint.model = match &args.live_model {
            Some(model) => model.clone(),
            None => endpoint
                .first_model()
                .await
                .with_context(|| format!("the endpoint {url} does not tell its models"))?,
        };
        Ok(endpoint)
    }

    async fn first_model(&self) -> anyhow::Result<String> {
        let answer = self
            .client
            .get(format!("{}/models", self.url))
            .send()
            .await?
            .error_for_status()?;
        let models: Value = serde_json::from_slice(&answer.bytes().await?)?;
        let model = models["data"][0]["id"].as_str().context("there is none")?;
        Ok(model.to_owned())
    }

    async fn ask(&self, body: Value) -> anyhow::Result<Heard> {
        let began = Instant::now();
        let request = self.client.post(format!("{}/completions", self.url));
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        let mut answer = request.send().await?;
        if !answer.status().is_success() {
            let status = answer.status();
            let words: String = answer.text().await.unwrap_or_default().chars().take(200).collect();
            anyhow::bail!("the endpoint answers {status}: {words}");
        }
        let (mut heard, mut lines) = (Heard::default(), Lines::default());
        while let Some(piece) = answer.chunk().await? {
            lines.push(&piece, |said| heard.said(&said, began.elapsed()))?;
        }
        ensure!(heard.ended, "the stream broke off");
        heard.whole = heard.whole.max(heard.first.unwrap_or_default());
        Ok(heard)
    }
}

impl Heard {
    fn said(&mut self, said: &Said, at: Duration) {
        let piece = match said {
            Said::Done => {
                self.ended = true;
                return;
            }
            Said::Piece(piece) => piece,
        };
        if let Some(choice) = piece["choices"].get(0) {
            self.first.get_or_insert(at);
            self.whole = at;
            self.pieces += 1;
            let ids = choice["token_ids"].as_array().into_iter().flatten();
            self.tokens
                .extend(ids.filter_map(|id| u32::try_from(id.as_u64()?).ok()));
        }
        let usage = &piece["usage"];
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        self.generated = number(&usage["completion_tokens"]).or(self.generated);
        self.cached = number(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(self.cached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_heard_to_its_end() {
        let pieces = [
            json!({"choices": [{"text": "a", "token_ids": [5]}], "usage": null}),
            json!({"choices": [{"text": "b", "token_ids": [6]}]}),
            json!({"choices": [], "usage": {"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 48}}}),
        ];
        let mut heard = Heard::default();
        for (at, piece) in (1..).zip(pieces) {
            heard.said(&Said::Piece(piece), Duration::from_millis(at));
        }
        heard.said(&Said::Done, Duration::from_millis(4));
        assert_eq!(
            (heard.first, heard.whole),
            (Some(Duration::from_millis(1)), Duration::from_millis(2))
        );
        assert_eq!(
            (heard.generated, heard.cached, heard.tokens, heard.ended),
            (Some(2), 48, vec![5, 6], true)
        );
    }
}
