//! Each defect, and what is said of it.

use homing_config::{Config, EventSource, EventsEndpoint, Switch, WorkerSpec};
use homing_discovery::{Facts, Model};
use homing_domain::BlockSize;
use homing_wire::Dialect;

use super::judge;
use crate::finding::{Check, Outcome};
use crate::observed::{
    Compared, Counts, Kind, Observed, Probed, RankSeen, ReplaySeen, Skew, Subscription, Tokenized, Updating,
};

const EVENTS: &str = "tcp://a:5557";
const REPLAY: &str = "tcp://a:5558";

fn probed() -> Probed {
    Probed {
        prompt: 65,
        blocks: 4,
        indexed: 4,
        batches: 1,
        skipped: Vec::new(),
        lag_ms: Some(3),
        waited_ms: 12,
        first: Counts {
            prompt: Some(65),
            cached: Some(0),
        },
        again: Counts {
            prompt: Some(65),
            cached: Some(64),
        },
    }
}

/// An engine with which all is well.
fn well() -> Observed {
    let config = Config::default();
    let said = format!("http://a:8000,model=tiny,events={EVENTS},replay={REPLAY}");
    let equal = |kind| Compared {
        kind,
        outcome: Tokenized::Equal { tokens: 9 },
    };
    let spec = WorkerSpec::parse(&said, &config.worker_defaults()).unwrap();
    Observed {
        facts: Facts {
            dialect: Some(Dialect::Vllm),
            version: Some("0.32.0".to_owned()),
            models: Some(vec![Model {
                root: None,
                name: "tiny".to_owned(),
                parent: None,
                max_len: None,
            }]),
            block_size: BlockSize::new(16),
            ranks: Some(1),
            prefix_caching: Some(Switch::On),
            events: Some(spec.source.clone()),
            ..Facts::default()
        },
        spec,
        skew: Some(Skew {
            ahead_ms: -700,
            give_or_take_ms: 1500,
        }),
        updating: Updating::Allowed,
        tokens: Kind::ALL.into_iter().map(equal).collect(),
        ranks: vec![RankSeen {
            dp: 0,
            subscription: Subscription::Stands(EVENTS.to_owned()),
            replay: ReplaySeen::Answers(REPLAY.to_owned()),
            probed: Ok(probed()),
        }],
        unseen_ranks: 0,
    }
}

fn change(observed: &mut Observed, change: impl FnOnce(&mut Probed)) {
    change(observed.ranks[0].probed.as_mut().unwrap());
}

/// What is found, a line for each: severity, check, and what is to be changed.
fn found(observed: &Observed) -> Vec<String> {
    let finding = |outcome: &Outcome| match outcome {
        Outcome::Found(finding) => {
            assert!(!finding.seen.is_empty() && !finding.cost.is_empty(), "{finding:?}");
            Some(format!(
                "{} {}: {}; {}",
                finding.severity.name(),
                finding.check.name(),
                finding.seen,
                finding.change
            ))
        }
        _ => None,
    };
    judge(observed).iter().filter_map(finding).collect()
}

fn unchecked(observed: &Observed) -> Vec<Check> {
    let check = |outcome: &Outcome| matches!(outcome, Outcome::Unchecked(..)).then(|| outcome.check());
    judge(observed).iter().filter_map(check).collect()
}

#[test]
fn with_a_good_engine_nothing_is_found_and_every_check_says_something() {
    let outcomes = judge(&well());
    assert_eq!(found(&well()), Vec::<String>::new());
    assert_eq!(unchecked(&well()), Vec::<Check>::new());
    let checks: Vec<Check> = outcomes.iter().map(Outcome::check).collect();
    assert_eq!(checks, Check::ALL);
}

