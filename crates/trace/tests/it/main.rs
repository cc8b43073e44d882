//! Integration tests of `homing-trace`: one binary, one module for each subject.

mod agenda;
mod arbitrary;
mod properties;
mod readers;
mod streaming;
