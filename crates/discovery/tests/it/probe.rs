//! Is it learnt what a worker is?

use homing_platform::HttpClient;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use expect_test::expect;
use homing_config::{Config, EventSource, HttpUrl, Switch};
use homing_discovery::{EngineProof, Facts, NotReached, Probe, ProbeConfig};
use homing_domain::{BlockSize, Blocks, Tokens};
use homing_wire::Dialect;
use serde_json::json;
use tokio::net::TcpListener;

use crate::mock::{Mock, soon, spec};

const PATIENCE: Duration = Duration::from_secs(20);

async fn ask(url: &HttpUrl) -> Result<Facts, NotReached> {
    let probe = Probe::new(ProbeConfig { timeout: PATIENCE });
    soon("an answer", probe.ask(url)).await
}

/// A server that answers only what it is told to.
async fn serve(routes: Router) -> HttpUrl {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("ports can be had, and a server on this machine answers");
    let address = listener
        .local_addr()
        .expect("ports can be had, and a server on this machine answers");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    HttpUrl::parse(&format!("http://{address}")).expect("ports can be had, and a server on this machine answers")
}

fn reasons(facts: &Facts) -> String {
    let lines: Vec<String> = facts
        .unlearnt
        .iter()
        .map(|one| format!("{}: {}", one.fact, one.why))
        .collect();
    lines.join("\n")
}

