//! Integration tests of `homing-profile`: one binary, one module for each subject.

mod shipped;
