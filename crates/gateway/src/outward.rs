//! What is a worker told of who asks?
//!
//! A client's API key is for us. Where keys are asked for, or workers have one of their own, it is not passed on.

use homing_config::SecretText;
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use crate::keyring::{Key, X_API_KEY};

/// How workers are asked.
#[derive(Debug, Default)]
pub(crate) struct Outward {
    /// What is sent to them as `Authorization`.
    key: Option<HeaderValue>,
}

/// Whether the key of a client was for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientKey {
    /// It was, or could have been.
    Ours,
    /// Nobody asked for it here.
    Theirs,
}

impl ClientKey {
    pub(crate) fn of(key: Option<&Key>) -> Self {
        if key.is_some() { Self::Ours } else { Self::Theirs }
    }
}

impl Outward {
    pub(crate) fn new(key: Option<&SecretText>) -> Self {
        let value = key.and_then(|key| HeaderValue::from_str(&format!("Bearer {}", key.reveal())).ok());
        let key = value.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self { key }
    }

    /// Takes out of a client's headers what is not for workers, and puts in what is. Headers that belong to the connection go first,
    /// so that none that was put in can be named among them.
    pub(crate) fn prepare(&self, headers: &mut HeaderMap, key: ClientKey) {
        for name in of_the_connection(headers) {
            headers.remove(name);
        }
        if key == ClientKey::Ours || self.key.is_some() {
            headers.remove(header::AUTHORIZATION);
            headers.remove(X_API_KEY);
        }
        if let Some(key) = &self.key {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
    }
}

/// The headers that a `Connection` header names, and itself.
fn of_the_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    if !headers.contains_key(header::CONNECTION) {
        return Vec::new();
    }
    let lists = headers.get_all(header::CONNECTION).iter();
    let words = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    // What is no name names nothing.
    let named = words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok());
    named.chain([header::CONNECTION]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        pairs.collect()
    }

    #[test]
    fn a_clients_key_stays_here_and_ours_goes_out() {
        let asked = [
            ("authorization", "Bearer theirs"),
            ("x-api-key", "theirs"),
            ("x-a", "1"),
        ];
        let ours = SecretText::new("engine-key-of-the-fleet").unwrap();
        for (outward, key, expected) in [
            (Outward::default(), ClientKey::Theirs, &asked[..]),
            (Outward::default(), ClientKey::Ours, &[("x-a", "1")]),
            (
                Outward::new(Some(&ours)),
                ClientKey::Theirs,
                &[("authorization", "Bearer engine-key-of-the-fleet"), ("x-a", "1")],
            ),
        ] {
            let mut headers = map(&asked);
            outward.prepare(&mut headers, key);
            assert_eq!(headers, map(expected));
        }
        assert!(!format!("{:?}", Outward::new(Some(&ours))).contains("engine-key"));
    }

    #[test]
    fn nobody_can_have_the_key_taken_out_again() {
        let ours = SecretText::new("engine-key-of-the-fleet").unwrap();
        let mut headers = map(&[
            ("connection", "close, authorization"),
            ("connection", "X-Private,, \u{e9}"),
            ("x-private", "1"),
            ("x-a", "1"),
        ]);
        Outward::new(Some(&ours)).prepare(&mut headers, ClientKey::Ours);
        assert_eq!(
            headers,
            map(&[("x-a", "1"), ("authorization", "Bearer engine-key-of-the-fleet")])
        );
    }
}
