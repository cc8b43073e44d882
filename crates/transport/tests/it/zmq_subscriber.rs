//! Does a subscriber tell what a real libzmq publisher does, all of it, in order?

use std::time::Duration;

use homing_transport::testing::Publisher;
use homing_transport::zmq::{
    Backoff, ConnectionError, ConnectionId, Endpoint, Exposure, Heartbeat, Limits, Message, SetupError,
    SubscribeConfig, Subscriber, SubscriberEvent, ZmtpError,
};

/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(2);

fn quick() -> SubscribeConfig {
    SubscribeConfig {
        backoff: Backoff {
            first: Duration::from_millis(10),
            most: Duration::from_millis(50),
        },
        ..SubscribeConfig::default()
    }
}

fn subscribe(endpoint: &Endpoint, config: SubscribeConfig) -> Subscriber {
    Subscriber::connect(endpoint.clone(), config).expect("it can be connected to")
}

async fn next(subscriber: &mut Subscriber) -> SubscriberEvent {
    tokio::time::timeout(GUARD, subscriber.next())
        .await
        .expect("something happens")
}

/// Skips attempts that failed and signs of life.
async fn next_change(subscriber: &mut Subscriber) -> SubscriberEvent {
    loop {
        match next(subscriber).await {
            SubscriberEvent::Failed { .. } | SubscriberEvent::Alive { .. } => {}
            event => return event,
        }
    }
}

async fn connected(subscriber: &mut Subscriber) -> ConnectionId {
    match next_change(subscriber).await {
        SubscriberEvent::Connected { connection, .. } => connection,
        event => panic!("connected was expected, not {event:?}"),
    }
}

async fn disconnected(subscriber: &mut Subscriber) -> ConnectionError {
    match next_change(subscriber).await {
        SubscriberEvent::Disconnected { reason, .. } => reason,
        event => panic!("disconnected was expected, not {event:?}"),
    }
}

async fn message(subscriber: &mut Subscriber) -> (ConnectionId, Message) {
    match next_change(subscriber).await {
        SubscriberEvent::Message { connection, message } => (connection, message),
        event => panic!("a message was expected, not {event:?}"),
    }
}

fn sequence(message: &Message) -> u64 {
    let frame = message.frame(1).expect("the second frame is the sequence");
    u64::from_be_bytes(frame.try_into().expect("it has eight bytes"))
}

async fn sequence_of_next(subscriber: &mut Subscriber) -> u64 {
    sequence(&message(subscriber).await.1)
}

#[tokio::test]
async fn a_hundred_thousand_messages_arrive_complete_and_in_order() {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = subscribe(&endpoint, quick());
    let connection = connected(&mut subscriber).await;
    publisher.say("publish 100000 300");
    for expected in 0..100_000 {
        let (over, message) = message(&mut subscriber).await;
        assert_eq!((over, sequence(&message)), (connection, expected));
        let payload = message.frame(2).unwrap();
        assert_eq!((message.frame(0).unwrap(), payload.len()), (&b""[..], 300));
        assert!(payload.starts_with(format!("{expected}x").as_bytes()));
    }
    assert_eq!(publisher.hear(), "100000");
}

#[tokio::test]
async fn what_is_published_after_connected_is_heard() {
    let (mut publisher, endpoint) = Publisher::bound();
    for round in 0..50 {
        let mut subscriber = subscribe(&endpoint, quick());
        connected(&mut subscriber).await;
        publisher.tell("publish 1");
        assert_eq!(sequence_of_next(&mut subscriber).await, round);
    }
}

#[tokio::test]
async fn what_is_published_after_connected_is_heard_from_a_busy_publisher_too() {
    let (mut publisher, endpoint) = Publisher::bound();
    publisher.tell("stream 1");
    for _ in 0..50 {
        let mut subscriber = subscribe(&endpoint, quick());
        connected(&mut subscriber).await;
        let position: u64 = publisher.tell("position").parse().unwrap();
        let first = sequence_of_next(&mut subscriber).await;
        assert!(first <= position, "{first} is the first, {position} was still to come");
    }
}

