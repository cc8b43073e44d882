//! HTTP with limits, the same for every listener.
//!
//! - [`door`], [`connections`]: count connections, in all and by address, and speak TLS;
//! - [`guard`], [`head`]: check heads of requests before the HTTP library sees them;
//! - [`stall`]: ends a connection that takes nothing of its answer;
//! - [`body`], [`budget`]: read bodies into one buffer each, within a budget for all of them ([`memory`]);
//! - [`server`]: all of these together, with a token.
//!
//! **Invariant:** nothing here depends on what a request asks for.

pub mod body;
pub mod budget;
pub mod connections;
mod credentials;
pub mod door;
pub mod guard;
pub mod head;
pub mod memory;
pub mod server;
pub mod stall;

pub use body::{BodyError, BodyLimits};
pub use budget::{BodyBudget, BodyOwner, BudgetExceeded};
pub use connections::{Access, WhenFull};
pub use credentials::CredentialsError;
pub use server::{Caller, ClientAddress, HttpServer};
