//! Integration tests of `homing`: one binary, one module for each subject.

mod agent;
mod cli;
mod demo;
mod doctor;
mod index;
mod layers;
mod mock;
mod quiet;
mod replay;
mod serve;
