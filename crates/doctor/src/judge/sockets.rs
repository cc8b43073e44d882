//! Do events arrive, and can those that were lost be had again?

use homing_config::{CacheView, EventSource, Switch, ViewBy};

use super::{Words, flag, found, of_rank, unlearnt};
use crate::finding::{Check, Outcome, Severity};
use crate::observed::{Observed, Probed, RankSeen, ReplaySeen, Subscription};

/// How a publisher is turned on.
const VLLM: &str = "start it with --kv-events-config '{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", \"endpoint\": \
                    \"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\"}' and say events=tcp://HOST:5557,replay=tcp://HOST:5558 \
                    of this worker";
const SGLANG: &str = "start it with --kv-events-config '{\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\", \
                      \"replay_endpoint\": \"tcp://*:5558\"}' and say events=tcp://HOST:5557,replay=tcp://HOST:5558 of this worker";
/// What it costs that nothing is heard.
const GUESSED: &str = "what it has cached can only be guessed from what was sent there: what it evicts, and that it restarts, is not seen";
/// Batches that come later than this are slow.
const SLOW_MS: u64 = 5000;

pub(super) fn events(observed: &Observed) -> Vec<Outcome> {
    let spec = &observed.spec;
    if spec.cache_view != CacheView::Events && spec.view_by == ViewBy::Choice {
        let asked = spec.cache_view.name();
        return vec![Outcome::Unchecked(
            Check::Events,
            format!("cache-view={asked} was asked for"),
        )];
    }
    if observed.facts.prefix_caching == Some(Switch::Off) {
        return vec![Outcome::Unchecked(
            Check::Events,
            "its prefix cache is turned off, so there is nothing to tell".to_owned(),
        )];
    }
    match (&spec.source, &observed.facts.events) {
        (_, Some(EventSource::Nobody)) => vec![nobody(observed)],
        (EventSource::Nobody, None) => vec![found(
            Check::Events,
            Severity::Warning,
            Words {
                seen: format!("it is not known where its events are: {}", unlearnt(observed, "events")),
                cost: GUESSED.to_owned(),
                change: flag(spec, VLLM, SGLANG).to_owned(),
            },
        )],
        _ => heard(observed),
    }
}

fn nobody(observed: &Observed) -> Outcome {
    found(
        Check::Events,
        Severity::Fault,
        Words {
            seen: "it says that it publishes no KV events".to_owned(),
            cost: GUESSED.to_owned(),
            change: flag(&observed.spec, VLLM, SGLANG).to_owned(),
        },
    )
}

fn heard(observed: &Observed) -> Vec<Outcome> {
    if let Some(outcome) = other_topic(observed) {
        return vec![outcome];
    }
    if observed.ranks.is_empty() {
        let why = "no prompt was to be sent whose events would be waited for".to_owned();
        return vec![Outcome::Unchecked(Check::Events, why)];
    }
    let mut outcomes: Vec<Outcome> = observed.ranks.iter().map(|rank| of_one(observed, rank)).collect();
    if observed.unseen_ranks > 0 {
        let why = format!("{} further ranks were not looked at", observed.unseen_ranks);
        outcomes.push(Outcome::Unchecked(Check::Events, why));
    }
    outcomes
}

/// A topic that does not begin as was said: nothing would ever come.
fn other_topic(observed: &Observed) -> Option<Outcome> {
    let (EventSource::Stream { topic, .. }, Some(EventSource::Stream { topic: told, .. })) =
        (&observed.spec.source, &observed.facts.events)
    else {
        return None;
    };
    if told.starts_with(topic.as_str()) {
        return None;
    }
    Some(found(
        Check::Events,
        Severity::Fault,
        Words {
            seen: format!("the topic of its events is {told:?}, and was said to be {topic:?}"),
            cost: "none of its events is received".to_owned(),
            change: format!("say topic={told} of this worker, or nothing, which takes every topic"),
        },
    ))
}

fn of_one(observed: &Observed, rank: &RankSeen) -> Outcome {
    let name = of_rank(observed, rank.dp);
    match (&rank.subscription, &rank.probed) {
        (Subscription::Nobody, _) => Outcome::Unchecked(Check::Events, format!("{name}nobody is listened to")),
        (Subscription::Failed { at, why }, _) => found(
            Check::Events,
            Severity::Fault,
            Words {
                seen: format!("{name}its events cannot be subscribed to at {at}: {why}"),
                cost: GUESSED.to_owned(),
                change: format!(
                    "see that {at} is where it publishes and can be reached from here; in --kv-events-config \"endpoint\" must \
                     be \"tcp://*:PORT\", because with a host vLLM connects in place of listening"
                ),
            },
        ),
        (Subscription::Stands(at), Err(_)) => Outcome::Unchecked(
            Check::Events,
            format!("{name}a subscription stands at {at}, and no prompt was answered"),
        ),
        (Subscription::Stands(at), Ok(probed)) => arrived(observed, &name, at, probed),
    }
}

