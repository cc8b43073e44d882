//! Where do requests go, and why?

mod decisions;
mod properties;
mod queue;
mod world;
