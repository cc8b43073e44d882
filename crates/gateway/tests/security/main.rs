//! Who gets in, what may they send, and who else sees it? Over real sockets, with mock engines and with bytes that no client sends.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

#[path = "../service/harness.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod harness;
mod hostile;
mod idle;
mod keys;
mod operators;
mod pki;
mod raw;
mod tls;
