//! Does a real libzmq ROUTER, as engines have it, answer what it is asked?

use std::time::Duration;

use homing_transport::testing::Publisher;
use homing_transport::zmq::{ConnectionError, Endpoint, Message, Replay, ReplayConfig, ReplayError, replay};

const END: [u8; 8] = [0xff; 8];

async fn ask(endpoint: &Endpoint, start: u64) -> Replay {
    let start = start.to_be_bytes();
    replay(endpoint, &[b"", &start], ReplayConfig::default())
        .await
        .expect("the engine is there")
}

/// The answers up to the one whose sequence frame, at this place, says that it is the last.
async fn answers(replay: &mut Replay, sequence: usize) -> Vec<Message> {
    let mut answers = Vec::new();
    loop {
        let message = replay.next().await.expect("there is an end");
        if message.frame(sequence) == Some(&END) {
            return answers;
        }
        answers.push(message);
    }
}

fn frames(message: &Message) -> Vec<&[u8]> {
    message.frames().collect()
}

#[tokio::test]
async fn the_form_with_a_topic() {
    let (mut engine, _) = Publisher::bound();
    let endpoint = engine.endpoint("replay tcp://127.0.0.1:0 topic");
    engine.tell("topic kv");
    engine.tell("publish 3");
    engine.tell("drop 2");
    let mut replay = ask(&endpoint, 2).await;
    let answers = answers(&mut replay, 2).await;
    assert_eq!(answers.len(), 3);
    for (answer, expected) in answers.iter().zip(2_u64..) {
        let text = expected.to_string();
        assert_eq!(
            frames(answer),
            [&b""[..], b"kv", &expected.to_be_bytes(), text.as_bytes()]
        );
    }
}

#[tokio::test]
async fn the_form_without_a_topic() {
    let (mut engine, _) = Publisher::bound();
    let endpoint = engine.endpoint("replay tcp://127.0.0.1:0 plain");
    engine.tell("topic kv");
    engine.tell("publish 2");
    let mut replay = ask(&endpoint, 0).await;
    let answers = answers(&mut replay, 1).await;
    let expected = [0_u64, 1].map(|number| (number.to_be_bytes(), number.to_string()));
    assert_eq!(answers.len(), 2);
    for (answer, (sequence, text)) in answers.iter().zip(&expected) {
        assert_eq!(frames(answer), [&b""[..], sequence, text.as_bytes()]);
    }
}

#[tokio::test]
async fn a_long_answer_is_complete_and_a_second_one_comes_over_the_same_connection() {
    let (mut engine, _) = Publisher::bound();
    let endpoint = engine.endpoint("replay tcp://127.0.0.1:0 topic");
    engine.tell("publish 900 5000");
    let mut replay = ask(&endpoint, 0).await;
    assert_eq!(answers(&mut replay, 2).await.len(), 900);
    replay.ask(&[b"", &899_u64.to_be_bytes()]).unwrap();
    assert_eq!(answers(&mut replay, 2).await.len(), 1);
}

#[tokio::test]
async fn an_engine_that_hangs_is_given_up() {
    let (mut engine, _) = Publisher::bound();
    let endpoint = engine.endpoint("replay tcp://127.0.0.1:0 topic");
    engine.tell("publish 1");
    let config = ReplayConfig {
        silence: Duration::from_secs(1),
        ..ReplayConfig::default()
    };
    let request: [&[u8]; 2] = [b"", &0_u64.to_be_bytes()];
    let mut replay = replay(&endpoint, &request, config).await.unwrap();
    assert_eq!(answers(&mut replay, 2).await.len(), 1);
    let silent = replay.next().await.unwrap_err();
    assert!(matches!(silent, ReplayError::Silent(_)), "{silent:?}");
}

#[tokio::test]
async fn an_engine_that_ends_is_told() {
    let (mut engine, _) = Publisher::bound();
    let endpoint = engine.endpoint("replay tcp://127.0.0.1:0 topic");
    let mut replay = ask(&endpoint, 0).await;
    assert_eq!(answers(&mut replay, 2).await.len(), 0);
    engine.kill();
    let gone = replay.next().await.unwrap_err();
    assert!(
        matches!(
            gone,
            ReplayError::Connection(ConnectionError::Closed | ConnectionError::Broken(_))
        ),
        "{gone:?}"
    );
    let request: [&[u8]; 1] = [b""];
    let nobody = refusal(&endpoint, &request).await;
    assert!(nobody.starts_with("cannot connect: "), "{nobody}");
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let (_engine, endpoint) = Publisher::bound();
    assert_eq!(
        refusal(&endpoint, &[b""]).await,
        "the peer is a PUB socket, a ROUTER socket is needed"
    );
    assert_eq!(
        refusal(&endpoint, &[]).await,
        "the request has 0 frames and 0 bytes; it must have 1 frame or more and at most 1024 bytes"
    );
    let long = [0; 1025];
    assert_eq!(
        refusal(&endpoint, &[&long]).await,
        "the request has 1 frames and 1025 bytes; it must have 1 frame or more and at most 1024 bytes"
    );
    let nowhere = "tcp://*:1".parse().unwrap();
    assert_eq!(
        refusal(&nowhere, &[b""]).await,
        "tcp://*:1 names no host and port to connect to"
    );
}

async fn refusal(endpoint: &Endpoint, request: &[&[u8]]) -> String {
    replay(endpoint, request, ReplayConfig::default())
        .await
        .expect_err("it is refused")
        .to_string()
}
