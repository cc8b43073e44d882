//! Which tool is called, and how? One that must be, with arguments that fit its description.
//!
//! Where a model may choose whether to call a tool, this one never does.

use serde_json::{Map, Value, json};

use crate::problem::Problem;

/// How deep descriptions of arguments are followed.
const DEEPEST: u32 = 8;

/// A tool that must be called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// As JSON.
    pub(crate) arguments: String,
    /// What the end of such an answer is called.
    pub(crate) finish: &'static str,
}

/// The tool that must be called, if one must be.
pub(crate) fn forced(tools: Option<&Value>, choice: Option<&Value>) -> Result<Option<Call>, Problem> {
    let tools = tools.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
    let (tool, finish) = match choice {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(word)) if word != "required" => return Ok(None),
        Some(_) if tools.is_empty() => {
            return Err(Problem::of(
                "tool_choice",
                "When using `tool_choice`, `tools` must be set.",
            ));
        }
        Some(Value::String(_)) => (tools.first(), "tool_calls"),
        Some(choice) => (tools.iter().find(|tool| name(tool) == name(choice)), "stop"),
    };
    let found = tool.and_then(|tool| Some((name(tool)?, &tool["function"]["parameters"])));
    let (name, parameters) = found.ok_or_else(|| {
        let message = "The tool specified in `tool_choice` does not match any of the specified `tools`";
        Problem::of("tool_choice", message)
    })?;
    Ok(Some(Call {
        name,
        arguments: example(parameters, 0).to_string(),
        finish,
    }))
}

/// A value that fits a JSON schema, as far as it is a simple one.
fn example(schema: &Value, depth: u32) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") => {
            let longest = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
            Value::String(
                "text"
                    .chars()
                    .take(usize::try_from(longest).unwrap_or(usize::MAX))
                    .collect(),
            )
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        _ if depth == DEEPEST => json!({}),
        _ => {
            let none = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&none);
            let required = schema["required"].as_array();
            let wanted = |name: &str| required.is_none_or(|all| all.iter().any(|one| one == name));
            let fields = properties.iter().filter(|(name, _)| wanted(name));
            let fields = fields.map(|(name, inner)| (name.clone(), example(inner, depth + 1)));
            Value::Object(fields.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_their_description() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 2}, "unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 3},
                "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}}, "left": {"type": "null"},
            },
            "required": ["city", "unit", "days", "deep"],
        });
        assert_eq!(
            example(&schema, 0),
            json!({"city": "te", "unit": "C", "days": 3, "deep": {"on": true}})
        );
        assert_eq!(example(&Value::Null, 0), json!({}));
    }

    #[test]
    fn only_a_tool_that_must_be_called_is() {
        let tools =
            json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]);
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        let call = |choice: &Value| forced(Some(&tools), Some(choice)).map(|call| call.map(|call| call.name));
        assert_eq!(call(&json!("auto")).unwrap(), None);
        assert_eq!(call(&json!("none")).unwrap(), None);
        assert_eq!(call(&json!("required")).unwrap().as_deref(), Some("a"));
        assert_eq!(call(&named("b")).unwrap().as_deref(), Some("b"));
        assert!(call(&named("c")).is_err());
        assert!(forced(None, Some(&named("a"))).is_err());
    }
}
