//! What does a model's folder say about tokens and templates?
//!
//! | file | what is taken from it |
//! |---|---|
//! | `tokenizer.json` | the tokenizer |
//! | `tokenizer_config.json` | names of special tokens, further added tokens, chat templates |
//! | `special_tokens_map.json` | names of special tokens, where the settings list no added tokens |
//! | `chat_template.jinja`, `additional_chat_templates/tool_use.jinja` | templates that win over those of the settings |
//! | `chat_template.json` | the template of a processor of images, for chats without tools |
//! | `config.json` | the kind of the model, as some have no template that counts |
//!
//! Special tokens that the tokenizer does not know as such become so, as `transformers` makes them. What the tokenizer's file
//! says about truncation and padding does not count: engines set both for each call.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::error::LoadError;

/// The longest file that is read.
const LONGEST_FILE: u64 = 256 << 20;
const WORDS: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";
/// Special tokens that every tokenizer can have.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The templates of a folder, by their purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Templates {
    /// For chats.
    pub default: Option<String>,
    /// For chats with tools, where there is another.
    pub tool_use: Option<String>,
    /// Of a processor of images, which comes first where no tools are given.
    pub processor: Option<String>,
    /// All others, by their names.
    pub others: Vec<(String, String)>,
}

/// What a folder says.
pub(crate) struct Folder {
    pub tokenizer: tokenizers::Tokenizer,
    /// Names like `bos_token`, and the tokens.
    pub special: Vec<(String, String)>,
    pub templates: Templates,
    /// The kind of the model; empty if the folder does not say.
    pub kind: String,
    /// Whether it has the files of Mistral's own tokenizer, which engines prefer.
    pub mistral: bool,
}

