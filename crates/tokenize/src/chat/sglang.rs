//! What does a template see of a chat in SGLang? What is other than in vLLM:
//!
//! - a content that is one text stays one, whatever the template wants; the texts of a list are joined by spaces;
//! - templates that speak of images and the like take parts, others if they loop over the content of a `message`, `msg` or `m`;
//! - tools have the fields in the client's order; the template sees none if none may be called, and the named one only if
//!   one is named; if it fails, it is asked once more with bare functions;
//! - an answer follows always: a last message of an assistant is taken for a user's, unless it is to be continued, and then it
//!   is encoded by itself and appended;
//! - developers stay developers, and users have no names.
//!
//! Results of tools that come in another order than their calls are put in order by SGLang for some templates; not here.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::messages::Message;
use super::parts::{Content, Part, part};
use super::{Ask, Ending, flag, get, list, object, requested_template, text, wrong};
use crate::error::PromptError;
use crate::options::PromptOptions;
use crate::template::{Template, value};
use crate::tokenizer::Marks;
use crate::truncate::Truncate;

const ROLES: [&str; 8] = [
    "system",
    "user",
    "assistant",
    "tool",
    "function",
    "developer",
    "latest_reminder",
    "root",
];

/// Reads the body of a chat.
pub(crate) fn read<'a>(body: &'a Json, options: &PromptOptions) -> Result<Ask<'a>, PromptError> {
    let body = object(body, "the body")?;
    let messages = list(body, "messages")?.unwrap_or_default();
    if messages.is_empty() {
        return Err(wrong("messages", "is empty or missing"));
    }
    for (field, what) in [
        ("reasoning", "settings of reasoning"),
        ("thinking", "settings of thinking"),
    ] {
        if get(body, field).is_some() {
            return Err(PromptError::NotMirrored(what));
        }
    }
    let given = match get(body, "chat_template_kwargs") {
        None => Map::new(),
        Some(given) => object(given, "chat_template_kwargs")?.clone(),
    };
    let template = requested_template(body, &given, options)?;
    let mut arguments = options.template_defaults.clone();
    if let Some(effort) = get(body, "reasoning_effort") {
        arguments.insert("reasoning_effort".to_owned(), effort.clone());
        // Templates have two names for it.
        for name in ["thinking", "enable_thinking"] {
            arguments.insert(name.to_owned(), Json::Bool(effort != "none"));
        }
    }
    arguments.extend(given);
    let continued = flag(body, "continue_final_message", false)?;
    Ok(Ask {
        messages,
        tools: tools(body)?,
        template,
        arguments,
        ending: if continued { Ending::Continued } else { Ending::Answer },
        truncate: Truncate::none(Marks::None),
    })
}

fn tools(body: &Map<String, Json>) -> Result<Option<Json>, PromptError> {
    let Some(given) = list(body, "tools")?.filter(|tools| !tools.is_empty()) else {
        return Ok(None);
    };
    let choice = body.get("tool_choice").unwrap_or(&Json::Null);
    if choice == "none" {
        return Ok(None);
    }
    let wanted = choice["function"]["name"].as_str();
    let mut tools = Vec::with_capacity(given.len());
    for tool in given {
        let tool = object(tool, "tools")?;
        let given = object(tool.get("function").unwrap_or(&Json::Null), "tools")?;
        let name = text(given, "name")?.ok_or_else(|| wrong("tools", "has a function without a name"))?;
        if wanted.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let deferred = tool.get("defer_loading").cloned().unwrap_or(Json::Null);
        let known = ["description", "name", "parameters", "strict", "defer_loading"];
        let mut function = Map::new();
        for (field, value) in given.iter().filter(|(field, _)| known.contains(&field.as_str())) {
            let left_out = value.is_null() && matches!(field.as_str(), "strict" | "defer_loading");
            if !left_out {
                function.insert(field.clone(), value.clone());
            }
        }
        for field in ["description", "parameters"] {
            function.entry(field).or_insert(Json::Null);
        }
        if !deferred.is_null() {
            function.entry("defer_loading").or_insert_with(|| deferred.clone());
        }
        let kind = text(tool, "type")?.unwrap_or("function");
        let mut tool = Map::new();
        tool.insert("type".to_owned(), Json::from(kind));
        tool.insert("function".to_owned(), Json::Object(function));
        tool.insert("defer_loading".to_owned(), deferred);
        tools.push(Json::Object(tool));
    }
    Ok(Some(Json::Array(tools)).filter(|tools| tools != &Json::Array(Vec::new())))
}

