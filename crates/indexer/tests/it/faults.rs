//! What engines and links do, and that the answers are right afterwards.

use std::net::TcpListener;

use homing_domain::{AdapterName, BlockSize, HashSeed, KeyHasher, Prompt};
use homing_wire::encode::{EngineEvent, EngineHash, EngineStored, ExtraKey};
use serde_json::{Value, json};

use crate::cache::{Cache, message, prompt};
use crate::engine::{Engine, Replay};
use crate::indexer::{Indexer, settings};

fn prompts() -> Vec<Vec<u32>> {
    let mut prompts: Vec<Vec<u32>> = (0..6).map(|number| prompt(number, 8)).collect();
    // One that shares the beginning of another, one that is shorter, one that is like none.
    let mut fork = prompt(0, 8);
    fork[21] = 7;
    prompts.extend([fork, prompt(1, 3), prompt(99, 2)]);
    prompts
}

/// Stores some prompts, and evicts in the middle and at the end. Gives the number of the last batch.
fn fill(engine: &mut Engine) -> u64 {
    for number in 0..4 {
        engine.publish(|cache| cache.store(&prompt(number, 8)));
    }
    engine.publish(|cache| cache.evict(&prompt(0, 8), 7));
    engine.publish(|cache| cache.evict(&prompt(1, 8), 3))
}

#[tokio::test]
async fn answers_are_what_was_published_with_evictions_holes_and_clears() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    indexer.wait("a connection", |rank| rank["state"] != "stale").await;
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    assert_eq!(indexer.overlap(&prompt(1, 8)).await, 3, "behind a hole nothing counts");

    engine.publish(|cache| cache.store(&prompts()[6]));
    // The hole is filled: what was behind it counts again.
    let last = engine.publish(|cache| cache.store(&prompt(1, 4)));
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    assert_eq!(indexer.overlap(&prompt(1, 8)).await, 8);

    engine.publish(Cache::clear);
    let last = engine.publish(|cache| cache.store(&prompt(2, 2)));
    let rank = indexer.wait_for(last, "live").await;
    assert_eq!(
        (&rank["complete"], &rank["counters"]["barriers"]),
        (&json!(true), &json!(1))
    );
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn what_the_publisher_drops_is_replayed() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    engine.lose(|cache| cache.store(&prompt(4, 8)));
    engine.lose(|cache| cache.evict(&prompt(2, 8), 0));
    let last = engine.publish(|cache| cache.store(&prompt(5, 8)));
    let rank = indexer.wait_for(last, "live").await;
    assert_eq!(rank["counters"]["gaps"], 1);
    indexer.agrees(&engine.cache, &prompts()).await;

    // And what is lost at the end of all, where no later batch shows it.
    let last = engine.lose(|cache| cache.evict(&prompt(3, 8), 0));
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn an_engine_that_restarts_and_counts_anew_has_its_new_content() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    engine.restart(|_| ());
    engine.publish(|cache| cache.store(&prompt(1, 5)));
    let last = engine.publish(|cache| cache.store(&prompt(7, 2)));
    let rank = indexer.wait_for(last, "live").await;
    assert_eq!(rank["complete"], true);
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn an_engine_that_restarts_and_passes_our_cursor_is_still_found_out() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    engine.restart(|engine| {
        for number in 1..12 {
            engine.lose(|cache| cache.store(&prompt(number, 3)));
        }
    });
    let newest = engine.publish(|cache| cache.store(&prompt(2, 6)));
    assert!(newest > last);
    let rank = indexer.wait_for(newest, "live").await;
    assert_eq!(
        (&rank["counters"]["restarts"], &rank["complete"]),
        (&json!(1), &json!(true))
    );
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

/// One that believes for so long what a source last said that cannot be asked again.
async fn patient(engine: &Engine, verify_within: &str) -> Indexer {
    let more = [("feed.verify-within", verify_within)];
    Indexer::start(&settings(&[engine.worker()], &more)).await
}

