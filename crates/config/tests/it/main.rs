//! Integration tests of `homing-config`: one binary, one module for each subject.

mod discover;
mod reference;
mod resolve;
mod workers;
