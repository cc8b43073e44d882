//! How does an engine read a body of `/v1/messages`? It makes a chat of it.
//!
//! The rules are vLLM's: calls and results of tools become messages of their own, thoughts become reasoning, what an agent's
//! client says about billing is dropped. Where a template wants all that the system says at the beginning, it is put there.

use serde_json::{Map, Value as Json, json};

use crate::chat::{BILLING, get, list, object, text, wrong};
use crate::error::PromptError;

/// Where messages of the system go that come later than at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaterSystem {
    /// They stay.
    Stays,
    /// They are joined with the first.
    First,
}

/// The body of a chat that says the same.
pub(crate) fn chat(body: &Json, later: LaterSystem, disabled_effort: &str) -> Result<Json, PromptError> {
    let body = object(body, "the body")?;
    let given = list(body, "messages")?.unwrap_or_default();
    let mut messages = Vec::with_capacity(given.len() + 1);
    if let Some(system) = system(body, given, later)? {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in given {
        self::message(object(message, "messages")?, later, &mut messages)?;
    }
    let mut chat = Map::new();
    chat.insert("messages".to_owned(), Json::Array(messages));
    for field in ["chat_template_kwargs", "kv_transfer_params"] {
        if let Some(value) = get(body, field) {
            chat.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(effort) = effort(body, disabled_effort)? {
        chat.insert("reasoning_effort".to_owned(), Json::from(effort));
    }
    let choice = get(body, "tool_choice").and_then(|choice| choice["type"].as_str());
    if choice == Some("none") {
        chat.insert("tool_choice".to_owned(), Json::from("none"));
    }
    if let Some(tools) = tools(body)? {
        chat.insert("tools".to_owned(), tools);
    }
    Ok(Json::Object(chat))
}

fn effort(body: &Map<String, Json>, disabled: &str) -> Result<Option<String>, PromptError> {
    let mut effort = match get(body, "output_config") {
        None => None,
        Some(config) => text(object(config, "output_config")?, "effort")?.map(str::to_owned),
    };
    if let Some(thinking) = get(body, "thinking")
        && text(object(thinking, "thinking")?, "type")? == Some("disabled")
    {
        effort = Some(disabled.to_owned());
    }
    Ok(effort)
}

/// All that the system says at the beginning.
fn system(body: &Map<String, Json>, given: &[Json], later: LaterSystem) -> Result<Option<String>, PromptError> {
    let mut said = String::new();
    match get(body, "system") {
        None => {}
        Some(Json::String(text)) => said.push_str(text),
        Some(Json::Array(blocks)) => said.push_str(&spoken(blocks)?),
        Some(_) => return Err(wrong("system", "is neither a text nor a list")),
    }
    if later == LaterSystem::First {
        for message in given {
            let message = object(message, "messages")?;
            if text(message, "role")? == Some("system") {
                said.push_str(&system_text(message)?);
            }
        }
    }
    Ok(Some(said).filter(|said| !said.is_empty()))
}

/// The texts of blocks, without what is about billing.
fn spoken(blocks: &[Json]) -> Result<String, PromptError> {
    let mut said = String::new();
    for block in blocks {
        let block = object(block, "system")?;
        let text = text(block, "text")?.unwrap_or_default();
        if block.get("type").and_then(Json::as_str) == Some("text") && !text.starts_with(BILLING) {
            said.push_str(text);
        }
    }
    Ok(said)
}

fn system_text(message: &Map<String, Json>) -> Result<String, PromptError> {
    match message.get("content") {
        Some(Json::String(text)) if text.starts_with(BILLING) => Ok(String::new()),
        Some(Json::String(text)) => Ok(text.clone()),
        Some(Json::Array(blocks)) => {
            if blocks
                .iter()
                .any(|block| matches!(block["type"].as_str(), Some("tool_addition" | "tool_removal")))
            {
                return Err(PromptError::NotMirrored("changes of tools within a conversation"));
            }
            spoken(blocks)
        }
        _ => Err(wrong("content", "is neither a text nor a list")),
    }
}

fn message(message: &Map<String, Json>, later: LaterSystem, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let role = text(message, "role")?.ok_or_else(|| wrong("role", "is missing"))?;
    if !matches!(role, "user" | "assistant" | "system") {
        return Err(wrong("role", "is none of `user`, `assistant` and `system`"));
    }
    if role == "system" {
        let said = system_text(message)?;
        if later == LaterSystem::Stays && !said.is_empty() {
            messages.push(json!({"role": "system", "content": said}));
        }
        return Ok(());
    }
    let blocks = match message.get("content") {
        Some(Json::String(text)) => {
            messages.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        Some(Json::Array(blocks)) => blocks,
        _ => return Err(wrong("content", "is neither a text nor a list")),
    };
    let mut found = Found::default();
    for block in blocks {
        found.block(object(block, "content")?, role, messages)?;
    }
    if let Some(message) = found.message(role) {
        messages.push(message);
    }
    Ok(())
}

/// What the blocks of a message have.
#[derive(Default)]
struct Found {
    parts: Vec<Json>,
    calls: Vec<Json>,
    /// Nothing if there is no thought, not even an empty one.
    reasoning: Option<String>,
}

impl Found {
    fn block(&mut self, block: &Map<String, Json>, role: &str, messages: &mut Vec<Json>) -> Result<(), PromptError> {
        let said = text(block, "text")?.unwrap_or_default();
        match text(block, "type")? {
            Some("text") if !said.is_empty() => self.parts.push(json!({"type": "text", "text": said})),
            Some("text" | "redacted_thinking" | "tool_reference") => {}
            Some("image") => {
                if get(block, "source").is_some() {
                    self.parts.push(json!({"type": "image_url", "image_url": {"url": ""}}));
                }
            }
            Some("thinking") => {
                if let Some(thought) = text(block, "thinking")? {
                    self.reasoning.get_or_insert_default().push_str(thought);
                }
            }
            Some("tool_use") => self.calls.push(call(block)?),
            Some("tool_result") if role == "user" => result(block, messages)?,
            Some("tool_result") => return Err(PromptError::NotMirrored("results of tools that an assistant tells")),
            _ => return Err(wrong("content", "has a block of an unknown type")),
        }
        Ok(())
    }

    /// The message, unless a user says nothing.
    fn message(mut self, role: &str) -> Option<Json> {
        let mut message = Map::new();
        message.insert("role".to_owned(), Json::from(role));
        if let Some(reasoning) = self.reasoning {
            message.insert("reasoning".to_owned(), Json::from(reasoning));
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), Json::Array(self.calls));
        }
        let content = match self.parts.len() {
            0 => None,
            1 if self.parts[0]["type"] == "text" => Some(self.parts.remove(0)["text"].take()),
            _ => Some(Json::Array(self.parts)),
        };
        if content.is_none() && role == "user" {
            return None;
        }
        if let Some(content) = content {
            message.insert("content".to_owned(), content);
        }
        Some(Json::Object(message))
    }
}

fn call(block: &Map<String, Json>) -> Result<Json, PromptError> {
    let empty = || Json::Object(Map::new());
    let input = get(block, "input").cloned().unwrap_or_else(empty);
    object(&input, "input")?;
    // Without one the engine makes it up from its clock.
    let id = text(block, "id")?.filter(|id| !id.is_empty());
    let id = id.ok_or(PromptError::NotMirrored("calls of tools without ids"))?;
    let name = text(block, "name")?.unwrap_or_default();
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input.to_string()}}))
}

