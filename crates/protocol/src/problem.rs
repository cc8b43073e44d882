//! How is an error said in the protocol's own words?
//!
//! Words for statuses are those of vLLM in OpenAI's form, and Anthropic's in its own, so that the official clients raise the
//! exceptions that their users expect.
//!
//! **Invariant:** what is said is valid JSON on one line, whatever the message is.
//!
//! **Invariant:** a message does not grow with what was sent: [`MAX_MESSAGE_BYTES`] of it are said, in which quoted input is cut earlier
//! ([`excerpt`](homing_domain::excerpt())).

use std::borrow::Cow;

use bytes::Bytes;
use homing_domain::excerpt_to;
use serde_json::{Value, json};

use crate::ask::BadBody;
use crate::endpoint::{Endpoint, Family, NotServed};
use crate::hints::BadHint;
use crate::sse::event;

/// The most bytes of a message. What a part of it repeats is cut before, so few are this long.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of HTTP.
    pub status: u16,
    /// What happened, for people.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// A word for programs, where OpenAI's form has room for one; else the status stands there, as in vLLM.
    pub code: Option<&'static str>,
}

impl Problem {
    /// A problem with a status and a message.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        let message = match excerpt_to(&message, MAX_MESSAGE_BYTES) {
            Cow::Owned(cut) => cut,
            Cow::Borrowed(_) => message,
        };
        Self {
            status,
            message,
            param: None,
            code: None,
        }
    }

    /// With the field that is wrong.
    #[must_use]
    pub fn of(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// With a word for programs.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The body that says it.
    pub fn body(&self, family: Family, request_id: &str) -> Bytes {
        let said = match family {
            Family::OpenAi => json!({ "error": self.open_ai() }),
            Family::Anthropic => self.anthropic(request_id),
        };
        said.to_string().into()
    }

    /// The event that says it in the middle of a stream, and what ends the stream after it.
    pub fn event(&self, endpoint: Endpoint, request_id: &str) -> Bytes {
        match endpoint {
            Endpoint::Messages => event(Some(b"error"), self.anthropic(request_id).to_string().as_bytes()),
            Endpoint::Responses => {
                let error = self.open_ai();
                // Clients look for the fields at the top, or for an error as in the other streams.
                let said = json!({
                    "type": "error", "code": error["code"].to_string().trim_matches('"'), "message": error["message"],
                    "param": error["param"], "sequence_number": 0, "error": error,
                });
                event(Some(b"error"), said.to_string().as_bytes())
            }
            _ => {
                let said = event(None, json!({ "error": self.open_ai() }).to_string().as_bytes());
                [said.as_ref(), b"data: [DONE]\n\n"].concat().into()
            }
        }
    }

    fn open_ai(&self) -> Value {
        let code = self.code.map_or_else(|| json!(self.status), |code| json!(code));
        json!({"message": self.message, "type": open_ai_kind(self.status), "param": self.param, "code": code})
    }

    fn anthropic(&self, request_id: &str) -> Value {
        let error = json!({"type": anthropic_kind(self.status), "message": self.message});
        json!({"type": "error", "error": error, "request_id": request_id})
    }
}

/// vLLM's word for a status.
const fn open_ai_kind(status: u16) -> &'static str {
    match status {
        401 => "AuthenticationError",
        403 => "PermissionDeniedError",
        404 => "NotFoundError",
        405 => "MethodNotAllowedError",
        408 => "RequestTimeoutError",
        413 => "RequestTooLargeError",
        429 => "RateLimitError",
        499 => "ClientClosedRequestError",
        502 => "BadGatewayError",
        503 => "ServiceUnavailableError",
        504 => "GatewayTimeoutError",
        505 => "HttpVersionNotSupportedError",
        500..=599 => "InternalServerError",
        _ => "BadRequestError",
    }
}

/// Anthropic's word for a status.
const fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 | 405 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        499..=599 => "api_error",
        _ => "invalid_request_error",
    }
}

