//! Are there pictures, sounds or films in a conversation?
//!
//! Cost: texts without any of the words are not looked at further; with one of them, parts of messages are walked through.

use memchr::memmem;

use crate::feature::{Feature, Features};
use crate::json::{Kind, entries, entry, is_key, items, kind, text};

/// How deep parts within parts are followed: the result of a tool has parts of its own.
const DEEPEST: usize = 4;

/// Adds the media that occur in messages.
pub(crate) fn mark(features: &mut Features, messages: &[u8]) {
    let said = |word: &[u8]| memmem::find(messages, word).is_some();
    if ["image", "audio", "video", "file", "document"]
        .iter()
        .any(|word| said(word.as_bytes()))
    {
        parts(features, messages, DEEPEST);
    }
}

/// Walks through a list of messages or of parts.
fn parts(features: &mut Features, list: &[u8], depth: usize) {
    for part in items(list).into_iter().flatten() {
        if kind(part) != Some(Kind::Object) {
            continue;
        }
        if let Some(what) = entry(part, "type").and_then(text).and_then(|what| feature(&what)) {
            features.add(what);
        }
        if depth == 0 {
            continue;
        }
        for (key, value) in entries(part).into_iter().flatten() {
            if kind(value) == Some(Kind::Array) && (is_key(key, "content") || is_key(key, "output")) {
                parts(features, value, depth - 1);
            }
        }
    }
}

fn feature(what: &str) -> Option<Feature> {
    Some(match what {
        "image_url" | "image" | "input_image" | "image_pil" | "image_embeds" => Feature::Images,
        "input_audio" | "audio_url" | "audio" | "audio_embeds" => Feature::Audio,
        "video_url" | "video" | "input_video" => Feature::Video,
        "file" | "input_file" | "document" => Feature::Files,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_found_by_their_type_and_not_by_their_word() {
        for (messages, found) in [
            (r#"[{"role":"user","content":"an image_url of a video"}]"#, vec![]),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}]"#,
                vec![Feature::Images],
            ),
            (
                r#"[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]"#,
                vec![Feature::Images],
            ),
            (
                r#"[{"content":[{"type":"input_audio"},{"type":"video_url"},{"type":"input_file"}]}]"#,
                vec![Feature::Audio, Feature::Video, Feature::Files],
            ),
            (r#"[{"type":"input_image"}]"#, vec![Feature::Images]),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"{\"type\":\"image\"}"}]}]"#,
                vec![],
            ),
        ] {
            let mut features = Features::default();
            mark(&mut features, messages.as_bytes());
            assert_eq!(features.iter().collect::<Vec<_>>(), found, "{messages}");
        }
    }
}
