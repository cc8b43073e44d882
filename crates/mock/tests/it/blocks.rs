//! What happens to blocks: the trace of them, tiers below the device, tokenizers, and readers that do not read.

use std::path::PathBuf;

use homing_transport::testing::Listener;
use serde_json::{Value, json};

use crate::mock::Mock;

/// A path of its own; gone when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("homing-mock-{}-{name}", std::process::id())))
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("names here are plain")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn prompt(number: u32, tokens: u32) -> Value {
    let ids: Vec<u32> = (0..tokens).map(|place| 500 * (number + 1) + place).collect();
    json!({"prompt": ids, "max_tokens": 1})
}

#[tokio::test]
async fn every_allocation_and_eviction_is_written_down() {
    let file = Scratch::new("trace");
    let mock = Mock::start(&[
        ("mock.kv-trace", file.text()),
        ("mock.blocks", "8"),
        ("mock.dp-size", "2"),
    ])
    .await;
    for number in 0..6 {
        mock.ok("/v1/completions", &prompt(number, 64)).await;
    }
    mock.stop().await;
    let text = std::fs::read_to_string(&file.0).expect("it was written");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let count = |act: &str| -> usize {
        let acts = lines.iter().filter(|line| line["act"] == act);
        acts.map(|line| line["blocks"].as_array().map_or(0, Vec::len)).sum()
    };
    // Six prompts of four blocks, one after the other and so all on the first rank, which has eight.
    assert_eq!((count("allocated"), count("evicted")), (24, 16));
    let mut before = 0.0;
    for line in &lines {
        let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{key} in {line}"));
        assert_eq!(number("free") + number("active") + number("inactive"), number("total"));
        assert_eq!((number("total"), number("block_size"), number("worker")), (8, 16, 0));
        assert!(number("rank") < 2);
        let time = line["time_ms"].as_f64().expect("a time");
        assert!(time >= before);
        before = time;
    }
}

#[tokio::test]
async fn a_trace_that_cannot_be_written_is_said_at_the_start() {
    let settings = crate::mock::settings(&[("mock.kv-trace", "/nowhere/at/all/trace")]);
    let error = homing_mock::Service::start(&settings)
        .await
        .expect_err("there is no such folder");
    assert!(error.to_string().contains("mock.kv-trace"), "{error}");
}

