//! How does a template see the tools of a request? With the fields that engines know, in their order.

use serde_json::{Map, Value as Json};

use super::{get, hides_tools, list, object, text, wrong};
use crate::error::PromptError;
use crate::options::PromptOptions;

/// The tools that a template sees.
pub(super) fn tools(body: &Map<String, Json>, options: &PromptOptions) -> Result<Option<Json>, PromptError> {
    let Some(tools) = list(body, "tools")? else {
        return Ok(None);
    };
    if tools.is_empty() {
        return Err(wrong("tools", "is empty"));
    }
    if hides_tools(body, options) {
        return Ok(None);
    }
    let tools: Result<Vec<Json>, PromptError> = tools.iter().map(definition).collect();
    Ok(Some(Json::Array(tools?)))
}

fn definition(tool: &Json) -> Result<Json, PromptError> {
    let tool = object(tool, "tools")?;
    if text(tool, "type")?.is_some_and(|kind| kind != "function") {
        return Err(wrong("tools", "has a tool that is no function"));
    }
    let given = object(tool.get("function").unwrap_or(&Json::Null), "tools")?;
    let mut function = Map::new();
    let name = text(given, "name")?.ok_or_else(|| wrong("tools", "has a function without a name"))?;
    let description = text(given, "description")?.map_or(Json::Null, Json::from);
    let parameters = get(given, "parameters").cloned().unwrap_or(Json::Null);
    if !parameters.is_null() && !parameters.is_object() {
        return Err(wrong("tools", "has a function whose parameters are no object"));
    }
    let deferred = get(tool, "defer_loading");
    function.insert("name".to_owned(), Json::from(name));
    function.insert("description".to_owned(), description);
    function.insert("parameters".to_owned(), parameters);
    put(&mut function, "strict", get(given, "strict"));
    put(&mut function, "defer_loading", get(given, "defer_loading").or(deferred));
    let mut tool = Map::new();
    tool.insert("type".to_owned(), Json::from("function"));
    tool.insert("function".to_owned(), Json::Object(function));
    put(&mut tool, "defer_loading", deferred);
    Ok(Json::Object(tool))
}

fn put(object: &mut Map<String, Json>, name: &str, value: Option<&Json>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value.clone());
    }
}
