//! An index that is rebuilt from a recording answers as the recorded one did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use homing_domain::{
    BlockKey, BlockSize, CacheGroup, ContentHash, HashSeed, KeyHasher, Label, Listed, ListedParent, Prompt, RankId,
    StoredBlock, Tier,
};
use homing_index::{Answer, Copies, Index, IndexConfig, Slot};
use homing_indexer::Service;
use homing_telemetry::Metrics;
use serde_json::{Value, json};

use crate::cache::{BLOCK, prompt};
use crate::engine::{Engine, Replay};
use crate::indexer::{Indexer, settings};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn queries() -> Vec<Vec<u32>> {
    let mut queries: Vec<Vec<u32>> = (0..12).map(|number| prompt(number, 10)).collect();
    queries.extend((0..12).map(|number| prompt(number, 3)));
    queries
}

/// Answers without the time they took.
async fn answers(indexer: &Indexer) -> Vec<Value> {
    let mut answers = Vec::new();
    for tokens in queries() {
        let (_, mut answer) = indexer.post(&json!({ "tokens": tokens, "model": "tiny" })).await;
        answer["took_us"] = Value::Null;
        answers.push(answer);
    }
    answers
}

fn same(answers: &[Value], expected: &[Value]) {
    assert_eq!(answers.len(), expected.len());
    for (answer, expected) in answers.iter().zip(expected) {
        assert_eq!(answer, expected);
    }
}

/// A session in which much happens; gives what was answered and dumped at its end.
async fn record(path: &Path) -> (Vec<Value>, String) {
    let mut engine = Engine::start(Replay::Yes);
    let workers = [
        engine.worker(),
        "http://127.0.0.1:9001,model=other,cache-view=none".to_owned(),
    ];
    let more = [
        ("index.record", path.to_str().expect("UTF-8")),
        ("feed.verify-within", "1m"),
    ];
    let indexer = Indexer::start(&settings(&workers, &more)).await;
    for number in 0..6 {
        engine.publish(|cache| cache.store(&prompt(number, 8)));
    }
    engine.publish(|cache| cache.evict(&prompt(1, 8), 4));
    engine.lose(|cache| cache.store(&prompt(6, 8)));
    let last = engine.publish(|cache| cache.evict(&prompt(2, 8), 7));
    indexer.wait_for(last, "live").await;
    engine.restart(|engine| {
        for number in 3..15 {
            engine.lose(|cache| cache.store(&prompt(number, 5)));
        }
    });
    engine.publish(|cache| cache.evict(&prompt(4, 5), 1));
    let last = engine.publish(|cache| cache.store(&prompt(1, 6)));
    indexer.wait_for(last, "live").await;
    indexer.wait_health(|health| health["live"] == 1).await;
    indexer.agrees(&engine.cache, &queries()).await;
    let health = indexer.get_json("/health").await;
    assert_eq!(health["recording"], "running");
    let told = (answers(&indexer).await, indexer.get("/v1/dump").await);
    indexer.stop().await;
    told
}

async fn rebuilt(path: &Path) -> Indexer {
    Indexer::start(&settings(&[], &[("index.from", path.to_str().expect("UTF-8"))])).await
}

async fn refusal(path: &Path, more: &[(&str, &str)]) -> String {
    let from = [("index.from", path.to_str().expect("UTF-8"))];
    let settings = settings(&[], &[&from, more].concat());
    let started = Service::start(&settings, Arc::new(Metrics::default())).await;
    started.expect_err("it cannot be rebuilt").to_string()
}

#[tokio::test]
async fn the_rebuilt_index_answers_and_lists_as_the_recorded_one() {
    let path = file("whole.recording");
    let (answered, dumped) = record(&path).await;
    let still = rebuilt(&path).await;
    same(&answers(&still).await, &answered);
    assert_eq!(still.get("/v1/dump").await, dumped);
    let rank = still.rank().await;
    assert_eq!(
        (&rank["state"], &rank["counters"]["restarts"]),
        (&json!("live"), &json!(1))
    );
    let health = still.get_json("/health").await;
    assert!(health["as_of_ms"].is_u64(), "{health}");
    let metrics = still.get("/metrics").await;
    assert!(metrics.contains("\nhoming_feed_engine_restarts_total 1\n"), "{metrics}");
    still.stop().await;
}

