//! Does it carry requests to engines and answers back, whatever happens? Over real sockets, with mock engines.

mod faults;
mod harness;
mod operate;
mod requests;
mod routing;
