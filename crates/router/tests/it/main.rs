//! What a router does with requests, ranks and time.

mod adapters;
mod conservation;
mod pairs;
mod pairs_kept;
mod rules;
mod threads;
mod world;
