//! What a router does with requests, ranks and time.

mod adapters;
mod conservation;
mod rules;
mod threads;
mod world;
