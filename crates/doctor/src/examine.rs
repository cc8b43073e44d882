//! How is an engine looked at? In which order it is asked what.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homing_config::{Config, EventSource, Switch, WorkerDefaults, WorkerSpec};
use homing_discovery::{Facts, Filled, NotReached, Outward, Probe, ProbeConfig, ScopedClients};
use homing_domain::DpRank;
use homing_platform::StatusCode;
use homing_tokenize::{Clock, Dialect as Renders, LoadError, PromptOptions, Prompter};
use homing_wire::Dialect;
use serde_json::{Value, json};

use crate::http::Line;
use crate::listen::{self, Listener};
use crate::observed::{Counts, Kind, Observed, Probed, RankSeen, ReplaySeen, Skew, Subscription, Updating};
use crate::prompts;

/// Blocks of a prompt that is sent.
const BLOCKS: u32 = 4;
/// Tokens that it has at least, and at most.
const LEAST: u32 = 64;
const MOST: u32 = 8192;
/// Ranks that are looked at.
const MAX_RANKS: u16 = 16;
/// How far the second of a date may lie behind: servers write a date down for a second and use it again.
const DATE_OFF: Duration = Duration::from_millis(1500);

/// How much is done to find something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Questions only: cheap for the engine, and it computes nothing.
    Quiet,
    /// A prompt is sent twice to each rank as well, and its events are listened to.
    Prompts,
}

/// For how long something is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Each answer.
    pub answer: Duration,
    /// An answer to a prompt.
    pub prompt: Duration,
    /// A subscription, the events of a prompt, and a replay.
    pub events: Duration,
}

impl Default for Patience {
    /// 5 s, 60 s and 5 s.
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(5),
            prompt: Duration::from_mins(1),
            events: Duration::from_secs(5),
        }
    }
}

/// Looks at engines.
#[derive(Clone, Debug)]
pub struct Examiner {
    clients: ScopedClients,
    probe: Probe,
    config: Arc<Config>,
    patience: Patience,
}

/// An engine that is to be looked at.
#[derive(Clone, Debug)]
pub struct Examined {
    /// What is known of it: what was said, and what it says where nothing was said.
    pub spec: WorkerSpec,
    /// What it says of itself.
    pub facts: Facts,
    /// Makes tokens as it should, if there is a tokenizer here.
    pub prompter: Option<Arc<Prompter>>,
}

/// The tokenizer and template of a model: `folder` is the model's, or has a folder for each model as `serve.tokenizer` may.
pub fn prompter(folder: &Path, model: &str, dialect: Dialect) -> Result<Prompter, LoadError> {
    let named = folder.join(model.replace('/', "--"));
    let is_path = model.starts_with('.') || model.contains(['\\', '\0']);
    let folder = if folder.join("tokenizer.json").is_file() || is_path || !named.is_dir() {
        folder
    } else {
        &named
    };
    let renders = match dialect {
        Dialect::Sglang => Renders::Sglang,
        _ => Renders::Vllm,
    };
    let seconds = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    Prompter::load(folder, PromptOptions::new(renders, Clock::new(seconds)))
}

impl Examiner {
    /// An examiner with connections of its own.
    pub fn new(config: Arc<Config>, patience: Patience, outward: &Outward) -> Self {
        let clients = outward.clients();
        let answer = ProbeConfig {
            timeout: patience.answer,
        };
        let probe = Probe::speaking(answer, outward);
        Self {
            clients,
            probe,
            config,
            patience,
        }
    }

    /// Asks an engine what it is, and puts that together with what was said of it.
    pub async fn learn(&self, said: &WorkerSpec, defaults: &WorkerDefaults) -> Result<(Facts, Filled), NotReached> {
        let facts = self.probe.ask(&said.url).await?;
        let filled = facts.fill(said, defaults);
        Ok((facts, filled))
    }

