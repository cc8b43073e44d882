//! Is a worker that is set up wrong named where operators look?

use homing_platform::HttpClient;
use serde_json::{Value, json};

use crate::harness::{Engine, Gateway};

/// The findings about the only worker, once it was looked at.
async fn findings(gateway: &Gateway) -> Vec<Value> {
    gateway
        .wait("a look at the worker", async || {
            gateway.admin("/admin/fleet").await["workers"][0]["checked"] == true
        })
        .await;
    let fleet = gateway.admin("/admin/fleet").await;
    fleet["workers"][0]["findings"].as_array().cloned().unwrap_or_default()
}

fn checks(findings: &[Value]) -> Vec<&str> {
    findings
        .iter()
        .filter_map(|finding| finding["check"].as_str())
        .collect()
}

async fn prompt_tokens(engine: &Engine) -> String {
    let page = HttpClient::default()
        .get(format!("{}/metrics", engine.url()))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("vllm:prompt_tokens_total"))
        .unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_looked_at_quietly_when_it_comes() {
    let engine = Engine::start(&[("block-size", "24"), ("mock.lora-updating", "off")]);
    let gateway = Gateway::start(&[engine.spec(",block-size=32")], &[]).await;
    let found = findings(&gateway).await;
    assert_eq!(checks(&found), ["block-size", "adapters"], "{found:?}");
    for part in ["seen", "cost", "change"] {
        assert!(
            found[0][part].as_str().is_some_and(|words| !words.is_empty()),
            "{found:?}"
        );
    }
    assert_eq!(found[0]["severity"], "fault");
    assert_eq!(prompt_tokens(&engine).await, "0");
    let page = gateway
        .client
        .get(format!("{}/metrics", gateway.admin))
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    assert!(
        page.contains("homing_gateway_open_findings{severity=\"fault\"} 1\n"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_sent_if_the_settings_say_so() {
    let engine = Engine::start(&[("mock.usage-details", "off")]);
    let gateway = Gateway::start(&[engine.spec("")], &[("serve.check-workers", "prompts")]).await;
    let found = findings(&gateway).await;
    assert_eq!(checks(&found), ["usage"], "{found:?}");
    assert_ne!(prompt_tokens(&engine).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_well_has_no_findings_and_nobody_looks_if_not_asked_to() {
    let engine = Engine::start(&[]);
    let gateway = Gateway::start(&[engine.spec("")], &[]).await;
    assert_eq!(findings(&gateway).await, Vec::<Value>::new());
    let gateway = Gateway::start(&[engine.spec("")], &[("serve.check-workers", "none")]).await;
    gateway.wait_workers(1).await;
    let body = json!({ "model": "tiny", "prompt": "hello", "max_tokens": 1 });
    gateway.ok("/v1/completions", &body).await;
    assert_eq!(gateway.admin("/admin/fleet").await["workers"][0]["checked"], false);
}
