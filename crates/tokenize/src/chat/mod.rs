//! What does a template see of a chat? From the body of a request to the arguments of a template, as an engine does it.
//!
//! - `messages`: messages, with their contents and calls; `parts`: contents;
//! - `tools`: definitions of tools.
//!
//! **Invariant:** a body that the engine refuses for its form gives an error here, too, as far as the form decides about tokens.
//! What else an engine checks is not looked at.

mod messages;
mod parts;
mod tools;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::options::{Dialect, IdleTools, PromptOptions, RequestTemplates};
use crate::template::value;
use crate::truncate::Truncate;

pub(crate) use messages::{BILLING, Message, messages};
pub(crate) use parts::Placed;

/// What is added to the last message so that its end is found in the text.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// What comes after the last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The beginning of an answer.
    Answer,
    /// Nothing.
    Nothing,
    /// The last message is not over.
    Continued,
}

/// What a request asks of a template, before it is known which form of contents the template wants.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub messages: &'a [Json],
    /// As templates see them; nothing if there are none.
    pub tools: Option<Json>,
    /// The name of a template of the folder, if the request names one.
    pub template: Option<&'a str>,
    /// Further arguments of the template.
    pub arguments: Map<String, Json>,
    pub ending: Ending,
    pub truncate: Truncate,
}

impl<'a> Ask<'a> {
    /// The tokens that come with a body, which engines then take instead of a text.
    pub fn tokens(body: &Json) -> Result<Option<Vec<u32>>, PromptError> {
        let given = &body["kv_transfer_params"]["prompt_token_ids"];
        let media = || {
            let contents = body["messages"].as_array().into_iter().flatten();
            let parts = contents.filter_map(|message| message["content"].as_array()).flatten();
            parts.filter(|part| part.is_object()).any(|part| !parts::is_text(part))
        };
        match given {
            Json::Array(list) if body["echo"] != true && !media() => crate::completion::tokens(list).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the body of a chat.
    pub fn read(body: &'a Json, options: &PromptOptions) -> Result<Self, PromptError> {
        let body = object(body, "the body")?;
        let messages = list(body, "messages")?.unwrap_or_default();
        if messages.is_empty() {
            return Err(wrong("messages", "is empty or missing"));
        }
        let given = match get(body, "chat_template_kwargs") {
            None => Map::new(),
            Some(given) => object(given, "chat_template_kwargs")?.clone(),
        };
        let template = requested_template(body, &given, options)?;
        let tools = tools::tools(body, options)?;
        let ending = ending(body)?;
        let arguments = arguments(body, given, options)?;
        Ok(Self {
            messages,
            tools: arguments.get("tools").cloned().or(tools),
            template,
            ending,
            truncate: Truncate::read(body, false)?,
            arguments,
        })
    }

    /// All arguments of a template, for these messages.
    pub fn context(&self, special: &[(String, String)], messages: Value) -> Vec<(String, Value)> {
        let mut context: Vec<(String, Value)> = Vec::with_capacity(special.len() + self.arguments.len() + 4);
        for (name, token) in special {
            context.push((name.clone(), Value::from(token.as_str())));
        }
        for (name, argument) in &self.arguments {
            context.push((name.clone(), value(argument)));
        }
        if !self.arguments.contains_key("documents") {
            context.push(("documents".to_owned(), Value::from(())));
        }
        let tools = self.tools.as_ref().map_or_else(|| Value::from(()), value);
        let answer = Value::from(self.ending == Ending::Answer);
        context.push(("tools".to_owned(), tools));
        context.push(("add_generation_prompt".to_owned(), answer));
        context.push(("messages".to_owned(), messages));
        context
    }
}

/// A field that is there and not null.
pub(crate) fn get<'a>(body: &'a Map<String, Json>, field: &str) -> Option<&'a Json> {
    body.get(field).filter(|value| !value.is_null())
}

pub(crate) fn wrong(field: &'static str, why: &'static str) -> PromptError {
    PromptError::Wrong { field, why }
}

pub(crate) fn object<'a>(value: &'a Json, field: &'static str) -> Result<&'a Map<String, Json>, PromptError> {
    value.as_object().ok_or_else(|| wrong(field, "is no object"))
}

pub(crate) fn list<'a>(body: &'a Map<String, Json>, field: &'static str) -> Result<Option<&'a [Json]>, PromptError> {
    match get(body, field) {
        None => Ok(None),
        Some(Json::Array(list)) => Ok(Some(list)),
        Some(_) => Err(wrong(field, "is no list")),
    }
}