fn arrived(observed: &Observed, name: &str, at: &str, probed: &Probed) -> Outcome {
    let Probed {
        blocks,
        indexed,
        batches,
        prompt,
        waited_ms,
        ..
    } = probed;
    let fault = |seen: String, cost: &str, change: String| {
        let cost = cost.to_owned();
        found(Check::Events, Severity::Fault, Words { seen, cost, change })
    };
    if *batches == 0 {
        return fault(
            format!("{name}after a prompt of {prompt} tokens no event came at {at} within {waited_ms} ms"),
            GUESSED,
            flag(&observed.spec, VLLM, SGLANG).to_owned(),
        );
    }
    if indexed < blocks {
        let why: Vec<String> = probed
            .skipped
            .iter()
            .map(|(why, count)| format!("{count} left out as {why}"))
            .collect();
        let why = if why.is_empty() {
            "they were of other blocks".to_owned()
        } else {
            why.join(", ")
        };
        return fault(
            format!("{name}events came, and {indexed} of the {blocks} blocks of a prompt are known by them: {why}"),
            "what it has cached is not known, and requests do not go where their prefix is",
            "change first what else is found here; docs/wire-formats.md says what is left out and why".to_owned(),
        );
    }
    if let Some(lag) = probed.lag_ms.filter(|lag| *lag > SLOW_MS && !is_skewed(observed)) {
        return found(
            Check::Events,
            Severity::Warning,
            Words {
                seen: format!("{name}its events come {lag} ms after they were made"),
                cost: "requests that follow each other closely do not find the prefix of the one before".to_owned(),
                change: "see what is between it and here, and how busy its process is".to_owned(),
            },
        );
    }
    Outcome::Well(
        Check::Events,
        format!("{name}the {blocks} blocks of a prompt came at {at} within {waited_ms} ms"),
    )
}

fn is_skewed(observed: &Observed) -> bool {
    observed
        .skew
        .is_none_or(|skew| skew.ahead_ms.unsigned_abs() > skew.give_or_take_ms)
}

pub(super) fn replay(observed: &Observed) -> Vec<Outcome> {
    let told = match &observed.facts.events {
        Some(EventSource::Stream { replay, .. }) => replay.as_ref(),
        _ => None,
    };
    if observed.ranks.is_empty() {
        // What was said and what it says can be compared without asking.
        return match &observed.spec.source {
            EventSource::Stream { replay: None, .. } => vec![nowhere("", told.map(ToString::to_string))],
            EventSource::Stream { .. } => vec![Outcome::Unchecked(
                Check::Replay,
                "it is asked when something is missing".to_owned(),
            )],
            _ => vec![Outcome::Unchecked(Check::Replay, "nobody publishes events".to_owned())],
        };
    }
    let each = observed.ranks.iter().map(|rank| {
        let name = of_rank(observed, rank.dp);
        match &rank.replay {
            ReplaySeen::Answers(at) => Outcome::Well(Check::Replay, format!("{name}{at} answers")),
            ReplaySeen::NotNeeded(why) => Outcome::Unchecked(Check::Replay, format!("{name}{why}")),
            ReplaySeen::Nowhere => nowhere(&name, told.map(ToString::to_string)),
            ReplaySeen::Failed { at, why } => found(
                Check::Replay,
                Severity::Fault,
                Words {
                    seen: format!("{name}the replay socket at {at} does not answer: {why}"),
                    cost: LOST.to_owned(),
                    change: format!(
                        "see that {at} is its \"replay_endpoint\" in --kv-events-config and can be reached from here, or leave \
                         replay= out"
                    ),
                },
            ),
        }
    });
    each.collect()
}

const LOST: &str =
    "after a broken connection or a lost batch its view begins with nothing, and holds only what is cached later";

fn nowhere(name: &str, told: Option<String>) -> Outcome {
    let (seen, change) = match told {
        Some(at) => (
            format!("{name}it sends lost events again at {at}, and was not said to"),
            format!("say replay={at} of this worker"),
        ),
        None => (
            format!("{name}events that were lost cannot be had again"),
            "add \"replay_endpoint\": \"tcp://*:5558\" to its --kv-events-config and say replay=tcp://HOST:5558 of this worker, or put \
             `homing agent` beside it"
                .to_owned(),
        ),
    };
    found(
        Check::Replay,
        Severity::Warning,
        Words {
            seen,
            cost: LOST.to_owned(),
            change,
        },
    )
}
