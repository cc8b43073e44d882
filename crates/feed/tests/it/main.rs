//! Integration tests of `homing-feed`: one binary, one module for each subject.

mod behaviour;
mod support;
