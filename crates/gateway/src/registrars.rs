//! The tokens with which workers register themselves, and how often each may be used.
//!
//! **Invariant:** a token is not kept and not logged: it is found by its digest, and called by its name.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use homing_config::keys::{Digest, Quota, digest};
use homing_config::register_tokens::{COMMON, RegisterToken};
use homing_discovery::Registrar;

use crate::allowance::Allowance;
use homing_platform::door::client_of;

/// Pairs of token and address whose use is counted. Before there are more, all counts begin anew.
const MAX_COUNTED: usize = 4096;

/// Tokens by their digests.
type ByDigest = HashMap<Digest, Arc<RegisterToken>>;

/// The tokens of the file, and what was used lately.
#[derive(Debug)]
pub(crate) struct Registrars {
    tokens: ArcSwap<ByDigest>,
    /// That of `serve.register-token`.
    common: Arc<RegisterToken>,
    /// Held for a look at one entry.
    used: Mutex<HashMap<(String, IpAddr), Arc<Allowance>>>,
    per_minute: u64,
}

impl Registrars {
    /// Each token may be used so often per minute from each address.
    pub(crate) fn new(per_minute: u64) -> Self {
        Self {
            tokens: ArcSwap::default(),
            common: Arc::new(RegisterToken::unrestricted(COMMON, [0; 32])),
            used: Mutex::default(),
            per_minute,
        }
    }

    /// These tokens and no others, from now on.
    pub(crate) fn set(&self, tokens: &[RegisterToken]) {
        let by_digest = tokens.iter().map(|token| (token.digest, Arc::new(token.clone())));
        self.tokens.store(Arc::new(by_digest.collect()));
    }

    /// Whether the file has a token.
    pub(crate) fn has_any(&self) -> bool {
        !self.tokens.load().is_empty()
    }

    /// The token of the file that this is.
    pub(crate) fn find(&self, secret: &[u8]) -> Option<Arc<RegisterToken>> {
        self.tokens.load().get(&digest(secret)).cloned()
    }

    /// What `serve.register-token` allows.
    pub(crate) fn common(&self) -> Arc<RegisterToken> {
        self.common.clone()
    }

    /// Counts a use, or says when the next one is possible.
    pub(crate) fn count_use(&self, registrar: &Registrar, now: Instant) -> Result<(), Duration> {
        let key = (registrar.token.name.clone(), client_of(registrar.peer));
        let allowance = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if used.len() >= MAX_COUNTED && !used.contains_key(&key) {
                used.clear();
            }
            let quota = Quota {
                requests: Some(self.per_minute),
                tokens: None,
            };
            let fresh = || Arc::new(Allowance::new(quota, now));
            used.entry(key).or_insert_with(fresh).clone()
        };
        allowance.request(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_discovery::RegistrarKind;

    fn registrar(token: &str, peer: &str) -> Registrar {
        Registrar {
            token: Arc::new(RegisterToken::unrestricted(token, [0; 32])),
            kind: RegistrarKind::Worker,
            peer: peer.parse().unwrap(),
        }
    }

    #[test]
    fn uses_are_counted_for_each_token_and_address() {
        let (registrars, now) = (Registrars::new(2), Instant::now());
        let count = |token: &str, peer: &str| registrars.count_use(&registrar(token, peer), now);
        assert_eq!([count("a", "10.0.0.1"), count("a", "10.0.0.1")], [Ok(()), Ok(())]);
        assert_eq!(count("a", "::ffff:10.0.0.1"), Err(Duration::from_secs(30)));
        assert_eq!([count("b", "10.0.0.1"), count("a", "10.0.0.2")], [Ok(()), Ok(())]);
        assert_eq!([count("a", "2001:db8::1"), count("a", "2001:db8::2")], [Ok(()), Ok(())]);
        assert!(count("a", "2001:db8::3").is_err());
        assert_eq!(count("a", "2001:db8:0:1::1"), Ok(()));
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let (registrars, now) = (Registrars::new(1), Instant::now());
        for number in 0..2 * MAX_COUNTED as u32 {
            let peer = IpAddr::from(number.to_be_bytes()).to_string();
            registrars.count_use(&registrar("a", &peer), now).unwrap();
            assert!(registrars.used.lock().unwrap().len() <= MAX_COUNTED);
        }
    }

    #[test]
    fn a_token_is_found_by_its_digest() {
        let registrars = Registrars::new(1);
        assert!(!registrars.has_any());
        registrars.set(&[RegisterToken::unrestricted("a", digest(b"the-token-of-team-a"))]);
        assert!(registrars.has_any());
        assert_eq!(registrars.find(b"the-token-of-team-a").unwrap().name, "a");
        assert!(registrars.find(b"the-token-of-team-b").is_none());
        registrars.set(&[]);
        assert!(registrars.find(b"the-token-of-team-a").is_none());
    }
}
