//! What does a connection do with peers that libzmq would not be? The clock is paused: time passes when all wait.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const HEARTBEAT: Heartbeat = Heartbeat {
    interval: Duration::from_secs(2),
    timeout: Duration::from_secs(3),
};
const READY_PUB: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";
const READY_SUB: &[u8] = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03SUB\x08Identity\0\0\0\0";
const PING: &[u8] = b"\x04\x07\x04PING\0\0";
const PONG: &[u8] = b"\x04\x05\x04PONG";
const MESSAGE: &[u8] = b"\0\x03kv!";

/// A subscriber to `kv`, and the other end of its stream, which takes `room` bytes before it must be read.
fn subscriber(room: usize) -> (Connection<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(room);
    let role = Role::Subscriber {
        topic: Bytes::from_static(b"kv"),
        heartbeat: HEARTBEAT,
    };
    (
        Connection::new(ours, role, Limits::default(), Patience::default()),
        theirs,
    )
}

async fn next(connection: &mut Connection<DuplexStream>) -> Result<Activity, ConnectionError> {
    poll_fn(|context| connection.poll_next(context)).await
}

/// Reads exactly these bytes.
async fn expect(peer: &mut DuplexStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    peer.read_exact(&mut read).await.unwrap();
    assert_eq!(read.escape_ascii().to_string(), bytes.escape_ascii().to_string());
}

fn greeting(minor: u8) -> Vec<u8> {
    let mut bytes = protocol::GREETING.to_vec();
    bytes[11] = minor;
    bytes
}

/// Plays a publisher up to our subscription, which it expects to look so.
async fn shake_hands(peer: &mut DuplexStream, minor: u8, subscription: &[u8]) {
    peer.write_all(&greeting(minor)).await.unwrap();
    expect(peer, &protocol::GREETING).await;
    expect(peer, READY_SUB).await;
    peer.write_all(READY_PUB).await.unwrap();
    expect(peer, subscription).await;
    expect(peer, PING).await;
}

const SUBSCRIPTION: &[u8] = b"\x04\x0c\x09SUBSCRIBEkv";

/// A live subscription and its publisher.
async fn live() -> (Connection<DuplexStream>, DuplexStream) {
    let (mut connection, mut peer) = subscriber(1 << 20);
    let publisher = async {
        shake_hands(&mut peer, 1, SUBSCRIPTION).await;
        peer.write_all(PONG).await.unwrap();
    };
    let (established, ()) = tokio::join!(next(&mut connection), publisher);
    assert!(matches!(established, Ok(Activity::Established)), "{established:?}");
    (connection, peer)
}

