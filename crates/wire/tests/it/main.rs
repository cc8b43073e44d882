//! Integration tests of `homing-wire`: one binary, one module for each subject.

mod allocation;
mod captures;
mod common;
mod frames;
mod fuzz_bytes;
mod recordings;
mod sglang;
mod trtllm;
mod vllm;
