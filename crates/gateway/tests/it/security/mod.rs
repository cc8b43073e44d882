//! Who gets in, what may they send, and who else sees it? Over real sockets, with mock engines and with bytes that no client sends.

mod hostile;
mod idle;
mod isolation;
mod keys;
mod operators;
mod pki;
mod raw;
mod renewal;
mod responses;
mod tls;
