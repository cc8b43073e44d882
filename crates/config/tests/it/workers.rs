//! Are workers read the same from everywhere, and is what is wrong with them said well?

use expect_test::{Expect, expect};
use homing_config::worker::{WorkerKey, WorkerProblem};
use homing_config::{
    CacheView, Config, EventSource, FileText, Inputs, KnobId, Rejected, Resolved, ViewBy, WithoutSource,
    WorkerDefaults, WorkerSpec, resolve,
};
use homing_domain::{BlockSize, DpRank, Role};
use proptest::prelude::*;

const FULL: &str = "http://10.0.0.1:8000,events=bind:tcp://:5557,replay=tcp://10.0.0.1:5600,role=decode,model=qwen,\
    block-size=32,label=zone=b,label=gpu=h200,dialect=sglang,ranks=2,topic=kv,cache-view=events,copies=set";

fn flags(workers: &[&str]) -> Inputs {
    Inputs {
        worker_flags: workers.iter().map(|&text| text.to_owned()).collect(),
        ..Inputs::default()
    }
}

fn file(text: &str) -> Inputs {
    Inputs {
        file: Some(FileText {
            name: "homing.toml".to_owned(),
            text: text.to_owned(),
        }),
        ..Inputs::default()
    }
}

fn accepted(inputs: &Inputs) -> Resolved {
    resolve(inputs).unwrap_or_else(|rejected| panic!("{rejected}"))
}

fn refused(inputs: &Inputs) -> Rejected {
    resolve(inputs).expect_err("something is wrong with it")
}

fn rejected(inputs: &Inputs, expected: &Expect) {
    expected.assert_eq(&refused(inputs).to_string());
}

fn urls(resolved: &Resolved) -> Vec<String> {
    let workers = resolved.config.workers.iter();
    workers.map(|worker| worker.url.to_string()).collect()
}

#[test]
fn flag_variable_and_file_say_the_same() {
    let table = r#"
        [[worker]]
        url = "http://10.0.0.1:8000"
        events = "bind:tcp://:5557"
        replay = "tcp://10.0.0.1:5600"
        role = "decode"
        model = "qwen"
        block-size = 32
        labels = { zone = "b", gpu = "h200" }
        dialect = "sglang"
        ranks = 2
        topic = "kv"
        cache-view = "events"
        copies = "set"
    "#;
    let from_flag = accepted(&flags(&[FULL]));
    let from_variable = accepted(&Inputs {
        worker_variable: format!("\n  {FULL}\n"),
        ..Inputs::default()
    });
    let from_file = accepted(&file(table));
    assert_eq!(from_flag.config, from_variable.config);
    assert_eq!(from_flag.config, from_file.config);
    let sources = [&from_flag, &from_variable, &from_file].map(|resolved| resolved.workers_source.to_string());
    assert_eq!(
        sources,
        [
            "from flag --worker",
            "from variable HOMING_WORKER",
            "from file homing.toml"
        ]
    );
    expect![[r#"
        WorkerSpec {
            url: HttpUrl {
                scheme: Http,
                host: "10.0.0.1",
                port: 8000,
                path: "",
            },
            cache_view: Events,
            view_by: Choice,
            source: Stream {
                events: EventsEndpoint {
                    mode: Bind,
                    endpoint: Tcp {
                        host: "127.0.0.1",
                        port: 5557,
                    },
                },
                replay: Some(
                    Tcp {
                        host: "10.0.0.1",
                        port: 5600,
                    },
                ),
                topic: "kv",
            },
            role: Decode,
            model: ModelName(
                "qwen",
            ),
            block_size: BlockSize(
                32,
            ),
            labels: [
                WorkerLabel {
                    key: "gpu",
                    value: "h200",
                },
                WorkerLabel {
                    key: "zone",
                    value: "b",
                },
            ],
            dialect: Sglang,
            ranks: 2,
            copies: Set,
            scope: Any,
        }
    "#]]
    .assert_debug_eq(&from_flag.config.workers[0]);
}

#[test]
fn what_a_worker_does_not_say_comes_from_the_settings() {
    let inputs = Inputs {
        flags: vec![
            (KnobId::Model, "llama".to_owned()),
            (KnobId::BlockSize, "64".to_owned()),
            (KnobId::Copies, "set".to_owned()),
        ],
        ..flags(&["http://a,agent=http://a:7600", "http://b,model=x,cache-view=none"])
    };
    let config = accepted(&inputs).config;
    let shown: Vec<String> = config.workers.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "http://a,agent=http://a:7600,role=both,model=llama,block-size=64,dialect=vllm,ranks=1,cache-view=events,copies=set",
            "http://b,role=both,model=x,block-size=64,dialect=vllm,ranks=1,cache-view=none,copies=set",
        ]
    );
}

