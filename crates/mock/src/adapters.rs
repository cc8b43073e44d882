//! Which adapters does an engine have, and how do they come and go? As vLLM and SGLang do it: by name and path, one at a time, and it
//! takes a moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use homing_config::MockDialect;
use homing_domain::AdapterName;
use homing_engine::AdapterError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::{App, answered};
use crate::ask::parse;
use crate::faults::locked;
use crate::problem::{Problem, json_answer};

/// From where adapters came. One is loaded at a time, as engines do it.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Written with each load and unload.
    paths: Mutex<BTreeMap<AdapterName, Arc<str>>>,
    turn: tokio::sync::Mutex<()>,
}

impl Sources {
    /// From where an adapter came.
    pub(crate) fn path(&self, name: &AdapterName) -> Option<Arc<str>> {
        locked(&self.paths).get(name).cloned()
    }

    fn set(&self, name: &AdapterName, path: &str) {
        locked(&self.paths).insert(name.clone(), path.into());
    }

    fn forget(&self, name: &AdapterName) {
        locked(&self.paths).remove(name);
    }
}

#[derive(Deserialize)]
struct LoadBody {
    lora_name: String,
    lora_path: String,
}

#[derive(Deserialize)]
struct UnloadBody {
    lora_name: String,
}

/// `/v1/load_lora_adapter` of vLLM, `/load_lora_adapter` of SGLang.
pub(crate) async fn load(State(app): State<Arc<App>>, body: Body) -> Response {
    answered(&app, async {
        let body: LoadBody = parse(&app.read(body).await?)?;
        let name = &body.lora_name;
        if name.is_empty() || body.lora_path.is_empty() {
            return Err(Problem::Adapter(
                "Both 'lora_name' and 'lora_path' must be provided.".to_owned(),
            ));
        }
        let adapter = AdapterName::from(name.as_str());
        let _turn = app.sources.turn.lock().await;
        if app.core.serves(name) {
            return Err(refusal(AdapterError::Loaded(adapter)));
        }
        let takes: Duration = app.settings.mock.lora_fetch;
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if app.core.faults.now().reject_adapters {
            return Err(Problem::Failed);
        }
        app.core.load_adapter(&adapter).map_err(refusal)?;
        app.sources.set(&adapter, &body.lora_path);
        Ok(done(
            &app,
            format!("Success: LoRA adapter '{name}' added successfully."),
        ))
    })
    .await
}

/// `/v1/unload_lora_adapter` of vLLM, `/unload_lora_adapter` of SGLang.
pub(crate) async fn unload(State(app): State<Arc<App>>, body: Body) -> Response {
    answered(&app, async {
        let body: UnloadBody = parse(&app.read(body).await?)?;
        let name = &body.lora_name;
        let adapter = AdapterName::from(name.as_str());
        let _turn = app.sources.turn.lock().await;
        app.core.unload_adapter(&adapter).map_err(refusal)?;
        app.sources.forget(&adapter);
        Ok(done(
            &app,
            format!("Success: LoRA adapter '{name}' removed successfully."),
        ))
    })
    .await
}

/// What is said when it is done: vLLM says a text that is not said to be one, SGLang what it has now.
fn done(app: &App, text: String) -> Response {
    match app.dialect() {
        MockDialect::Vllm => Response::new(Body::from(text)),
        MockDialect::Sglang => {
            let adapters = app.core.adapters();
            let loaded: Map<String, Value> = adapters
                .iter()
                .map(|name| (name.to_string(), json!(app.sources.path(name).as_deref())))
                .collect();
            let answer = json!({"success": true, "error_message": "", "loaded_adapters": loaded});
            json_answer(StatusCode::OK, &answer)
        }
    }
}

fn refusal(error: AdapterError) -> Problem {
    match error {
        AdapterError::Unknown(name) => Problem::NoSuch(format!("The lora adapter '{name}' cannot be found.")),
        AdapterError::Loaded(name) => Problem::Adapter(format!(
            "The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set \
             'load_inplace' to True."
        )),
        other => Problem::Adapter(other.to_string()),
    }
}
