//! Which connections go on while they are to be refused? Those to the admin endpoint, so that it can be undone.

use std::sync::Arc;

use homing_transport::http::Gate;

use crate::core::Core;

/// What the paths begin with that are answered while everything else is refused.
const ADMIN: &[u8] = b"/mock/";
/// What requests begin with.
const METHODS: [&str; 7] = ["GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "PATCH "];

/// Ends connections while the fault says so.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) core: Arc<Core>,
    /// Whether the last request that began was to the admin endpoint.
    pub(crate) is_admin: bool,
}

impl Gate for Refusal {
    fn admits(&mut self, bytes: &[u8]) -> bool {
        self.is_admin = is_admin(bytes).unwrap_or(self.is_admin);
        self.is_admin || !self.core.faults.now().refuse
    }
}

/// Whether these bytes begin a request to the admin endpoint; `None` if they begin no request but go on with one.
fn is_admin(bytes: &[u8]) -> Option<bool> {
    let method = METHODS.iter().find(|method| bytes.starts_with(method.as_bytes()))?;
    Some(bytes[method.len()..].starts_with(ADMIN))
}

#[cfg(test)]
mod tests {
    use super::is_admin;

    #[test]
    fn a_request_to_the_admin_endpoint_is_known_by_its_first_bytes() {
        assert_eq!(is_admin(b"POST /v1/completions HTTP/1.1\r\nhost: x"), Some(false));
        assert_eq!(is_admin(b"POST /mock/faults HTTP/1"), Some(true));
        assert_eq!(is_admin(b".1\r\nreferer: GET /mock/"), None);
        assert_eq!(is_admin(b"GET "), Some(false));
    }
}
