//! Can the body of a request or the stream of an answer make us panic, change what it says, or lose a byte?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    homing_protocol::testing::body(bytes);
    homing_protocol::testing::stream(bytes);
});
