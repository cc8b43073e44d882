//! Each defect in turn.

use homing_doctor::{Check, Depth, Outcome};
use homing_platform::HttpClient;

use crate::clinic::{Engine, check, look};
use crate::folder::{TEMPLATE, model};

/// An engine with a defect: its settings, what is said of it, and how the findings begin.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static [&'static str],
);

/// The first of so many ports in a row that nobody has.
fn ports(count: u16) -> u16 {
    loop {
        let first = fastrand::u16(20_000..30_000);
        let free = (first..first + count).all(|port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
        if free {
            return first;
        }
    }
}

async fn run(cases: &[Case]) {
    for (name, settings, said, expected) in cases {
        let engine = Engine::start(settings).await;
        let worker = format!("{}{said}", engine.url());
        let report = look(&worker, None, Depth::Prompts).await.unwrap();
        check(name, &report, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_engine_that_is_well_everything_is_looked_at_and_nothing_found() {
    let folder = model("well", &[("h", "e")], TEMPLATE);
    for dialect in ["vllm", "sglang"] {
        let engine = Engine::start(&[
            ("mock.dialect", dialect),
            ("mock.tokenizer", folder.to_str().unwrap()),
            ("mock.chat-template", "on"),
        ])
        .await;
        let report = look(&engine.url(), Some(&folder), Depth::Prompts).await.unwrap();
        assert!(report.is_well(), "{}", report.text());
        let all_well = report
            .outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Well(..)));
        assert!(all_well, "{}", report.text());
        let checks: Vec<Check> = report.outcomes.iter().map(Outcome::check).collect();
        assert_eq!(checks, Check::ALL);
        assert!(report.text().ends_with("nothing to change\n"), "{}", report.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_that_do_not_work_are_named() {
    run(&[
        (
            "blocks of another size",
            &[("block-size", "24")],
            ",block-size=32",
            &[
                "fault block-size: blocks of 32 tokens here, of 24 there; say block-size=24 of this worker, or start it with --block-size 32",
                "fault events: events came, and 0 of the 3 blocks of a prompt are known by them",
                "warning overlap: of a prompt that came again 0 tokens were predicted to be cached, and 96 were",
            ],
        ),
        (
            "no cache",
            &[("mock.prefix-caching", "off")],
            "",
            &["fault caching: its prefix cache is turned off; start it with --enable-prefix-caching"],
        ),
        (
            "no cache, and SGLang",
            &[("mock.prefix-caching", "off"), ("mock.dialect", "sglang")],
            "",
            &["fault caching: its prefix cache is turned off; start it without --disable-radix-cache"],
        ),
        (
            "no usage details",
            &[("mock.usage-details", "off")],
            "",
            &["warning usage: its answers do not tell how many tokens came from the cache; start it with --enable-prompt-tokens-details"],
        ),
        (
            "no usage details, and SGLang",
            &[("mock.usage-details", "off"), ("mock.dialect", "sglang")],
            "",
            &["warning usage: its answers do not tell how many tokens came from the cache; start it with --enable-cache-report"],
        ),
        (
            "a whole multiple of our blocks",
            &[("block-size", "64")],
            ",block-size=32",
            &[],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_do_not_come_are_named() {
    run(&[
        (
            "no events",
            &[("mock.events", "none"), ("mock.replay", "none")],
            "",
            &["fault events: it says that it publishes no KV events; start it with --kv-events-config '{\"enable_kv_cache_events\": true"],
        ),
        (
            "no events, and SGLang",
            &[("mock.events", "none"), ("mock.replay", "none"), ("mock.dialect", "sglang")],
            "",
            &["fault events: it says that it publishes no KV events; start it with --kv-events-config '{\"publisher\": \"zmq\""],
        ),
        (
            "events that are lost",
            &[("mock.fault-drop-every", "1"), ("mock.replay", "none")],
            "",
            &[
                "fault events: after a prompt of 65 tokens no event came",
                "warning replay: events that were lost cannot be had again; add \"replay_endpoint\"",
                "warning overlap",
            ],
        ),
        (
            "a place where nobody publishes",
            &[],
            ",events=tcp://127.0.0.1:1",
            &[
                "fault events: its events cannot be subscribed to at tcp://127.0.0.1:1",
                "warning replay: it sends lost events again at tcp://127.0.0.1:",
            ],
        ),
        (
            "no replay",
            &[("mock.replay", "none")],
            "",
            &["warning replay: events that were lost cannot be had again; add \"replay_endpoint\""],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rank_is_looked_at() {
    let (events, replay) = (ports(2), ports(2));
    let engine = Engine::start(&[
        ("mock.dp-size", "2"),
        ("mock.events", &format!("tcp://127.0.0.1:{events}")),
        ("mock.replay", &format!("tcp://127.0.0.1:{replay}")),
    ])
    .await;
    let report = look(&engine.url(), None, Depth::Prompts).await.unwrap();
    check("two ranks", &report, &[]);
    for rank in [
        "rank 0: the 4 blocks of a prompt came",
        "rank 1: the 4 blocks of a prompt came",
    ] {
        assert!(report.text().contains(rank), "{}", report.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_socket_that_does_not_answer_is_named() {
    let engine = Engine::start(&[]).await;
    let events = engine.place.ranks[0].0.clone().unwrap();
    let worker = format!("{},events={events},replay=tcp://127.0.0.1:1", engine.url());
    let report = look(&worker, None, Depth::Prompts).await.unwrap();
    check(
        "a replay at the wrong place",
        &report,
        &["fault replay: the replay socket at tcp://127.0.0.1:1 does not answer"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_else_is_wrong_is_named() {
    run(&[
        (
            "a clock that is ahead",
            &[("mock.clock-ahead", "95s")],
            "",
            // How many seconds over ninety it is depends on how soon the answer comes.
            &["warning clock: its clock is about 9"],
        ),
        (
            "adapters that cannot come",
            &[("mock.lora-updating", "off")],
            "",
            &["note adapters: LoRA adapters cannot be loaded while it runs; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"],
        ),
        (
            "another model, which it does not tokenize either",
            &[],
            ",model=other",
            &[
                "fault models: it serves tiny, and its model was said to be other",
                "fault tokenizer: a text can be made into tokens neither here nor there",
                "fault tokenizer: a chat can",
                "fault tokenizer: a chat with tools can",
                "warning overlap: a prompt of a few blocks was not answered: /v1/completions answers with status 404",
            ],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tokens_are_named_and_whether_tokenizer_or_template_is_to_blame() {
    let theirs = model("theirs", &[("h", "e"), ("l", "l")], TEMPLATE);
    let engine = Engine::start(&[
        ("mock.tokenizer", theirs.to_str().unwrap()),
        ("mock.chat-template", "on"),
    ])
    .await;
    let other = model("other-tokenizer", &[], TEMPLATE);
    let report = look(&engine.url(), Some(&other), Depth::Quiet).await.unwrap();
    check(
        "another tokenizer",
        &report,
        &[
            "fault tokenizer: a text is ",
            "fault tokenizer: a chat is ",
            "fault tokenizer: a chat with tools is ",
        ],
    );
    assert!(
        report
            .text()
            .contains("name the folder of the model that the engine was started with")
    );
    let other = model(
        "other-template",
        &[("h", "e"), ("l", "l")],
        &TEMPLATE.replace("tools\n", "functions\n"),
    );
    let report = look(&engine.url(), Some(&other), Depth::Quiet).await.unwrap();
    check(
        "another template for tools",
        &report,
        &["fault tokenizer: a chat with tools is "],
    );
    assert!(
        report
            .text()
            .contains("the tokenizers are equal, the chat templates are not")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_alone_compute_nothing() {
    let engine = Engine::start(&[("mock.replay", "none")]).await;
    let report = look(&engine.url(), None, Depth::Quiet).await.unwrap();
    check(
        "no replay",
        &report,
        &["warning replay: events that were lost cannot be had again"],
    );
    let page = HttpClient::default()
        .get(format!("{}/metrics", engine.url()))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let tokens = page
        .lines()
        .find(|line| line.starts_with("vllm:prompt_tokens_total"))
        .unwrap();
    assert!(tokens.ends_with(" 0") || tokens.ends_with(" 0.0"), "{tokens}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_is_not_looked_at() {
    let not = look("http://127.0.0.1:1", None, Depth::Prompts).await.unwrap_err();
    assert_eq!(not.url, "http://127.0.0.1:1");
    assert!(not.why.contains("cannot be reached"), "{not}");
}
