//! Integration tests of `homing-domain`: one binary, one module for each subject.

mod vectors;
