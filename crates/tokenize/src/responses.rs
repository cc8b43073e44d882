//! How does an engine read a body of `/v1/responses`? It makes a chat of it, if it has nothing to remember for it.
//!
//! The rules are vLLM's. What the engine keeps from earlier answers (`previous_response_id`) and tools of its own are not known
//! here, and such a body is refused with the reason.

use serde_json::{Map, Value as Json, json};

use crate::chat::{get, list, object, text, wrong};
use crate::error::PromptError;
use crate::tokenizer::Marks;
use crate::truncate::Truncate;

/// Fields that name what only the engine has.
const KEPT_BY_ENGINE: [(&str, &str); 3] = [
    ("previous_response_id", "answers that the engine remembers"),
    ("previous_input_messages", "messages in another form"),
    ("prompt", "prompts that the engine remembers"),
];

/// The body of a chat that says the same, and how its prompt is truncated.
pub(crate) fn chat(body: &Json) -> Result<(Json, Truncate), PromptError> {
    let body = object(body, "the body")?;
    for (field, what) in KEPT_BY_ENGINE {
        if get(body, field).is_some() {
            return Err(PromptError::NotMirrored(what));
        }
    }
    let mut messages = Vec::new();
    if let Some(instructions) = text(body, "instructions")?.filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let mut continued = false;
    match get(body, "input") {
        Some(Json::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Json::Array(items)) => {
            let mut said = Vec::new();
            for item in items {
                self::item(object(item, "input")?, &mut said)?;
            }
            messages.append(&mut said);
            continued = items.last().is_some_and(unfinished);
        }
        _ => return Err(wrong("input", "is neither a text nor a list")),
    }
    let mut chat = Map::new();
    chat.insert("messages".to_owned(), Json::Array(messages));
    chat.insert("add_generation_prompt".to_owned(), Json::Bool(!continued));
    chat.insert("continue_final_message".to_owned(), Json::Bool(continued));
    for field in ["chat_template_kwargs", "tool_choice", "kv_transfer_params"] {
        if let Some(value) = get(body, field) {
            chat.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(reasoning) = get(body, "reasoning")
        && let Some(effort) = text(object(reasoning, "reasoning")?, "effort")?
    {
        chat.insert("reasoning_effort".to_owned(), Json::from(effort));
    }
    if let Some(tools) = tools(body)? {
        chat.insert("tools".to_owned(), tools);
    }
    Ok((Json::Object(chat), truncate(body)))
}

/// Marks are put around these prompts, even where the template has put them there.
fn truncate(body: &Map<String, Json>) -> Truncate {
    let truncate = Truncate::none(Marks::Added);
    let disabled = body.get("truncation").is_none_or(|truncation| truncation == "disabled");
    let answer = get(body, "max_output_tokens")
        .and_then(Json::as_u64)
        .is_some_and(|most| most > 0);
    if disabled { truncate } else { truncate.fitting(answer) }
}

/// Whether the last item is to be continued.
fn unfinished(item: &Json) -> bool {
    let kind = item["type"].as_str().unwrap_or("message");
    matches!(kind, "message" | "reasoning") && matches!(item["status"].as_str(), Some("in_progress" | "incomplete"))
}

fn item(item: &Map<String, Json>, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    let role = text(item, "role")?;
    match (text(item, "type")?, role) {
        (Some("function_call"), _) => function_call(item, messages),
        (Some("reasoning"), _) => reasoning(item, messages),
        (Some("function_call_output"), _) => {
            let output = item.get("output").cloned().unwrap_or(Json::Null);
            let id = item.get("call_id").cloned().unwrap_or(Json::Null);
            messages.push(json!({"role": "tool", "content": output, "tool_call_id": id}));
            Ok(())
        }
        (Some("message") | None, Some("assistant")) => {
            let content = item.get("content").unwrap_or(&Json::Null);
            let said = content.as_str().or_else(|| content[0]["text"].as_str());
            let said = said.ok_or(PromptError::NotMirrored("answers without a text"))?;
            said_by_assistant(said, messages);
            Ok(())
        }
        (Some("message") | None, Some(_)) => {
            messages.push(Json::Object(item.clone()));
            Ok(())
        }
        _ => Err(PromptError::NotMirrored(
            "items of other kinds than messages, calls and reasoning",
        )),
    }
}

/// The last message, if an assistant says it.
fn assistant(messages: &mut [Json]) -> Option<&mut Map<String, Json>> {
    let last = messages.last_mut()?.as_object_mut()?;
    (last.get("role")? == "assistant").then_some(last)
}

fn said_by_assistant(said: &str, messages: &mut Vec<Json>) {
    if let Some(before) = assistant(messages)
        && get(before, "content").is_none()
    {
        before.insert("content".to_owned(), Json::from(said));
        return;
    }
    messages.push(json!({"role": "assistant", "content": said}));
}

fn reasoning(item: &Map<String, Json>, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    if get(item, "encrypted_content").is_some() {
        return Err(wrong("input", "has encrypted reasoning"));
    }
    let first = |field: &str| item.get(field).and_then(|list| list[0]["text"].as_str());
    let thought = first("content").or(first("summary")).unwrap_or_default();
    if let Some(before) = assistant(messages)
        && get(before, "reasoning").is_none()
    {
        before.insert("reasoning".to_owned(), Json::from(thought));
        return Ok(());
    }
    messages.push(json!({"role": "assistant", "reasoning": thought}));
    Ok(())
}

fn function_call(item: &Map<String, Json>, messages: &mut Vec<Json>) -> Result<(), PromptError> {
    if get(item, "namespace").is_some() {
        return Err(PromptError::NotMirrored("tools in namespaces"));
    }
    let missing = || wrong("input", "has a call without its name, arguments or id");
    let field = |name: &'static str| text(item, name)?.ok_or_else(missing);
    let call = json!({
        "id": field("call_id")?,
        "type": "function",
        "function": {"name": field("name")?, "arguments": field("arguments")?},
    });
    if let Some(before) = assistant(messages) {
        let calls = before.entry("tool_calls").or_insert_with(|| Json::Array(Vec::new()));
        if let Some(calls) = calls.as_array_mut() {
            calls.push(call);
            return Ok(());
        }
    }
    messages.push(json!({"role": "assistant", "tool_calls": [call]}));
    Ok(())
}

fn tools(body: &Map<String, Json>) -> Result<Option<Json>, PromptError> {
    let Some(given) = list(body, "tools")?.filter(|tools| !tools.is_empty()) else {
        return Ok(None);
    };
    let mut tools = Vec::with_capacity(given.len());
    for tool in given {
        let tool = object(tool, "tools")?;
        if text(tool, "type")? != Some("function") {
            return Err(PromptError::NotMirrored("tools that are no functions"));
        }
        tools.push(json!({"type": "function", "function": tool}));
    }
    Ok(Some(Json::Array(tools)))
}
