//! A million blocks: listed, once for all who ask, and watched.

use std::time::Instant;

use crate::support::{Engine, EngineSpec, GUARD, Router, Running, Start, hasher, settings};
use homing_feed::State;
use homing_wire::frame::{Frame, FrameReader, MAX_FRAME};

const BATCHES: u64 = 1000;
const BLOCKS: u64 = 1000;
const LIST: &str = "/v1/ranks/0/0/list";

/// What took how long. Not asserted, but shown to whoever asks for it.
fn tell(what: &str, since: Instant, blocks: u64, bytes: usize) {
    let took = since.elapsed();
    let rate = blocks as f64 / took.as_secs_f64() / 1e6;
    let each = bytes as f64 / blocks as f64;
    println!("{what}: {took:.2?}, {rate:.2} million blocks per second, {each:.2} bytes per block");
}

/// Reads batches from the ring until its end, as a router that was away would.
async fn replayed(agent: &Running) -> (u64, usize) {
    let response = agent.get("/v1/ranks/0/0/watch?from=0&follow=false").await;
    let bytes = response.bytes().await.expect("all of it comes");
    let mut reader = FrameReader::new(&hasher(), MAX_FRAME);
    reader.push(&bytes);
    let mut next = 0;
    while let Some(frame) = reader.next_frame().expect("frames that we wrote") {
        if let Frame::Batch(batch) = frame {
            assert_eq!(batch.sequence.0, next);
            next += 1;
        }
    }
    (next, bytes.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_blocks_are_listed_and_watched() {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    let agent = Running::start(&settings(&[engine.worker()])).await;
    agent.has_read(0).await;
    let watcher = Router::start(agent.address, &engine.url()).await;

    let started = Instant::now();
    let mut labels = Vec::new();
    for _ in 0..BATCHES {
        labels = engine.store(BLOCKS).0;
    }
    tell("published", started, BATCHES * BLOCKS, 0);
    agent.has_read(BATCHES).await;
    tell("and heard by the agent", started, BATCHES * BLOCKS, 0);
    let expected = engine.truth.held();
    assert_eq!(expected.len() as u64, BATCHES * BLOCKS);

    let started = Instant::now();
    let (batches, bytes) = replayed(&agent).await;
    assert_eq!(batches, BATCHES);
    tell("sent from the ring", started, BATCHES * BLOCKS, bytes);

    let metrics = &agent.metrics.agent;
    let counted = || {
        (
            metrics.listing_hold.count(),
            metrics.shared_lists.get(),
            metrics.served_lists.get(),
        )
    };
    let before = counted();
    // Four ask at once: the index is held once, and all get the same.
    let started = Instant::now();
    let ask = || async { agent.get(LIST).await.bytes().await.unwrap() };
    let (first, second, third, fourth) = tokio::join!(ask(), ask(), ask(), ask());
    tell("listed for four", started, BATCHES * BLOCKS, first.len());
    assert!(first == second && first == third && first == fourth);
    assert_eq!(counted(), (before.0 + 1, before.1 + 3, before.2 + 4));
    drop((first, second, third, fourth));
    let started = Instant::now();
    let alone = ask().await;
    tell("listed for one", started, BATCHES * BLOCKS, alone.len());
    drop(alone);
    let told = agent.metrics.render();
    let hold = told
        .lines()
        .find(|line| line.starts_with("homing_agent_listing_hold_seconds_sum"));
    println!(
        "the index was held twice, and once when it was empty: {}",
        hold.unwrap()
    );

    // The one who watched all the while has it all, and so has one who comes now.
    assert!(
        tokio::time::timeout(GUARD, watcher.converges(&engine.truth, State::Live))
            .await
            .is_ok()
    );
    let started = Instant::now();
    let late = Router::start(agent.address, &engine.url()).await;
    late.converges(&engine.truth, State::Live).await;
    tell("listed into an index", started, BATCHES * BLOCKS, 0);

    // What comes after the list is watched.
    engine.remove(&labels);
    late.converges(&engine.truth, State::Live).await;
    watcher.converges(&engine.truth, State::Live).await;
    agent.stop().await;
}
