//! Integration tests of `homing-agent`: one binary, one module for each subject.

mod million;
mod restarts;
mod secure;
mod serving;
mod support;