    /// Looks at an engine.
    pub async fn look(&self, examined: &Examined, depth: Depth) -> Observed {
        let Examined { spec, facts, prompter } = examined;
        let line = Line {
            client: self.clients.of(spec.scope),
            url: &spec.url,
            limit: self.patience.answer,
        };
        let mut tokens = Vec::new();
        for kind in Kind::ALL {
            tokens.push(prompts::compare(line, kind, spec.model.as_str(), prompter.as_deref()).await);
        }
        let mut ranks = Vec::new();
        if depth == Depth::Prompts {
            for (dp, source) in spec.rank_sources().take(usize::from(MAX_RANKS)) {
                ranks.push(self.rank(examined, dp, &source).await);
            }
        }
        let looked = u16::try_from(ranks.len()).unwrap_or(u16::MAX);
        Observed {
            spec: spec.clone(),
            facts: facts.clone(),
            skew: skew(line).await,
            updating: updating(line, facts.dialect).await,
            tokens,
            unseen_ranks: match depth {
                Depth::Quiet => 0,
                Depth::Prompts => spec.ranks.saturating_sub(looked),
            },
            ranks,
        }
    }

    async fn rank(&self, examined: &Examined, dp: DpRank, source: &EventSource) -> RankSeen {
        let replay = listen::replay(source, self.patience.events).await;
        // A view waits for a replay that does not come: that is said already, and events are looked at by themselves.
        let source = match &replay {
            ReplaySeen::Failed { .. } => without_replay(source),
            _ => source.clone(),
        };
        let listener = Listener::begin(&self.config, &examined.spec, dp, &source, self.patience.events).await;
        let (subscription, probed) = match listener {
            Ok(listener) => {
                let probed = self.probed(examined, dp, &listener).await;
                (listener.subscription.clone(), probed)
            }
            Err(why) => {
                let at = "here".to_owned();
                (Subscription::Failed { at, why: why.clone() }, Err(why))
            }
        };
        RankSeen {
            dp: dp.0,
            subscription,
            replay,
            probed,
        }
    }

