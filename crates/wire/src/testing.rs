//! What can bytes do to us? The bodies of the fuzz targets, which tests on stable Rust run over random bytes too.
//!
//! Each panics if something does not hold; no bytes may make it.

use homing_domain::{BlockSize, HashSeed, KeyHasher, KvChange, Sequence};

use crate::decode::{Decoded, Decoder, DecoderConfig, MAX_SPLIT};
use crate::dialect::Dialect;
use crate::envelope;
use crate::frame::{Frame, FrameReader, FrameWriter, MAX_FRAME, decode};

/// A decoder with blocks of so many tokens; 0 is taken for 1.
pub fn decoder(dialect: Dialect, block_size: u32) -> Decoder {
    Decoder::new(DecoderConfig {
        dialect,
        hasher: KeyHasher::new(HashSeed::PUBLIC),
        block_size: BlockSize::new(block_size.max(1)).unwrap_or(const { BlockSize::new(1).expect("1 is not 0") }),
    })
}

/// Bytes as a message of vLLM, twice to the same decoder, so that what it remembers matters.
pub fn vllm(bytes: &[u8]) {
    messages(Dialect::Vllm, bytes);
}

/// Bytes as a message of SGLang.
pub fn sglang(bytes: &[u8]) {
    messages(Dialect::Sglang, bytes);
}

fn messages(dialect: Dialect, bytes: &[u8]) {
    let Some((&size, payload)) = bytes.split_first() else {
        return;
    };
    let size = u32::from(size % 33);
    let (mut one, mut other) = (decoder(dialect, size), decoder(dialect, size));
    for number in 0..2 {
        let decoded = one.decode(Sequence(number), payload);
        assert_eq!(decoded, other.decode(Sequence(number), payload), "not deterministic");
        if let Ok(decoded) = decoded {
            check(&decoded, payload.len());
        }
    }
}

/// Bytes as an answer of TensorRT-LLM's endpoint.
pub fn trtllm(bytes: &[u8]) {
    let Some((&size, json)) = bytes.split_first() else {
        return;
    };
    let mut decoder = decoder(Dialect::TrtLlm, u32::from(size % 33));
    for _ in 0..2 {
        for decoded in decoder.decode_trtllm(json).iter().flatten() {
            check(decoded, json.len());
        }
    }
}

/// What was decoded is no larger than the message allows, and goes through our own frame unchanged.
fn check(decoded: &Decoded, length: usize) {
    let mut blocks = 0;
    for change in &decoded.batch.changes {
        blocks += match change {
            KvChange::Stored(stored) => {
                assert!(!stored.blocks.is_empty(), "an empty store");
                stored.blocks.len()
            }
            KvChange::Removed(removed) => {
                assert!(!removed.labels.is_empty(), "an empty removal");
                removed.labels.len()
            }
            KvChange::Cleared(_) => 0,
        };
    }
    assert!(
        blocks <= length * MAX_SPLIT as usize,
        "{blocks} blocks out of {length} bytes"
    );
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let mut framed = Vec::new();
    let written = FrameWriter::new(&hasher).batch(&decoded.batch, &mut framed);
    assert_eq!(written, Ok(()));
    assert_eq!(decode(&hasher, &framed), Ok(Frame::Batch(decoded.batch.clone())));
}

/// Bytes as a stream of our frames: all at once and in pieces is the same.
pub fn frame(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else {
        return;
    };
    let whole = frames(stream, stream.len());
    assert_eq!(whole, frames(stream, usize::from(piece)));
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let writer = FrameWriter::new(&hasher);
    for read in whole.0 {
        let mut again = Vec::new();
        let written = match &read {
            Frame::Batch(batch) => writer.batch(batch, &mut again),
            Frame::Heartbeat(beat) => writer.heartbeat(beat, &mut again),
            Frame::EndOfReplay(beat) => writer.end_of_replay(beat, &mut again),
            Frame::Header(_) | Frame::Items(..) | Frame::End(_) => continue,
        };
        assert_eq!(written, Ok(()));
        assert_eq!(decode(&hasher, &again), Ok(read));
    }
}

/// The frames of a stream, and whether it ended in an error.
fn frames(stream: &[u8], piece: usize) -> (Vec<Frame>, Option<crate::frame::FrameError>) {
    let mut reader = FrameReader::new(&KeyHasher::new(HashSeed::PUBLIC), MAX_FRAME);
    let mut read = Vec::new();
    for piece in stream.chunks(piece.max(1)) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => read.push(frame),
                Ok(None) => break,
                Err(error) => return (read, Some(error)),
            }
        }
    }
    (read, None)
}

/// Bytes as frames of a message: each begins with its length.
pub fn envelope(mut bytes: &[u8]) {
    let mut frames = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let (frame, rest) = rest.split_at(rest.len().min(usize::from(length)));
        frames.push(frame);
        bytes = rest;
    }
    if let Ok(message) = envelope::live(&frames) {
        assert_eq!(envelope::live(&envelope::frames_of(&message)), Ok(message));
        assert_eq!(envelope::replayed(&frames), Ok(envelope::Replayed::Batch(message)));
    }
    let _ = envelope::replayed(&frames);
    if let Ok(from) = envelope::requested(&frames) {
        assert_eq!(envelope::requested(&envelope::replay_request(from)), Ok(from));
    }
}