#[tokio::test]
async fn a_source_that_cannot_be_asked_is_warming_until_it_clears() {
    let mut engine = Engine::start(Replay::No);
    engine.publish(|cache| cache.store(&prompt(0, 8)));
    let indexer = patient(&engine, "15s").await;
    let rank = indexer.wait("a connection", |rank| rank["state"] == "warming").await;
    assert_eq!((&rank["complete"], &rank["source"]), (&json!(false), &json!("engine")));
    let last = engine.publish(|cache| cache.store(&prompt(1, 8)));
    indexer.wait_for(last, "warming").await;
    // What came before is not known: too low, never too high.
    assert_eq!(indexer.overlap(&prompt(0, 8)).await, 0);
    assert_eq!(indexer.overlap(&prompt(1, 8)).await, 8);

    // A gap cannot be mended; the view begins again and says so.
    engine.lose(|cache| cache.evict(&prompt(1, 8), 0));
    let last = engine.publish(|cache| cache.store(&prompt(2, 8)));
    let rank = indexer.wait_for(last, "warming").await;
    assert_eq!(rank["counters"]["resets"], 1);
    assert_eq!(indexer.overlap(&prompt(1, 8)).await, 0);
    assert_eq!(indexer.overlap(&prompt(2, 8)).await, 8);

    engine.publish(Cache::clear);
    let last = engine.publish(|cache| cache.store(&prompt(3, 4)));
    let rank = indexer.wait_for(last, "live").await;
    assert_eq!(rank["complete"], true);
    indexer.agrees(&engine.cache, &prompts()).await;

    // With nothing to hear and nobody to ask it does not stay live.
    let rank = indexer.wait("staleness", |rank| rank["state"] == "stale").await;
    assert_eq!(
        rank["why"],
        "nothing was heard for a while, and the source cannot be asked"
    );
    assert!(rank["since_ms"].is_u64(), "{rank}");
    indexer.stop().await;
}

#[tokio::test]
async fn an_index_that_is_restarted_is_rebuilt_by_replay() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    indexer.stop().await;

    engine.publish(|cache| cache.evict(&prompt(3, 8), 5));
    let last = engine.publish(|cache| cache.store(&prompt(5, 8)));
    let indexer = Indexer::of(&engine).await;
    let rank = indexer.wait_for(last, "live").await;
    assert_eq!(
        (&rank["complete"], &rank["counters"]["rebuilds"]),
        (&json!(true), &json!(1))
    );
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn a_payload_that_makes_no_sense_is_told_and_the_rest_is_heard() {
    let mut engine = Engine::start(Replay::No);
    let indexer = patient(&engine, "10m").await;
    indexer.wait("a connection", |rank| rank["state"] == "warming").await;
    let broken = engine.send("send", b"\x93\xc1");
    let rank = indexer.wait("trouble", |rank| rank["trouble"].is_string()).await;
    let trouble = rank["trouble"].as_str().unwrap();
    assert!(
        trouble.starts_with(&format!("batch {broken} cannot be read: ")),
        "{trouble}"
    );
    engine.publish(Cache::clear);
    let last = engine.publish(|cache| cache.store(&prompt(0, 8)));
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    let metrics = indexer.get("/metrics").await;
    assert!(metrics.contains("\nhoming_wire_broken_batches_total 1\n"), "{metrics}");
    indexer.stop().await;
}

#[tokio::test]
async fn blocks_of_another_size_are_refused_in_words() {
    let mut engine = Engine::start(Replay::Yes);
    let worker = engine.worker().replace("block-size=4", "block-size=6");
    let indexer = Indexer::start(&settings(&[worker], &[])).await;
    let last = engine.publish(|cache| cache.store(&prompt(0, 6)));
    let rank = indexer
        .wait("the batch", |rank| {
            rank["cursor"] == last && rank["trouble"].is_string()
        })
        .await;
    let trouble = rank["trouble"].as_str().unwrap();
    assert!(trouble.contains('4') && trouble.contains('6'), "{trouble}");
    assert_eq!(rank["blocks"], 0);
    indexer.stop().await;
}

#[tokio::test]
async fn an_engine_that_connects_is_listened_to_on_a_port_of_ours() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut engine = Engine::connecting(&format!("tcp://{free}"));
    let indexer = patient(&engine, "10m").await;
    indexer.wait("a connection", |rank| rank["state"] == "warming").await;
    engine.publish(Cache::clear);
    let last = fill(&mut engine);
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}

