//! Do the invariants hold for whatever bytes come? What the fuzz target in `fuzz/` searches with feedback, thousands of random
//! bodies and streams try here, on any toolchain.

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

use homing_protocol::testing;
use proptest::prelude::*;

/// Pieces of bodies.
const BODY: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"model\"",
    "\"m\"",
    "\"stream\"",
    "true",
    "\"stop\"",
    "\"messages\"",
    "\"homing\"",
    "null",
    "\"stream_options\"",
    "{\"include_usage\":false}",
    "\"prompt\"",
    "[1,2]",
    "\"\\u006dodel\"",
    "\"é\\n\"",
    " ",
    "5",
    "-1.5e3",
    "{\"session\":\"s\"}",
    "\"tools\"",
    "\"content\"",
    "{\"type\":\"image_url\"}",
    "\"kv_transfer_params\":",
    "\"bootstrap_\\ud800\":",
    "\"vllm_xargs\":{",
    "\"extra_body\":[{",
    "\"nvext\"",
    "\"priority\":1,",
];

/// Pieces of streams.
const STREAM: &[&str] = &[
    "data: ",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "event: message_delta\n",
    ":c\n",
    "{\"choices\":[{\"delta\":{\"content\":\"",
    "a",
    "b",
    "\\n",
    "\"},\"finish_reason\":null,\"token_ids\":[1]}]}",
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":1}}",
    "[DONE]",
    "{\"id\":\"x\",\"choices\":[{\"text\":\"ab\",\"finish_reason\":\"stop\"}]}",
    "{\"error\":{\"message\":\"m\"}}",
    "\u{feff}",
    "{",
    "\"",
    "\"kv_transfer_params\":",
    "{\"remote_host\":\"h}\"}",
    "_params\"",
    "--x",
    "content-disposition: form-data; name=",
    "\"priority\"",
    "\r\n\r\n",
    "\r\n--x--",
    "{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n",
];

fn bytes(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        9 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..3),
    ];
    (any::<[u8; 2]>(), prop::collection::vec(piece, 0..24))
        .prop_map(|(head, pieces)| [head.to_vec(), pieces.concat()].concat())
}

/// A body that is JSON more often than not.
fn object() -> impl Strategy<Value = Vec<u8>> {
    let value = prop::sample::select(vec![
        "1",
        "\"x\"",
        "null",
        "true",
        "[]",
        "{}",
        "[1,2]",
        "{\"a\":[{}]}",
        "\"\\\"\"",
    ]);
    let key = prop::sample::select(vec![
        "model",
        "stream",
        "homing",
        "stream_options",
        "messages",
        "prompt",
        "stop",
        "é",
        "n",
    ]);
    let space = prop::sample::select(vec!["", " ", "\n"]);
    (any::<[u8; 2]>(), prop::collection::vec((key, value, space), 0..8)).prop_map(|(head, fields)| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value, space)| format!("{space}\"{key}\"{space}:{space}{value}{space}"))
            .collect();
        [head.as_slice(), b"{", fields.join(",").as_bytes(), b"}"].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_body_breaks_anything(bytes in bytes(BODY), object in object()) {
        testing::body(&bytes);
        testing::body(&object);
    }

    #[test]
    fn no_stream_breaks_anything(bytes in bytes(STREAM)) {
        testing::stream(&bytes);
    }
}

#[test]
fn no_input_of_the_corpus_breaks_anything() {
    corpus::replay("protocol_bytes", |bytes| {
        testing::body(bytes);
        testing::stream(bytes);
    });
}
