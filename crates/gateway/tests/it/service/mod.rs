//! Does it carry requests to engines and answers back, whatever happens? Over real sockets, with mock engines.

mod adapters;
mod advice;
mod apart;
mod clients;
mod faults;
mod findings;
mod fleet;
mod operate;
mod requests;
mod routing;
mod seen;
mod stalls;
mod strange;
