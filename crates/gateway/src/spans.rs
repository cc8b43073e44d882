//! What did this request do, and when? Its record as spans: the request, its way to a decision, each try, and of the try that was answered
//! the time to the first token and the rest.
//!
//! A try after another is linked to it: as a retry if nothing of an answer had been passed on, as the going on of the same answer else.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use homing_telemetry::RequestEnd;
use homing_telemetry::trace::{Attribute, Context, Sampled, Span, SpanKind};

use crate::record::{Record, Told, Try};

/// Which trace a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    /// The trace, and the request's own span.
    pub(crate) own: Context,
    /// The client's span, if it told of one.
    pub(crate) parent: Option<u64>,
}

impl Traced {
    /// Follows what the client said; without a word from it, one of so many traces is told.
    pub(crate) fn begin(header: Option<&str>, share: f64) -> Self {
        let span = fresh();
        match header.and_then(Context::parse) {
            Some(client) => Self {
                own: Context { span, ..client },
                parent: Some(client.span),
            },
            None => Self {
                own: Context {
                    trace: fastrand::u128(1..),
                    span,
                    sampled: if fastrand::f64() < share {
                        Sampled::Yes
                    } else {
                        Sampled::No
                    },
                },
                parent: None,
            },
        }
    }
}

/// A number for a span.
pub(crate) fn fresh() -> u64 {
    fastrand::u64(1..)
}

/// All spans of a request that ended.
pub(crate) fn of(record: &Record, end: RequestEnd) -> Vec<Span> {
    let Some(traced) = record.trace.filter(|traced| traced.own.sampled == Sampled::Yes) else {
        return Vec::new();
    };
    let told = record.told().clone();
    let clock = Wall::now();
    let now = clock.at(clock.instant);
    let began = clock.at(record.began);
    let mut spans = vec![request(record, &told, traced, (began, now), end)];
    let routed = told
        .tries
        .first()
        .map_or(now, |first| clock.at(first.asked) + first.took_ns);
    let part = |name, time: std::time::Duration| (name, Attribute::Number(time.as_secs_f64() * 1e3));
    spans.push(Span {
        attributes: vec![
            part("homing.tokenize_ms", record.parts.tokenize),
            part("homing.keys_ms", record.parts.keys),
            ("homing.tokens_from", Attribute::Text(record.tokens_from.to_owned())),
        ],
        ..child(traced, traced.own.span, "route", (began, routed))
    });
    for (place, this) in told.tries.iter().enumerate() {
        let next = told.tries.get(place + 1).map(|next| clock.at(next.asked));
        let ended = this.ended.map(|ended| clock.at(ended)).or(next).unwrap_or(now);
        let before = place.checked_sub(1).and_then(|before| told.tries.get(before));
        tried(traced, this, (place, before), (&clock, ended), &mut spans);
    }
    spans
}

fn request(record: &Record, told: &Told, traced: Traced, (start, end): (u64, u64), how: RequestEnd) -> Span {
    let count = |count: u64| Attribute::Count(i64::try_from(count).unwrap_or(i64::MAX));
    let mut attributes = vec![
        ("homing.request_id", Attribute::Text(record.id.as_str().to_owned())),
        ("gen_ai.request.model", Attribute::Text(record.model.to_string())),
        ("homing.endpoint", Attribute::Text(record.endpoint.to_owned())),
        ("homing.prompt_tokens", count(record.prompt_tokens.into())),
        ("homing.output_tokens", count(told.output_tokens)),
        ("homing.tries", count(told.tries.len() as u64)),
        ("homing.end", Attribute::Text(told.end.unwrap_or("running").to_owned())),
    ];
    if let Some(cached) = told.cached {
        attributes.push(("homing.cached_tokens", count(cached)));
    }
    if let Some(status) = told.status {
        attributes.push(("http.response.status_code", count(status.into())));
    }
    let failed = match how {
        RequestEnd::Served | RequestEnd::Cancelled => None,
        RequestEnd::Wrong | RequestEnd::Refused | RequestEnd::Failed => {
            let last = told.tries.last().and_then(|last| last.failed.clone());
            Some(last.unwrap_or_else(|| told.end.unwrap_or("failed").to_owned()))
        }
    };
    Span {
        trace: traced.own.trace,
        id: traced.own.span,
        parent: traced.parent,
        name: format!("request {}", record.endpoint),
        kind: SpanKind::Server,
        start,
        end,
        attributes,
        links: Vec::new(),
        failed,
    }
}

