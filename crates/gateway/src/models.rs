//! Which models are there? All that some worker serves, adapters included.

use homing_disagg::Require;
use homing_domain::excerpt;
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::said::{Answered, json_answer};
use crate::table::{Served, Table};

/// `GET /v1/models`.
pub(crate) fn list(table: &Table, require: Require) -> Answered {
    let served = table.models.iter().filter(|(_, served)| is_listed(served, require));
    let data: Vec<Value> = served.map(|(name, served)| model(name, served)).collect();
    json_answer(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// `GET /v1/models/{name}`.
pub(crate) fn one(table: &Table, name: &str, require: Require) -> Answered {
    if let Some(served) = table.models.get(name).filter(|served| is_listed(served, require)) {
        return json_answer(StatusCode::OK, &model(name, served));
    }
    let message = format!("the model `{}` does not exist", excerpt(name));
    let error = json!({ "message": message, "type": "NotFoundError", "param": "model", "code": "model_not_found" });
    json_answer(StatusCode::NOT_FOUND, &json!({ "error": error }))
}

/// A model that prefill and decode workers have to serve together is not there without both.
fn is_listed(served: &Served, require: Require) -> bool {
    require == Require::No || served.lanes.iter().any(|lane| lane.is_ready(require))
}

fn model(name: &str, served: &Served) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "homing",
        "root": served.parent.as_deref().unwrap_or(name),
        "parent": served.parent,
        "max_model_len": served.max_len,
    })
}
