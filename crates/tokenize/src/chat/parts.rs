//! What is the content of a message? One text or a list of parts; some parts are no text.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::{get, object, wrong};
use crate::error::PromptError;
use crate::prompt::Media;
use crate::template::value;

/// Fields of parts that engines know; others go to the template with a text.
const KNOWN: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];
/// Parts that are no text, by their names.
const MEDIA: [(&str, Media); 11] = [
    ("image_url", Media::Image),
    ("image_pil", Media::Image),
    ("image_embeds", Media::Image),
    ("audio_embeds", Media::Audio),
    ("video_embeds", Media::Video),
    ("prompt_embeds", Media::Embedding),
    ("audio_url", Media::Audio),
    ("input_audio", Media::Audio),
    ("video_url", Media::Video),
    ("input_image", Media::Image),
    // Other engines have a plain form, too.
    ("image", Media::Image),
];

/// A part of a content.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A text, with further fields for the template.
    Text(String, Vec<(String, Value)>),
    /// Something else.
    Media(Media, Vec<(String, Value)>),
    /// The name of a tool that is described elsewhere.
    ToolReference(String),
}

/// A content as a template sees it.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// One text.
    Text(String),
    /// One text, and something else before it.
    MediaAndText(Media, String),
    /// Parts.
    Parts(Vec<Part>),
}

/// What stands for parts that are no text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Placed<'a> {
    /// What the engine puts there.
    AsIs,
    /// This text.
    Instead(&'a str),
}

impl Content {
    /// The content of parts, in the form that the template wants.
    pub fn of(parts: Vec<Part>, as_parts: bool) -> Self {
        if as_parts {
            return Self::Parts(parts);
        }
        let media = parts.iter().find_map(|part| match part {
            Part::Media(media, _) => Some(*media),
            _ => None,
        });
        let text = joined(&parts);
        match media {
            Some(media) => Self::MediaAndText(media, text),
            None => Self::Text(text),
        }
    }

    /// The first part that is no text.
    pub fn media(&self) -> Option<Media> {
        match self {
            Self::Text(_) => None,
            Self::MediaAndText(media, _) => Some(*media),
            Self::Parts(parts) => parts.iter().find_map(|part| match part {
                Part::Media(media, _) => Some(*media),
                _ => None,
            }),
        }
    }

    /// The text that it ends with, if there is any text.
    pub fn last_text(&mut self) -> Option<&mut String> {
        match self {
            Self::Text(text) | Self::MediaAndText(_, text) => Some(text),
            Self::Parts(parts) => parts.iter_mut().rev().find_map(|part| match part {
                Part::Text(text, _) => Some(text),
                _ => None,
            }),
        }
    }

    /// All of its texts, as one.
    pub fn as_text(&self) -> String {
        match self {
            Self::Text(text) | Self::MediaAndText(_, text) => text.clone(),
            Self::Parts(parts) => joined(parts),
        }
    }

    /// As one text, unless there is something else in it.
    pub fn flattened(self) -> Self {
        match self {
            Self::Parts(parts) if parts.iter().all(|part| matches!(part, Part::Text(..))) => Self::Text(joined(&parts)),
            other => other,
        }
    }

    /// What a template sees.
    pub fn value(&self, placed: Placed<'_>) -> Value {
        match (self, placed) {
            // Before the text of media the engine puts names of its own, which are not known here.
            (Self::Text(text), _) | (Self::MediaAndText(_, text), Placed::AsIs) => Value::from(text.as_str()),
            (Self::MediaAndText(_, text), Placed::Instead(instead)) => Value::from(format!("{instead}\n{text}")),
            (Self::Parts(parts), _) => parts.iter().map(|part| part.value(placed)).collect(),
        }
    }
}

impl Part {
    fn value(&self, placed: Placed<'_>) -> Value {
        let (kind, text, more): (&str, Option<&str>, &[(String, Value)]) = match (self, placed) {
            (Self::Text(text, more), _) => ("text", Some(text), more),
            (Self::Media(..), Placed::Instead(instead)) => ("text", Some(instead), &[]),
            (Self::Media(Media::Embedding, _), Placed::AsIs) => ("text", Some("\u{fffd}"), &[]),
            (Self::Media(media, more), Placed::AsIs) => (media.kind(), None, more),
            (Self::ToolReference(name), _) => {
                return Value::from_pairs([("type", "tool_reference"), ("name", name.as_str())]);
            }
        };
        let kind = Some(("type", Value::from(kind)));
        let text = text.map(|text| ("text", Value::from(text)));
        let more = more.iter().map(|(name, value)| (name.as_str(), value.clone()));
        Value::from_pairs(kind.into_iter().chain(text).chain(more))
    }
}

fn joined(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text, _) | Part::ToolReference(text) => Some(text.as_str()),
            Part::Media(..) => None,
        })
        .collect();
    texts.join("\n")
}

/// Whether a part is a text, or names a tool.
pub(super) fn is_text(part: &Json) -> bool {
    let texts = [
        "text",
        "input_text",
        "output_text",
        "refusal",
        "thinking",
        "tool_reference",
    ];
    let kind = part["type"].as_str();
    kind.is_none_or(|kind| texts.contains(&kind)) && !MEDIA.iter().any(|(name, _)| part.get(*name).is_some())
}

/// A part of a request; nothing for one that has no text and needs none.
pub(super) fn part(part: &Json) -> Result<Option<Part>, PromptError> {
    if let Json::String(text) = part {
        return Ok(Some(Part::Text(text.clone(), Vec::new())));
    }
    let part = object(part, "content")?;
    let kind = match part.get("type") {
        None | Some(Json::Null) => None,
        Some(Json::String(kind)) => Some(kind.as_str()),
        Some(_) => return Err(wrong("content", "has a part whose type is no text")),
    };
    let named = get(part, "uuid").is_some();
    match kind {
        Some(kind) if !named => typed(kind, part),
        Some("text") | None if !MEDIA.iter().any(|(name, _)| part.contains_key(*name)) => {
            Err(wrong("content", "has a part without a type"))
        }
        _ => MEDIA
            .iter()
            .find(|(name, _)| part.contains_key(*name))
            .map(|(_, media)| Some(Part::Media(*media, more(part))))
            .ok_or_else(|| wrong("content", "has a part of an unknown type")),
    }
}

fn typed(kind: &str, part: &Map<String, Json>) -> Result<Option<Part>, PromptError> {
    let field = match kind {
        "text" | "input_text" | "output_text" => "text",
        "thinking" => "thinking",
        "refusal" => "refusal",
        "tool_reference" => "name",
        _ => {
            let media = MEDIA.iter().find(|(name, _)| *name == kind);
            let media = media.ok_or_else(|| wrong("content", "has a part of an unknown type"))?;
            return Ok(Some(Part::Media(media.1, more(part))));
        }
    };
    match part.get(field) {
        Some(Json::String(text)) if field == "name" => Ok(Some(Part::ToolReference(text.clone()))),
        Some(Json::String(text)) => Ok(Some(Part::Text(text.clone(), more(part)))),
        None | Some(Json::Null) if kind == "text" || kind == "refusal" => Ok(None),
        _ => Err(wrong("content", "has a part without its text")),
    }
}

fn more(part: &Map<String, Json>) -> Vec<(String, Value)> {
    part.iter()
        .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
        .map(|(name, field)| (name.clone(), value(field)))
        .collect()
}
