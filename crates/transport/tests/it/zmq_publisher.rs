//! Do a real libzmq's SUB and DEALER get from our PUB and ROUTER what they should?

use std::time::{Duration, Instant};

use homing_transport::testing::Listener;
use homing_transport::zmq::{
    AddressFilter, Endpoint, Exposure, PublishConfig, Published, Publisher, Router, RouterConfig, SubscribeConfig,
    Subscriber, SubscriberEvent,
};

/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(1);

fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().expect("an endpoint")
}

async fn bound(config: PublishConfig) -> Publisher {
    Publisher::bind(&anywhere(), Exposure::Loopback, config)
        .await
        .expect("it can be bound")
}

async fn audience(publisher: &Publisher, wanted: usize) {
    let until = Instant::now() + GUARD;
    while publisher.subscribers() != wanted {
        assert!(Instant::now() < until, "{} subscribe", publisher.subscribers());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Talks to the listener without stopping the sockets of this test.
async fn told(mut listener: Listener, command: String) -> (Listener, String) {
    let answer = tokio::task::spawn_blocking(move || {
        let answer = listener.tell(&command);
        (listener, answer)
    });
    answer.await.expect("no panic")
}

#[tokio::test]
async fn a_subscriber_gets_what_begins_with_its_topic() {
    let publisher = bound(PublishConfig::default()).await;
    let mut listener = Listener::start();
    listener.tell(&format!("subscribe {} kv", publisher.endpoint()));
    audience(&publisher, 1).await;
    let long = vec![7; 100_000];
    assert_eq!(publisher.publish(&[b"other", b"x"]), Published::default());
    let sent = Published { queued: 1, lost: 0 };
    assert_eq!(publisher.publish(&[b"kv", &[0; 8], b"one"]), sent);
    assert_eq!(publisher.publish(&[b"kv-events", &[1; 8], &long]), sent);
    let (_listener, answer) = told(listener, "receive 2".to_owned()).await;
    assert_eq!(
        Listener::messages(&answer),
        [
            vec![b"kv".to_vec(), vec![0; 8], b"one".to_vec()],
            vec![b"kv-events".to_vec(), vec![1; 8], long],
        ]
    );
}

#[tokio::test]
async fn a_publisher_that_connects_finds_a_subscriber_that_binds() {
    let mut listener = Listener::start();
    let endpoint: Endpoint = listener.tell("bind tcp://127.0.0.1:0").parse().unwrap();
    let publisher = Publisher::connect(endpoint, PublishConfig::default()).unwrap();
    // A libzmq socket that was bound says what it wants when it is next used.
    let receiving = tokio::spawn(told(listener, "receive 1".to_owned()));
    audience(&publisher, 1).await;
    publisher.publish(&[b"", b"hello"]);
    let (listener, answer) = receiving.await.unwrap();
    assert_eq!(Listener::messages(&answer), [[b"".to_vec(), b"hello".to_vec()]]);
    drop(listener);
    audience(&publisher, 0).await;
}

#[tokio::test]
async fn a_slow_subscriber_loses_what_is_beyond_the_mark_and_nobody_waits() {
    let config = PublishConfig {
        high_water: 3,
        ..PublishConfig::default()
    };
    let publisher = bound(config).await;
    let mut subscriber = Subscriber::connect(publisher.endpoint().clone(), SubscribeConfig::default()).unwrap();
    let until = Instant::now() + GUARD;
    while !matches!(subscriber.next().await, SubscriberEvent::Connected { .. }) {
        assert!(Instant::now() < until);
    }
    // The runtime has one thread, and this test does not give it away: nothing leaves the queue meanwhile.
    let fates: Vec<Published> = (0..5_u8).map(|number| publisher.publish(&[b"t", &[number]])).collect();
    let (kept, lost) = (Published { queued: 1, lost: 0 }, Published { queued: 0, lost: 1 });
    assert_eq!(fates, [kept, kept, kept, lost, lost]);
    for number in 0..3_u8 {
        match subscriber.next().await {
            SubscriberEvent::Message { message, .. } => assert_eq!(message.frame(1), Some(&[number][..])),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_dealer_is_answered_by_as_many_messages_as_it_takes() {
    let config = RouterConfig {
        high_water: 4,
        ..RouterConfig::default()
    };
    let mut router = Router::bind(&anywhere(), Exposure::Loopback, config).await.unwrap();
    let mut listener = Listener::start();
    listener.tell(&format!("dealer {}", router.endpoint()));
    for answers in [0_u64, 500] {
        let asking = tokio::spawn(told(listener, "ask +0000000000000007".to_owned()));
        let question = router.next().await.expect("it is asked");
        let frames: Vec<&[u8]> = question.message.frames().collect();
        assert_eq!(frames, [&b""[..], &7_u64.to_be_bytes()]);
        for number in 0..answers {
            assert!(question.reply.send(&[b"", b"kv", &number.to_be_bytes(), b"x"]).await);
        }
        assert!(question.reply.send(&[b"", b"", &[0xff; 8], b""]).await);
        let (again, answer) = asking.await.unwrap();
        listener = again;
        let messages = Listener::messages(&answer);
        assert_eq!(messages.len() as u64, answers + 1);
        for (message, number) in messages.iter().zip(0..answers) {
            assert_eq!(message[2], number.to_be_bytes());
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_together_is_not_served() {
    let publisher = bound(PublishConfig::default()).await;
    let here = anywhere();
    let router = Router::bind(&here, Exposure::Loopback, RouterConfig::default());
    let router = router.await.unwrap();
    let mut lost = Subscriber::connect(router.endpoint().clone(), SubscribeConfig::default()).unwrap();
    match lost.next().await {
        SubscriberEvent::Failed { reason, .. } => {
            assert!(reason.to_string().contains("ROUTER socket"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(publisher.subscribers(), 0);
    let nowhere = "tcp://*:1".parse().unwrap();
    let refused = Publisher::connect(nowhere, PublishConfig::default()).unwrap_err();
    assert_eq!(refused.to_string(), "tcp://*:1 names no host and port to connect to");
}

#[tokio::test]
async fn only_addresses_that_the_filter_allows_are_connected_to() {
    let publisher = bound(PublishConfig::default()).await;
    let port = publisher.endpoint().to_string().rsplit(':').next().unwrap().to_owned();
    let subscriber = |endpoint: &str, allows: bool| {
        let config = SubscribeConfig {
            filter: Some(AddressFilter::new(move |address| {
                allows.then_some(()).ok_or_else(|| format!("{address} is denied"))
            })),
            ..SubscribeConfig::default()
        };
        Subscriber::connect(endpoint.parse().expect("an endpoint"), config).expect("it can be connected to")
    };
    // A name is judged by where it leads.
    for (endpoint, expected) in [
        (format!("tcp://127.0.0.1:{port}"), "is denied"),
        (format!("tcp://localhost:{port}"), "is denied"),
        ("ipc:///run/homing-test".to_owned(), "only an operator may name"),
    ] {
        match subscriber(&endpoint, false).next().await {
            SubscriberEvent::Failed { reason, .. } => assert!(reason.to_string().contains(expected), "{reason}"),
            event => panic!("{event:?} was not expected"),
        }
    }
    let mut allowed = subscriber(&format!("tcp://localhost:{port}"), true);
    assert!(matches!(allowed.next().await, SubscriberEvent::Connected { .. }));
    assert_eq!(publisher.subscribers(), 1);
}
