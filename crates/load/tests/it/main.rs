//! Integration tests of `homing-load`: one binary, one module for each subject.

mod model;
