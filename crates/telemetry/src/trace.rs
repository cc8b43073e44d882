//! What is a span, whose child is it, and how is it told to a collector?
//!
//! The context of a trace comes and goes in the header `traceparent` of W3C Trace Context. Spans are told in the JSON form of OTLP, the
//! protocol of OpenTelemetry, which collectors take over HTTP: it is text that `serde_json` writes, and needs no protobuf.
//!
//! **Invariant:** what a client sends as `traceparent` is believed only if it is well formed; else a trace of our own begins.

use serde_json::{Value, json};

/// The header that carries a context.
pub const TRACEPARENT: &str = "traceparent";

/// Which trace something belongs to, below which span, and whether anybody wants to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: u128,
    /// The span that is the parent of what comes next.
    pub span: u64,
    /// Whether it is told.
    pub sampled: Sampled,
}

/// Whether a trace is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// It is.
    Yes,
    /// It is not, and those whom we ask are to know.
    No,
}

impl Context {
    /// Reads the header. `None` if it is not well formed, or of no trace.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, length: usize| {
            let well = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            text.len() == length && text.bytes().all(well)
        };
        let is_known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
        if !is_known || !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let sampled = if flags & 1 == 1 { Sampled::Yes } else { Sampled::No };
        Some(Self { trace, span, sampled })
    }

    /// Writes the header.
    pub fn header(&self) -> String {
        let flags = match self.sampled {
            Sampled::Yes => "01",
            Sampled::No => "00",
        };
        format!("00-{:032x}-{:016x}-{flags}", self.trace, self.span)
    }
}

/// Who does what a span tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// We do, for ourselves.
    Internal,
    /// We do, for a client.
    Server,
    /// Somebody whom we ask.
    Client,
}

/// What is told with a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A whole number.
    Count(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace: u128,
    /// Its own number.
    pub id: u64,
    /// The span that it is part of.
    pub parent: Option<u64>,
    /// What it is.
    pub name: String,
    /// Who does it.
    pub kind: SpanKind,
    /// When it began, in nanoseconds of Unix time.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What else is known.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Spans that it follows from, with a word how.
    pub links: Vec<(u64, &'static str)>,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

/// The body of a request to a collector, as OTLP writes it in JSON.
pub fn otlp(service: &str, version: &str, spans: &[Span]) -> Value {
    let resource = [
        ("service.name", Attribute::Text(service.to_owned())),
        ("service.version", Attribute::Text(version.to_owned())),
    ];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeSpans": [{ "scope": { "name": "homing", "version": version }, "spans": spans }],
        }],
    })
}

fn span(span: &Span) -> Value {
    let trace = format!("{:032x}", span.trace);
    let links: Vec<Value> = span
        .links
        .iter()
        .map(|(other, how)| {
            let how = [("homing.link", Attribute::Text((*how).to_owned()))];
            json!({ "traceId": trace, "spanId": format!("{other:016x}"), "attributes": attributes(&how) })
        })
        .collect();
    let mut told = json!({
        "traceId": trace,
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        // 64-bit numbers are texts in the JSON form of protobuf.
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": attributes(&span.attributes),
        "links": links,
        "status": match &span.failed {
            None => json!({}),
            Some(why) => json!({ "code": 2, "message": why }),
        },
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    told
}

fn attributes(all: &[(&'static str, Attribute)]) -> Vec<Value> {
    let one = |(key, value): &(&'static str, Attribute)| {
        let value = match value {
            Attribute::Text(text) => json!({ "stringValue": text }),
            Attribute::Count(count) => json!({ "intValue": count.to_string() }),
            Attribute::Number(number) => json!({ "doubleValue": number }),
            Attribute::Flag(flag) => json!({ "boolValue": flag }),
        };
        json!({ "key": key, "value": value })
    };
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = Context::parse(text).unwrap();
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(context.sampled, Sampled::Yes);
        assert_eq!(context.header(), text);
        let later = Context::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-more").unwrap();
        assert_eq!(later.sampled, Sampled::No);
    }

    #[test]
    fn what_is_not_well_formed_is_not_believed() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473+-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_context_comes_back(trace in 1..=u128::MAX, span in 1..=u64::MAX, sampled in any::<bool>()) {
            let sampled = if sampled { Sampled::Yes } else { Sampled::No };
            let context = Context { trace, span, sampled };
            prop_assert_eq!(Context::parse(&context.header()), Some(context));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC*") {
            let _ = Context::parse(&text);
        }
    }

    #[test]
    fn a_span_is_told_as_otlp_has_it() {
        let spans = [Span {
            trace: 1,
            id: 2,
            parent: Some(3),
            name: "try".to_owned(),
            kind: SpanKind::Client,
            start: 10,
            end: 20,
            attributes: vec![("homing.try", Attribute::Count(2))],
            links: vec![(4, "retries")],
            failed: Some("gone".to_owned()),
        }];
        let told = otlp("homing", "1", &spans);
        let span = &told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "00000000000000000000000000000001");
        assert_eq!(span["parentSpanId"], "0000000000000003");
        assert_eq!(span["endTimeUnixNano"], "20");
        assert_eq!(span["kind"], 3);
        assert_eq!(span["attributes"][0]["value"]["intValue"], "2");
        assert_eq!(span["links"][0]["spanId"], "0000000000000004");
        assert_eq!(span["status"], json!({"code": 2, "message": "gone"}));
        let resource = &told["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(resource["value"]["stringValue"], "homing");
    }
}
