//! Does anything make a reader panic? Arbitrary bytes, and good lines that were damaged.

use homing_domain::BlockSize;
use homing_trace::analyse::{Accesses, infinite_cache};
use homing_trace::{Factor, Format, LogRecord, LogSessions, ReadOptions, Reader, Traffic};
use proptest::prelude::*;

const GOOD: [&str; 6] = [
    r#"{"timestamp": 100, "input_length": 10, "output_length": 5, "hash_ids": [0, 1, 2]}"#,
    r#"{"session_id": "a", "delay": 250, "input_length": 3, "output_length": 5, "tenant": "t"}"#,
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:15:46.6805900,374,44",
    r#"{"homing":1,"session":"s","at_us":1000,"took_us":500,"prompt":9,"output":4,"block":4,"keys":"00000000000000aa00000000000000bb"}"#,
    r#"{"homing":1,"session":"s","at_us":4500,"took_us":500,"prompt":20,"output":2,"block":4,"keys":"00000000000000aa"}"#,
];

fn options() -> ReadOptions {
    ReadOptions {
        block: BlockSize::new(4).expect("not zero"),
        window: 3,
        max_line_bytes: 300,
        log_sessions: LogSessions::ClosedLoop,
        ..ReadOptions::new("file")
    }
}

/// Reads and analyses; what comes out does not matter, that it ends does.
fn read_all(bytes: &[u8]) {
    let _ = LogRecord::decode(bytes);
    let size = BlockSize::new(4).expect("not zero");
    let ends = |reader: Reader<&[u8]>| {
        let good = reader
            .flatten()
            .map(Ok)
            .scaled(Factor::new(1e-3).expect("above 0"), Factor::ONE);
        infinite_cache(good, size).count()
    };
    for format in Format::ALL {
        ends(Reader::new(bytes, format, options()));
        let small = Reader::new(bytes, format, options()).filter(|r| r.as_ref().is_ok_and(|r| r.output.0 < 1_000));
        let _ = Accesses::of(small, size).map(|accesses| accesses.pooled(3));
    }
    if let Ok(reader) = Reader::open(bytes, options()) {
        ends(reader);
    }
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(prop::sample::select(GOOD.to_vec()), 1..8);
    let damages = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (lines, damages).prop_map(|(lines, damages)| {
        let mut bytes = lines.join("\n").into_bytes();
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_all(&bytes);
    }

    #[test]
    fn damaged_lines_never_panic(bytes in damaged()) {
        read_all(&bytes);
    }
}
