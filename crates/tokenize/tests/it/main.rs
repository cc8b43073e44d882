//! Integration tests of `homing-tokenize`: one binary, one module for each subject.

mod examples;
mod oracle;
