//! Is what is seen from outside what the documents say? Metrics after traffic, health in words, and traces at a collector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use homing_telemetry::{Declaration, MetricKind, Metrics};
use serde_json::{Value, json};

use crate::harness::{Engine, GUARD, Gateway, prompt};

fn chat(tokens: u32) -> Value {
    json!({
        "model": "tiny", "messages": [{ "role": "user", "content": prompt(7, 100) }], "max_tokens": tokens, "temperature": 0
    })
}

/// Name and labels of a sample, and its value.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
    let labels = labels.map(|pair| {
        let (key, value) = pair.split_once('=').expect("a pair");
        (key.to_owned(), value.trim_matches('"').to_owned())
    });
    (name.to_owned(), labels.collect(), value.parse().expect("a number"))
}

/// The declaration of a series, by its name without what histograms append.
fn declared<'a>(all: &BTreeMap<&'a str, &'a Declaration>, name: &str) -> &'a Declaration {
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let stem = all.get(name.strip_suffix(suffix)?)?;
        (stem.kind == MetricKind::Histogram).then_some(*stem)
    });
    let exact = all
        .get(name)
        .filter(|found| found.kind != MetricKind::Histogram)
        .copied();
    exact.or(stem).unwrap_or_else(|| panic!("{name} is not declared"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_scraped_is_what_is_declared_and_the_other_way_round() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    for _ in 0..3 {
        gateway.ok("/v1/chat/completions", &chat(8)).await;
        gateway.stream("/v1/chat/completions", &chat(8)).await;
    }
    // The index tells of itself now and then.
    gateway
        .wait("blocks in the index", async || {
            gateway.metrics.index.held_entries.get() > 0
        })
        .await;
    let page = gateway
        .client
        .get(format!("{}/metrics", gateway.admin))
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    let all: BTreeMap<&str, &Declaration> = Metrics::declarations().map(|one| (one.name, one)).collect();
    let told: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let wanted = all
        .values()
        .map(|one| (one.name.to_owned(), one.kind.as_str().to_owned()))
        .collect();
    assert_eq!(told, wanted);
    let mut seen: BTreeSet<(&str, String)> = BTreeSet::new();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, mut labels, value) = sample(line);
        let declaration = declared(&all, &name);
        labels.remove("le");
        let names: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        let wanted: BTreeSet<&str> = declaration.labels().map(|(name, _)| name).collect();
        assert_eq!(names, wanted, "{line}");
        for (label, values) in declaration.labels() {
            let found = &labels[label];
            assert!(values.is_empty() || values.contains(&found.as_str()), "{line}");
        }
        let chosen: Vec<&str> = declaration.labels().map(|(label, _)| labels[label].as_str()).collect();
        seen.insert((declaration.name, chosen.join("/")));
        *counts.entry(name).or_default() += value;
    }
    // Every value of every label is there from the beginning.
    for declaration in all.values() {
        let labels: Vec<&[&str]> = declaration.labels().map(|(_, values)| values).collect();
        let wanted: usize = match labels.as_slice() {
            _ if declaration.name.starts_with("homing_worker_") => engines.len(),
            labels => labels.iter().map(|values| values.len()).product(),
        };
        let found = seen.iter().filter(|(name, _)| *name == declaration.name).count();
        assert_eq!(found, wanted, "{}", declaration.name);
    }
    for (name, least) in [
        ("homing_gateway_route_duration_seconds_count", 6.0 * 5.0),
        ("homing_gateway_queue_duration_seconds_count", 6.0),
        ("homing_gateway_first_token_seconds_count", 6.0),
        ("homing_gateway_inter_token_seconds_count", 3.0),
        ("homing_gateway_ended_requests_total", 6.0),
        ("homing_gateway_cached_tokens_total", 16.0),
        ("homing_worker_served_requests_total", 6.0),
        ("homing_worker_cached_tokens_total", 16.0),
        ("homing_worker_serving_workers", 2.0),
        ("homing_index_held_entries", 1.0),
    ] {
        assert!(counts[name] >= least, "{name} is {}", counts[name]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_it_is_not_ready_is_said_in_words() {
    let get = async |gateway: &Gateway, place: &str, path: &str| {
        let answer = gateway.client.get(format!("{place}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let gateway = Gateway::start(&[], &[]).await;
    let none = (503, "not ready: no worker was told of\n".to_owned());
    assert_eq!(get(&gateway, &gateway.url, "/health/ready").await, none);
    assert_eq!(get(&gateway, &gateway.admin, "/health/ready").await, none);
    assert_eq!(
        get(&gateway, &gateway.url, "/health/live").await,
        (200, "ok\n".to_owned())
    );
    assert_eq!(
        gateway.admin("/admin/fleet").await["not_ready"],
        "no worker was told of"
    );
    let gateway = Gateway::start(&["http://127.0.0.1:1,cache-view=none".to_owned()], &[]).await;
    let one = "not ready: one worker was told of, and has not said yet what it is\n";
    gateway
        .wait("the worker to be told of", async || {
            get(&gateway, &gateway.admin, "/health/ready").await == (503, one.to_owned())
        })
        .await;
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    assert_eq!(
        get(&gateway, &gateway.admin, "/health/ready").await,
        (200, "ready\n".to_owned())
    );
}

type Told = Arc<Mutex<Vec<Value>>>;

/// A collector that keeps what it is told.
async fn collector(status: StatusCode) -> (String, Told) {
    let told = Told::default();
    let take = async move |State(told): State<Told>, headers: HeaderMap, body: String| {
        assert_eq!(headers["content-type"], "application/json");
        let body: Value = serde_json::from_str(&body).expect("it is JSON");
        told.lock().unwrap().push(body);
        status
    };
    let routes = Router::new().route("/v1/traces", post(take)).with_state(told.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, told)
}

fn spans(told: &Told) -> Vec<Value> {
    let told = told.lock().unwrap();
    let all = told.iter().flat_map(|body| {
        let scope = &body["resourceSpans"][0]["scopeSpans"][0];
        scope["spans"].as_array().cloned().unwrap_or_default()
    });
    all.collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

fn nanos(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).expect("a time")
}

async fn wait_spans(gateway: &Gateway, told: &Told, name: &str, count: usize) -> Vec<Value> {
    gateway
        .wait(name, async || named(&spans(told), name).len() >= count)
        .await;
    spans(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_hears_of_the_parts_of_a_request_below_the_clients_span() {
    let (url, told) = collector(StatusCode::OK).await;
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("trace.endpoint", &url), ("trace.share", "0")]).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut body = chat(4);
    body["stream"] = json!(true);
    // Of a client that says nothing, and of one that does not want to be told of, nothing is.
    let unwanted = parent.replace("-01", "-00");
    for headers in [
        vec![],
        vec![("traceparent", unwanted.as_str())],
        vec![("traceparent", parent)],
    ] {
        let answer = gateway.send_with("/v1/chat/completions", &body, &headers).await;
        answer.text().await.unwrap();
    }
    let all = wait_spans(&gateway, &told, "decode", 1).await;
    assert_eq!(all.len(), 5, "{all:#?}");
    assert!(
        all.iter()
            .all(|span| span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736")
    );
    let [request] = named(&all, "request chat")[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(request["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(request["kind"], 2);
    let (route, tried) = (named(&all, "route")[0], named(&all, "try")[0]);
    assert_eq!(
        (&route["parentSpanId"], &tried["parentSpanId"]),
        (&request["spanId"], &request["spanId"])
    );
    let (prefill, decode) = (named(&all, "prefill")[0], named(&all, "decode")[0]);
    assert_eq!(
        (&prefill["parentSpanId"], &decode["parentSpanId"]),
        (&tried["spanId"], &tried["spanId"])
    );
    assert_eq!(prefill["endTimeUnixNano"], decode["startTimeUnixNano"]);
    for span in &all {
        assert!(
            nanos(&span["startTimeUnixNano"]) <= nanos(&span["endTimeUnixNano"]),
            "{span}"
        );
        assert!(
            nanos(&span["startTimeUnixNano"]) >= nanos(&request["startTimeUnixNano"]),
            "{span}"
        );
    }
    let service = &told.lock().unwrap()[0]["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(service["value"]["stringValue"], "homing");
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_are_linked_and_workers_are_told_of_their_span() {
    let (url, told) = collector(StatusCode::OK).await;
    // An engine that notes what it is told of a trace, and fails.
    let noted: Arc<Mutex<Vec<String>>> = Arc::default();
    let failing = failing_engine(noted.clone()).await;
    let engine = Engine::start(&[]);
    let settings = [
        ("trace.endpoint", url.as_str()),
        ("trace.share", "1"),
        ("serve.policy", "round-robin"),
    ];
    let workers = [format!("{failing},model=tiny,cache-view=none"), engine.spec("")];
    let gateway = Gateway::start(&workers, &settings).await;
    gateway.wait_workers(2).await;
    for _ in 0..4 {
        gateway.ok("/v1/chat/completions", &chat(2)).await;
    }
    let all = wait_spans(&gateway, &told, "answer", 4).await;
    let tries = named(&all, "try");
    let failed: Vec<&&Value> = tries.iter().filter(|span| span["status"]["code"] == 2).collect();
    assert!(!failed.is_empty(), "{all:#?}");
    for span in failed {
        let follower = tries.iter().find(|other| other["links"][0]["spanId"] == span["spanId"]);
        let follower = follower.unwrap_or_else(|| panic!("nothing follows {span}"));
        assert_eq!(follower["links"][0]["attributes"][0]["value"]["stringValue"], "retries");
        assert_eq!(follower["traceId"], span["traceId"]);
        let header = format!(
            "00-{}-{}-01",
            span["traceId"].as_str().unwrap(),
            span["spanId"].as_str().unwrap()
        );
        assert!(noted.lock().unwrap().contains(&header), "{header} of {noted:?}");
    }
}

/// Something that answers like vLLM, and every request with status 500.
async fn failing_engine(noted: Arc<Mutex<Vec<String>>>) -> String {
    let models =
        async || axum::Json(json!({"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "vllm"}]}));
    let fail = async move |headers: HeaderMap| {
        let parent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        noted.lock().unwrap().push(parent.unwrap_or_default().to_owned());
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let routes = Router::new()
        .route("/v1/models", axum::routing::get(models))
        .route("/health", axum::routing::get(async || StatusCode::OK))
        .route("/v1/chat/completions", post(fail));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_goes_on_elsewhere_is_one_trace() {
    let (url, told) = collector(StatusCode::OK).await;
    let engines = [
        Engine::start(&[("mock.fault-cut-after", "4")]),
        Engine::start(&[("mock.fault-cut-after", "4")]),
    ];
    let gateway = Gateway::before(&engines, &[("trace.endpoint", &url), ("trace.share", "1")]).await;
    let mut body = chat(6);
    body["stream"] = json!(true);
    let answer = gateway.send("/v1/chat/completions", &body).await;
    answer.text().await.unwrap();
    let all = wait_spans(&gateway, &told, "request chat", 1).await;
    let tries = named(&all, "try");
    assert_eq!(tries.len(), 2, "{all:#?}");
    assert_eq!(tries[1]["links"][0]["spanId"], tries[0]["spanId"]);
    assert_eq!(
        tries[1]["links"][0]["attributes"][0]["value"]["stringValue"],
        "goes on from"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_nobody_takes_are_counted_and_requests_do_not_mind() {
    let (url, _) = collector(StatusCode::SERVICE_UNAVAILABLE).await;
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("trace.endpoint", &url), ("trace.share", "1")]).await;
    gateway.ok("/v1/chat/completions", &chat(2)).await;
    let dropped = async || gateway.metrics.gateway.dropped_spans.get() >= 4;
    tokio::time::timeout(GUARD, gateway.wait("dropped spans", dropped))
        .await
        .unwrap();
    assert_eq!(gateway.metrics.gateway.sent_spans.get(), 0);
}
