//! What is wrong with a question is said in words.

use homing_platform::Method;
use serde_json::{Value, json};

use crate::indexer::{Indexer, settings};

fn workers() -> Vec<String> {
    // Nobody listens there; questions are answered all the same.
    let worker = |number: u32, rest: &str| format!("http://127.0.0.1:{},{rest}", 9000 + number);
    vec![
        worker(0, "model=tiny,block-size=4,events=tcp://127.0.0.1:1"),
        worker(
            1,
            "model=big,block-size=16,cache-view=none,ranks=2,role=prefill,label=zone=a",
        ),
        worker(2, "model=big,block-size=32,cache-view=none"),
    ]
}

async fn refused(indexer: &Indexer, question: Value, status: u16, code: &str, words: &[&str]) {
    let (answered, answer) = indexer.post(&question).await;
    let error = &answer["error"];
    assert_eq!(
        (answered, &error["code"]),
        (status, &json!(code)),
        "{question}: {answer}"
    );
    let message = error["message"].as_str().expect("a text");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

#[tokio::test]
async fn questions_that_cannot_be_answered_say_why() {
    let indexer = Indexer::start(&settings(&workers(), &[("index.max-request-bytes", "4Ki")])).await;
    let tiny = |mut question: Value| {
        question["model"] = json!("tiny");
        question
    };
    let media = json!([{"id": "a", "start": 8, "length": 2}, {"id": "b", "start": 4, "length": 2}]);
    let long: Vec<u32> = vec![1_000_000; 1000];
    #[rustfmt::skip]
    let cases = [
        (json!({"tokens": [1]}), 400, "model_needed", vec!["\"big\"", "\"tiny\""]),
        (json!({"tokens": [1], "model": "small"}), 404, "unknown_model", vec!["\"small\"", "\"big\", \"tiny\""]),
        (json!({"tokens": [1], "model": "big"}), 400, "block_size_needed", vec!["16, 32"]),
        (json!({"tokens": [1], "model": "big", "block_size": 8}), 404, "unknown_block_size", vec!["8", "16, 32"]),
        (json!({"tokens": [1], "model": "tiny", "block_size": 16}), 404, "unknown_block_size", vec!["it has: 4"]),
        (tiny(json!({})), 400, "tokens_or_keys", vec!["give `tokens` or `keys`"]),
        (tiny(json!({"tokens": [], "keys": []})), 400, "tokens_or_keys", vec!["not both"]),
        (tiny(json!({"tokens": [0, 4_294_967_296_u64]})), 400, "malformed", vec!["token 1 is 4294967296", "column"]),
        (tiny(json!({"tokens": [-1]})), 400, "malformed", vec!["-1", "column"]),
        (tiny(json!({"keys": ["0123456789abcdef", "12"]})), 400, "malformed", vec!["key 1 is \"12\"", "16 hexadecimal"]),
        (tiny(json!({"keys": ["0123456789abcdeg"]})), 400, "malformed", vec!["key 0"]),
        (tiny(json!({"keys": ["+123456789abcdef"]})), 400, "malformed", vec!["key 0"]),
        (tiny(json!({"keys": [], "salt": "s"})), 400, "in_keys_already", vec!["`salt`"]),
        (tiny(json!({"tokens": [1], "media": media})), 400, "media_out_of_order", vec!["1 begins at token 4", "8"]),
        (tiny(json!({"tokens": [1], "adaptr": "x"})), 400, "malformed", vec!["adaptr", "adapter"]),
        (tiny(json!({"tokens": [1], "window": "wide"})), 400, "malformed", vec!["wide", "one_token_ahead"]),
        (tiny(json!({"tokens": long})), 413, "too_large", vec!["4096 bytes", "index.max-request-bytes"]),
    ];
    for (question, status, code, words) in cases {
        refused(&indexer, question, status, code, &words).await;
    }
    let (status, text) = indexer.ask(Method::POST, "/v1/overlap", "{\"tokens\": [1,}").await;
    assert_eq!(status, 400);
    assert!(text.contains("line 1 column 15"), "{text}");
    for (method, path, expected) in [
        (Method::GET, "/v1/overlap", 405),
        (Method::GET, "/", 404),
        (Method::GET, "/v1/dump?rank=1", 400),
        (Method::GET, "/v1/dump?model=small", 404),
        (Method::GET, "/v1/dump?worker=http://elsewhere:1", 404),
    ] {
        let (status, text) = indexer.ask(method, path, "").await;
        assert_eq!(status, expected, "{path}: {text}");
        let answer: Value = serde_json::from_str(&text).expect("it is JSON");
        assert!(answer["error"]["message"].is_string(), "{text}");
    }
    let metrics = indexer.get("/metrics").await;
    for line in [
        "homing_indexer_overlap_requests_total{outcome=\"malformed\"} 14",
        "homing_indexer_overlap_requests_total{outcome=\"unknown_model\"} 3",
        "homing_indexer_overlap_requests_total{outcome=\"too_large\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    indexer.stop().await;
}

#[tokio::test]
async fn every_rank_of_the_model_is_in_the_answer() {
    let indexer = Indexer::start(&settings(&workers(), &[])).await;
    let (status, answer) = indexer
        .post(&json!({"model": "big", "block_size": 16, "tokens": vec![7; 40], "adapter": null, "salt": null, "media": []}))
        .await;
    assert_eq!(status, 200, "{answer}");
    let nothing = json!({"device": 0, "host": 0, "disk": 0, "external": 0});
    let rank = |dp: u16| json!({"worker": "http://127.0.0.1:9001", "dp_rank": dp, "state": "stale", "complete": false, "blocks": nothing});
    assert_eq!(answer["ranks"], json!([rank(0), rank(1)]));
    assert_eq!((&answer["blocks"], &answer["settled"]), (&json!(2), &json!(true)));
    assert!(answer["took_us"].as_f64().is_some_and(|took| took > 0.0), "{answer}");

    let ranks = indexer.get_json("/v1/ranks").await;
    let ranks = ranks["ranks"].as_array().expect("a list");
    assert_eq!(ranks.len(), 4);
    assert_eq!(ranks[2]["labels"], json!({"zone": "a"}));
    let told = |rank: &Value| {
        json!([
            rank["worker_number"],
            rank["dp_rank"],
            rank["model"],
            rank["source"],
            rank["role"]
        ])
    };
    assert_eq!(told(&ranks[0]), json!([0, 0, "tiny", "engine", "both"]));
    assert_eq!(told(&ranks[2]), json!([1, 1, "big", "none", "prefill"]));
    assert_eq!(ranks[2]["why"], "nobody listens to its events");
    indexer.stop().await;
}
