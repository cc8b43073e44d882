//! When? The moments of the engine are those of all pure crates.

pub use homing_profile::Time;
