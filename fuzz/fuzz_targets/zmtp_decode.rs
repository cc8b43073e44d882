//! Do any bytes of a peer make the ZMTP decoder panic, keep more than its limits, or depend on how they were cut?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| homing_transport::testing::zmtp(bytes));