impl Folder {
    /// Reads a folder.
    pub fn read(folder: &Path) -> Result<Self, LoadError> {
        if !folder.is_dir() {
            return Err(LoadError::NoFolder(folder.to_owned()));
        }
        let file = folder.join(WORDS);
        let mut tokenizer: tokenizers::Tokenizer = text(&file)?.parse().map_err(|error| LoadError::Wrong {
            file: file.clone(),
            why: format!("{error}"),
        })?;
        tokenizer.with_padding(None);
        // Without one there is nothing that could be wrong with it.
        let _ = tokenizer.with_truncation(None);
        let settings = object(&folder.join(SETTINGS))?;
        let listed = settings.contains_key("added_tokens_decoder");
        let legacy = if listed {
            Map::new()
        } else {
            object(&folder.join("special_tokens_map.json"))?
        };
        let special = special_tokens(&settings, &legacy);
        add_tokens(&mut tokenizer, &settings, &legacy, &special);
        let model = object(&folder.join("config.json"))?;
        Ok(Self {
            tokenizer,
            special,
            templates: templates(folder, &settings)?,
            kind: model
                .get("model_type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            mistral: folder.join("tekken.json").is_file(),
        })
    }

    /// The special token of this name.
    pub fn named(&self, name: &str) -> Option<&str> {
        let found = self.special.iter().find(|(key, _)| key == name)?;
        Some(&found.1)
    }
}

/// The text of a file.
fn text(file: &Path) -> Result<String, LoadError> {
    let bytes = homing_config::length_of(file).map_err(|error| LoadError::Unreadable(error.to_string()))?;
    if bytes > LONGEST_FILE {
        return Err(LoadError::TooLong {
            file: file.to_owned(),
            bytes,
            limit: LONGEST_FILE,
        });
    }
    let text = homing_config::read_text(file).map_err(|error| LoadError::Unreadable(error.to_string()))?;
    Ok(text.text)
}

/// The object in a file; an empty one if there is no file.
fn object(file: &Path) -> Result<Map<String, Value>, LoadError> {
    if !file.is_file() {
        return Ok(Map::new());
    }
    let wrong = |why: String| LoadError::Wrong {
        file: file.to_owned(),
        why,
    };
    match serde_json::from_str(&text(file)?).map_err(|error| wrong(error.to_string()))? {
        Value::Object(object) => Ok(object),
        _ => Err(wrong("it is no object".to_owned())),
    }
}

/// A token in the settings: its name, or an object with it.
fn word(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

fn special_tokens(settings: &Map<String, Value>, legacy: &Map<String, Value>) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: &Value| {
        if let Some(token) = word(value) {
            found.retain(|(key, _)| key != name);
            found.push((name.to_owned(), token.to_owned()));
        }
    };
    for from in [settings, legacy] {
        for name in NAMED {
            put(name, from.get(name).unwrap_or(&Value::Null));
        }
        // Those of a kind of model: `image_token` and the like.
        for (name, value) in from.iter().filter(|(name, _)| name.ends_with("_token")) {
            if !NAMED.contains(&name.as_str()) && value.is_string() {
                put(name, value);
            }
        }
        if let Some(extra) = from.get("extra_special_tokens").and_then(Value::as_object) {
            for (name, value) in extra {
                put(name, value);
            }
        }
    }
    found
}

/// Makes the tokens of the settings known to the tokenizer, in the order in which `transformers` does: it decides about
/// the ids of new ones.
fn add_tokens(
    tokenizer: &mut tokenizers::Tokenizer,
    settings: &Map<String, Value>,
    legacy: &Map<String, Value>,
    special: &[(String, String)],
) {
    let mut listed: Vec<(u32, AddedToken)> = Vec::new();
    if let Some(decoder) = settings.get("added_tokens_decoder").and_then(Value::as_object) {
        for (id, token) in decoder {
            if let (Ok(id), Some(token)) = (id.parse(), added_token(token)) {
                listed.push((id, token));
            }
        }
    }
    listed.sort_by_key(|(id, _)| *id);
    let mut tokens: Vec<AddedToken> = listed.into_iter().map(|(_, token)| token).collect();
    let known: Vec<String> = tokenizer
        .get_added_tokens_decoder()
        .into_values()
        .chain(tokens.iter().cloned())
        .map(|token| token.content)
        .collect();
    let mut more: Vec<&str> = special.iter().map(|(_, token)| token.as_str()).collect();
    for from in [settings, legacy] {
        for key in ["extra_special_tokens", "additional_special_tokens"] {
            let list = from.get(key).and_then(Value::as_array);
            more.extend(list.into_iter().flatten().filter_map(word));
        }
    }
    for token in more {
        let fresh = !known.iter().any(|known| known == token) && !tokens.iter().any(|other| other.content == token);
        if fresh && !token.is_empty() {
            tokens.push(AddedToken::from(token, true));
        }
    }
    // It fails for no token that is read here.
    let _ = tokenizer.add_tokens(tokens);
}

fn added_token(value: &Value) -> Option<AddedToken> {
    let flag = |name: &str| value[name].as_bool().unwrap_or(false);
    let special = flag("special");
    let normalized = value["normalized"].as_bool().unwrap_or(!special);
    let content = value["content"].as_str().filter(|content| !content.is_empty())?;
    Some(
        AddedToken::from(content, special)
            .single_word(flag("single_word"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(normalized),
    )
}

fn templates(folder: &Path, settings: &Map<String, Value>) -> Result<Templates, LoadError> {
    let mut templates = Templates::default();
    match settings.get("chat_template") {
        Some(Value::String(template)) => templates.default = Some(template.clone()),
        Some(Value::Array(list)) => {
            for entry in list {
                if let (Some(name), Some(template)) = (entry["name"].as_str(), entry["template"].as_str()) {
                    templates.put(name, template.to_owned());
                }
            }
        }
        Some(Value::Object(named)) => {
            for (name, template) in named {
                if let Some(template) = template.as_str() {
                    templates.put(name, template.to_owned());
                }
            }
        }
        _ => {}
    }
    let own = folder.join("chat_template.jinja");
    let with_tools = folder.join("additional_chat_templates").join("tool_use.jinja");
    if own.is_file() || with_tools.is_file() {
        templates = Templates::default();
    }
    if own.is_file() {
        templates.default = Some(text(&own)?);
    }
    if with_tools.is_file() {
        templates.tool_use = Some(text(&with_tools)?);
    }
    let of_processor = object(&folder.join("chat_template.json"))?;
    templates.processor = of_processor
        .get("chat_template")
        .and_then(Value::as_str)
        .map(str::to_owned);
    Ok(templates)
}

impl Templates {
    fn put(&mut self, name: &str, template: String) {
        match name {
            "default" => self.default = Some(template),
            "tool_use" => self.tool_use = Some(template),
            other => self.others.push((other.to_owned(), template)),
        }
    }
}
