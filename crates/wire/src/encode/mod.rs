//! What would an engine send? Encoders of vLLM's and SGLang's messages, for engines that we pretend to be and for tests.
//!
//! **Invariant:** captured messages, read and written again, are the same bytes.

mod event;
mod put;
mod sglang;
mod vllm;

pub use event::{EngineBatch, EngineEvent, EngineHash, EngineRemoved, EngineStored, EngineTokens, ExtraKey};
pub use sglang::{SglangForm, sglang};
pub use vllm::{VllmForm, vllm};