/// A defect: its name, how it is made, and parts of each finding that it leads to, in order.
type Defect = (&'static str, fn(&mut Observed), &'static [&'static str]);

const DEFECTS: &[Defect] = &[
    (
        "another kind of engine",
        |seen| seen.facts.dialect = None,
        &["warning engine: it answers neither"],
    ),
    (
        "another dialect",
        |seen| seen.facts.dialect = Some(Dialect::Sglang),
        &["fault engine: it answers as sglang"],
    ),
    (
        "another model",
        |seen| seen.facts.models.as_mut().unwrap()[0].name = "other".to_owned(),
        &["fault models: it serves other, and its model was said to be tiny; say model="],
    ),
    (
        "no cache",
        |seen| {
            seen.facts.prefix_caching = Some(Switch::Off);
            change(seen, |probed| {
                (probed.again.cached, probed.indexed, probed.batches) = (None, 0, 0);
            });
        },
        &["fault caching: its prefix cache is turned off; start it with --enable-prefix-caching"],
    ),
    (
        "no cache, and SGLang",
        |seen| {
            seen.facts.prefix_caching = Some(Switch::Off);
            (seen.facts.dialect, seen.spec.dialect) = (Some(Dialect::Sglang), Dialect::Sglang);
            change(seen, |probed| (probed.again.cached, probed.indexed) = (Some(0), 0));
        },
        &["fault caching: its prefix cache is turned off; start it without --disable-radix-cache"],
    ),
    (
        "no cache, which it does not say",
        |seen| {
            seen.facts.prefix_caching = None;
            change(seen, |probed| {
                (probed.again.cached, probed.indexed, probed.batches) = (Some(0), 0, 0);
            });
        },
        &[
            "fault caching: nothing of a prompt that came again",
            "fault events: after a prompt of 65 tokens no event came",
        ],
    ),
    (
        "blocks of another size",
        |seen| {
            seen.facts.block_size = BlockSize::new(24);
            change(seen, |probed| {
                probed.indexed = 0;
                probed.skipped = vec![("block_size", 1)];
            });
        },
        &[
            "fault block-size: blocks of 16 tokens here, of 24 there; say block-size=24 of this worker, or start it with --block-size 16",
            "fault events: events came, and 0 of the 4 blocks of a prompt are known by them: 1 left out as block_size",
            "warning overlap: of a prompt that came again 0 tokens were predicted to be cached, and 64 were",
        ],
    ),
    (
        "no events",
        |seen| {
            seen.facts.events = Some(EventSource::Nobody);
            seen.ranks[0].subscription = Subscription::Nobody;
            seen.ranks[0].replay = ReplaySeen::NotNeeded("nobody publishes events");
        },
        &[
            "fault events: it says that it publishes no KV events; start it with --kv-events-config '{\"enable_kv_cache_events\": true",
        ],
    ),
    (
        "events of which nothing is known",
        |seen| {
            let config = Config::default();
            seen.spec = WorkerSpec::parse("http://a,model=tiny", &config.worker_defaults().learning()).unwrap();
            seen.facts.events = None;
            seen.ranks.clear();
        },
        &["warning events: it is not known where its events are"],
    ),
    (
        "events that cannot be subscribed to",
        |seen| {
            seen.ranks[0].subscription = Subscription::Failed {
                at: EVENTS.to_owned(),
                why: "connection refused".to_owned(),
            };
        },
        &[
            "fault events: its events cannot be subscribed to at tcp://a:5557: connection refused; see that tcp://a:5557 is where",
        ],
    ),
    (
        "events of another topic",
        |seen| {
            seen.spec.source = EventSource::Stream {
                events: EventsEndpoint::parse(EVENTS).unwrap(),
                replay: None,
                topic: "x".to_owned(),
            };
        },
        &["fault events: the topic of its events is \"\", and was said to be \"x\"; say topic="],
    ),
    (
        "events that do not come",
        |seen| {
            change(seen, |probed| {
                (probed.batches, probed.indexed, probed.again.cached) = (0, 0, None);
            });
        },
        &[
            "fault events: after a prompt of 65 tokens no event came",
            "warning usage",
        ],
    ),
    (
        "events that come late",
        |seen| change(seen, |probed| probed.lag_ms = Some(60_000)),
        &["warning events: its events come 60000 ms after they were made"],
    ),
    (
        "no replay",
        |seen| {
            seen.ranks[0].replay = ReplaySeen::Nowhere;
            seen.facts.events = None;
        },
        &["warning replay: events that were lost cannot be had again; add \"replay_endpoint\""],
    ),
    (
        "a replay that nobody named",
        |seen| seen.ranks[0].replay = ReplaySeen::Nowhere,
        &["warning replay: it sends lost events again at tcp://a:5558, and was not said to; say replay=tcp://a:5558"],
    ),
    (
        "a replay that does not answer",
        |seen| {
            seen.ranks[0].replay = ReplaySeen::Failed {
                at: REPLAY.to_owned(),
                why: "silence".to_owned(),
            };
        },
        &["fault replay: the replay socket at tcp://a:5558 does not answer: silence"],
    ),
    (
        "another tokenizer",
        |seen| {
            for compared in &mut seen.tokens {
                compared.outcome = Tokenized::Differs {
                    ours: 3,
                    theirs: 4,
                    at: 1,
                };
            }
        },
        &[
            "fault tokenizer: a text is 3 tokens here and 4 there, and they differ from token 1 on; name the folder",
            "fault tokenizer: a chat is 3",
            "fault tokenizer: a chat with tools is 3",
        ],
    ),
    (
        "another template",
        |seen| {
            seen.tokens[1].outcome = Tokenized::Differs {
                ours: 3,
                theirs: 4,
                at: 1,
            };
        },
        &[
            "fault tokenizer: a chat is 3 tokens here and 4 there, and they differ from token 1 on; the tokenizers are equal",
        ],
    ),
    (
        "no template here",
        |seen| seen.tokens[2].outcome = Tokenized::NotHere("no template".to_owned()),
        &["warning tokenizer: a chat with tools cannot be made into tokens here: no template"],
    ),
    (
        "no tokenizer anywhere",
        |seen| seen.tokens[0].outcome = Tokenized::Nowhere("status 404".to_owned()),
        &["fault tokenizer: a text can be made into tokens neither here nor there: status 404"],
    ),
    (
        "no usage details",
        |seen| change(seen, |probed| probed.again.cached = None),
        &[
            "warning usage: its answers do not tell how many tokens came from the cache; start it with --enable-prompt-tokens-details",
        ],
    ),
    (
        "no usage details, and SGLang, unasked",
        |seen| {
            seen.facts.reports_cached = Some(Switch::Off);
            (seen.facts.dialect, seen.spec.dialect) = (Some(Dialect::Sglang), Dialect::Sglang);
            seen.ranks.clear();
        },
        &[
            "warning usage: it says that its answers do not tell how many tokens came from the cache; start it with --enable-cache-report",
        ],
    ),
    (
        "adapters that cannot come",
        |seen| seen.updating = Updating::Refused,
        &[
            "note adapters: LoRA adapters cannot be loaded while it runs; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
        ],
    ),
    (
        "a clock that is ahead",
        |seen| {
            seen.skew = Some(Skew {
                ahead_ms: 61_000,
                give_or_take_ms: 1500,
            });
        },
        &["warning clock: its clock is about 61 s ahead of ours; let a time service"],
    ),
    (
        "a clock that is behind, so that events seem to be late",
        |seen| {
            seen.skew = Some(Skew {
                ahead_ms: -9_000,
                give_or_take_ms: 1500,
            });
            change(seen, |probed| probed.lag_ms = Some(9_000));
        },
        &["warning clock: its clock is about 9 s behind ours"],
    ),
    (
        "less cached than predicted",
        |seen| change(seen, |probed| probed.again.cached = Some(32)),
        &["fault overlap: of a prompt that came again 64 tokens were predicted to be cached, and 32 were"],
    ),
    (
        "prompts that fail",
        |seen| seen.ranks[0].probed = Err("status 500".to_owned()),
        &["warning overlap: a prompt of a few blocks was not answered: status 500"],
    ),
];

#[test]
fn every_defect_is_named_with_what_to_change() {
    for (name, make, expected) in DEFECTS {
        let mut seen = well();
        make(&mut seen);
        let found = found(&seen);
        assert_eq!(found.len(), expected.len(), "{name}: {found:#?}");
        for (line, part) in found.iter().zip(*expected) {
            assert!(line.starts_with(part), "{name}:\n{line}\n{part}");
        }
    }
}

#[test]
fn what_is_not_looked_at_is_said() {
    let check = |make: fn(&mut Observed), expected: &[Check]| {
        let mut seen = well();
        make(&mut seen);
        assert_eq!(unchecked(&seen), expected, "{:#?}", judge(&seen));
    };
    // Without prompts.
    check(
        |seen| seen.ranks.clear(),
        &[Check::Events, Check::Replay, Check::Usage, Check::Overlap],
    );
    check(|seen| seen.facts.models = None, &[Check::Models]);
    check(|seen| seen.facts.block_size = None, &[Check::BlockSize]);
    check(|seen| seen.skew = None, &[Check::Clock]);
    check(
        |seen| seen.updating = Updating::Unknown("it".to_owned()),
        &[Check::Adapters],
    );
    check(
        |seen| {
            for compared in &mut seen.tokens {
                compared.outcome = Tokenized::OnlyThere { tokens: 3 };
            }
        },
        &[Check::Tokenizer],
    );
    check(|seen| seen.unseen_ranks = 3, &[Check::Events]);
    check(
        |seen| {
            let config = Config::default();
            seen.spec = WorkerSpec::parse("http://a,model=tiny,cache-view=none", &config.worker_defaults()).unwrap();
            seen.ranks[0].subscription = Subscription::Nobody;
            seen.ranks[0].replay = ReplaySeen::NotNeeded("nobody publishes events");
        },
        &[Check::Events, Check::Replay, Check::Overlap],
    );
}

#[test]
fn ranks_are_named_where_there_are_several() {
    let mut seen = well();
    seen.spec.ranks = 2;
    seen.ranks.push(RankSeen {
        dp: 1,
        probed: Err("status 500".to_owned()),
        ..seen.ranks[0].clone()
    });
    let found = found(&seen);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("rank 1: a prompt"), "{found:?}");
}
