//! HTTP with limits, the same for every listener.
//!
//! - [`door`]: counts connections, in all and by address, and speaks TLS;
//! - [`guard`], [`head`]: check heads of requests before the HTTP library sees them;
//! - [`stall`]: ends a connection that takes nothing of its answer.
//!
//! **Invariant:** nothing here depends on what a request asks for.

pub mod door;
pub mod guard;
pub mod head;
pub mod stall;
