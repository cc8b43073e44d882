//! Can frames that claim to be a message make their reader panic, or be read otherwise when written again?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| homing_wire::testing::envelope(bytes));
