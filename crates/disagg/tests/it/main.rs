//! Integration tests of `homing-disagg`: one binary, one module for each subject.

mod choose;
mod handoff;
