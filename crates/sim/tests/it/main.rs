//! Integration tests of `homing-sim`: one binary, one module for each subject.

mod adapters;
mod chaos;
mod feed;
mod study;
