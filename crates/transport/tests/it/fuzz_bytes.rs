//! What can bytes of a peer do to the ZMTP decoder? What the fuzz target in `fuzz/` searches with feedback, random bytes and its
//! corpus try here, on any toolchain.

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

use homing_transport::testing;
use proptest::prelude::*;

/// Frames and commands, with anything between them.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let short = (0_u8..8, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(flags, body)| {
        let length = body.len() as u8;
        [&[flags & !2, length][..], &body].concat()
    });
    let long = (0_u8..8, 0_u64..5_000).prop_map(|(flags, length)| {
        let body = vec![7; length as usize];
        [&[flags | 2][..], &length.to_be_bytes(), &body].concat()
    });
    let anything = prop::collection::vec(any::<u8>(), 0..40);
    let parts = prop::collection::vec(prop_oneof![4 => short, 1 => long, 2 => anything], 0..12);
    (any::<u8>(), parts).prop_map(|(size, parts)| [&[size][..], &parts.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_break_anything(bytes in bytes()) {
        testing::zmtp(&bytes);
    }
}

#[test]
fn no_input_of_the_corpus_breaks_anything() {
    corpus::replay("zmtp_decode", testing::zmtp);
}
