//! Does it behave like an engine, seen from outside?

mod adapters;
mod api;
mod blocks;
mod continued;
mod events;
mod faults;
mod handover;
mod mock;
mod openai;
mod sglang;
