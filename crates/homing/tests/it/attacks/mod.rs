//! Attacks on the binary over raw sockets: a table of cases for each topic.
//!
//! The binary under test is the one that was built with the tests, or the file that `HOMING_BINARY` names. Each test of a defect fails with
//! the binary from before its correction.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;
mod response_ids;
