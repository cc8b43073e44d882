//! Integration tests of `homing-engine`: one binary, one module for each subject.

mod behaviour;
mod calibration;
mod handover;
mod model;
mod support;
