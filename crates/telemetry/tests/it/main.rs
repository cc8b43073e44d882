//! Integration tests of `homing-telemetry`: one binary, one module for each subject.

mod dashboard;
mod reference;