/// Media of the events of a replay, with how many blocks each told of.
async fn media(mock: &Mock, event: &str) -> Vec<(String, usize)> {
    let asked = mock.places[0].ranks[0].1.clone().expect("as it was set up");
    let mut listener = Listener::start();
    let told = tokio::task::spawn_blocking(move || {
        listener.tell(&format!("dealer {asked}"));
        listener.tell("ask +0000000000000000")
    });
    let told = told.await.expect("as it was set up");
    let mut found = Vec::new();
    for message in Listener::messages(&told) {
        // Names and texts stand in the bytes as they are.
        let payload = String::from_utf8_lossy(message.last().expect("it has frames")).into_owned();
        for part in payload.split("type").skip(1).filter(|part| part.contains(event)) {
            for medium in ["GPU", "CPU", "STORAGE"] {
                if part.contains(medium) {
                    found.push((medium.to_owned(), 1));
                }
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_leave_the_device_are_found_on_the_tiers_below() {
    let tiers = [
        ("mock.blocks", "8"),
        ("mock.host-blocks", "8"),
        ("mock.disk-blocks", "64"),
    ];
    let mock = Mock::telling(&tiers).await;
    for number in 0..8 {
        mock.ok("/v1/completions", &prompt(number, 100)).await;
    }
    // Long gone from the device, and from host memory too.
    let again = mock.ok("/v1/completions", &prompt(0, 100)).await;
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 96);
    let stored = media(&mock, "BlockStored").await;
    for medium in ["GPU", "CPU", "STORAGE"] {
        assert!(stored.iter().any(|(found, _)| found == medium), "{medium}: {stored:?}");
    }
    let removed = media(&mock, "BlockRemoved").await;
    assert!(removed.iter().any(|(found, _)| found == "CPU"), "{removed:?}");
    // Without tiers it is computed again.
    let bare = Mock::start(&[("mock.blocks", "8")]).await;
    for number in [0, 1, 2, 0] {
        let answer = bare.ok("/v1/completions", &prompt(number, 100)).await;
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_read_a_replay_holds_up_nobody() {
    let mock = Mock::telling(&[("mock.blocks", "4096")]).await;
    // More bytes than sockets and queues hold.
    for number in 0..100 {
        mock.ok("/v1/completions", &prompt(number, 60_000)).await;
    }
    let asked = mock.places[0].ranks[0].1.clone().expect("as it was set up");
    let address = asked.strip_prefix("tcp://").expect("as it was set up").to_owned();
    // Four who ask for all of it and read nothing but its beginning.
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let begun = tokio::time::timeout(crate::mock::GUARD, deaf_dealer(&address)).await;
        deaf.push(begun.expect("its answer begins whatever the others do"));
    }
    // Another one gets its answer, and the engine goes on.
    let told = tokio::task::spawn_blocking(move || {
        let mut listener = Listener::start();
        listener.tell(&format!("dealer {asked}"));
        listener.tell("ask +0000000000000000")
    });
    mock.ok("/v1/completions", &prompt(150, 64)).await;
    let told = tokio::time::timeout(crate::mock::GUARD, told).await;
    let told = told.expect("it is not held up").expect("as it was set up");
    assert!(Listener::messages(&told).len() > 100);
    drop(deaf);
}

/// A ZMQ 3.0 DEALER, by hand: greeting, READY, and a question; when the answer has begun, it reads no more.
async fn deaf_dealer(address: &str) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let mut greeting = [0_u8; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).await.expect("it reads");
    let mut theirs = [0_u8; 64];
    stream.read_exact(&mut theirs).await.expect("it greets");
    let mut ready = vec![0x04, 0, 5];
    ready.extend_from_slice(b"READY\x0bSocket-Type\0\0\0\x06DEALER");
    ready[1] = u8::try_from(ready.len() - 2).expect("it is short");
    stream.write_all(&ready).await.expect("it reads");
    let mut question = vec![1, 0, 0, 8];
    question.extend_from_slice(&[0; 8]);
    stream.write_all(&question).await.expect("it reads");
    let mut begun = [0_u8; 4_096];
    stream.read_exact(&mut begun).await.expect("it answers");
    stream
}

/// A tokenizer of whole words, two of which are the marks of a chat.
const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"once": 0, "upon": 1, "time": 2, "other": 3, "<|im_end|>": 4}, "unk_token": "other"}}"#;

#[tokio::test]
async fn a_tokenizer_of_a_model_is_used_for_texts() {
    let folder = Scratch::new("tokenizer");
    std::fs::create_dir_all(&folder.0).expect("a folder can be made");
    std::fs::write(folder.0.join("tokenizer.json"), WORDS).expect("a file can be written");
    let mock = Mock::start(&[("mock.tokenizer", folder.text())]).await;
    let tokens = mock
        .ok(
            "/tokenize",
            &json!({"prompt": "once upon strange time", "return_token_strs": true}),
        )
        .await;
    assert_eq!(
        (&tokens["tokens"], &tokens["token_strs"][2]),
        (&json!([0, 1, 3, 2]), &json!("other"))
    );
    let text = mock.ok("/detokenize", &json!({"tokens": [0, 1]})).await;
    assert_eq!(text["prompt"], "once upon");
    let ask = json!({"prompt": "once upon", "max_tokens": 6, "return_token_ids": true});
    let answer = mock.ok("/v1/completions", &ask).await;
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
    let ids: Vec<u32> = serde_json::from_value(answer["choices"][0]["token_ids"].clone()).expect("ids");
    assert!(ids.iter().all(|id| *id < 4), "{ids:?}");
    let whole = mock.ok("/detokenize", &json!({ "tokens": ids })).await;
    assert_eq!(answer["choices"][0]["text"], whole["prompt"]);
    let pieces = mock.stream("/v1/completions", &ask).await;
    let said: String = pieces
        .iter()
        .filter_map(|piece| piece["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(answer["choices"][0]["text"], said);
    assert_eq!(mock.post("/v1/completions", &json!({"prompt": [5]})).await.0, 400);
}