    /// Sends a prompt twice, and looks at the index in between.
    async fn probed(&self, examined: &Examined, dp: DpRank, listener: &Listener) -> Result<Probed, String> {
        let Examined { spec, facts, .. } = examined;
        let line = Line {
            client: self.clients.of(spec.scope),
            url: &spec.url,
            limit: self.patience.prompt,
        };
        let rank = (spec.ranks > 1).then_some(dp.0);
        let (length, whole) = length(examined);
        let model = spec.model.as_str();
        let tokens = prompts::fresh(line, model, length as usize).await;
        let body = json!({"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0});
        let send = async || {
            let answer = line.post("/v1/completions", &body, rank).await;
            answer.map(|answer| counts(&answer)).map_err(|error| error.to_string())
        };
        let first = send().await?;
        let ours = spec.block_size.get();
        let blocks = whole / ours;
        // Where the engine says that there is nothing to tell, nothing is waited for.
        let wanted = match (&facts.events, facts.prefix_caching) {
            (Some(EventSource::Nobody), _) | (_, Some(Switch::Off)) => 0,
            _ => blocks,
        };
        let heard = listener.blocks(spec, &tokens, wanted, self.patience.events).await;
        let again = send().await?;
        Ok(Probed {
            prompt: length,
            blocks,
            indexed: heard.indexed,
            batches: heard.batches,
            skipped: heard.skipped,
            lag_ms: heard.lag_ms,
            waited_ms: u64::try_from(heard.waited.as_millis()).unwrap_or(u64::MAX),
            first,
            again,
        })
    }
}

fn without_replay(source: &EventSource) -> EventSource {
    match source {
        EventSource::Stream { events, topic, .. } => EventSource::Stream {
            events: events.clone(),
            replay: None,
            topic: topic.clone(),
        },
        other => other.clone(),
    }
}

/// How many tokens a prompt has that is sent, and how many of them are in blocks that the engine fills: one more than that, because
/// engines compute the last token again.
fn length(examined: &Examined) -> (u32, u32) {
    let ours = examined.spec.block_size.get();
    let theirs = examined.facts.block_size.map_or(ours, homing_domain::BlockSize::get);
    let max_len = examined.facts.models.iter().flatten().find_map(|model| model.max_len);
    let room = max_len.map_or(MOST, |most| most.0.min(MOST)).saturating_sub(2).max(1);
    let blocks = BLOCKS.max(LEAST / theirs).min((room - 1) / theirs).max(1);
    let whole = blocks.saturating_mul(theirs);
    (whole + 1, whole)
}

fn counts(answer: &Value) -> Counts {
    let usage = &answer["usage"];
    let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
    Counts {
        prompt: count(&usage["prompt_tokens"]),
        cached: count(&usage["prompt_tokens_details"]["cached_tokens"]),
    }
}

/// How far its clock is from ours, by the date of an answer.
async fn skew(line: Line<'_>) -> Option<Skew> {
    let before = SystemTime::now();
    // Not /health, for which SGLang computes a token.
    let answer = line.get("/v1/models").await.ok()?;
    let after = SystemTime::now();
    let millis = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    };
    let (before, after) = (millis(before), millis(after));
    let ours = before + (after - before) / 2;
    let way = after.saturating_sub(before).max(0).unsigned_abs() / 2;
    let off = u64::try_from(DATE_OFF.as_millis()).unwrap_or(u64::MAX);
    Some(Skew {
        ahead_ms: millis(answer.date?) - ours,
        give_or_take_ms: off + way,
    })
}

/// Whether adapters could be loaded. vLLM knows the way to load one only where it may be gone, and a question with another verb shows
/// that without loading anything; SGLang says it.
async fn updating(line: Line<'_>, dialect: Option<Dialect>) -> Updating {
    let unknown = |why: String| Updating::Unknown(why);
    match dialect {
        Some(Dialect::Vllm) => match line.get("/v1/load_lora_adapter").await {
            Ok(answer) if answer.status == StatusCode::METHOD_NOT_ALLOWED => Updating::Allowed,
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => Updating::Refused,
            Ok(answer) => unknown(format!("/v1/load_lora_adapter answers with status {}", answer.status)),
            Err(error) => unknown(error.to_string()),
        },
        Some(Dialect::Sglang) => match line.get("/server_info").await.and_then(|answer| answer.json()) {
            Ok(info) => match info.get("enable_lora") {
                Some(Value::Bool(true)) => Updating::Allowed,
                Some(Value::Bool(false) | Value::Null) => Updating::Refused,
                _ => unknown("its /server_info does not say whether LoRA is enabled".to_owned()),
            },
            Err(error) => unknown(error.to_string()),
        },
        _ => unknown("it is not known which engine it is".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_discovery::Model;
    use homing_domain::{BlockSize, Tokens};

    #[test]
    fn a_prompt_has_whole_blocks_and_one_token_and_fits() {
        let check = |ours: u32, theirs: Option<u32>, max_len: Option<u32>, expected: (u32, u32)| {
            let config = Config::default();
            let said = format!("http://a,cache-view=none,block-size={ours}");
            let examined = Examined {
                spec: WorkerSpec::parse(&said, &config.worker_defaults()).unwrap(),
                facts: Facts {
                    block_size: theirs.and_then(BlockSize::new),
                    models: Some(vec![Model {
                        root: None,
                        name: "a".to_owned(),
                        parent: None,
                        max_len: max_len.map(Tokens),
                    }]),
                    ..Facts::default()
                },
                prompter: None,
            };
            assert_eq!(length(&examined), expected, "{ours} {theirs:?} {max_len:?}");
        };
        check(16, Some(16), None, (65, 64));
        check(16, Some(32), None, (129, 128));
        check(16, None, None, (65, 64));
        check(1, Some(1), None, (65, 64));
        check(16, Some(1024), Some(2048), (1025, 1024));
        check(16, Some(1), Some(4), (2, 1));
    }
}
