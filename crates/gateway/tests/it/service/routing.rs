//! Do requests go where their prefix is, and is it known why?

use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, file, ports, prompt};

fn completion(text: &str) -> Value {
    json!({ "model": "tiny", "prompt": text, "max_tokens": 2, "temperature": 0 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_stays_where_its_prefix_is_and_predictions_are_right() {
    let engines = [Engine::start(&[]), Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let mut homes = Vec::new();
    for conversation in 0..12 {
        let mut text = prompt(conversation, 640);
        let mut home: Option<String> = None;
        let mut stored = 0;
        for turn in 0..4 {
            // What an engine stored is told a moment later.
            gateway
                .wait("events", async || {
                    let mut asked = completion(&text);
                    asked["homing"] = json!({ "dry_run": true });
                    let decided = gateway.ok("/v1/completions", &asked).await;
                    decided["decision"]["chosen"]["blocks"][0].as_u64().unwrap() >= stored
                })
                .await;
            let response = gateway.send("/v1/completions", &completion(&text)).await;
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let (served_by, predicted) = (header("x-homing-served-by"), header("x-homing-cached-tokens"));
            let answer: Value = response.json().await.unwrap();
            let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0);
            assert_eq!(
                predicted,
                cached.to_string(),
                "conversation {conversation} turn {turn}: {answer}"
            );
            if let Some(home) = &home {
                assert_eq!(*home, served_by, "conversation {conversation} turn {turn}");
                assert!(cached >= 512, "{answer}");
            }
            home = Some(served_by);
            stored = text.len() as u64 / 16;
            text.push_str(&prompt(1_000 + turn, 64));
        }
        homes.push(home.unwrap());
    }
    homes.sort();
    homes.dedup();
    assert!(homes.len() > 1, "conversations are spread: {homes:?}");
    let fleet = gateway.admin("/admin/fleet").await;
    for worker in fleet["workers"].as_array().unwrap() {
        assert_eq!(
            (&worker["truth"]["less"], &worker["truth"]["more"]),
            (&json!(0), &json!(0)),
            "{worker}"
        );
        assert!(worker["truth"]["equal"].as_u64().unwrap() > 0, "{worker}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_found_on_the_rank_that_has_it() {
    for dialect in ["vllm", "sglang"] {
        // Ranks have ports one after another.
        let base = ports(6);
        let events = format!("tcp://127.0.0.1:{base}");
        let replay = format!("tcp://127.0.0.1:{}", base + 3);
        let engine = Engine::start(&[
            ("mock.dp-size", "3"),
            ("mock.dialect", dialect),
            ("mock.events", &events),
            ("mock.replay", &replay),
        ]);
        let gateway = Gateway::start(&[engine.spec(",ranks=3")], &[]).await;
        gateway.wait_workers(1).await;
        gateway.wait_live(1).await;
        let mut ranks = Vec::new();
        for conversation in 0..9 {
            let text = prompt(conversation, 640);
            let first = gateway.send("/v1/completions", &completion(&text)).await;
            assert_eq!(first.status(), 200);
            let mut rank = None;
            gateway
                .wait("events", async || {
                    let mut asked = completion(&text);
                    asked["homing"] = json!({ "dry_run": true });
                    let chosen = gateway.ok("/v1/completions", &asked).await["decision"]["chosen"].clone();
                    rank = chosen["rank"]
                        .as_str()
                        .map(str::to_owned)
                        .or_else(|| Some(chosen["rank"].to_string()));
                    chosen["blocks"][0].as_u64().unwrap() >= 39
                })
                .await;
            let again = gateway.ok("/v1/completions", &completion(&text)).await;
            let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            assert!(cached >= Some(624), "{dialect}: {again}");
            ranks.push(rank.unwrap());
        }
        ranks.sort();
        ranks.dedup();
        assert!(ranks.len() > 1, "{dialect}: several ranks are used: {ranks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_are_followed() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let workers = [engines[0].spec(",label=zone=a"), engines[1].spec(",label=zone=b")];
    let gateway = Gateway::start(&workers, &[]).await;
    gateway.wait_workers(2).await;
    let served_by = async |headers: &[(&str, &str)]| {
        let response = gateway.send_with("/v1/completions", &completion("text"), headers).await;
        assert_eq!(response.status(), 200);
        response.headers()["x-homing-served-by"].to_str().unwrap().to_owned()
    };
    for engine in &engines {
        let url = engine.url();
        for _ in 0..3 {
            assert_eq!(served_by(&[("x-homing-worker", &url)]).await, url);
        }
    }
    assert_eq!(served_by(&[("x-homing-labels", "zone=b")]).await, engines[1].url());
    assert_eq!(
        served_by(&[("x-homing-exclude-workers", &engines[1].url())]).await,
        engines[0].url()
    );
    let mut in_body = completion("text");
    in_body["homing"] = json!({ "worker": engines[1].url(), "dry_run": true });
    let decided = gateway.ok("/v1/completions", &in_body).await;
    assert_eq!(decided["worker"], engines[1].url(), "{decided}");
    assert_eq!(decided["decision"]["policy"], "time", "{decided}");
    let strange = gateway
        .send_with("/v1/completions", &completion("x"), &[("x-homing-nonsense", "1")])
        .await;
    assert_eq!(strange.status(), 400);
    let nobody = gateway
        .send_with(
            "/v1/completions",
            &completion("x"),
            &[("x-homing-worker", "http://nobody:1")],
        )
        .await;
    assert_eq!(nobody.status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_can_be_read_afterwards() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let asked = completion(&prompt(7, 200));
    let response = gateway
        .send_with("/v1/completions", &asked, &[("x-homing-explain", "1")])
        .await;
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    let (id, served_by) = (header("x-homing-request-id"), header("x-homing-served-by"));
    let explained: Value = serde_json::from_str(&header("x-homing-decision")).unwrap();
    assert_eq!(explained["eligible"], 2, "{explained}");
    drop(response);
    let kept = gateway.admin(&format!("/admin/decisions?id={id}")).await;
    let decision = &kept["decisions"][0];
    assert_eq!(decision["tries"][0]["worker"], served_by, "{decision}");
    assert_eq!(decision["tokens_from"], "worker", "{decision}");
    assert_eq!(
        decision["prompt_tokens"], decision["engine_prompt_tokens"],
        "{decision}"
    );
    assert_eq!(decision["end"], "served", "{decision}");
    assert_eq!(decision["tries"][0]["decision"], explained, "{decision}");
    assert!(
        !kept.to_string().contains(&prompt(7, 16)),
        "no text of a prompt is kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_logged_so_that_they_can_be_replayed() {
    let engines = [Engine::start(&[])];
    let log = file("requests.jsonl");
    let _ = std::fs::remove_file(&log);
    let mut gateway = Gateway::before(&engines, &[("serve.log", log.to_str().unwrap())]).await;
    for turn in 1..4 {
        let answer = gateway.ok("/v1/completions", &completion(&prompt(3, 100 * turn))).await;
        assert_eq!(answer["usage"]["completion_tokens"], 2);
    }
    gateway.end().await.unwrap();
    drop(gateway);
    let text = std::fs::read_to_string(&log).unwrap();
    let records: Vec<homing_trace::LogRecord> = text
        .lines()
        .map(|line| {
            homing_trace::LogRecord::decode(line.as_bytes()).unwrap_or_else(|problem| panic!("{problem:?}: {line}"))
        })
        .collect();
    assert_eq!(records.len(), 3, "{text}");
    for (record, turn) in records.iter().zip(1..) {
        assert_eq!((record.prompt.0, record.output.0), (100 * turn, 2));
        assert_eq!(record.keys.len(), 100 * turn as usize / 16);
        assert!(record.first_token.is_some() && record.took.is_some());
    }
    assert_eq!(records[1].keys[..6], records[0].keys[..6], "they begin alike");
    assert_eq!(records[1].cached.unwrap().0, 96);
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_without_events_are_guessed_and_without_tokens_routed_by_load() {
    let engines = [Engine::start(&[("mock.events", "none"), ("mock.replay", "none")])];
    let workers = [format!("{},model=tiny,cache-view=approximate", engines[0].url())];
    let gateway = Gateway::start(&workers, &[]).await;
    gateway.wait_workers(1).await;
    let asked = completion(&prompt(5, 320));
    gateway.ok("/v1/completions", &asked).await;
    let response = gateway.send("/v1/completions", &asked).await;
    assert_eq!(response.headers()["x-homing-cached-tokens"], "304");
    let fleet = gateway.admin("/admin/fleet").await;
    assert_eq!(fleet["workers"][0]["diagnosis"], Value::Null, "{fleet}");
    let messages = json!({ "model": "tiny", "max_tokens": 2, "messages": [{ "role": "user", "content": "Hi" }] });
    gateway.ok("/v1/messages", &messages).await;
    let last = gateway.admin("/admin/decisions?limit=1").await;
    assert_eq!(last["decisions"][0]["tokens_from"], "nobody", "{last}");
    assert!(
        last["decisions"][0]["unknown"]
            .as_str()
            .unwrap()
            .contains("no tokenizer"),
        "{last}"
    );
}