impl From<&BadBody> for Problem {
    fn from(bad: &BadBody) -> Self {
        let problem = Self::new(bad.status(), bad.to_string());
        match bad.param() {
            Some(param) => problem.of(param),
            None => problem,
        }
    }
}

impl From<&BadHint> for Problem {
    fn from(bad: &BadHint) -> Self {
        Self::new(400, bad.to_string()).of(bad.hint.clone())
    }
}

impl From<&NotServed> for Problem {
    fn from(not: &NotServed) -> Self {
        Self::new(not.status(), not.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heard::{Attention, Ear};
    use crate::sse::{Event, Splitter};

    #[test]
    fn errors_have_the_form_of_their_protocol() {
        let problem = Problem::new(503, "no \"worker\"\nis ready").of("model");
        let body: Value = serde_json::from_slice(&problem.body(Family::OpenAi, "r")).unwrap();
        let error = json!({"message": "no \"worker\"\nis ready", "type": "ServiceUnavailableError", "param": "model", "code": 503});
        assert_eq!(body, json!({ "error": error }));
        let body: Value = serde_json::from_slice(&problem.body(Family::Anthropic, "r")).unwrap();
        let error = json!({"type": "overloaded_error", "message": "no \"worker\"\nis ready"});
        assert_eq!(body, json!({"type": "error", "error": error, "request_id": "r"}));
        let coded = Problem::new(429, "slow down").code("tenant_limit");
        let body: Value = serde_json::from_slice(&coded.body(Family::OpenAi, "")).unwrap();
        assert_eq!(
            (&body["error"]["code"], &body["error"]["type"]),
            (&json!("tenant_limit"), &json!("RateLimitError"))
        );
    }

    #[test]
    fn every_status_has_a_word_of_its_kind() {
        for (status, open_ai, anthropic) in [
            (400, "BadRequestError", "invalid_request_error"),
            (404, "NotFoundError", "not_found_error"),
            (408, "RequestTimeoutError", "timeout_error"),
            (413, "RequestTooLargeError", "request_too_large"),
            (429, "RateLimitError", "rate_limit_error"),
            (499, "ClientClosedRequestError", "api_error"),
            (500, "InternalServerError", "api_error"),
            (502, "BadGatewayError", "api_error"),
            (503, "ServiceUnavailableError", "overloaded_error"),
            (504, "GatewayTimeoutError", "timeout_error"),
        ] {
            assert_eq!((open_ai_kind(status), anthropic_kind(status)), (open_ai, anthropic));
        }
    }

    #[test]
    fn an_error_in_a_stream_is_heard_as_one() {
        let problem = Problem::new(502, "the worker is gone");
        for endpoint in [
            Endpoint::ChatCompletions,
            Endpoint::Completions,
            Endpoint::Messages,
            Endpoint::Responses,
        ] {
            let mut splitter = Splitter::new(1_000);
            splitter.push(problem.event(endpoint, "r"));
            let first = splitter.next_event().unwrap().unwrap();
            let heard = Ear::new(endpoint, Attention::Facts).event(&first);
            assert_eq!(heard.error.unwrap().message, "the worker is gone", "{endpoint:?}");
            let last: Option<Event> = splitter.next_event().unwrap();
            assert_eq!(
                last.is_some_and(|event| event.is_done()),
                endpoint != Endpoint::Messages && endpoint != Endpoint::Responses
            );
            assert!(splitter.rest().is_empty());
        }
    }

    #[test]
    fn a_message_does_not_grow_with_what_it_repeats() {
        let long = Problem::new(404, "x".repeat(1 << 20));
        assert!(long.message.len() < MAX_MESSAGE_BYTES + 20, "{}", long.message.len());
        assert!(long.message.ends_with("... (1048576 bytes)"), "{}", long.message);
        assert_eq!(Problem::new(404, "short").message, "short");
    }
}