fn result(block: &Map<String, Json>, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let id = text(block, "tool_use_id")?.unwrap_or_default();
    let (mut texts, mut images, mut references) = (Vec::new(), Vec::new(), Vec::new());
    match get(block, "content") {
        None => {}
        Some(Json::String(text)) => texts.push(text.as_str()),
        Some(Json::Array(items)) => {
            for item in items.iter().filter_map(Json::as_object) {
                match item.get("type").and_then(Json::as_str) {
                    Some("text") => texts.push(text(item, "text")?.unwrap_or_default()),
                    Some("image") => images.push(json!({"type": "image_url", "image_url": {"url": ""}})),
                    Some("tool_reference") => {
                        let name = text(item, "tool_name")?.or(text(item, "name")?);
                        references.extend(name.map(|name| json!({"type": "tool_reference", "name": name})));
                    }
                    _ => {}
                }
            }
        }
        Some(_) => return Err(wrong("content", "is neither a text nor a list")),
    }
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": texts.join("\n")}));
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    if !references.is_empty() {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": references}));
    }
    Ok(())
}

fn tools(body: &Map<String, Json>) -> Result<Option<Json>, PromptError> {
    let Some(given) = list(body, "tools")? else {
        return Ok(None);
    };
    if given.is_empty() {
        return Err(PromptError::NotMirrored("an empty list of tools"));
    }
    let mut tools = Vec::with_capacity(given.len());
    for tool in given {
        let tool = object(tool, "tools")?;
        let mut parameters = object(tool.get("input_schema").unwrap_or(&Json::Null), "input_schema")?.clone();
        if !parameters.contains_key("type") {
            parameters.insert("type".to_owned(), Json::from("object"));
        }
        let mut function = Map::new();
        for field in ["name", "description", "strict", "defer_loading"] {
            if let Some(value) = get(tool, field) {
                function.insert(field.to_owned(), value.clone());
            }
        }
        function.insert("parameters".to_owned(), Json::Object(parameters));
        tools.push(json!({"type": "function", "function": function}));
    }
    Ok(Some(Json::Array(tools)))
}
