//! Replaces the ids of stored responses in answers of `/v1/responses`.
//!
//! An id stands at the top of a response object, as `id` and as `previous_response_id`. The object is the whole body, or the field `response`
//! of an event.
//!
//! **Invariant:** all other bytes of a body or an event stay as they came.
//!
//! Cost: a search for one word in events without a response object; one pass and one copy otherwise.

use bytes::Bytes;

use crate::json::{Fields, Limits, Span, is_key, quoted, text};
use crate::sse::Event;

/// Fields of a response object that hold an id.
const ID_FIELDS: [&str; 2] = ["id", "previous_response_id"];
/// The field of an event that holds a response object, as it is written.
const RESPONSE_KEY: &[u8] = b"\"response\"";

/// The new id for an id; `None` keeps the old one.
pub type ReplaceId<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The body of an answer with its ids replaced. `None`: it has none to replace.
pub fn replace_in_body(body: &[u8], replace: ReplaceId<'_>) -> Option<Bytes> {
    let start = body.len() - body.trim_ascii_start().len();
    let edits = edits_of_object(body.trim_ascii(), start, replace);
    (!edits.is_empty()).then(|| apply(body, &edits).into())
}

/// An event with the ids of its response object replaced. `None`: it has none to replace.
pub fn replace_in_event(event: &Event, replace: ReplaceId<'_>) -> Option<Bytes> {
    let data = event.data()?;
    memchr::memmem::find(&data, RESPONSE_KEY)?;
    let fields = Fields::read(&data, Limits::default()).ok()?;
    let responses = fields.iter().filter(|field| is_key(field.key.of(&data), "response"));
    let edits: Vec<Edit> = responses
        .flat_map(|field| edits_of_object(field.value.of(&data), field.value.start, replace))
        .collect();
    (!edits.is_empty()).then(|| event.with_data(&apply(&data, &edits)))
}

/// A new value for a place of a text.
struct Edit {
    span: Span,
    new: String,
}

/// The edits of an object that begins at `offset` of the text.
fn edits_of_object(object: &[u8], offset: usize, replace: ReplaceId<'_>) -> Vec<Edit> {
    let Ok(fields) = Fields::read(object, Limits::default()) else {
        return Vec::new();
    };
    let is_id = |key: &[u8]| ID_FIELDS.iter().any(|name| is_key(key, name));
    let edit = |value: Span| {
        let new = replace(&text(value.of(object))?)?;
        Some(Edit {
            span: Span {
                start: offset + value.start,
                end: offset + value.end,
            },
            new: quoted(&new),
        })
    };
    let ids = fields.iter().filter(|field| is_id(field.key.of(object)));
    ids.filter_map(|field| edit(field.value)).collect()
}

/// The text with the edits, which are in the order of their places.
fn apply(text: &[u8], edits: &[Edit]) -> Vec<u8> {
    let more: usize = edits.iter().map(|edit| edit.new.len()).sum();
    let mut new = Vec::with_capacity(text.len() + more);
    let mut at = 0;
    for edit in edits {
        new.extend_from_slice(&text[at..edit.span.start]);
        new.extend_from_slice(edit.new.as_bytes());
        at = edit.span.end;
    }
    new.extend_from_slice(&text[at..]);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(id: &str) -> Option<String> {
        id.strip_prefix("resp_").map(|id| format!("resp_signed_{id}"))
    }

    fn body(body: &str) -> Option<String> {
        let new = replace_in_body(body.as_bytes(), &signed)?;
        Some(String::from_utf8(new.to_vec()).unwrap())
    }

    fn event(raw: &str) -> Option<String> {
        let new = replace_in_event(&Event::new(raw.as_bytes().to_vec()), &signed)?;
        Some(String::from_utf8(new.to_vec()).unwrap())
    }

    #[test]
    fn both_ids_of_a_body_are_replaced_and_nothing_else() {
        assert_eq!(
            body(" { \"id\" : \"resp_1\",\"x\":{\"id\":\"resp_1\"}, \"previous_response_id\":\"resp_0\"}\n").as_deref(),
            Some(
                " { \"id\" : \"resp_signed_1\",\"x\":{\"id\":\"resp_1\"}, \"previous_response_id\":\"resp_signed_0\"}\n"
            )
        );
        // A parser that reads the first of two equal keys sees no other id than one that reads the last.
        assert_eq!(
            body(r#"{"id":"resp_1","i\u0064":"resp_2"}"#).as_deref(),
            Some(r#"{"id":"resp_signed_1","i\u0064":"resp_signed_2"}"#)
        );
        for other in [
            "",
            "[]",
            "{",
            r#"{"id":null}"#,
            r#"{"id":"msg_1","previous_response_id":null}"#,
            r#"{"error":{"message":"x"}}"#,
        ] {
            assert_eq!(body(other), None, "{other}");
        }
    }

    #[test]
    fn ids_are_replaced_in_every_event_that_has_a_response() {
        for name in ["created", "in_progress", "queued", "completed", "failed"] {
            let raw = format!(
                "event: response.{name}\ndata: {{\"type\":\"response.{name}\",\"response\":{{\"id\":\"resp_1\",\
                 \"previous_response_id\":\"resp_0\",\"output\":[{{\"id\":\"resp_1\"}}]}},\"sequence_number\":0}}\n\n"
            );
            let expected = raw
                .replacen("resp_1", "resp_signed_1", 1)
                .replace("resp_0", "resp_signed_0");
            assert_eq!(event(&raw), Some(expected));
        }
        let lines = "data: {\"response\":\ndata: {\"id\":\"resp_1\"}}\n\n";
        assert_eq!(
            event(lines).as_deref(),
            Some("data: {\"response\":\ndata: {\"id\":\"resp_signed_1\"}}\n\n")
        );
    }

    #[test]
    fn events_without_a_response_are_not_changed() {
        for raw in [
            ": comment\n\n",
            "data: [DONE]\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"resp_1\",\"delta\":\"\\\"response\\\":{\\\"id\\\":\\\"resp_1\\\"}\"}\n\n",
            "data: {\"id\":\"resp_1\",\"object\":\"response\"}\n\n",
            "data: {\"response\":\"resp_1\"}\n\n",
            "data: {\"response\":{\"id\":\"resp_1\"}\n\n",
        ] {
            assert_eq!(event(raw), None, "{raw}");
        }
    }
}
