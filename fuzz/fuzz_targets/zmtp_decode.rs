//! Do any bytes of a peer make the ZMTP decoder panic, keep more than its limits, or depend on how they were cut?
#![no_main]

use homing_transport::zmq::protocol::{Decoder, Greeting, Incoming};
use homing_transport::zmq::{Limits, ZmtpError};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    message_bytes: 4096,
    message_frames: 8,
    peers: 1,
};

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Incoming>, Option<ZmtpError>) {
    let mut decoder = Decoder::new(LIMITS);
    let mut complete = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(incoming)) => complete.push(incoming),
                Ok(None) => break,
                Err(error) => return (complete, Some(error)),
            }
        }
    }
    (complete, None)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = Greeting::default().take(&mut &bytes[..]);
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = decode(std::iter::once(bytes));
    assert_eq!(decode(bytes.chunks(usize::from(size) + 1)), whole);
    for incoming in &whole.0 {
        if let Incoming::Message(message) = incoming {
            assert!(message.byte_count() <= LIMITS.message_bytes as usize);
            assert!(message.frame_count() <= LIMITS.message_frames as usize);
        }
    }
});
