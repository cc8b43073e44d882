//! What can be wrong with a request, and how is it said?

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use homing_domain::excerpt_to;
use homing_platform::BodyError;
use homing_telemetry::Outcome;
use thiserror::Error;

/// The most bytes of a message, whatever it repeats of a request.
const MAX_MESSAGE_BYTES: usize = 1024;
/// What can be asked.
const ROUTES: &str = "POST /v1/overlap and GET /v1/ranks, /v1/dump, /metrics, /health";

/// Why a request is not answered with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Problem {
    #[error("the body cannot be read as a question: {0}")]
    Malformed(String),
    #[error("{}", body_message(.0))]
    Body(BodyError),
    #[error("give either `tokens` or `keys`, not both")]
    TokensAndKeys,
    #[error("give `tokens` or `keys`")]
    NoTokensNorKeys,
    #[error("`{field}` is part of the keys already: leave it out, or give `tokens`")]
    InKeysAlready { field: &'static str },
    #[error("`media` must be ordered by start: {place} begins at token {start}, and the one before it at {before}")]
    MediaOutOfOrder { place: usize, start: u32, before: u32 },
    #[error("no worker serves the model {model:?}; known: {known}")]
    UnknownModel { model: String, known: String },
    #[error("there are several models, name one in `model`: {known}")]
    ModelNeeded { known: String },
    #[error("the model {model:?} has no index with blocks of {block_size} tokens; it has: {known}")]
    UnknownBlockSize {
        model: String,
        block_size: u64,
        known: String,
    },
    #[error("the model {model:?} has several block sizes, name one in `block_size`: {known}")]
    BlockSizeNeeded { model: String, known: String },
    #[error("no rank fits the parameters; /v1/ranks tells all of them")]
    NoSuchRank,
    #[error("the parameters after the question mark: {0}")]
    BadParameter(String),
    #[error("nothing is here; there are {ROUTES}")]
    NotFound,
    #[error("not with this method; there are {ROUTES}")]
    Method,
    #[error("{most} dumps are under way already; ask again later")]
    Busy { most: usize },
    #[error("the index is being closed")]
    Closing,
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::Body(error) => StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST),
            Self::UnknownModel { .. } | Self::UnknownBlockSize { .. } | Self::NoSuchRank | Self::NotFound => {
                StatusCode::NOT_FOUND
            }
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Closing | Self::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Body(BodyError::TooLarge(_)) => "too_large",
            Self::Body(BodyError::Timeout(_) | BodyError::TooSlow { .. }) => "too_slow",
            Self::Body(BodyError::Broken(_)) => "cut_off",
            Self::TokensAndKeys | Self::NoTokensNorKeys => "tokens_or_keys",
            Self::InKeysAlready { .. } => "in_keys_already",
            Self::MediaOutOfOrder { .. } => "media_out_of_order",
            Self::UnknownModel { .. } => "unknown_model",
            Self::ModelNeeded { .. } => "model_needed",
            Self::UnknownBlockSize { .. } => "unknown_block_size",
            Self::BlockSizeNeeded { .. } => "block_size_needed",
            Self::NoSuchRank => "no_such_rank",
            Self::BadParameter(_) => "bad_parameter",
            Self::NotFound => "not_found",
            Self::Method => "method_not_allowed",
            Self::Body(BodyError::Budget(_)) | Self::Busy { .. } => "busy",
            Self::Closing => "closing",
        }
    }

    /// How the metrics count it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Body(BodyError::TooLarge(_)) => Outcome::TooLarge,
            Self::Body(BodyError::Budget(_)) => Outcome::Failed,
            Self::UnknownModel { .. } | Self::UnknownBlockSize { .. } => Outcome::UnknownModel,
            Self::Closing => Outcome::Failed,
            _ => Outcome::Malformed,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let message = excerpt_to(&message, MAX_MESSAGE_BYTES);
        let error = serde_json::json!({ "error": { "code": self.code(), "message": message } });
        let mut response = json(self.status(), error.to_string());
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        response
    }
}

/// What is wrong with a body, with the setting that limits it.
fn body_message(error: &BodyError) -> String {
    match error {
        BodyError::TooLarge(limit) => {
            format!("the body is longer than {limit} bytes; the limit is the setting `index.max-request-bytes`")
        }
        BodyError::Broken(_) => "the body could not be read to its end".to_owned(),
        BodyError::Timeout(_) | BodyError::TooSlow { .. } | BodyError::Budget(_) => error.to_string(),
    }
}

/// A response with this JSON text.
pub(crate) fn json(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
