//! Can bytes that claim to be our own frames make their reader panic, or differ when they come in pieces?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| homing_wire::testing::frame(bytes));
