//! How is an error said in the protocol's own words?
use bytes::Bytes;

use crate::endpoint::{Endpoint, Family};

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of HTTP.
    pub status: u16,
    /// What happened, for people.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// A word for programs, where the protocol has room for one.
    pub code: Option<&'static str>,
}

impl Problem {
    /// A problem with a status and a message.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }
    /// The body that says it.
    pub fn body(&self, _family: Family, _request_id: &str) -> Bytes {
        Bytes::new()
    }
    /// The event that says it in the middle of a stream, and what ends the stream after it.
    pub fn event(&self, _endpoint: Endpoint, _request_id: &str) -> Bytes {
        Bytes::new()
    }
}
