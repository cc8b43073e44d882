//! What can bytes from the network do to us? Checks that the fuzz target and a property test share.
//!
//! They panic where an invariant does not hold.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::answer_filter::AnswerFilter;
use crate::ask::Ask;
use crate::edit::{Passed, Plan, Wanted};
use crate::endpoint::Endpoint;
use crate::engine_fields::{self, Removal};
use crate::form;
use crate::heard::{Attention, Ear};
use crate::hints::Hints;
use crate::json::{Fields, Limits};
use crate::migrate::{Elsewhere, SoFar};
use crate::splice::Splice;
use crate::sse::{Event, Splitter};

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Messages,
    Endpoint::Responses,
    Endpoint::Embeddings,
    Endpoint::Tokenize,
];

/// Takes bytes as a body. The first one says of which endpoint, the second one what is changed.
pub fn body(bytes: &[u8]) {
    let &[endpoint, change, ref body @ ..] = bytes else {
        return;
    };
    let endpoint = ENDPOINTS[usize::from(endpoint) % ENDPOINTS.len()];
    let body = Bytes::copy_from_slice(body);
    let Ok(ask) = Ask::read(endpoint, &body, Limits::default()) else {
        return;
    };
    // What we take for JSON, others do too, but for numbers that are too large and halves of surrogate pairs.
    let Ok(parsed) = serde_json::from_slice::<Map<String, Value>>(&body) else {
        return;
    };
    let _ = Hints::read(std::iter::empty(), Some((&ask, &body)));
    let mut expected = parsed;
    let mut splice = Splice::new(&body, &ask.fields);
    if change & 1 != 0 {
        splice.set("model", "\"other\"");
        expected.insert("model".to_owned(), "other".into());
    }
    if change & 2 != 0 {
        splice.remove("homing");
        expected.remove("homing");
    }
    if change & 4 != 0 {
        splice.set_in("stream_options", "include_usage", "true");
        let options = expected.entry("stream_options").or_insert(Value::Null);
        if !options.is_object() {
            *options = Value::Object(Map::new());
        }
        options["include_usage"] = true.into();
    }
    let spliced: Map<String, Value> = serde_json::from_slice(&splice.finish()).expect("what was spliced is JSON");
    assert_eq!(spliced, expected, "splicing means what editing means");
    let sent = Plan::new(&ask, Wanted::UsageAndTokens).body(&ask, &body);
    serde_json::from_slice::<Value>(&sent).expect("what is sent is JSON");
    let left = engine_fields::remove(&body, &ask.fields, Removal::All);
    let fields = Fields::read(&left, Limits::default()).expect("what is left is an object");
    assert_eq!(engine_fields::find(&left, &fields), [], "engine fields are removed");
}

/// Takes bytes as a stream. The first one says of which endpoint, the second one how long its pieces are.
pub fn stream(bytes: &[u8]) {
    let &[endpoint, length, ref stream @ ..] = bytes else {
        return;
    };
    let endpoint = ENDPOINTS[usize::from(endpoint) % ENDPOINTS.len()];
    let whole = split(stream, stream.len().max(1));
    let pieces = split(stream, usize::from(length).max(1));
    assert_eq!(told(&whole), told(&pieces), "pieces do not matter");
    let asked =
        Bytes::from_static(br#"{"prompt":"a","messages":[{"role":"user","content":"a"}],"stream":true,"stop":["ab"]}"#);
    let ask = Ask::read(endpoint, &asked, Limits::default()).expect("it is right");
    let (mut ear, editor) = (
        Ear::new(endpoint, Attention::Words),
        Plan::new(&ask, Wanted::UsageAndTokens).editor(),
    );
    let mut so_far = SoFar::new(&ask, &asked, 1 << 16);
    let mut resumed = None;
    for (place, event) in whole.iter().enumerate() {
        so_far.hear(&ear.event(event));
        if let Passed::Replace(bytes) = editor.event(event) {
            assert!(bytes.ends_with(b"\n") || bytes.ends_with(b"\r"), "an event stays one");
        }
        if place == whole.len() / 2 {
            resumed = so_far.resume(&Elsewhere::default()).ok();
        } else if let Some(resumed) = &mut resumed {
            let _ = resumed.seam.event(event);
        }
    }
    let _ = ear.whole(stream);
    let stream = Bytes::copy_from_slice(stream);
    check_filter(&stream, usize::from(length).max(1));
    check_form(&stream);
}

/// Pieces of an answer pass as the whole does.
fn check_filter(answer: &Bytes, length: usize) {
    let mut filter = AnswerFilter::default();
    let mut passed = Vec::new();
    for piece in answer.chunks(length) {
        passed.extend_from_slice(&filter.piece(Bytes::copy_from_slice(piece)));
    }
    passed.extend_from_slice(&filter.rest());
    assert_eq!(passed, AnswerFilter::whole(answer), "pieces do not matter");
}

/// A form has no fields of engines once they were removed.
fn check_form(body: &Bytes) {
    const KIND: Option<&[u8]> = Some(b"multipart/form-data; boundary=x");
    if let Ok(parts) = form::find(KIND, body) {
        assert_eq!(
            form::find(KIND, &form::remove(body, &parts)),
            Ok(Vec::new()),
            "parts are removed"
        );
    }
}

/// All events of a stream in pieces of this length.
fn split(stream: &[u8], length: usize) -> Vec<Event> {
    let mut splitter = Splitter::new(stream.len());
    let (mut all, mut raw) = (Vec::new(), Vec::new());
    for piece in stream.chunks(length) {
        splitter.push(Bytes::copy_from_slice(piece));
        while let Some(event) = splitter.next_event().expect("as long as it may be") {
            raw.extend_from_slice(event.raw());
            all.push(event);
        }
    }
    raw.extend_from_slice(&splitter.rest());
    assert_eq!(raw, stream, "nothing is lost");
    all
}

/// A name and data.
type Told<'a> = (Option<&'a [u8]>, Cow<'a, [u8]>);

/// Names and data of events that have some.
fn told(events: &[Event]) -> Vec<Told<'_>> {
    events
        .iter()
        .filter_map(|event| Some((event.name(), event.data()?)))
        .collect()
}
