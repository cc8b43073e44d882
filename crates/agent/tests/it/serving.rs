//! Does the agent serve what it says, and refuse the rest in words?

use std::time::Duration;

use crate::support::{
    BLOCK_SIZE, Engine, EngineSpec, Proxy, RANK, Router, Running, Start, Watching, hasher, quick, settings, until,
};
use homing_domain::{HashSeed, KeyHasher};
use homing_feed::{FeedConfig, State, Why};
use homing_wire::frame::{Frame, SnapshotPart, SnapshotReader};
use homing_wire::{FrameError, FrameReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const LIST: &str = "/v1/ranks/0/0/list";
const WATCH: &str = "/v1/ranks/0/0/watch";

/// An engine with so many batches of one block each, and an agent with a ring of so many that has read them all.
async fn pair(batches: u64, ring: u32) -> (Engine, Running) {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    engine.store(1);
    let mut config = settings(&[engine.worker()]);
    config.agent.ring_batches = ring;
    let agent = Running::start(&config).await;
    agent.has_read(1).await;
    for _ in 1..batches {
        engine.store(1);
    }
    agent.has_read(batches).await;
    (engine, agent)
}

fn numbers(frames: &[Frame]) -> Vec<u64> {
    let number = |frame: &Frame| match frame {
        Frame::Batch(batch) => Some(batch.sequence.0),
        _ => None,
    };
    frames.iter().filter_map(number).collect()
}

async fn refused(agent: &Running, path: &str) -> (u16, String) {
    let response = agent.get(path).await;
    (response.status().as_u16(), response.text().await.expect("it says why"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_is_sent_once_and_goes_on() {
    let (mut engine, agent) = pair(20, 1000).await;
    let frames = agent.frames(&format!("{WATCH}?from=7&follow=false")).await;
    assert_eq!(numbers(&frames), (7..20).collect::<Vec<_>>());
    let Some(Frame::Heartbeat(first)) = frames.first() else {
        panic!("the first frame says who speaks, not {:?}", frames.first());
    };
    let Some(Frame::EndOfReplay(last)) = frames.last() else {
        panic!("the last frame says that this was all, not {:?}", frames.last());
    };
    assert_eq!((first, first.position.unwrap().sequence.0), (last, 19));

    let mut from = Watching::begin(&agent, &format!("{WATCH}?from=18")).await;
    let mut now = Watching::begin(&agent, WATCH).await;
    assert_eq!(from.beat().await, (vec![], *first));
    assert_eq!(now.beat().await, (vec![], *first));
    for _ in 0..100 {
        engine.store(1);
    }
    let (mut seen, mut seen_now) = (Vec::new(), Vec::new());
    while seen.last() != Some(&119) || seen_now.last() != Some(&119) {
        for (watching, seen) in [(&mut from, &mut seen), (&mut now, &mut seen_now)] {
            if seen.last() != Some(&119) {
                let (numbers, beat) = watching.beat().await;
                seen.extend(numbers);
                assert_eq!(seen.last().copied().unwrap_or(19), beat.position.unwrap().sequence.0);
            }
        }
    }
    assert_eq!(seen, (18..120).collect::<Vec<_>>());
    assert_eq!(seen_now, (20..120).collect::<Vec<_>>());
    // Nothing comes: heartbeats do, again and again.
    for _ in 0..3 {
        assert_eq!(now.beat().await.0, Vec::<u64>::new());
    }
    assert_eq!(agent.metrics.agent.active_watchers.get(), 2);
    drop((from, now));
    until("nobody watches", || async {
        agent.metrics.agent.active_watchers.get() == 0
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_is_refused_in_words() {
    let (_engine, agent) = pair(20, 16).await;
    let ask = |query: &str| format!("{WATCH}?{query}");
    for (path, status, words) in [
        (
            ask("from=3"),
            410,
            "batch 3 is no longer here: the oldest is 4; take a list",
        ),
        (ask("from=20"), 416, "batch 20 has not come yet: the newest is 19"),
        (ask("from=18446744073709551615"), 416, "the newest is 19"),
        (ask("from=x"), 400, "`from` must be the number of a batch, not `x`"),
        (ask("from=4%20"), 400, "not `4%20`"),
        (ask("follow=maybe"), 400, "`follow` must be true or false, not `maybe`"),
        (ask("since=4"), 400, "`since` is no parameter of watch"),
        (
            "/v1/ranks/1/0/list".to_owned(),
            404,
            "there is no worker 1 with a rank 0 here",
        ),
        (
            "/v1/ranks/0/1/watch".to_owned(),
            404,
            "there is no worker 0 with a rank 1 here",
        ),
        (
            "/v1/ranks/0/99999999/watch".to_owned(),
            404,
            "with a rank 99999999 here",
        ),
        ("/v1/ranks/x%2fy/0/list".to_owned(), 404, "there is no worker x/y"),
    ] {
        let (got, text) = refused(&agent, &path).await;
        assert!(got == status && text.contains(words), "{path}: {got} {text}");
    }
    assert_eq!(agent.metrics.agent.gone_answers.get(), 1);
    assert_eq!(numbers(&agent.frames(&ask("from=4&follow=false")).await).len(), 16);
    assert_eq!(agent.metrics.agent.ring_batches.get(), 16);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_health_and_metrics_are_told() {
    let (engine, agent) = pair(20, 16).await;
    let rank = agent.rank(0).await;
    for (key, value) in [
        ("worker", serde_json::json!(engine.url())),
        ("worker_number", 0.into()),
        ("dp_rank", 0.into()),
        ("block_size", BLOCK_SIZE.into()),
        ("state", "live".into()),
        ("complete", true.into()),
        ("truncated", false.into()),
        ("served", true.into()),
        ("position", 19.into()),
        ("oldest", 4.into()),
        ("blocks", 20.into()),
        ("trouble", serde_json::Value::Null),
    ] {
        assert_eq!(rank[key], value, "{key} of {rank}");
    }
    for key in ["incarnation", "epoch"] {
        assert_eq!(rank[key].as_str().unwrap().len(), 16);
    }
    // A worker can be named by its address, too.
    let by_address = engine.url().replace('/', "%2F");
    assert_eq!(agent.get(&format!("/v1/ranks/{by_address}/0/list")).await.status(), 200);
    assert_eq!(agent.get("/health").await.text().await.unwrap(), r#"{"status":"ok"}"#);
    let metrics = agent.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("\nhoming_agent_ring_batches 16\n"), "{metrics}");
    // Without the engine nothing is vouched for, and it is said why.
    drop(engine);
    until("the agent serves nothing", || async {
        agent.rank(0).await["served"] == false
    })
    .await;
    let (status, words) = refused(&agent, LIST).await;
    assert_eq!(status, 503);
    assert!(
        words.contains("there is no connection to the engine's events"),
        "{words}"
    );
    agent.stop().await;
}

/// A router was away for longer than the ring is long: it takes a list, and misses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_comes_too_late_takes_a_list() {
    let (mut engine, agent) = pair(1, 16).await;
    let proxy = Proxy::start(agent.address).await;
    let router = Router::start(proxy.address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;
    let lists = router.viewed().await.status.counters.lists;
    proxy.refuse();
    until("the router is cut off", || async {
        matches!(router.viewed().await.status.state, State::Stale { .. })
    })
    .await;
    let (labels, _) = engine.store(3);
    for _ in 0..20 {
        engine.store(2);
    }
    engine.remove(&labels);
    agent.has_read(engine.batches).await;
    proxy.accept();
    router.converges(&engine.truth, State::Live).await;
    assert_eq!(router.viewed().await.status.counters.lists, lists + 1);
    assert!(agent.metrics.agent.gone_answers.get() >= 1);
    agent.stop().await;
}

/// One that is slower than the ring is long is ended; what it got until then has no holes.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_is_ended() {
    let (mut engine, agent) = pair(1, 16).await;
    let mut slow = Watching::begin(&agent, WATCH).await;
    slow.beat().await;
    // More than all buffers between it and us take.
    let mut sent = 0;
    while sent < 48 << 20 {
        engine.store(4000);
        sent += 4000 * 16;
    }
    agent.has_read(engine.batches).await;
    let mut expected = 1;
    while let Some(frame) = slow.next().await {
        if let Frame::Batch(batch) = frame {
            assert_eq!(batch.sequence.0, expected);
            expected += 1;
        }
    }
    assert!(expected < engine.batches, "it was not ended");
    assert_eq!(agent.metrics.agent.slow_watchers.get(), 1);
    assert!(agent.metrics.agent.ring_bytes.get() < 17 * 65_000);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_cut_off_is_noticed_and_never_shown() {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    for _ in 0..40 {
        engine.store(1000);
    }
    let agent = Running::start(&settings(&[engine.worker()])).await;
    agent.has_read(40).await;
    let whole = agent.get(LIST).await.bytes().await.unwrap();
    let cut = |length: usize| {
        let mut reader = SnapshotReader::new(&hasher());
        reader.push(&whole[..length]);
        while let Some(part) = reader.next_part().unwrap() {
            assert!(length == whole.len() || !matches!(part, SnapshotPart::End(_)));
        }
        reader.finish()
    };
    assert_eq!(cut(whole.len()).unwrap().blocks, 40_000);
    for length in [0, 1, 40, whole.len() / 2, whole.len() - 1] {
        assert!(matches!(cut(length), Err(FrameError::CutOff { .. })), "{length}");
    }
    // The same on the way to a router: it asks again, and shows nothing before it has all.
    let proxy = Proxy::start(agent.address).await;
    proxy.cut_lists_after(whole.len() / 2);
    let router = Router::start(proxy.address, &engine.url()).await;
    until("the router has tried a few times", || async {
        let viewed = router.viewed().await;
        assert_eq!(viewed.stats.blocks, 0);
        viewed.status.counters.failed_tries >= 3
    })
    .await;
    proxy.cut_lists_after(usize::MAX);
    router.converges(&engine.truth, State::Live).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_seed_is_refused_in_words() {
    let (engine, agent) = pair(3, 16).await;
    let other = KeyHasher::new(HashSeed::new(7));
    let router = Router::with(agent.address, &engine.url(), other, quick()).await;
    until("the router says why it hears nothing", || async {
        let trouble = router.viewed().await.trouble.unwrap_or_default();
        trouble.contains("both sides need the same `hash-seed`")
    })
    .await;
    assert_eq!(router.viewed().await.stats.blocks, 0);
    let mut reader = FrameReader::new(&other, 1 << 20);
    reader.push(&agent.get(LIST).await.bytes().await.unwrap());
    assert!(matches!(reader.next_frame(), Err(FrameError::Seed { .. })));
    agent.stop().await;
}

/// While the agent cannot verify its view, a router does not take it for verified, and yet keeps what it has.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_cannot_verify_it_does_not_vouch_for() {
    let spec = EngineSpec {
        replay: "-".to_owned(),
        ..EngineSpec::new(Start::At(1))
    };
    let mut engine = Engine::start(spec);
    let mut config = settings(&[engine.worker()]);
    config.feed.verify_within = Duration::from_secs(4);
    let agent = Running::start(&config).await;
    agent.has_read(0).await;
    engine.store(3);
    agent.has_read(1).await;
    let feed = FeedConfig {
        verify_within_ms: 8_000,
        ..quick()
    };
    let router = Router::with(agent.address, &engine.url(), hasher(), feed).await;
    router.converges(&engine.truth, State::Live).await;
    let mut watching = Watching::begin(&agent, WATCH).await;
    watching.beat().await;
    until("the agent's view is stale", || async {
        agent.rank(0).await["state"] == "stale"
    })
    .await;
    loop {
        // Heartbeats that were under way come first.
        match watching.next().await.unwrap() {
            Frame::EndOfReplay(at) => break assert_eq!(at.position.unwrap().sequence.0, 0),
            Frame::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let (status, words) = refused(&agent, &format!("{WATCH}?from=0&follow=false")).await;
    assert!(status == 503 && words.contains("cannot be said"), "{status} {words}");
    // It asked in vain, and has either given that up for a while or not.
    until("the router's view is stale", || async {
        matches!(
            router.viewed().await.status.state,
            State::Stale {
                why: Why::Silent | Why::RepairFailed,
                ..
            }
        )
    })
    .await;
    assert_eq!(router.viewed().await.stats.blocks, 3, "it is kept all the same");
    assert_eq!(agent.get(LIST).await.status(), 200);
    engine.store(1);
    assert_eq!(watching.beat().await.0, [1], "it is vouched for again");
    router.converges(&engine.truth, State::Live).await;
    agent.stop().await;
}

/// TensorRT-LLM hands its events to whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_polled() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (say, mut said) = tokio::sync::mpsc::channel::<String>(16);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = connection.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /kv_cache_events "));
            let body = said.try_recv().unwrap_or_else(|_| "[]".to_owned());
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            connection.write_all((head + &body).as_bytes()).await.unwrap();
        }
    });
    let worker = format!("http://{address},dialect=trtllm,block-size=4");
    let agent = Running::start(&settings(&[worker])).await;
    agent.has_read(0).await;
    let router = Router::start(agent.address, &format!("http://{address}")).await;
    let created = r#"[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[8,0]}},
        {"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[
            {"block_hash":11,"tokens":[{"token_id":1},{"token_id":2},{"token_id":3},{"token_id":4}],"cache_level":0},
            {"block_hash":12,"tokens":[{"token_id":5},{"token_id":6},{"token_id":7},{"token_id":8}],"cache_level":0}]}}]"#;
    say.send(created.to_owned()).await.unwrap();
    until("the router has both blocks", || async {
        router.viewed().await.stats.blocks == 2
    })
    .await;
    let removed = r#"[{"event_id":2,"data":{"type":"removed","block_hashes":[12]}}]"#;
    say.send(removed.to_owned()).await.unwrap();
    until("the router has one block", || async {
        router.viewed().await.stats.blocks == 1
    })
    .await;
    assert_eq!(router.keeper.list(RANK).await.unwrap().unwrap().listing.items.len(), 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_when_the_agent_does() {
    let (_engine, agent) = pair(3, 16).await;
    let mut watching = Watching::begin(&agent, &format!("{WATCH}?from=2")).await;
    assert_eq!(watching.beat().await.0, Vec::<u64>::new());
    agent.stop().await;
    let mut rest = Vec::new();
    while let Some(frame) = watching.next().await {
        rest.push(frame);
    }
    assert!(numbers(&rest).len() <= 1);
}
