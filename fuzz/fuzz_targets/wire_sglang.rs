//! Can bytes that claim to be a message of SGLang make its decoder panic, or say something that does not hold?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| homing_wire::testing::sglang(bytes));
