//! Attacks on the binary over raw sockets: a table of cases for each topic.
//!
//! The binary under test is the one that was built with the tests, or the file that `HOMING_BINARY` names. Each test of a defect fails with
//! the binary from before its correction.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::format_collect,
    clippy::format_push_string,
    clippy::large_stack_arrays,
    clippy::needless_pass_by_value,
    clippy::similar_names,
    clippy::too_many_lines,
    reason = "tables of cases are long, and what makes them need not be fast"
)]

mod answers;
mod bodies;
mod engine_fields;
mod event_payloads;
mod flood;
mod hangs;
mod harness;
mod headers;
mod heads;
mod index_agent;
mod inputs;
mod listeners;
mod memory;
mod probes;
mod publisher;
mod registration;
mod reload;
mod response_ids;
mod sockets;
