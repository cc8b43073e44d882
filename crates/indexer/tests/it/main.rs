//! Does the index answer what the engines published, whatever happens on the way? With real sockets: a libzmq publisher
//! that drops, restarts and renumbers, and the service asked over HTTP.

mod cache;
mod engine;
mod errors;
mod faults;
mod indexer;
mod recording;
mod settings;
