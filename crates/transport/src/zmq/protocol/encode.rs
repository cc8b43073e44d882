//! How is something said to a peer?

use super::{COMMAND, LONG, MORE, PeerVersion};

/// Appends our half of the handshake.
pub(crate) fn ready(out: &mut Vec<u8>, socket_type: &str) {
    let mut body = property("Socket-Type", socket_type.as_bytes());
    body.extend(property("Identity", b""));
    command(out, "READY", &body);
}

/// Appends a subscription to all messages whose first frame begins with `topic`.
pub(crate) fn subscribe(out: &mut Vec<u8>, peer: PeerVersion, topic: &[u8]) {
    match peer {
        PeerVersion::V3_0 => frame(out, 0, &[&[1], topic].concat()),
        PeerVersion::V3_1 => command(out, "SUBSCRIBE", topic),
    }
}

/// Appends a question for a sign of life. The peer is not asked to give us up when we are silent: a consumer that is
/// slow for a while must not lose its connection for it.
pub(crate) fn ping(out: &mut Vec<u8>) {
    command(out, "PING", &[0, 0]);
}

/// Appends a sign of life.
pub(crate) fn pong(out: &mut Vec<u8>, context: &[u8]) {
    command(out, "PONG", context);
}

/// Appends a message.
pub(crate) fn message(out: &mut Vec<u8>, frames: &[&[u8]]) {
    let last = frames.len().saturating_sub(1);
    for (place, body) in frames.iter().enumerate() {
        frame(out, if place < last { MORE } else { 0 }, body);
    }
}

fn command(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    let mut body = vec![name.len() as u8];
    body.extend(name.as_bytes());
    body.extend(data);
    frame(out, COMMAND, &body);
}

fn frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        out.extend([flags, length]);
    } else {
        out.push(flags | LONG);
        out.extend((body.len() as u64).to_be_bytes());
    }
    out.extend(body);
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes.extend((value.len() as u32).to_be_bytes());
    bytes.extend(value);
    bytes
}