/// Where a rank of a mock publishes, as an endpoint is written.
fn events(facts: &Facts) -> (String, Option<String>, String) {
    match &facts.events {
        Some(EventSource::Stream { events, replay, topic }) => (
            events.to_string(),
            replay.as_ref().map(ToString::to_string),
            topic.clone(),
        ),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_vllm_says_what_it_is() {
    let mock = Mock::start(&[
        ("block-size", "32"),
        ("mock.blocks", "1000"),
        ("mock.max-model-len", "4096"),
        ("mock.events", "tcp://127.0.0.1:0"),
        ("mock.replay", "tcp://127.0.0.1:0"),
    ])
    .await;
    let load = json!({"lora_name": "law", "lora_path": "/x"});
    let adapter = HttpClient::default().post(format!("{}/v1/load_lora_adapter", mock.url()));
    assert!(adapter.json(&load).send().await.unwrap().status().is_success());

    let facts = ask(&mock.url()).await.unwrap();
    assert_eq!(facts.dialect, Some(Dialect::Vllm));
    assert_eq!(facts.version.as_deref(), Some("0.32.0"));
    assert_eq!(facts.block_size, BlockSize::new(32));
    assert_eq!(facts.blocks, Some(Blocks(1000)));
    assert_eq!(facts.ranks, Some(1));
    assert_eq!(facts.prefix_caching, Some(Switch::On));
    let base: Vec<_> = facts
        .base_models()
        .map(|model| (model.name.as_str(), model.max_len))
        .collect();
    assert_eq!(base, [("tiny", Some(Tokens(4096)))]);
    let adapters: Vec<_> = facts
        .adapters()
        .map(|model| (model.name.as_str(), model.parent.as_deref()))
        .collect();
    assert_eq!(adapters, [("law", Some("tiny"))]);
    assert_eq!(facts.adapter_slots, Some(4));
    assert!(facts.adapters().all(|adapter| adapter.root.is_some()));
    expect!["reports_cached: vLLM does not say whether it runs with --enable-prompt-tokens-details; its first answer shows it"]
        .assert_eq(&reasons(&facts));
    mock.stop().await;
}

#[tokio::test]
async fn ranks_and_events_are_learnt() {
    for dialect in ["vllm", "sglang"] {
        // Ports one after the other cannot be asked for in a test, and where rank 0 is must be right in any case.
        let mock = Mock::start(&[
            ("mock.dialect", dialect),
            ("mock.dp-size", "2"),
            ("mock.events", "tcp://*:0"),
            ("mock.replay", "tcp://127.0.0.1:0"),
        ])
        .await;
        let facts = ask(&mock.url()).await.unwrap();
        assert_eq!(facts.ranks, Some(2), "{dialect}");
        let (published, replay, topic) = events(&facts);
        let port = |endpoint: &Option<String>| endpoint.as_ref().unwrap().rsplit(':').next().unwrap().to_owned();
        let (first, again) = &mock.places[0].ranks[0];
        assert_eq!(published, format!("tcp://127.0.0.1:{}", port(first)), "{dialect}");
        assert_eq!(port(&replay), port(again), "{dialect}");
        assert_eq!(topic, "kv-events");
        mock.stop().await;
    }
}

#[tokio::test]
async fn a_vllm_that_binds_all_interfaces_is_listened_to_at_its_host() {
    let mock = Mock::start(&[("mock.events", "tcp://*:0")]).await;
    let facts = ask(&mock.url()).await.unwrap();
    let (published, replay, _) = events(&facts);
    let told = mock.places[0].ranks[0].0.clone().unwrap();
    let port = told.rsplit(':').next().unwrap();
    assert_eq!((published, replay), (format!("tcp://127.0.0.1:{port}"), None));
    // What it says takes the place of what nobody said.
    let defaults = Config::default().worker_defaults();
    let filled = facts.fill(&spec(&mock.url().to_string()), &defaults);
    assert_eq!(filled.spec.source, facts.events.clone().unwrap());
    assert_eq!(filled.spec.model.as_str(), "tiny");
    assert!(filled.mismatches.is_empty(), "{:?}", filled.mismatches);
    mock.stop().await;
}

#[tokio::test]
async fn an_sglang_says_what_it_is() {
    let mock = Mock::start(&[("mock.dialect", "sglang"), ("block-size", "64"), ("mock.blocks", "500")]).await;
    let facts = ask(&mock.url()).await.unwrap();
    assert_eq!(facts.dialect, Some(Dialect::Sglang));
    assert_eq!(facts.version.as_deref(), Some("0.5.23"));
    assert_eq!(
        (facts.block_size, facts.blocks),
        (BlockSize::new(64), Some(Blocks(500)))
    );
    assert_eq!(facts.ranks, Some(1));
    assert_eq!(facts.prefix_caching, Some(Switch::On));
    assert_eq!(facts.reports_cached, Some(Switch::On));
    assert_eq!(facts.events, Some(EventSource::Nobody));
    assert_eq!(reasons(&facts), "");
    mock.stop().await;
}

#[tokio::test]
async fn what_cannot_be_learnt_is_listed_with_the_reason() {
    let models = get(|| async { axum::Json(json!({"data": [{"id": "m", "owned_by": "somebody"}]})) });
    let unknown = serve(Router::new().route("/v1/models", models.clone())).await;
    let facts = ask(&unknown).await.unwrap();
    assert_eq!(facts.base_models().count(), 1);
    expect![[r#"
        dialect: it answers neither like vLLM nor like SGLang
        version: it answers neither like vLLM nor like SGLang
        block_size: it answers neither like vLLM nor like SGLang
        blocks: it answers neither like vLLM nor like SGLang
        ranks: it answers neither like vLLM nor like SGLang
        prefix_caching: it answers neither like vLLM nor like SGLang
        reports_cached: it answers neither like vLLM nor like SGLang
        events: it answers neither like vLLM nor like SGLang"#]]
    .assert_eq(&reasons(&facts));

    // An old vLLM, whose owner is not named and of whose pages one is missing and one does not answer with what it should.
    let old = Router::new()
        .route("/v1/models", models)
        .route("/metrics", get(|| async { "vllm:num_requests_running 0\n" }))
        .route("/version", get(|| async { "0.6" }));
    let facts = ask(&serve(old).await).await.unwrap();
    assert_eq!((facts.dialect, facts.ranks), (Some(Dialect::Vllm), Some(1)));
    expect![[r#"
        version: /version answers with something else than expected: invalid type: floating point `0.6`, expected struct Version at line 1 column 3
        block_size: its metrics do not have vllm:cache_config_info
        blocks: its metrics do not have vllm:cache_config_info
        prefix_caching: its metrics do not have vllm:cache_config_info
        reports_cached: vLLM does not say whether it runs with --enable-prompt-tokens-details; its first answer shows it
        events: it has no /kv_event_sources, which vLLM has from 0.27 on"#]]
    .assert_eq(&reasons(&facts));
}

#[tokio::test]
async fn who_is_not_there_or_not_ready_is_not_reached() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        HttpUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap()
    };
    let error = ask(&nobody).await.unwrap_err().to_string();
    assert!(
        error.contains("cannot be reached") && error.contains("refused"),
        "{error}"
    );
    let starting = Router::new().route("/v1/models", get(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    let error = ask(&serve(starting).await).await.unwrap_err().to_string();
    assert!(error.contains("/v1/models answers with status 503"), "{error}");
}

#[tokio::test]
async fn who_accepts_and_never_answers_costs_the_time_limit_and_no_more() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = HttpUrl::parse(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let probe = Probe::new(ProbeConfig {
        timeout: Duration::from_millis(20),
    });
    let error = soon("the end of patience", probe.ask(&url)).await.unwrap_err();
    assert!(error.why.contains("no answer within 20ms"), "{error}");
    drop(silent);
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let endless = || async {
        let piece = vec![b' '; 1 << 20];
        axum::body::Body::from_stream(futures_util::stream::repeat_with(move || {
            Ok::<_, std::io::Error>(piece.clone())
        }))
    };
    let url = serve(Router::new().route("/v1/models", get(endless))).await;
    let error = ask(&url).await.unwrap_err();
    assert!(error.why.contains("answers with more than"), "{error}");
}

#[tokio::test]
async fn only_what_lists_a_model_and_tells_its_version_proves_to_be_an_engine() {
    let prove = async |url: &HttpUrl| {
        let probe = Probe::new(ProbeConfig { timeout: PATIENCE });
        let asked = probe.ask_with(url, EngineProof::Required);
        soon("an answer", asked).await.map(|_| ()).map_err(|error| error.why)
    };
    for dialect in ["vllm", "sglang"] {
        let mock = Mock::start(&[("mock.dialect", dialect)]).await;
        assert_eq!(prove(&mock.url()).await, Ok(()), "{dialect}");
        mock.stop().await;
    }
    let models = || get(|| async { axum::Json(json!({"data": [{"id": "m"}]})) });
    let no_models = || get(|| async { axum::Json(json!({"data": []})) });
    let version = || get(|| async { axum::Json(json!({"version": "1"})) });
    for (routes, expected) in [
        (Router::new(), Some("lists no model")),
        (
            Router::new()
                .route("/v1/models", no_models())
                .route("/version", version()),
            Some("lists no model"),
        ),
        (
            Router::new().route("/v1/models", models()),
            Some("neither /version nor /server_info"),
        ),
        (
            Router::new().route("/v1/models", models()).route("/version", version()),
            None,
        ),
        (
            Router::new()
                .route("/v1/models", models())
                .route("/get_server_info", version()),
            None,
        ),
    ] {
        let url = serve(routes).await;
        let found = prove(&url).await;
        match expected {
            None => assert_eq!(found, Ok(())),
            Some(words) => assert!(found.as_ref().is_err_and(|why| why.contains(words)), "{found:?}"),
        }
        // One that an operator named is asked as before.
        assert!(ask(&url).await.is_ok());
    }
}
