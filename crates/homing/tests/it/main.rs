//! Integration tests of `homing`: one binary, one module for each subject.

mod agent;
mod attacks;
mod cli;
mod demo;
mod doctor;
mod index;
mod layers;
mod mock;
mod quiet;
mod replay;
mod serve;
