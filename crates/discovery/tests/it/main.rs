//! Does it find, ask and judge real workers over real sockets?

mod dns;
mod file;
mod mock;
mod probe;
mod registrations;
mod roster;
mod watch;
