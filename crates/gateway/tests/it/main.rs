//! Integration tests of `homing-gateway`: one binary, one module for each subject.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

mod harness;
mod security;
mod service;