#[tokio::test]
async fn a_restart_is_told_between_the_last_message_and_the_first_new_one() {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = subscribe(&endpoint, quick());
    let mut previous = None;
    for run in 0..6 {
        let topic = format!("run-{run}");
        publisher.tell(&format!("topic {topic}"));
        publisher.tell("stream 50");
        let connection = connected(&mut subscriber).await;
        assert!(Some(connection) > previous, "a connection has a name of its own");
        previous = Some(connection);
        let mut heard = Vec::new();
        while heard.len() < 5_000 {
            heard.push(message(&mut subscriber).await);
        }
        // Killed in full flow and there again at once: what is left of the old connection and the beginning of the new
        // one lie side by side.
        publisher.kill();
        publisher = Publisher::start();
        publisher.tell(&format!("bind {endpoint}"));
        let reason = loop {
            match next_change(&mut subscriber).await {
                SubscriberEvent::Message { connection, message } => heard.push((connection, message)),
                SubscriberEvent::Disconnected {
                    connection: ended,
                    reason,
                } => {
                    assert_eq!(ended, connection);
                    break reason;
                }
                event => panic!("{event:?} was not expected"),
            }
        };
        assert!(
            matches!(reason, ConnectionError::Closed | ConnectionError::Broken(_)),
            "{reason:?}"
        );
        let first = sequence(&heard[0].1);
        for ((over, message), expected) in heard.iter().zip(first..) {
            assert_eq!((*over, message.frame(0)), (connection, Some(topic.as_bytes())));
            assert_eq!(sequence(message), expected);
        }
    }
}

#[tokio::test]
async fn a_subscriber_that_comes_back_hears_what_is_published_from_then_on() {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = subscribe(&endpoint, quick());
    connected(&mut subscriber).await;
    publisher.tell("publish 10");
    for expected in 0..10 {
        assert_eq!(sequence_of_next(&mut subscriber).await, expected);
    }
    drop(subscriber);
    publisher.tell("publish 5");
    let mut subscriber = subscribe(&endpoint, quick());
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 15);
}

#[tokio::test]
async fn a_publisher_that_hangs_is_noticed_and_found_again() {
    let (mut publisher, endpoint) = Publisher::bound();
    let config = SubscribeConfig {
        heartbeat: Heartbeat {
            interval: Duration::from_millis(50),
            timeout: Duration::from_secs(8),
        },
        ..quick()
    };
    let mut subscriber = subscribe(&endpoint, config);
    connected(&mut subscriber).await;
    // It idles, and the connection is kept.
    for _ in 0..5 {
        let event = next(&mut subscriber).await;
        assert!(matches!(event, SubscriberEvent::Alive { .. }), "{event:?}");
    }
    publisher.freeze();
    let reason = disconnected(&mut subscriber).await;
    assert!(matches!(reason, ConnectionError::Silent(_)), "{reason:?}");
    publisher.thaw();
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 0);
}

#[tokio::test]
async fn a_message_over_the_limit_ends_the_connection_and_not_the_subscriber() {
    let (mut publisher, endpoint) = Publisher::bound();
    let config = SubscribeConfig {
        limits: Limits {
            message_bytes: 10_000,
            ..Limits::default()
        },
        ..quick()
    };
    let mut subscriber = subscribe(&endpoint, config);
    connected(&mut subscriber).await;
    publisher.tell("publish 1 9992");
    assert_eq!(message(&mut subscriber).await.1.byte_count(), 10_000);
    publisher.tell("publish 1 9993");
    let reason = disconnected(&mut subscriber).await;
    let too_long = ZmtpError::MessageTooLong {
        bytes: 10_001,
        limit: 10_000,
    };
    assert!(
        matches!(&reason, ConnectionError::Protocol(error) if *error == too_long),
        "{reason:?}"
    );
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 2);
}

#[tokio::test]
async fn a_message_with_too_many_frames_ends_the_connection() {
    let (mut publisher, endpoint) = Publisher::bound();
    let config = SubscribeConfig {
        limits: Limits {
            message_frames: 2,
            ..Limits::default()
        },
        ..quick()
    };
    let mut subscriber = subscribe(&endpoint, config);
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    let reason = disconnected(&mut subscriber).await;
    assert_eq!(reason.to_string(), "a message has more than 2 frames");
}