#[tokio::test]
async fn the_health_says_in_words_who_is_not_live() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let last = engine.publish(|cache| cache.store(&prompt(0, 1)));
    indexer.wait_for(last, "live").await;
    // The board that health reads is at most a tick behind.
    let health = indexer.wait_health(|health| health["live"] == 1).await;
    assert_eq!((&health["status"], &health["not_live"]), (&json!("ok"), &json!([])));
    drop(engine);
    let health = indexer.wait_health(|health| health["live"] == 0).await;
    assert_eq!(health["status"], "ok");
    assert_eq!(
        health["not_live"],
        json!(["http://127.0.0.1:8000 rank 0: stale, no connection to the source of its events"])
    );
    indexer.stop().await;
}

#[tokio::test]
async fn adapter_salt_media_and_tier_are_told_apart() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let tokens = prompt(0, 3);
    let stored = |number: u64| {
        EngineStored::plain(
            None,
            (0..3).map(|block| EngineHash::Unsigned(number * 10 + block)).collect(),
            prompt(0, 3),
            4,
        )
    };
    let adapted = EngineStored {
        lora_name: Some("sql".to_owned()),
        ..stored(1)
    };
    let salted = EngineStored {
        extra_keys: Some(vec![Some(vec![ExtraKey::Text("pepper".to_owned())]), None, None]),
        medium: Some("CPU".to_owned()),
        ..stored(2)
    };
    let picture = |offset| Some(vec![ExtraKey::Media("cat".to_owned(), offset)]);
    let pictured = EngineStored {
        extra_keys: Some(vec![None, picture(1), picture(-3)]),
        ..stored(3)
    };
    let events = [adapted, salted, pictured].map(EngineEvent::Stored).to_vec();
    let last = engine.send("send", &message(events));
    indexer.wait_for(last, "live").await;
    let media = json!([{"id": "cat", "start": 5, "length": 6}]);
    let asked = |more: Value| {
        let mut question = json!({ "tokens": tokens });
        question
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        question
    };
    for (question, device, host) in [
        // The block before the picture is like any other.
        (asked(json!({})), 1, 1),
        (asked(json!({"adapter": "sql"})), 3, 3),
        (asked(json!({"adapter": "other"})), 0, 0),
        (asked(json!({"salt": "pepper"})), 0, 3),
        (asked(json!({"salt": "pepper", "adapter": "sql"})), 0, 0),
        (asked(json!({"media": media})), 3, 3),
        (asked(json!({"media": [{"id": "cat", "start": 4, "length": 6}]})), 1, 1),
        (asked(json!({"window": "one_token_ahead"})), 0, 0),
    ] {
        let (status, answer) = indexer.post(&question).await;
        assert_eq!(status, 200, "{answer}");
        let blocks = json!({"device": device, "host": host, "disk": host, "external": host});
        assert_eq!(answer["ranks"][0]["blocks"], blocks, "{question}");
    }
    // By keys, which hold all of that.
    let sql = AdapterName::new("sql");
    let asked = Prompt {
        adapter: Some(&sql),
        ..Prompt::text(&tokens, BlockSize::new(4).unwrap())
    };
    let mut keys = Vec::new();
    KeyHasher::new(HashSeed::PUBLIC).keys(&asked, &mut keys);
    let keys: Vec<String> = keys.iter().map(|key| format!("{:016x}", key.0)).collect();
    let (_, answer) = indexer.post(&json!({ "keys": keys })).await;
    assert_eq!(
        (&answer["blocks"], &answer["ranks"][0]["blocks"]["device"]),
        (&json!(3), &json!(3))
    );
    indexer.stop().await;
}

#[tokio::test]
async fn questions_are_answered_while_the_index_is_written_to() {
    let mut engine = Engine::start(Replay::Yes);
    let indexer = Indexer::of(&engine).await;
    let mut last = engine.publish(|cache| cache.store(&prompt(0, 4)));
    indexer.wait_for(last, "live").await;
    for round in 0..200 {
        let number = 10 + round;
        engine.publish(|cache| cache.store(&prompt(number, 8)));
        last = engine.publish(|cache| cache.evict(&prompt(number, 8), 2));
        // Before both, between them, or after both.
        let seen = indexer.overlap(&prompt(number, 8)).await;
        assert!([0, 2, 8].contains(&seen), "{seen}");
        assert_eq!(indexer.overlap(&prompt(0, 4)).await, 4);
    }
    indexer.wait_for(last, "live").await;
    indexer.agrees(&engine.cache, &prompts()).await;
    indexer.stop().await;
}
