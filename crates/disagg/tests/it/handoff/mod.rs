//! The plan of a request, against a model of what happens around it.

mod broken;
mod explore;
mod rules;
mod world;