#[tokio::test]
async fn a_recording_is_read_up_to_its_cut_and_not_at_all_if_it_is_damaged_or_something_else() {
    let path = file("parts.recording");
    let (answered, _) = record(&path).await;
    let whole = std::fs::read(&path).unwrap();
    let part = file("part.recording");

    // Within the entry that says that nothing is missing: all the rest is there.
    std::fs::write(&part, &whole[..whole.len() - 1]).unwrap();
    let still = rebuilt(&part).await;
    same(&answers(&still).await, &answered);
    still.stop().await;

    // Anywhere: what is there is an index, too.
    // (The header grows with the settings that there are.)
    let header = whole
        .windows(3)
        .position(|bytes| bytes == b"\"}}")
        .expect("it ends its JSON")
        + 3;
    for share in [0.1, 0.5, 0.8] {
        let cut = header + ((whole.len() - header) as f64 * share) as usize;
        std::fs::write(&part, &whole[..cut]).unwrap();
        rebuilt(&part).await.stop().await;
    }

    std::fs::write(&part, &whole[..100]).unwrap();
    let said = refusal(&part, &[]).await;
    assert!(
        said.contains("part.recording") && said.contains("within its header"),
        "{said}"
    );
    std::fs::write(&part, "{}").unwrap();
    let said = refusal(&part, &[]).await;
    assert!(said.contains("no recording of homing index"), "{said}");
    for place in [header / 2, usize::midpoint(header, whole.len()), whole.len() - 2] {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        std::fs::write(&part, damaged).unwrap();
        let said = refusal(&part, &[]).await;
        assert!(said.contains("damaged at byte"), "{said}");
    }
    let mut newer = whole.clone();
    newer[8] = 9;
    std::fs::write(&part, newer).unwrap();
    let said = refusal(&part, &[]).await;
    assert!(said.contains("version 9"), "{said}");
    let said = refusal(&path, &[("hash.seed", "c0ffee")]).await;
    assert!(said.contains("hash.seed") && !said.contains("c0ffee"), "{said}");
    let said = refusal(Path::new("/nowhere/at/all"), &[]).await;
    assert!(
        said.contains("/nowhere/at/all") && said.contains("index.from"),
        "{said}"
    );
}

/// A dump, read as a program would that never saw this one.
fn stored_again(dump: &str) -> (Index, Slot) {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let slot = index
        .add_rank(RankId::new(0, 0), Copies::Counted)
        .expect("there is room");
    let lines: Vec<Value> = dump
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect();
    let (head, items) = lines.split_first().expect("a line");
    let (end, items) = items.split_last().expect("a second line");
    assert_eq!(head["rank"]["worker"], "http://127.0.0.1:8000");
    assert_eq!(
        (&head["items"], &end["end"]["items"]),
        (&json!(items.len()), &json!(items.len()))
    );
    let number =
        |value: &Value| u64::from_str_radix(value.as_str().expect("a text"), 16).expect("16 hexadecimal digits");
    for item in items {
        let parent = match &item["parent"] {
            Value::String(root) if root == "root" => ListedParent::Root,
            parent if parent["label"].is_string() => ListedParent::Label(Label::new(number(&parent["label"]))),
            parent => ListedParent::Key(BlockKey(number(&parent["key"]))),
        };
        let block = |block: &Value| StoredBlock {
            label: Label::new(number(&block[0])),
            content: ContentHash(number(&block[1])),
        };
        let listed = Listed {
            parent,
            tier: Tier::Device,
            group: CacheGroup(item["group"].as_u64().expect("a number") as u8),
            copies: item["copies"].as_u64().expect("a number") as u32,
            blocks: item["blocks"].as_array().expect("a list").iter().map(block).collect(),
        };
        assert_eq!(item["tier"], "device");
        index.restore(slot, &listed).expect("the rank is there");
    }
    (index, slot)
}

#[tokio::test]
async fn a_dump_stored_into_an_empty_index_gives_the_same_answers() {
    let path = file("dumped.recording");
    let (answered, _) = record(&path).await;
    let still = rebuilt(&path).await;
    let dump = still
        .get("/v1/dump?model=tiny&worker=http://127.0.0.1:8000/&dp_rank=0")
        .await;
    still.stop().await;
    let (index, slot) = stored_again(&dump);
    let (hasher, reader) = (KeyHasher::new(HashSeed::PUBLIC), index.reader());
    let (mut keys, mut answer) = (Vec::new(), Answer::default());
    for (tokens, answered) in queries().iter().zip(answered) {
        keys.clear();
        hasher.keys(&Prompt::text(tokens, BlockSize::new(BLOCK as u32).unwrap()), &mut keys);
        reader.lookup(&keys, &mut answer);
        let depth = answer.depth(slot, Tier::Device).0;
        assert_eq!(answered["ranks"][0]["blocks"]["device"], depth);
    }
}
