//! Integration tests of `homing-transport`: one binary, one module for each subject.

mod fuzz_bytes;
mod zmq_publisher;
mod zmq_replay;
mod zmq_subscriber;
