//! Where do requests go, and why?

mod adapters;
mod decisions;
mod properties;
mod queue;
mod world;