#[test]
fn lists_replace_each_other_and_are_not_mixed() {
    let table = "[[worker]]\nurl = \"http://f\"\ncache-view = \"none\"";
    let mut inputs = file(table);
    assert_eq!(urls(&accepted(&inputs)), ["http://f"]);
    inputs.worker_variable = "http://v,cache-view=none http://w,cache-view=none".to_owned();
    assert_eq!(urls(&accepted(&inputs)), ["http://v", "http://w"]);
    inputs.worker_flags = vec!["http://g,cache-view=none".to_owned()];
    assert_eq!(urls(&accepted(&inputs)), ["http://g"]);
    inputs.worker_variable = "http://v,rolle=both".to_owned();
    rejected(
        &inputs,
        &expect!["worker 1 (http://v), from variable HOMING_WORKER: there is no key `rolle`; did you mean `role`?"],
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let mut inputs = flags(&[
        "http://a:8000,evnts=tcp://a:5557,role=all,ranks=0",
        "engine:8000,events=tcp://*:5557,events=tcp://b:1,block-size=many",
        "events=tcp://c:5557",
        "http://d,,label=zone,label=a=b,label=a=c,colour=red",
    ]);
    inputs.flags = vec![(KnobId::MaxRanks, "0".to_owned())];
    rejected(
        &inputs,
        &expect![[r#"
            `index.max-ranks` = "0", from flag --index-max-ranks: out of range, must be 1 to 16384 ranks
            worker 1 (http://a:8000), from flag --worker: there is no key `evnts`; did you mean `events`?
            worker 1 (http://a:8000), from flag --worker: `role` = "all": must be prefill | decode | both
            worker 1 (http://a:8000), from flag --worker: `ranks` = "0": must be 1 to 1024 ranks
            worker 2 (engine:8000), from flag --worker: `url` = "engine:8000": must begin with http:// or https://
            worker 2 (engine:8000), from flag --worker: `events` = "tcp://*:5557": can be bound but not connected to: name the engine's host, or write `bind:` before it if the engine connects
            worker 2 (engine:8000), from flag --worker: `events` is given twice
            worker 2 (engine:8000), from flag --worker: `block-size` = "many": must be 1 to 1024 tokens
            worker 3, from flag --worker: `url` is missing; a worker is written as URL[,KEY=VALUE]...
            worker 4 (http://d), from flag --worker: "" is not KEY=VALUE
            worker 4 (http://d), from flag --worker: `label` = "zone": must be KEY=VALUE
            worker 4 (http://d), from flag --worker: `label=a` is given twice
            worker 4 (http://d), from flag --worker: there is no key `colour`"#]],
    );
}

#[test]
fn the_file_has_ways_of_its_own_to_be_wrong() {
    let table = r#"
        [[worker]]
        url = "http://a"
        label = "zone=a"
        block_size = 16
        ranks = true
        labels = { zone = 1, "k=v" = "x", ok = "a b" }
        [[worker]]
        url = "http://b"
        labels = "zone=a"
    "#;
    rejected(
        &file(table),
        &expect![[r#"
            worker 1 (http://a), from file homing.toml: there is no key `block_size`; did you mean `block-size`?
            worker 1 (http://a), from file homing.toml: there is no key `label`; did you mean `labels`?
            worker 1 (http://a), from file homing.toml: `labels.k=v` = "x": must be 1 to 256 characters, none a space or a comma, and its key as well, without `=`
            worker 1 (http://a), from file homing.toml: `labels.ok` = "a b": must be 1 to 256 characters, none a space or a comma, and its key as well, without `=`
            worker 1 (http://a), from file homing.toml: `labels.zone` = (not shown): must be a text
            worker 1 (http://a), from file homing.toml: `ranks` = (not shown): must be 1 to 1024 ranks
            worker 2 (http://b), from file homing.toml: `labels` = (not shown): must be a table of KEY = "VALUE""#]],
    );
    rejected(
        &file("workers = 3\n[worker]\nurl = \"http://a\""),
        &expect![[r#"
            homing.toml: workers are written as tables that begin with [[worker]]
            homing.toml: there is no knob `workers`; did you mean `worker`?"#]],
    );
    rejected(
        &file("worker = [\"http://a\"]"),
        &expect!["worker 1, from file homing.toml: must be a table with `url` and other keys"],
    );
}

#[test]
fn keys_that_do_not_go_together_are_both_named() {
    rejected(
        &flags(&[
            "http://a,replay=tcp://a:1,topic=kv",
            "http://b,agent=http://b:7600,events=tcp://b:5557,topic=kv",
            "http://c,events=ipc:///tmp/c,ranks=2",
            "http://d,events=tcp://d:5557,replay=tcp://d:65535,ranks=2",
            "http://e,events=http://e/kv",
            "http://f,dialect=trtllm,events=tcp://f:5557",
            "http://g,dialect=trtllm,events=http://g/kv,topic=kv",
        ]),
        &expect![[r#"
            worker 1 (http://a), from flag --worker: `replay` needs `events`
            worker 1 (http://a), from flag --worker: `topic` needs `events`
            worker 2 (http://b), from flag --worker: `agent` and `events` exclude each other: the agent listens to the engine itself
            worker 2 (http://b), from flag --worker: `agent` and `topic` exclude each other: the agent listens to the engine itself
            worker 3 (http://c), from flag --worker: `events` = ipc:///tmp/c has no room for `ranks` = 2: a local socket has no port to count up
            worker 4 (http://d), from flag --worker: `replay` = tcp://d:65535 has no room for `ranks` = 2: the ports would go beyond 65535
            worker 5 (http://e), from flag --worker: `events` = http://e/kv does not go with `dialect` = vllm: such engines publish at a tcp:// or ipc:// endpoint
            worker 6 (http://f), from flag --worker: `events` = tcp://f:5557 does not go with `dialect` = trtllm: such engines are polled at an http:// address
            worker 7 (http://g), from flag --worker: `topic` and `events` exclude each other: an engine that is polled has neither replay nor topics"#]],
    );
}

#[test]
fn a_view_from_events_needs_someone_who_tells_them() {
    rejected(
        &Inputs {
            without_source: WithoutSource::Refuse,
            ..flags(&["http://a", "http://b,cache-view=events"])
        },
        &expect![[r#"
            worker 1 (http://a), from flag --worker: `cache-view` is `events` by the setting `index.cache-view`, which needs `events` or `agent`; or say `cache-view=approximate`
            worker 2 (http://b), from flag --worker: `cache-view` is `events`, which needs `events` or `agent`; or say `cache-view=approximate`"#]],
    );
    let polled = accepted(&flags(&["http://a/x,dialect=trtllm"]));
    let EventSource::Poll(url) = &polled.config.workers[0].source else {
        panic!("{:?}", polled.config.workers);
    };
    assert_eq!(url.to_string(), "http://a/x/kv_cache_events");
    let unused = accepted(&flags(&["http://a,cache-view=approximate,events=tcp://a:5557"]));
    assert_eq!(unused.config.workers[0].source, EventSource::Nobody);
}

#[test]
fn without_a_source_the_view_is_approximate_until_one_is_learnt() {
    let table = "[[worker]]\nurl = \"http://a\"";
    let variable = Inputs {
        worker_variable: "http://a".to_owned(),
        ..Inputs::default()
    };
    for inputs in [flags(&["http://a"]), variable, file(table)] {
        let worker = accepted(&inputs).config.workers.remove(0);
        assert_eq!(
            (worker.cache_view, worker.view_by, worker.source),
            (CacheView::Approximate, ViewBy::Assumption, EventSource::Nobody)
        );
    }
    let with_source = accepted(&flags(&["http://a,events=tcp://a:5557"]))
        .config
        .workers
        .remove(0);
    assert_eq!(
        (with_source.cache_view, with_source.view_by),
        (CacheView::Events, ViewBy::Choice)
    );
}

#[test]
fn whoever_says_events_means_them() {
    let said = |inputs: Inputs| Inputs {
        flags: vec![(KnobId::CacheView, "events".to_owned())],
        ..inputs
    };
    rejected(
        &said(flags(&["http://a,events=tcp://a:5557", "http://b"])),
        &expect![
            "worker 2 (http://b), from flag --worker: `cache-view` is `events` by the setting `index.cache-view`, which needs `events` or `agent`; or say `cache-view=approximate`"
        ],
    );
    rejected(
        &file("[index]\ncache-view = \"events\"\n[[worker]]\nurl = \"http://b\""),
        &expect![
            "worker 1 (http://b), from file homing.toml: `cache-view` is `events` by the setting `index.cache-view`, which needs `events` or `agent`; or say `cache-view=approximate`"
        ],
    );
    rejected(
        &flags(&["http://b,cache-view=events"]),
        &expect![
            "worker 1 (http://b), from flag --worker: `cache-view` is `events`, which needs `events` or `agent`; or say `cache-view=approximate`"
        ],
    );
    let other = Inputs {
        flags: vec![(KnobId::CacheView, "none".to_owned())],
        ..flags(&["http://b"])
    };
    let worker = accepted(&other).config.workers.remove(0);
    assert_eq!((worker.cache_view, worker.view_by), (CacheView::None, ViewBy::Choice));
}

#[test]
fn workers_that_would_be_taken_for_each_other_are_both_named() {
    rejected(
        &flags(&[
            "http://a:80,events=tcp://a:5557,replay=tcp://a:5558,ranks=2",
            "HTTP://A/,events=tcp://A:5560",
            "http://b,events=tcp://a:5560",
            "http://c,events=bind:tcp://*:6000,ranks=3",
            "http://d,events=bind:tcp://127.0.0.1:6002",
            "http://e,events=bind:tcp://0.0.0.0:6001",
            "http://f,events=tcp://f:6000",
            "http://g,events=ipc://x",
            "http://h,events=ipc://x",
        ]),
        &expect![[r#"
            worker 2 (HTTP://A/), from flag --worker: `url` = http://a is also that of worker 1 (http://a:80)
            worker 6 (http://e), from flag --worker: `events` = tcp://0.0.0.0:6001 meets `events` = tcp://*:6000 to 6002 of worker 4 (http://c)
            worker 1 (http://a:80), from flag --worker: `replay` = tcp://a:5558 to 5559 meets `events` = tcp://a:5557 to 5558 of worker 1 (http://a:80)
            worker 3 (http://b), from flag --worker: `events` = tcp://a:5560 meets `events` = tcp://a:5560 of worker 2 (HTTP://A/)
            worker 9 (http://h), from flag --worker: `events` = ipc://x meets `events` = ipc://x of worker 8 (http://g)
            worker 5 (http://d), from flag --worker: `events` = tcp://127.0.0.1:6002 meets `events` = tcp://*:6000 to 6002 of worker 4 (http://c)"#]],
    );
    let next_to_each_other = [
        "http://a,events=tcp://a:5557,replay=tcp://a:5559,ranks=2",
        "http://b,events=tcp://a:5561,ranks=2",
        "http://c,agent=http://z:7600",
        "http://d,agent=http://z:7600",
    ];
    assert_eq!(accepted(&flags(&next_to_each_other)).config.workers.len(), 4);
}

#[test]
fn the_ranks_of_one_index_are_bounded() {
    let workers = [
        "http://a,agent=http://z,ranks=3",
        "http://b,agent=http://z,ranks=2",
        "http://c,agent=http://z,ranks=4,model=x",
        "http://d,agent=http://z,ranks=4,block-size=32",
    ];
    let bounded = |ranks: &str| Inputs {
        flags: vec![
            (KnobId::MaxRanks, ranks.to_owned()),
            (KnobId::DemoWorkers, "2".to_owned()),
        ],
        ..flags(&workers)
    };
    accepted(&bounded("5"));
    rejected(
        &bounded("4"),
        &expect![
            "workers of model `default` with 16 tokens per block have 5 ranks in all, from flag --worker: must not exceed `index.max-ranks` = 4, from flag --index-max-ranks"
        ],
    );
    let many: Vec<String> = (0..4097)
        .map(|number| format!("http://h{number},cache-view=none"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    rejected(
        &flags(&many),
        &expect!["there are 4097 workers, from flag --worker: must be 4096 at most"],
    );
    let labels: Vec<String> = (0..65).map(|number| format!("label=k{number}=v")).collect();
    rejected(
        &flags(&[&format!("http://a,cache-view=none,{}", labels.join(","))]),
        &expect!["worker 1 (http://a), from flag --worker: has more than 64 labels"],
    );
}

#[test]
fn every_rank_has_ports_of_its_own() {
    let worker = accepted(&flags(&[FULL])).config.workers.remove(0);
    let sources: Vec<_> = worker.rank_sources().collect();
    assert_eq!(sources.len(), 2);
    let (rank, EventSource::Stream { events, replay, topic }) = &sources[1] else {
        panic!("{sources:?}");
    };
    assert_eq!(*rank, DpRank(1));
    assert_eq!(events.to_string(), "bind:tcp://127.0.0.1:5558");
    assert_eq!(replay.as_ref().unwrap().to_string(), "tcp://10.0.0.1:5601");
    assert_eq!(topic, "kv");
}

#[test]
fn a_password_is_never_repeated() {
    let secret = "5ec4e7";
    for text in [
        format!("http://me:{secret}@a,cache-view=none"),
        format!("http://me:{secret},more@a,cache-view=none"),
        format!("http://me:x,{secret}@a"),
        format!("http://me:x,{secret}=@a"),
        format!("http://me:x,role={secret}@a"),
        format!("http://me:x,rolle{secret}=@a"),
        format!("http://a/?key={secret}"),
        format!("http://a,agent=http://me:{secret}@b"),
        format!("http://a,events=tcp://me:{secret}@b:1"),
        format!("http://a,replay=tcp://b:1?{secret}"),
    ] {
        let rejected = refused(&flags(&[&text]));
        assert!(!rejected.to_string().contains(secret), "{rejected}");
        assert!(!format!("{rejected:?}").contains(secret), "{rejected:?}");
    }
    let topics = accepted(&flags(&["http://a,events=tcp://a:1,topic=kv@10.0.0.1@m"]));
    assert!(topics.config.workers[0].to_string().contains("topic=kv@10.0.0.1@m"));
}

#[test]
fn one_worker_can_be_read_by_itself() {
    let defaults = Config::default().worker_defaults();
    let worker = WorkerSpec::parse("http://a,events=tcp://a:5557,role=prefill", &defaults).unwrap();
    assert_eq!((worker.role, worker.cache_view), (Role::Prefill, CacheView::Events));
    let problems = WorkerSpec::parse("http://a,ranks=x,role=x", &defaults).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let problems = WorkerSpec::parse("http://a,replay=tcp://a:1", &defaults).unwrap_err();
    assert_eq!(
        problems,
        [WorkerProblem::Needs {
            key: WorkerKey::Replay,
            other: WorkerKey::Events
        }]
    );
}

fn any_item() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "agent=http://z:7600/x",
        "events=tcp://h:5557",
        "events=bind:tcp://*:5557",
        "events=ipc:///tmp/x",
        "events=http://h/kv",
        "replay=tcp://[::1]:5600",
        "role=prefill",
        "model=Qwen/Qwen3-8B",
        "block-size=64",
        "label=zone=a",
        "label=x=y=z",
        "dialect=sglang",
        "dialect=trtllm",
        "ranks=4",
        "topic=kv@x",
        "cache-view=events",
        "cache-view=approximate",
        "cache-view=none",
        "copies=set",
        "copies=counted",
        "",
        "x=y",
    ])
}

#[test]
fn local_sockets_are_inside_their_directory_if_there_is_one() {
    let with_directory = |worker: &str, directory: &str| {
        resolve(&Inputs {
            flags: vec![(KnobId::EventsSocketDir, directory.to_owned())],
            ..flags(&[worker])
        })
    };
    for (events, is_inside) in [
        ("ipc:///run/homing/x", true),
        ("ipc:///run/homing/a/x", true),
        ("bind:ipc:///run/homing/x", true),
        ("ipc:///run/homing", false),
        ("ipc:///run/homing/../x", false),
        ("bind:ipc:///run/homing/../x", false),
        ("ipc:///run/homing2/x", false),
        ("ipc://x", false),
    ] {
        let worker = format!("http://a,events={events}");
        let found = with_directory(&worker, "/run/homing");
        assert_eq!(
            found.is_ok(),
            is_inside,
            "{events}: {:?}",
            found.err().map(|why| why.to_string())
        );
        assert!(with_directory(&worker, "none").is_ok(), "{events}");
        let replay = format!("http://a,events=tcp://a:1,replay={events}");
        if !events.starts_with("bind:") {
            assert_eq!(with_directory(&replay, "/run/homing").is_ok(), is_inside, "{events}");
        }
    }
    let refused = with_directory("http://a,events=ipc:///tmp/x", "/run/homing").unwrap_err();
    expect!["worker 1 (http://a), from flag --worker: `events` = ipc:///tmp/x: must be in /run/homing, which `events.socket-dir` names"]
        .assert_eq(&refused.to_string());
}

proptest! {
    #[test]
    fn a_worker_written_as_text_reads_back(items in prop::collection::vec(any_item(), 0..6), size in 1_u32..64) {
        let defaults = WorkerDefaults { block_size: BlockSize::new(size).unwrap(), ..Config::default().worker_defaults() };
        let text = format!("http://Host:8000/,{}", items.join(","));
        if let Ok(worker) = WorkerSpec::parse(text.trim_end_matches(','), &defaults) {
            // It says everything, so defaults do not matter any more.
            let again = WorkerSpec::parse(&worker.to_string(), &Config::default().worker_defaults());
            prop_assert_eq!(again, Ok(worker));
        }
    }

    #[test]
    fn no_text_makes_it_panic(
        flags in prop::collection::vec("(http://|tcp://|bind:|,|=|:|\\*|ranks|events|label|65535|a|@|\\PC){0,16}", 0..4),
        file in "(\\[\\[worker\\]\\]\n|url=|\"|http://a|\n|labels|=|\\{|\\}|1|ranks|events|\\PC){0,16}",
    ) {
        let file = Some(FileText { name: "f".to_owned(), text: file });
        let _ = resolve(&Inputs { worker_variable: flags.join(" "), worker_flags: flags, file, ..Inputs::default() });
    }
}
