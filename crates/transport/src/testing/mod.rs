//! How do tests come by a real libzmq?
//!
//! In a Python process with `pyzmq`, which brings libzmq along: [`Publisher`] starts one that behaves like an engine
//! and steers it, [`Listener`] one that listens to an engine, [`python`] starts any other. `./test` installs what they need and says where by a variable.
//!
//! [`zmtp`] checks the decoder on any bytes, without a libzmq.

mod bytes;
mod listener;
mod publisher;
mod python;

pub use bytes::zmtp;
pub use listener::Listener;
pub use publisher::Publisher;
pub use python::{PYTHON_VARIABLE, python};