pub(crate) fn text<'a>(body: &'a Map<String, Json>, field: &'static str) -> Result<Option<&'a str>, PromptError> {
    match get(body, field) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(field, "is no text")),
    }
}

/// A switch, which is not what its name says if it is missing.
pub(crate) fn flag(body: &Map<String, Json>, field: &'static str, otherwise: bool) -> Result<bool, PromptError> {
    match body.get(field) {
        None => Ok(otherwise),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(_) => Err(wrong(field, "is neither true nor false")),
    }
}

fn requested_template<'a>(
    body: &'a Map<String, Json>,
    given: &Map<String, Json>,
    options: &PromptOptions,
) -> Result<Option<&'a str>, PromptError> {
    if get(given, "chat_template").is_some() {
        return Err(match options.request_templates {
            RequestTemplates::Refused => wrong("chat_template_kwargs", "has a template, which the engine refuses"),
            RequestTemplates::Trusted => PromptError::NotMirrored("templates among arguments of templates"),
        });
    }
    let template = text(body, "chat_template")?;
    if template.is_some() && options.request_templates == RequestTemplates::Refused {
        return Err(wrong("chat_template", "is refused by the engine"));
    }
    Ok(template.filter(|template| !template.is_empty()))
}

fn ending(body: &Map<String, Json>) -> Result<Ending, PromptError> {
    let answer = flag(body, "add_generation_prompt", true)?;
    let continued = flag(body, "continue_final_message", false)?;
    match (answer, continued) {
        (true, true) => Err(wrong(
            "continue_final_message",
            "does not go together with `add_generation_prompt`",
        )),
        (true, false) => Ok(Ending::Answer),
        (false, true) => Ok(Ending::Continued),
        (false, false) => Ok(Ending::Nothing),
    }
}

/// What the request and the engine's defaults give a template beyond messages and tools.
fn arguments(
    body: &Map<String, Json>,
    given: Map<String, Json>,
    options: &PromptOptions,
) -> Result<Map<String, Json>, PromptError> {
    // These are arguments of the call that renders, not of the template.
    const OF_THE_CALL: [&str; 10] = [
        "conversation",
        "messages",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    ];
    if OF_THE_CALL.iter().any(|name| given.contains_key(*name)) {
        return Err(PromptError::NotMirrored("arguments of a template that it does not see"));
    }
    let effort = text(body, "reasoning_effort")?;
    let thinking = effort.filter(|_| !given.contains_key("enable_thinking"));
    let mut asked = given;
    if options.dialect == Dialect::Vllm
        && let Some(thinking) = thinking
    {
        asked.insert("enable_thinking".to_owned(), Json::Bool(thinking != "none"));
    }
    for field in ["documents", "reasoning_effort"] {
        if let Some(value) = get(body, field) {
            asked.insert(field.to_owned(), value.clone());
        }
    }
    let mut arguments = options.template_defaults.clone();
    for (name, value) in asked {
        // What is not set leaves the default.
        if !value.is_null() && value != "auto" {
            arguments.insert(name, value);
        }
    }
    for decided in ["add_generation_prompt", "continue_final_message", "chat_template"] {
        arguments.remove(decided);
    }
    Ok(arguments)
}

/// Whether tools are kept from the template.
fn hides_tools(body: &Map<String, Json>, options: &PromptOptions) -> bool {
    let none = body.get("tool_choice").and_then(Json::as_str) == Some("none");
    none && (options.idle_tools == IdleTools::Hidden || options.dialect == Dialect::Sglang)
}

/// Marks the end of the last message, and gives the text that it ends with.
pub(crate) fn mark_end(messages: &mut [Message]) -> Result<String, PromptError> {
    let nothing = || PromptError::Template("there is no text to continue in the last message".to_owned());
    let last = messages.last_mut().ok_or_else(nothing)?;
    let text = last.content.last_text().ok_or_else(nothing)?;
    let before = text.clone();
    text.push_str(CONTINUE_TAG);
    Ok(before)
}

/// The text up to the mark.
pub(crate) fn cut_at_mark(mut rendered: String, last: &str) -> Result<String, PromptError> {
    let space = crate::template::is_space;
    let at = rendered.rfind(CONTINUE_TAG.trim_end());
    let (Some(at), true) = (at, rendered.contains(last.trim_matches(space))) else {
        return Err(PromptError::Template(
            "the last message is not in the text, so it cannot be continued".to_owned(),
        ));
    };
    let kept = rendered[at..].starts_with(CONTINUE_TAG);
    rendered.truncate(at);
    if !kept {
        // The template trims what a message ends with.
        rendered.truncate(rendered.trim_end_matches(space).len());
    }
    Ok(rendered)
}