#[tokio::test]
async fn a_topic_selects() {
    let (mut publisher, endpoint) = Publisher::bound();
    let config = SubscribeConfig {
        topic: "kv@worker".into(),
        ..quick()
    };
    let mut subscriber = subscribe(&endpoint, config);
    connected(&mut subscriber).await;
    for topic in ["", "kv", "other", "kv@worker", "kv@worker@model", "Kv@worker"] {
        publisher.tell(&format!("topic {topic}"));
        publisher.tell("publish 1");
    }
    assert_eq!(sequence_of_next(&mut subscriber).await, 3);
    assert_eq!(sequence_of_next(&mut subscriber).await, 4);
    publisher.tell("topic kv@worker");
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 6);
}

#[tokio::test]
async fn a_publisher_that_is_not_there_is_waited_for() {
    let (publisher, endpoint) = Publisher::bound();
    publisher.kill();
    let mut subscriber = subscribe(&endpoint, quick());
    for _ in 0..3 {
        match next(&mut subscriber).await {
            SubscriberEvent::Failed {
                reason: ConnectionError::Dial(_),
                retry_in: Some(wait),
            } => assert!(wait <= Duration::from_millis(50)),
            event => panic!("{event:?} was not expected"),
        }
    }
    let mut publisher = Publisher::start();
    publisher.tell(&format!("bind {endpoint}"));
    connected(&mut subscriber).await;
}

#[tokio::test]
async fn two_publishers_at_one_port_are_told_apart() {
    let any = "tcp://*:0".parse().unwrap();
    let mut subscriber = Subscriber::bind(&any, Exposure::Loopback, quick()).await.unwrap();
    let endpoint = subscriber.endpoint().unwrap();
    let mut first = Publisher::start();
    first.tell(&format!("connect {endpoint}"));
    let one = connected(&mut subscriber).await;
    first.tell("publish 2");
    for expected in 0..2 {
        let (over, message) = message(&mut subscriber).await;
        assert_eq!((over, sequence(&message)), (one, expected));
    }
    let mut second = Publisher::start();
    second.tell(&format!("connect {endpoint}"));
    let two = connected(&mut subscriber).await;
    assert_ne!(one, two);
    second.tell("publish 1");
    assert_eq!(message(&mut subscriber).await.0, two);
    first.tell("publish 1");
    assert_eq!(message(&mut subscriber).await.0, one);
    first.kill();
    match next_change(&mut subscriber).await {
        SubscriberEvent::Disconnected { connection, .. } => assert_eq!(connection, one),
        event => panic!("{event:?} was not expected"),
    }
    second.tell("publish 1");
    assert_eq!(message(&mut subscriber).await.0, two);
}

#[tokio::test]
async fn a_publisher_too_many_is_turned_away() {
    let any = "tcp://127.0.0.1:0".parse().unwrap();
    let config = SubscribeConfig {
        limits: Limits {
            peers: 1,
            ..Limits::default()
        },
        ..quick()
    };
    let mut subscriber = Subscriber::bind(&any, Exposure::Loopback, config).await.unwrap();
    let endpoint = subscriber.endpoint().unwrap();
    let mut first = Publisher::start();
    first.tell(&format!("connect {endpoint}"));
    let one = connected(&mut subscriber).await;
    let mut second = Publisher::start();
    second.tell(&format!("connect {endpoint}"));
    loop {
        match next(&mut subscriber).await {
            SubscriberEvent::Failed {
                reason: ConnectionError::TooManyPeers { limit: 1, .. },
                retry_in: None,
            } => break,
            SubscriberEvent::Alive { .. } => {}
            event => panic!("{event:?} was not expected"),
        }
    }
    first.tell("publish 1");
    assert_eq!(message(&mut subscriber).await.0, one);
    // Once there is room, libzmq's next attempt succeeds.
    first.kill();
    disconnected(&mut subscriber).await;
    assert!(connected(&mut subscriber).await > one);
}

#[tokio::test]
async fn binding_keeps_to_this_machine_unless_told_otherwise() {
    let network = "tcp://0.0.0.0:0".parse().unwrap();
    let refused = Subscriber::bind(&network, Exposure::Loopback, quick()).await;
    assert!(matches!(refused, Err(SetupError::NotLoopback(_))), "{refused:?}");
    let bound = Subscriber::bind(&network, Exposure::Network, quick()).await.unwrap();
    assert!(bound.endpoint().unwrap().to_string().starts_with("tcp://0.0.0.0:"));
    let name = "tcp://localhost:0".parse().unwrap();
    Subscriber::bind(&name, Exposure::Loopback, quick()).await.unwrap();
    let taken = bound.endpoint().unwrap();
    let refused = Subscriber::bind(&taken, Exposure::Network, quick()).await;
    assert!(matches!(refused, Err(SetupError::Bind { .. })), "{refused:?}");
}