/// The tools without what is around them, for templates that want them so.
pub(crate) fn bare(tools: &Json) -> Json {
    let list = tools.as_array().into_iter().flatten();
    list.map(|tool| tool.get("function").unwrap_or(tool).clone()).collect()
}

/// The messages of a chat, for this template.
pub(crate) fn messages(list: &[Json], template: &Template) -> Result<Vec<Message>, PromptError> {
    let one = |message| self::message(object(message, "messages")?, template);
    list.iter().map(one).collect()
}

/// Takes off a last message that is to be continued, and gives its text; one that is not becomes a user's.
pub(crate) fn settle(messages: &mut Vec<Message>, ending: Ending) -> Option<String> {
    let last = messages.last_mut().filter(|last| last.role == "assistant")?;
    let Content::Text(text) = &last.content else {
        return None;
    };
    let text = text.clone();
    if ending == Ending::Continued {
        messages.pop();
        return Some(text);
    }
    *last = Message {
        role: "user".to_owned(),
        content: Content::Text(text),
        more: Vec::new(),
    };
    None
}

fn message(message: &Map<String, Json>, template: &Template) -> Result<Message, PromptError> {
    let role = text(message, "role")?.unwrap_or_default().to_lowercase();
    if !ROLES.contains(&role.as_str()) {
        return Err(wrong("role", "is none that the engine knows"));
    }
    if get(message, "prefix").is_some() {
        return Err(PromptError::NotMirrored("messages that are prefixes"));
    }
    let content = match message.get("content") {
        Some(Json::String(text)) => Content::Text(text.clone()),
        None | Some(Json::Null) if role != "user" => Content::Text(String::new()),
        Some(Json::Array(list)) => {
            let parts: Result<Vec<Part>, PromptError> = list.iter().filter_map(|one| part(one).transpose()).collect();
            parted(parts?, &role, template)
        }
        _ => return Err(wrong("content", "is neither a text nor a list")),
    };
    let mut more = Vec::new();
    if role != "user" {
        for field in ["tool_call_id", "name", "phase", "reasoning_content", "tools"] {
            if let Some(given) = get(message, field) {
                more.push((field, value(given)));
            }
        }
        if let Some(Json::Array(list)) = get(message, "tool_calls") {
            let calls: Result<Vec<Value>, PromptError> = list.iter().map(call).collect();
            more.push(("tool_calls", Value::from(calls?)));
        }
    }
    Ok(Message { role, content, more })
}

fn parted(parts: Vec<Part>, role: &str, template: &Template) -> Content {
    let texts = |parts: &[Part]| {
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text, _) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join(" ")
    };
    let media = parts.iter().find_map(|part| match part {
        Part::Media(media, _) => Some(*media),
        _ => None,
    });
    let all_texts = parts.iter().all(|part| matches!(part, Part::Text(..)));
    match media {
        _ if template.parts && !(role == "tool" && all_texts) => Content::Parts(
            parts
                .into_iter()
                .map(|part| match part {
                    Part::Text(text, _) => Part::Text(text, Vec::new()),
                    Part::Media(media, _) => Part::Media(media, Vec::new()),
                    Part::ToolReference(name) => Part::ToolReference(name),
                })
                .collect(),
        ),
        Some(media) => Content::MediaAndText(media, texts(&parts)),
        None => Content::Text(texts(&parts)),
    }
}

fn call(call: &Json) -> Result<Value, PromptError> {
    let call = object(call, "tool_calls")?;
    let function = object(call.get("function").unwrap_or(&Json::Null), "tool_calls")?;
    let arguments = match function.get("arguments") {
        Some(Json::String(text)) => serde_json::from_str(text)
            .ok()
            .filter(Json::is_object)
            .ok_or_else(|| wrong("tool_calls", "has arguments that are no object"))?,
        other => other.cloned().unwrap_or(Json::Null),
    };
    let name = function.get("name").map_or_else(|| Value::from(()), value);
    let function = Value::from_pairs([("name", name), ("arguments", value(&arguments))]);
    let field = |name: &str| call.get(name).map_or_else(|| Value::from(()), value);
    Ok(Value::from_pairs([
        ("id", field("id")),
        ("index", field("index")),
        ("type", Value::from("function")),
        ("function", function),
    ]))
}
