//! How fast is our subscriber beside pyzmq's own, from the same kind of publisher?
//!
//! `HOMING_TEST_PYTHON=target/test-python/bin/python cargo run --release -p homing-transport --example zmq_rate`, after
//! `./test` made that Python. The publisher is libzmq in Python with unlimited queues. It queues all messages before the
//! subscriber begins to read, so that the rate is that of two libzmq threads or of libzmq and us, not of Python's loop.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use homing_transport::testing::{Publisher, python};
use homing_transport::zmq::{SubscribeConfig, Subscriber, SubscriberEvent};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("payload bytes | ours: messages/s, MB/s | pyzmq: messages/s, MB/s");
    for (count, size) in [
        (400_000_u32, 16_u32),
        (400_000, 300),
        (200_000, 3_000),
        (20_000, 100_000),
    ] {
        let shown = |seconds: f64| {
            let rate = f64::from(count - 1) / seconds;
            format!("{rate:.0}, {:.0}", rate * f64::from(size + 8) / 1e6)
        };
        let (ours, theirs) = (ours(count, size).await, theirs(count, size));
        println!("{size} | {} | {}", shown(ours), shown(theirs));
    }
}

/// Seconds from the first message to the last.
async fn ours(count: u32, size: u32) -> f64 {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = Subscriber::connect(endpoint, SubscribeConfig::default()).expect("the endpoint is fine");
    while !matches!(subscriber.next().await, SubscriberEvent::Connected { .. }) {}
    publisher.tell(&format!("publish {count} {size}"));
    let mut begun = Instant::now();
    let mut heard = 0;
    while heard < count {
        match subscriber.next().await {
            SubscriberEvent::Message { .. } => heard += 1,
            SubscriberEvent::Alive { .. } => {}
            event => panic!("{event:?}"),
        }
        if heard == 1 {
            begun = Instant::now();
        }
    }
    begun.elapsed().as_secs_f64()
}

fn theirs(count: u32, size: u32) -> f64 {
    let (mut publisher, endpoint) = Publisher::bound();
    let mut subscriber = python()
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/zmq_rate.py"))
        .args([endpoint.to_string(), count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter starts");
    let mut said = BufReader::new(subscriber.stdout.take().expect("its output is ours")).lines();
    let mut hear = || said.next().expect("it says something").expect("in text");
    publisher.tell("topic start");
    publisher.tell("stream 1");
    assert_eq!(hear(), "here");
    publisher.tell("stream 0");
    publisher.tell("topic");
    publisher.tell(&format!("publish {count} {size}"));
    // Its input ends: it may begin.
    drop(subscriber.stdin.take());
    let seconds = hear().parse().expect("it says how long it took");
    subscriber.wait().expect("it ends");
    seconds
}