#[tokio::test]
async fn ipc_sockets_serve_as_well() {
    let folder = std::env::temp_dir().join(format!("homing-ipc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let endpoint: Endpoint = format!("ipc://{}/events", folder.display()).parse().unwrap();

    let mut publisher = Publisher::start();
    publisher.tell(&format!("bind {endpoint}"));
    let mut subscriber = subscribe(&endpoint, quick());
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 0);
    // It leaves its file behind, at which nobody listens.
    publisher.kill();
    disconnected(&mut subscriber).await;
    drop(subscriber);

    let mut subscriber = Subscriber::bind(&endpoint, Exposure::Loopback, quick()).await.unwrap();
    let taken = Subscriber::bind(&endpoint, Exposure::Loopback, quick()).await;
    assert!(matches!(taken, Err(SetupError::Bind { .. })), "{taken:?}");
    let mut publisher = Publisher::start();
    publisher.tell(&format!("connect {endpoint}"));
    connected(&mut subscriber).await;
    publisher.tell("publish 1");
    assert_eq!(sequence_of_next(&mut subscriber).await, 0);
    drop(subscriber);
    std::fs::remove_dir(&folder).expect("the socket's file has gone with it");
}

#[tokio::test]
async fn dropping_the_future_loses_nothing() {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = subscribe(&endpoint, quick());
    connected(&mut subscriber).await;
    publisher.say("publish 20000 200");
    let mut expected = 0;
    while expected < 20_000 {
        tokio::select! {
            biased;
            event = subscriber.next() => match event {
                SubscriberEvent::Message { message, .. } => {
                    assert_eq!(sequence(&message), expected);
                    expected += 1;
                }
                SubscriberEvent::Alive { .. } => {}
                event => panic!("{event:?} was not expected"),
            },
            // Ready whenever there is nothing to read at this moment.
            () = tokio::task::yield_now() => {}
        }
    }
}

#[tokio::test]
async fn a_consumer_that_does_not_read_makes_the_publisher_drop_and_sees_the_gap() {
    let mut publisher = Publisher::start();
    publisher.tell("mark 100");
    let endpoint = publisher.endpoint("bind tcp://127.0.0.1:0");
    let mut subscriber = subscribe(&endpoint, quick());
    connected(&mut subscriber).await;
    // Far more than what socket buffers hold.
    publisher.tell("publish 2000 100000");
    let mut heard = Vec::new();
    publisher.say("stream 1");
    while heard.last().is_none_or(|&last| last < 2_000) {
        heard.push(sequence_of_next(&mut subscriber).await);
    }
    assert!(
        heard.is_sorted_by(|one, other| one < other),
        "none twice, none out of order"
    );
    assert!(heard.len() < 2_000, "something was dropped");
    assert_eq!(
        heard[..100],
        (0..100).collect::<Vec<_>>(),
        "what was queued first is not dropped"
    );
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_said() {
    for endpoint in ["tcp://*:5557", "tcp://127.0.0.1:0"] {
        let refused = Subscriber::connect(endpoint.parse().unwrap(), quick());
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, format!("{endpoint} names no host and port to connect to"));
    }
    let config = SubscribeConfig {
        topic: vec![b'x'; 1025].into(),
        ..quick()
    };
    let refused = Subscriber::connect("tcp://127.0.0.1:5557".parse().unwrap(), config);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the topic has 1025 bytes, the limit is 1024"
    );
}

#[tokio::test]
async fn the_wrong_kind_of_socket_is_said() {
    let mut publisher = Publisher::start();
    let endpoint = publisher.endpoint("replay tcp://127.0.0.1:0 topic");
    let mut subscriber = subscribe(&endpoint, quick());
    match next(&mut subscriber).await {
        SubscriberEvent::Failed { reason, .. } => {
            assert_eq!(
                reason.to_string(),
                "the peer is a ROUTER socket, a PUB socket is needed"
            );
        }
        event => panic!("{event:?} was not expected"),
    }
}
