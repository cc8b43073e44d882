//! How does a template see the messages of a request?

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::parts::{Content, Part, Placed, part};
use super::{get, object, text, wrong};
use crate::error::PromptError;
use crate::template::{Template, value};

/// A line that an agent's client puts before everything else, different in each request; engines drop it.
pub(crate) const BILLING: &str = "x-anthropic-billing-header";

/// A message as a template sees it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub role: String,
    pub content: Content,
    /// The other fields, in the engine's order.
    pub more: Vec<(&'static str, Value)>,
}

impl Message {
    /// What a template sees.
    pub fn value(&self, placed: Placed<'_>) -> Value {
        let role = ("role", Value::from(self.role.as_str()));
        let content = ("content", self.content.value(placed));
        Value::from_pairs([role, content].into_iter().chain(self.more.iter().cloned()))
    }
}

/// The messages of a request, for this template.
pub(crate) fn messages(list: &[Json], template: &Template) -> Result<Vec<Message>, PromptError> {
    let mut messages = Vec::with_capacity(list.len());
    for message in list {
        messages.push(self::message(object(message, "messages")?, template)?);
    }
    if !template.developer && messages.iter().any(|message| message.role == "developer") {
        for message in messages.iter_mut().filter(|message| message.role == "developer") {
            "system".clone_into(&mut message.role);
            message.more.retain(|(name, _)| *name != "tools");
        }
        messages = consolidated(messages);
    }
    Ok(messages)
}

/// All that the system says as one message, at the beginning; unchanged if it is so already.
fn consolidated(messages: Vec<Message>) -> Vec<Message> {
    let system = |message: &Message| message.role == "system";
    if !messages.iter().skip(1).any(system) {
        return messages;
    }
    let (said, others): (Vec<Message>, Vec<Message>) = messages.into_iter().partition(system);
    let texts: Vec<String> = said.iter().map(|message| message.content.as_text()).collect();
    let texts: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    let first = Message {
        role: "system".to_owned(),
        content: Content::Text(texts.join("\n\n")),
        more: Vec::new(),
    };
    std::iter::once(first).chain(others).collect()
}

fn message(message: &Map<String, Json>, template: &Template) -> Result<Message, PromptError> {
    let role = text(message, "role")?.ok_or_else(|| wrong("role", "is missing"))?;
    let mut parts = contents(message, role)?;
    if role == "system" {
        parts = parts.into_iter().filter_map(without_billing).collect();
    }
    let mut content = Content::of(parts, template.parts);
    let mut more = Vec::new();
    match role {
        "assistant" => {
            if let Some(calls) = calls(message)? {
                more.push(("tool_calls", calls));
            }
            let reasoning = get(message, "reasoning").or_else(|| get(message, "reasoning_content"));
            if let Some(reasoning) = reasoning {
                more.push(("reasoning", value(reasoning)));
                more.push(("reasoning_content", value(reasoning)));
            }
        }
        "tool" => {
            if let Some(call) = message.get("tool_call_id") {
                more.push(("tool_call_id", value(call)));
            }
            content = content.flattened();
        }
        _ => {}
    }
    for field in ["name", "task"] {
        if let Some(Json::String(text)) = message.get(field) {
            more.push((field, Value::from(text.as_str())));
        }
    }
    if role == "developer" {
        more.push(("tools", message.get("tools").map_or_else(|| Value::from(()), value)));
    }
    Ok(Message {
        role: role.to_owned(),
        content,
        more,
    })
}

fn contents(message: &Map<String, Json>, role: &str) -> Result<Vec<Part>, PromptError> {
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Json::Null) if matches!(role, "assistant" | "function") => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![Part::Text(text.clone(), Vec::new())]),
        Some(Json::Array(list)) => list.iter().filter_map(|one| part(one).transpose()).collect(),
        Some(_) => Err(wrong("content", "is neither a text nor a list")),
    }
}

/// A part of what the system says, without the first line if that is about billing.
fn without_billing(part: Part) -> Option<Part> {
    match part {
        Part::Text(text, more) if text.starts_with(BILLING) => {
            let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
            (!rest.is_empty()).then(|| Part::Text(rest.to_owned(), more))
        }
        other => Some(other),
    }
}

/// The calls of a message, with their arguments as objects.
fn calls(message: &Map<String, Json>) -> Result<Option<Value>, PromptError> {
    let list = match get(message, "tool_calls") {
        None => return Ok(None),
        Some(Json::Array(list)) => list,
        Some(_) => return Err(wrong("tool_calls", "is no list")),
    };
    if list.is_empty() {
        return Ok(None);
    }
    let calls: Result<Vec<Value>, PromptError> = list.iter().map(call).collect();
    Ok(Some(Value::from(calls?)))
}

fn call(call: &Json) -> Result<Value, PromptError> {
    let call = object(call, "tool_calls")?;
    if text(call, "type")? != Some("function") {
        return Err(wrong("tool_calls", "has a call that is not of type `function`"));
    }
    let id = text(call, "id")?.ok_or_else(|| wrong("tool_calls", "has a call without an id"))?;
    let function = object(call.get("function").unwrap_or(&Json::Null), "tool_calls")?;
    let name = text(function, "name")?.ok_or_else(|| wrong("tool_calls", "has a call without a name"))?;
    let Some(arguments) = text(function, "arguments")? else {
        return Err(wrong("tool_calls", "has a call without arguments"));
    };
    // What is no object is kept out of the conversation by engines, too.
    let arguments = serde_json::from_str(arguments).ok().filter(Json::is_object);
    let arguments = arguments.unwrap_or_else(|| Json::Object(Map::new()));
    let known = [("arguments", value(&arguments)), ("name", Value::from(name))];
    let function = Value::from_pairs(known.into_iter().chain(others(function, &["arguments", "name"])));
    let known = [
        ("id", Value::from(id)),
        ("function", function),
        ("type", Value::from("function")),
    ];
    let others = others(call, &["id", "function", "type"]);
    Ok(Value::from_pairs(known.into_iter().chain(others)))
}

fn others<'a>(object: &'a Map<String, Json>, known: &'a [&'static str]) -> impl Iterator<Item = (&'a str, Value)> + 'a {
    object
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()))
        .map(|(name, field)| (name.as_str(), value(field)))
}
