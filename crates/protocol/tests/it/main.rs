//! Integration tests of `homing-protocol`: one binary, one module for each subject.

mod fuzz_bytes;
mod migrate;
mod splice;
