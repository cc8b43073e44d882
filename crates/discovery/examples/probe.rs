//! What does this worker say it is, how is it, and how busy is it? As one JSON object.
//!
//!     cargo run -p homing-discovery --example probe -- http://127.0.0.1:8000

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Config, EventSource, HttpUrl, WorkerSpec};
use homing_discovery::{Facts, News, Ping, RankLoad, WatchConfig, Watchers};
use homing_domain::WorkerId;
use homing_telemetry::Metrics;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How long all of it may take.
const LIMIT: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name a worker: http://HOST:PORT")?;
    let url = HttpUrl::parse(&url)?;
    let config = Config::default();
    let (to, mut notices) = mpsc::channel(16);
    let watch = WatchConfig::of(&config, Instant::now());
    let watchers = Watchers::new(watch, to, &Arc::new(Metrics::default()));
    let _watcher = watchers.watch(WorkerId(0), &url);
    let (mut facts, mut ping, mut loads) = (None, None, None);
    let learnt = async {
        while facts.is_none() || ping.is_none() || loads.is_none() {
            match notices.recv().await.map(|notice| notice.news) {
                Some(News::Facts(learnt)) => facts = Some(learnt),
                Some(News::Ping(Ping::Answered)) => ping = Some("answered"),
                Some(News::Load(learnt)) => loads = Some(learnt),
                Some(News::NoFacts(why)) => eprintln!("{why}"),
                Some(News::Ping(_) | News::Active(_)) => {}
                None => return,
            }
        }
    };
    let in_time = tokio::time::timeout(LIMIT, learnt).await.is_ok();
    let defaults = config.worker_defaults().learning();
    let said = WorkerSpec::parse(&url.to_string(), &defaults).map_err(|problems| format!("{problems:?}"))?;
    let filled = facts.as_deref().map(|facts: &Facts| facts.fill(&said, &defaults));
    let answer = json!({
        "facts": facts.as_deref().map(shown),
        "worker": filled.as_ref().map(|filled| filled.spec.to_string()),
        "learnt": filled.as_ref().map(|filled| filled.learnt.clone()),
        "mismatches": filled.as_ref().map(|filled| filled.mismatches.clone()),
        "ping": ping,
        "loads": loads.map(|loads| loads.iter().map(load).collect::<Vec<_>>()),
    });
    println!("{answer:#}");
    if in_time {
        Ok(())
    } else {
        Err("it did not say everything in time".into())
    }
}

fn shown(facts: &Facts) -> Value {
    let models =
        facts.models.iter().flatten().map(
            |model| json!({"name": model.name, "parent": model.parent, "max_len": model.max_len.map(|len| len.0)}),
        );
    let unlearnt = facts
        .unlearnt
        .iter()
        .map(|one| (one.fact.to_owned(), Value::from(one.why.clone())));
    let events = facts.events.as_ref().map(|events| match events {
        EventSource::Stream { events, replay, topic } => json!({
            "events": events.to_string(), "replay": replay.as_ref().map(ToString::to_string), "topic": topic,
        }),
        _ => json!("none"),
    });
    json!({
        "dialect": facts.dialect.map(homing_wire::Dialect::name),
        "version": facts.version,
        "models": models.collect::<Vec<_>>(),
        "block_size": facts.block_size.map(homing_domain::BlockSize::get),
        "blocks": facts.blocks.map(|blocks| blocks.0),
        "ranks": facts.ranks,
        "prefix_caching": facts.prefix_caching.map(homing_config::Switch::name),
        "reports_cached": facts.reports_cached.map(homing_config::Switch::name),
        "events": events,
        "unlearnt": unlearnt.collect::<serde_json::Map<_, _>>(),
    })
}

fn load(load: &RankLoad) -> Value {
    let report = load.report;
    json!({
        "rank": load.dp.0,
        "running": report.running,
        "waiting": report.waiting,
        "used_blocks": report.used_blocks,
        "usage": load.usage,
    })
}
