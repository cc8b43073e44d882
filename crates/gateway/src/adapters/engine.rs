//! How is an engine told to load and unload an adapter?
//!
//! | engine | load | unload |
//! |---|---|---|
//! | vLLM | `POST /v1/load_lora_adapter` | `POST /v1/unload_lora_adapter` |
//! | SGLang | `POST /load_lora_adapter` | `POST /unload_lora_adapter` |
//!
//! An adapter that is there already is loaded, and one that is not there is unloaded: what was wanted holds.
//!
//! **Invariant:** a command ends within its time, and little of what the engine says about it is read.

use std::time::Duration;

use homing_adapters::{Act, Command};
use homing_config::{AddressScope, HttpUrl};
use homing_platform::{HttpClient, StatusCode};
use homing_wire::Dialect;
use serde_json::json;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 16 << 10;
/// Letters of it that are told.
const MAX_WORDS: usize = 200;

/// Where a worker is told.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) url: HttpUrl,
    pub(super) dialect: Dialect,
    /// What its addresses may be.
    pub(super) scope: AddressScope,
}

/// Tells a worker, and waits until it has done it. An error says why it has not.
pub(super) async fn tell(client: &HttpClient, place: &Place, command: &Command) -> Result<(), String> {
    let limit = Duration::from_secs_f64(command.within.0 / 1e3);
    match tokio::time::timeout(limit, ask(client, place, command)).await {
        Ok(done) => done,
        Err(_) => Err(format!("nothing was heard of it for {limit:?}")),
    }
}

async fn ask(client: &HttpClient, place: &Place, command: &Command) -> Result<(), String> {
    let prefix = match place.dialect {
        Dialect::Vllm => "/v1",
        Dialect::Sglang => "",
        Dialect::TrtLlm => return Err("TensorRT-LLM has no endpoint to load adapters".to_owned()),
    };
    let name = command.adapter.as_str();
    let (path, body) = match &command.act {
        Act::Load { source } => ("load_lora_adapter", json!({"lora_name": name, "lora_path": &**source})),
        Act::Unload => ("unload_lora_adapter", json!({ "lora_name": name })),
    };
    let url = format!("{}{prefix}/{path}", place.url);
    let request = client.post(url).header("content-type", "application/json");
    let sent = request.body(body.to_string()).send().await;
    let mut answer = sent.map_err(|error| format!("it cannot be reached: {error}"))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let mut said = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        let room = MAX_ANSWER.saturating_sub(said.len());
        said.extend_from_slice(&piece[..piece.len().min(room)]);
        if room == 0 {
            break;
        }
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    if holds_already(&command.act, status, &said) {
        return Ok(());
    }
    let words: String = said
        .chars()
        .filter(|letter| !letter.is_control())
        .take(MAX_WORDS)
        .collect();
    Err(format!("it answers with status {}: {words}", status.as_u16()))
}

/// Whether what is refused is so already.
fn holds_already(act: &Act, status: StatusCode, said: &str) -> bool {
    match act {
        Act::Load { .. } => {
            let there = ["already been loaded", "already loaded", "is loaded already"];
            status == StatusCode::BAD_REQUEST && there.iter().any(|words| said.contains(words))
        }
        // Where the endpoint itself is unknown, another text is said.
        Act::Unload => said.contains("cannot be found") || said.contains("not loaded") || said.contains("not found"),
    }
}

/// Whether an engine that was sent a request says that it does not have its adapter: vLLM does not know the model, SGLang says that it is
/// not loaded.
pub(crate) fn says_absent(status: u16, said: &[u8]) -> bool {
    let says = |words: &str| memchr::memmem::find(said, words.as_bytes()).is_some();
    match status {
        404 => says("does not exist"),
        400 => says("LoRA adapter") && (says("not loaded") || says("never been loaded")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_not_there_is_told_from_other_errors() {
        assert!(says_absent(
            404,
            b"{\"error\":{\"message\":\"The model `a` does not exist.\"}}"
        ));
        assert!(says_absent(
            400,
            b"The following requested LoRA adapters are not loaded: a\nLoaded adapters: ."
        ));
        assert!(!says_absent(404, b"{\"detail\":\"Not Found\"}"));
        assert!(!says_absent(400, b"max_tokens must be at least 1"));
        assert!(!says_absent(500, b"does not exist"));
    }

    #[test]
    fn what_holds_already_is_no_failure() {
        let load = Act::Load { source: "/x".into() };
        let bad = StatusCode::BAD_REQUEST;
        assert!(holds_already(
            &load,
            bad,
            "The lora adapter 'a' has already been loaded."
        ));
        assert!(!holds_already(
            &load,
            bad,
            "Both 'lora_name' and 'lora_path' must be provided."
        ));
        assert!(!holds_already(
            &load,
            StatusCode::INTERNAL_SERVER_ERROR,
            "already been loaded"
        ));
        let unknown = StatusCode::NOT_FOUND;
        assert!(holds_already(
            &Act::Unload,
            unknown,
            "The lora adapter 'a' cannot be found."
        ));
        assert!(!holds_already(&Act::Unload, unknown, "{\"detail\":\"Not Found\"}"));
    }
}
