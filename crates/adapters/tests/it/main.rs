//! Integration tests of `homing-adapters`: one binary, one module for each subject.

mod manager;
mod placement;
mod residency;
