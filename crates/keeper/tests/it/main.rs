//! Integration tests of `homing-keeper`: one binary, one module for each subject.

mod doubt;
