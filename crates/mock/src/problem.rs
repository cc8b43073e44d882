//! What does an engine say when it cannot do what is asked?

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use homing_config::MockDialect;
use homing_engine::SubmitError;
use homing_tokenize::PromptError;
use serde_json::{Value, json};

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    /// What was asked makes no sense.
    Bad {
        message: String,
        param: Option<&'static str>,
    },
    /// What was asked has not the form that it should have; where not.
    Form { message: String, place: String },
    /// The model is not there.
    NoModel(String),
    /// The model is not there, said without naming the field.
    NoSuch(String),
    /// The adapter cannot be had.
    Adapter(String),
    /// The response is not kept.
    NoResponse(String),
    /// Said in the words of the API of messages.
    InMessages(Box<Problem>),
    /// The body is too long.
    TooLong(u64),
    /// The engine cannot take more.
    Busy(String),
    /// KV that was to be handed over was not.
    Handover(String),
    /// A fault on purpose.
    Failed,
    /// The connection is cut.
    Cut,
}

impl Problem {
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            param: None,
        }
    }

    /// Something is wrong with a field.
    pub(crate) fn of(param: &'static str, message: impl Into<String>) -> Self {
        Self::Bad {
            message: message.into(),
            param: Some(param),
        }
    }

    /// As the engine of this dialect puts it.
    pub(crate) fn answer(self, dialect: MockDialect) -> Response {
        let no_model = |name: &str| format!("The model `{name}` does not exist.");
        let (status, kind, message, param) = match self {
            Self::Bad { message, param } => (StatusCode::BAD_REQUEST, "BadRequestError", message, param),
            Self::Form { message, place } => {
                let error = json!({"message": message, "type": "Bad Request", "param": place, "code": 400});
                return said(StatusCode::BAD_REQUEST, error, dialect);
            }
            Self::NoModel(name) => (StatusCode::NOT_FOUND, "NotFoundError", no_model(&name), Some("model")),
            Self::NoSuch(message) => (StatusCode::NOT_FOUND, "NotFoundError", message, None),
            Self::Adapter(message) => (StatusCode::BAD_REQUEST, "InvalidUserInput", message, None),
            Self::NoResponse(id) => {
                let message = format!("Response with id '{id}' not found.");
                (
                    StatusCode::NOT_FOUND,
                    "invalid_request_error",
                    message,
                    Some("response_id"),
                )
            }
            Self::InMessages(problem) => return problem.in_messages(dialect),
            Self::TooLong(limit) => {
                let message = format!("The request is longer than {limit} bytes.");
                (StatusCode::PAYLOAD_TOO_LARGE, "BadRequestError", message, None)
            }
            Self::Busy(message) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailableError",
                message,
                None,
            ),
            Self::Handover(message) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message, None),
            Self::Failed => {
                let message = "Internal Server Error".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message, None)
            }
            Self::Cut => return cut(),
        };
        let error = json!({"message": message, "type": kind, "param": param, "code": status.as_u16()});
        said(status, error, dialect)
    }

    fn in_messages(self, dialect: MockDialect) -> Response {
        let (status, kind, message) = match self {
            Self::Bad { message, .. } => (StatusCode::BAD_REQUEST, "BadRequestError", message),
            Self::NoModel(name) => {
                let message = format!("The model `{name}` does not exist.");
                (StatusCode::NOT_FOUND, "NotFoundError", message)
            }
            other => return other.answer(dialect),
        };
        json_answer(
            status,
            &json!({"type": "error", "error": {"type": kind, "message": message}}),
        )
    }
}

fn said(status: StatusCode, mut error: Value, dialect: MockDialect) -> Response {
    let body = match dialect {
        MockDialect::Vllm => json!({ "error": error }),
        MockDialect::Sglang => {
            error["object"] = json!("error");
            error
        }
    };
    json_answer(status, &body)
}

impl From<PromptError> for Problem {
    fn from(error: PromptError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::QueueFull(_) => Self::Busy(error.to_string()),
            SubmitError::UnknownAdapter(name) => Self::NoModel(name.to_string()),
            SubmitError::UnknownRank(rank) => Self::bad(format!("data_parallel_rank {} is out of range", rank.0)),
            SubmitError::EmptyPrompt | SubmitError::PromptTooLong { .. } | SubmitError::Repeated(_) => {
                Self::bad(error.to_string())
            }
        }
    }
}

/// An answer in JSON.
pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// An answer that breaks off at once, as that of a process that dies.
fn cut() -> Response {
    let broken = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut on purpose")) });
    Response::new(Body::from_stream(broken))
}