/// A try, with its parts if it was answered.
fn tried(
    traced: Traced,
    this: &Try,
    (place, before): (usize, Option<&Try>),
    (clock, ended): (&Wall, u64),
    spans: &mut Vec<Span>,
) {
    let sent = clock.at(this.sent);
    let ended = ended.max(sent);
    let links = before.map(|before| {
        let how = if before.answered.is_some() {
            "goes on from"
        } else {
            "retries"
        };
        (before.span, how)
    });
    spans.push(Span {
        id: this.span,
        kind: SpanKind::Client,
        attributes: vec![
            ("server.address", Attribute::Text(this.worker.to_string())),
            ("homing.rank", Attribute::Count(this.decision.chosen.rank.dp.0.into())),
            (
                "homing.try",
                Attribute::Count(i64::try_from(place).unwrap_or(i64::MAX) + 1),
            ),
            (
                "homing.predicted_cached_tokens",
                Attribute::Count(this.predicted_cached.into()),
            ),
            ("homing.waited_ms", Attribute::Number(this.waited_ms)),
        ],
        links: links.into_iter().collect(),
        failed: this.failed.clone(),
        ..child(traced, traced.own.span, "try", (sent, ended))
    });
    match this.answered {
        None => {}
        Some((_, Form::Whole)) => spans.push(child(traced, this.span, "answer", (sent, ended))),
        Some((at, Form::Streamed)) => {
            let first = clock.at(at).clamp(sent, ended);
            spans.push(child(traced, this.span, "prefill", (sent, first)));
            spans.push(child(traced, this.span, "decode", (first, ended)));
        }
    }
}

fn child(traced: Traced, parent: u64, name: &str, (start, end): (u64, u64)) -> Span {
    Span {
        trace: traced.own.trace,
        id: fresh(),
        parent: Some(parent),
        name: name.to_owned(),
        kind: SpanKind::Internal,
        start,
        end: end.max(start),
        attributes: Vec::new(),
        links: Vec::new(),
        failed: None,
    }
}

/// How an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In one piece: when its first token was made cannot be told.
    Whole,
    /// In pieces, from this moment on.
    Streamed,
}

/// What the wall says at a moment.
struct Wall {
    instant: Instant,
    nanos: u64,
}

impl Wall {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            instant: Instant::now(),
            nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// A moment that is not later, in nanoseconds of Unix time.
    fn at(&self, moment: Instant) -> u64 {
        let ago = self.instant.saturating_duration_since(moment).as_nanos();
        self.nanos.saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_tells_of_a_trace_is_followed() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = Traced::begin(Some(header), 0.0);
        assert_eq!(traced.parent, Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!(traced.own.sampled, Sampled::Yes);
        assert_ne!(traced.own.span, 0x00f0_67aa_0ba9_02b7);
        let unwanted = Traced::begin(Some(&header.replace("-01", "-00")), 1.0);
        assert_eq!(unwanted.own.sampled, Sampled::No);
    }

    #[test]
    fn without_a_word_the_share_decides() {
        assert_eq!(Traced::begin(None, 1.0).own.sampled, Sampled::Yes);
        let none = Traced::begin(Some("nonsense"), 0.0);
        assert_eq!((none.own.sampled, none.parent), (Sampled::No, None));
    }
}
