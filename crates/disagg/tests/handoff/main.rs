//! The plan of a request, against a model of what happens around it.

mod explore;
mod rules;
mod world;