/// How a connection ends whose peer writes this, and what is said of it.
async fn end_of(written: &[u8]) -> String {
    let (mut connection, mut peer) = subscriber(1 << 20);
    peer.write_all(written).await.unwrap();
    next(&mut connection).await.unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn an_answer_behind_the_subscription_establishes_after_a_while() {
    let (mut connection, mut peer) = subscriber(1 << 20);
    let publisher = async {
        shake_hands(&mut peer, 1, SUBSCRIPTION).await;
        sleep(Duration::from_secs(1)).await;
        peer.write_all(PONG).await.unwrap();
        Instant::now()
    };
    let subscriber = async {
        let established = next(&mut connection).await;
        assert!(matches!(established, Ok(Activity::Established)), "{established:?}");
        Instant::now()
    };
    let (established, answered) = tokio::join!(subscriber, publisher);
    assert!(established >= answered + Patience::default().settle);
}

#[tokio::test(start_paused = true)]
async fn a_message_establishes_at_once_and_comes_next() {
    for first in [&[MESSAGE][..], &[PONG, MESSAGE]] {
        let (mut connection, mut peer) = subscriber(1 << 20);
        let publisher = async {
            shake_hands(&mut peer, 1, SUBSCRIPTION).await;
            peer.write_all(&first.concat()).await.unwrap();
            Instant::now()
        };
        let (established, sent) = tokio::join!(next(&mut connection), publisher);
        assert!(matches!(established, Ok(Activity::Established)), "{established:?}");
        assert_eq!(Instant::now(), sent);
        let message = next(&mut connection).await;
        assert!(matches!(&message, Ok(Activity::Message(message)) if message.frame(0) == Some(b"kv!")));
    }
}

#[tokio::test(start_paused = true)]
async fn older_peers_are_subscribed_to_by_a_message() {
    let (mut connection, mut peer) = subscriber(1 << 20);
    let publisher = async {
        shake_hands(&mut peer, 0, b"\0\x03\x01kv").await;
        peer.write_all(PONG).await.unwrap();
    };
    let (established, ()) = tokio::join!(next(&mut connection), publisher);
    assert!(matches!(established, Ok(Activity::Established)), "{established:?}");
}

#[tokio::test(start_paused = true)]
async fn other_topics_are_not_ours() {
    let (mut connection, mut peer) = live().await;
    peer.write_all(b"\0\x02xx\0\0").await.unwrap();
    peer.write_all(MESSAGE).await.unwrap();
    let message = next(&mut connection).await;
    assert!(matches!(&message, Ok(Activity::Message(message)) if message.frame(0) == Some(b"kv!")));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_answered_asked_for_and_missed() {
    let (mut connection, mut peer) = live().await;
    let begun = Instant::now();
    let publisher = async {
        peer.write_all(b"\x04\x09\x04PING\0\x0aab").await.unwrap();
        expect(&mut peer, b"\x04\x07\x04PONGab").await;
        // The question comes once nothing was heard for an interval.
        expect(&mut peer, PING).await;
        let asked = Instant::now();
        assert!(asked >= begun + HEARTBEAT.interval);
        peer.write_all(PONG).await.unwrap();
        expect(&mut peer, PING).await;
        assert!(Instant::now() >= asked + HEARTBEAT.interval);
    };
    let subscriber = async {
        let alive = next(&mut connection).await;
        assert!(matches!(alive, Ok(Activity::Alive)), "{alive:?}");
        let heard = Instant::now();
        let silent = next(&mut connection).await;
        assert!(matches!(silent, Err(ConnectionError::Silent(_))), "{silent:?}");
        assert!(Instant::now() >= heard + HEARTBEAT.interval + HEARTBEAT.timeout);
    };
    tokio::join!(subscriber, publisher);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_was_away_does_not_take_its_peer_for_dead() {
    let (mut connection, mut peer) = live().await;
    peer.write_all(MESSAGE).await.unwrap();
    tokio::time::advance(Duration::from_secs(1000)).await;
    assert!(matches!(next(&mut connection).await, Ok(Activity::Message(_))));
    // A question was due long ago; it is asked now, and may be answered from now on.
    let answer = async {
        expect(&mut peer, PING).await;
        sleep(Duration::from_secs(1)).await;
        peer.write_all(PONG).await.unwrap();
    };
    let (alive, ()) = tokio::join!(next(&mut connection), answer);
    assert!(matches!(alive, Ok(Activity::Alive)), "{alive:?}");
}

#[tokio::test(start_paused = true)]
async fn each_step_of_the_handshake_is_waited_for_in_vain() {
    let unanswered = [&greeting(1)[..], READY_PUB].concat();
    for (written, what) in [
        (&b""[..], "greet us"),
        (&greeting(1), "complete the handshake"),
        (&unanswered, "answer behind our subscription"),
    ] {
        assert_eq!(end_of(written).await, format!("the peer did not {what} within 5s"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_stops_talking_does_not_put_off_the_end() {
    let (mut connection, mut peer) = subscriber(1 << 20);
    peer.write_all(&[&greeting(1)[..], READY_PUB].concat()).await.unwrap();
    let talker = async {
        loop {
            peer.write_all(PING).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        ended = next(&mut connection) => {
            assert!(matches!(ended, Err(ConnectionError::HandshakeTimeout { .. })), "{ended:?}");
        }
        () = talker => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_given_up() {
    // As much as it takes for the handshake, and no answer to a heartbeat after it.
    let (mut connection, mut peer) = subscriber(200);
    let publisher = async {
        shake_hands(&mut peer, 1, SUBSCRIPTION).await;
        peer.write_all(MESSAGE).await.unwrap();
        while peer.write_all(PING).await.is_ok() {}
    };
    let subscriber = async {
        let established = next(&mut connection).await;
        assert!(matches!(established, Ok(Activity::Established)), "{established:?}");
        let message = next(&mut connection).await;
        assert!(matches!(message, Ok(Activity::Message(_))), "{message:?}");
        let ended = next(&mut connection).await;
        assert!(matches!(ended, Err(ConnectionError::NotReading)), "{ended:?}");
        assert!(connection.output.len() < OUTPUT_BYTES + 100);
        drop(connection);
    };
    tokio::join!(subscriber, publisher);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_given_out_before_the_end() {
    let (mut connection, mut peer) = live().await;
    peer.write_all(&[MESSAGE, MESSAGE, b"\0\x09half"].concat())
        .await
        .unwrap();
    drop(peer);
    for _ in 0..2 {
        let message = next(&mut connection).await;
        assert!(matches!(message, Ok(Activity::Message(_))), "{message:?}");
    }
    let ended = next(&mut connection).await;
    assert!(matches!(ended, Err(ConnectionError::Closed)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn peers_that_speak_otherwise_are_told_why() {
    let hello = greeting(1);
    for (rest, said) in [
        (&b"\x04\x0e\x05ERROR\x07unknown"[..], "the peer refuses: unknown"),
        (MESSAGE, "the peer sent a message before its handshake was over"),
        (PING, "the peer sent a command before its handshake was over"),
        (
            b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PULL",
            "the peer is a PULL socket, a PUB socket is needed",
        ),
        (
            b"\x04\x06\x05READY",
            "a command cannot be read: READY names no socket type",
        ),
        (&[READY_PUB, READY_PUB].concat(), "the peer sent a second handshake"),
    ] {
        assert_eq!(end_of(&[&hello[..], rest].concat()).await, said);
    }
    assert_eq!(
        end_of(b"HTTP/1.1 400 Bad Request\r\n").await,
        "the peer does not speak ZMTP: it began with the byte 0x48"
    );
}
